"""What a server asks and tells the one client of its session, and what the client answers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.models import ClientLine
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream.codec import Envelope

__all__ = ["ClientSide", "Conversation"]

_ASKED: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
    "ping": "",
}
"""What a server may ask of a client, by what the client must have declared for it."""
_TOLD: Final = frozenset({"notifications/message", "notifications/elicitation/complete"})
"""What a server tells its client, besides what the session itself understands."""
_MOST_QUESTIONS: Final = 8
"""Without an answer at the same time: nobody answers more, and each takes memory of ours."""
_MOST_WAITING: Final = 256
"""Notifications that a client has not read yet; the oldest of more are dropped."""
_GONE: Final = "The client cannot answer any more."
_TELL_S: Final = 5.0
"""A client that does not read for so long misses the notification."""
_LAST_WORD_S: Final = 1.0
"""How long the answer of a request waits for what the server said before it."""

_log = get_logger("upstream")


class ClientSide(Protocol):
    """The client as its sessions with servers see it.

    Attributes:
        capabilities: What it declared that it can be asked for: elicitation, sampling, roots.
    """

    capabilities: Mapping[str, Any]

    async def answer(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> Mapping[str, Any]:
        """The client's result.

        Args:
            method: What is asked.
            params: As the server wrote them.
            line: Of the request that the question belongs to; None for none that is known.

        Raises:
            ProxyError: There is none.
        """

    async def hear(self, method: str, params: Mapping[str, Any], line: ClientLine | None) -> None:
        """Tells the client; arguments as of `answer`."""


class Exchange:
    """One request of the client that is under way. Its deadline stands still while the client itself is asked.

    Args:
        line: The way back to the client on the request's own stream.
        deadline: Of the request.
    """

    def __init__(self, line: ClientLine, deadline: asyncio.Timeout) -> None:
        self.line = line
        self.questions: set[asyncio.Task[None]] = set()
        """Those that can belong to no other request: with it they are over."""
        self.is_over = False
        self._deadline = deadline
        self._asking = 0
        self._left_s = 0.0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Stops the deadline while open."""
        clock = asyncio.get_running_loop().time
        if not self._asking:
            self._left_s = (self._deadline.when() or clock()) - clock()
            self._stop_at(None)
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._stop_at(clock() + self._left_s)

    def _stop_at(self, when: float | None) -> None:
        if not self.is_over and not self._deadline.expired():
            self._deadline.reschedule(when)


_own_exchange: ContextVar[Exchange | None] = ContextVar("own_exchange", default=None)
"""The request in whose task a message is read. Over HTTP each answer is read where its request was made, so that what
comes on the same stream certainly belongs to it; over pipes one reader reads for all, and nobody can tell."""


class Conversation:
    """The peer of a session: hands on what its server asks and tells.

    Args:
        server: Configured name, for messages.
        side: The client.
    """

    def __init__(self, server: str, side: ClientSide) -> None:
        self.capabilities = side.capabilities
        self._server = server
        self._side = side
        self._exchanges: list[Exchange] = []
        self._questions: dict[bytes, asyncio.Task[None]] = {}
        self._waiting: deque[tuple[str, Mapping[str, Any], ClientLine | None]] = deque(maxlen=_MOST_WAITING)
        self._pump: asyncio.Task[None] | None = None
        self._is_unanswerable = False

    def __repr__(self) -> str:
        return f"<Conversation with {self._server}, {len(self._questions)} questions>"

    @contextmanager
    def under_way(self, line: ClientLine, deadline: asyncio.Timeout) -> Iterator[None]:
        """While open, what the server says in answer to the present task's request goes to `line`."""
        exchange = Exchange(line, deadline)
        self._exchanges.append(exchange)
        token = _own_exchange.set(exchange)
        try:
            yield
        finally:
            _own_exchange.reset(token)
            self._exchanges.remove(exchange)
            exchange.is_over = True
            for question in tuple(exchange.questions):
                question.cancel()

    def take(self, message: Envelope, reply: Callable[[Mapping[str, Any]], None]) -> bool:
        """Takes what is asked or told the client; see `Peer`."""
        if bytes(message.id):
            return self._take_question(message, reply)
        if message.method == "notifications/cancelled":
            if (question := self._questions.get(_key(_object(message.params).get("requestId")))) is not None:
                question.cancel()
            return True
        if message.method not in _TOLD:
            return False
        exchange, _ = self._exchange()
        self._waiting.append((message.method, _object(message.params), exchange.line if exchange else None))
        if self._pump is None or self._pump.done():
            self._pump = spawn(self._tell_all(), f"upstream-tell-{self._server}")
        return True

    def stop_asking(self) -> None:
        """Refuses questions from now on, and those that are open: nobody can answer them any more."""
        self._is_unanswerable = True
        for question in tuple(self._questions.values()):
            question.cancel()

    async def flush(self) -> None:
        """Returns when the client was told what the server said up to now, or does not read it."""
        if self._pump is not None and not self._pump.done():
            await asyncio.wait({self._pump}, timeout=_LAST_WORD_S)

    async def close(self) -> None:
        """Takes back what the client has not answered."""
        tasks = {*self._questions.values(), *([self._pump] if self._pump is not None else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _exchange(self) -> tuple[Exchange | None, bool]:
        """The request that what is read now belongs to, or most likely does, and whether it can be no other one."""
        own = _own_exchange.get()
        if own in self._exchanges:
            return own, True
        return (self._exchanges[-1] if self._exchanges else None), len(self._exchanges) == 1

    def _take_question(self, message: Envelope, reply: Callable[[Mapping[str, Any]], None]) -> bool:
        needed = _ASKED.get(message.method)
        if needed is None or (needed and needed not in self.capabilities):
            return False
        if self._is_unanswerable:
            reply(_refusal(message.id, INVALID_REQUEST, _GONE))
            return True
        key = _key(_value(message.id))
        if key in self._questions or len(self._questions) >= _MOST_QUESTIONS:
            reply(_refusal(message.id, INVALID_REQUEST, f"{_MOST_QUESTIONS} questions are open, or this one is."))
            return True
        exchange, is_certain = self._exchange()
        # Where nobody can tell which request the question belongs to, it may be any of them.
        waiting = [exchange] if exchange is not None and is_certain else list(self._exchanges)
        question = spawn(self._ask(message, exchange, waiting, reply), f"upstream-ask-{self._server}")
        self._questions[key] = question
        question.add_done_callback(partial(self._settled, key, message.id, reply))
        if exchange is not None and is_certain:
            exchange.questions.add(question)
            question.add_done_callback(exchange.questions.discard)
        return True

    def _settled(
        self, key: bytes, id_: msgspec.Raw, reply: Callable[[Mapping[str, Any]], None], question: "asyncio.Task[None]"
    ) -> None:
        del self._questions[key]
        if question.cancelled() and self._is_unanswerable:
            reply(_refusal(id_, INVALID_REQUEST, _GONE))

    async def _ask(
        self,
        message: Envelope,
        exchange: Exchange | None,
        waiting: Sequence[Exchange],
        reply: Callable[[Mapping[str, Any]], None],
    ) -> None:
        params, line = _object(message.params), exchange.line if exchange is not None else None
        try:
            with ExitStack() as stopped:
                for each in waiting:
                    stopped.enter_context(each.asking())
                result = await self._side.answer(message.method, params, line)
            reply({"jsonrpc": "2.0", "id": message.id, "result": result})
        except ProxyError as error:
            facts = error.data or {}
            code, words = facts.get("client_code", error.jsonrpc_code), facts.get("client_message", str(error))
            reply(_refusal(message.id, code, words))
        except Exception:  # noqa: BLE001  # boundary: top of a background task; the server must not wait for ever
            _log.exception("a question of server %s failed inside the gateway", self._server)
            reply(_refusal(message.id, INTERNAL_ERROR, "The gateway failed."))

    async def _tell_all(self) -> None:
        while self._waiting:
            method, params, line = self._waiting.popleft()
            try:
                async with asyncio.timeout(_TELL_S):
                    await self._side.hear(method, params, line)
            except TimeoutError:
                _log.debug("the client of server %s does not read what it is told", self._server)


def _refusal(id_: msgspec.Raw, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}


def _value(text: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(text) if bytes(text) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _object(text: msgspec.Raw) -> Mapping[str, Any]:
    value = _value(text)
    return value if isinstance(value, dict) else {}


def _key(request_id: Any) -> bytes:
    """The id of a request of the server's in its one spelling."""
    return msgspec.json.encode(request_id)

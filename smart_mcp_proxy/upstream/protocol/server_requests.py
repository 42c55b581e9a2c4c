"""Requests and notifications of a server for the one client of its session."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST

from smart_mcp_proxy.errors import ProxyError, RequestError
from smart_mcp_proxy.models import ClientLine
from smart_mcp_proxy.telemetry import get_logger, redact, spawn
from smart_mcp_proxy.upstream.protocol.codec import Envelope, decode_object

_ASKED: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Requests that a server may make of a client, by what the client must have declared for it. A ping asks after the
connection, which is ours."""
_TOLD: Final = frozenset({"notifications/message", "notifications/elicitation/complete"})
"""Notifications for the client, besides what the session itself understands."""
_MOST_QUESTIONS: Final = 8
"""Without an answer at the same time: nobody answers more, and each takes memory of ours."""
_QUESTION_BYTES: Final = 1 << 20
"""Limit on one question: a picture for the client's model has room in it."""
_MOST_WAITING: Final = 256
"""Notifications that a client has not read yet; the oldest of more are dropped."""
_TOLD_BYTES: Final = 1 << 16
"""Limit on one notification: longer ones are no lines of a log, and are dropped."""
_WAITING_BYTES: Final = 1 << 20
"""Limit on all that a client has not read yet."""
_GONE: Final = "The client cannot answer any more."
_TELL_S: Final = 5.0
"""A client that does not read for so long misses the notification."""
_LAST_WORD_S: Final = 1.0
"""Seconds that the answer of a request waits for what the server said before it."""

ReplySoon = Callable[[Mapping[str, Any]], None]
"""Sends a reply without waiting; dropped where the server does not read."""
Reply = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Sends a reply as soon as the server takes it; raises ProxyError if it never will."""

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


class ClientRequest:
    """A request of the client under way; its deadline stands still while the client is asked.

    Args:
        line: The way back to the client on the request's own stream; None where there is none.
        deadline: Of the request.
    """

    def __init__(self, line: ClientLine | None, deadline: asyncio.Timeout) -> None:
        self.line = line
        self.questions: set[asyncio.Task[None]] = set()
        """Those that can belong to no other request: with it they are over."""
        self.is_over = False
        self.heard_s = 0.0
        """When its progress was reported last, on the event loop's clock; 0 for never."""
        self._deadline = deadline
        self._asking = 0
        self._left_s = 0.0

    @contextmanager
    def pause_deadline(self) -> Iterator[None]:
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

    def renew(self, end_s: float) -> None:
        """Moves the deadline because there is progress, never to an earlier time."""
        self.heard_s = asyncio.get_running_loop().time()
        if self._asking:
            self._left_s = max(self._left_s, end_s - self.heard_s)
        else:
            self._stop_at(max(end_s, self._deadline.when() or end_s))

    def _stop_at(self, when: float | None) -> None:
        if not self.is_over and not self._deadline.expired():
            self._deadline.reschedule(when)


_own_exchange: ContextVar[ClientRequest | None] = ContextVar("own_exchange", default=None)
"""The request in whose task a message is read. Over HTTP each answer is read where its request was made, so that what
comes on the same stream certainly belongs to it; over pipes one reader reads for all, and nobody can tell."""


class Conversation:
    """The one client that a session belongs to: hands on what its server asks and tells.

    A session that many share has none: nobody could tell whom the server means.

    Args:
        server: Configured name, for messages.
        side: The client.
    """

    def __init__(self, server: str, side: ClientSide) -> None:
        self.capabilities = side.capabilities
        self._server = server
        self._side = side
        self._exchanges: list[ClientRequest] = []
        self._questions: dict[bytes, asyncio.Task[None]] = {}
        self._withdrawn: set[bytes] = set()
        """Questions that are about to end and that the server expects no reply to."""
        self._replies: set[asyncio.Task[None]] = set()
        """On their way to a server that may be slow to read them."""
        self._waiting: deque[tuple[str, bytes, ClientLine | None]] = deque()
        self._waiting_bytes = 0
        self._pump: asyncio.Task[None] | None = None
        self._is_unanswerable = False

    def __repr__(self) -> str:
        return f"<Conversation with {self._server}, {len(self._questions)} questions>"

    @contextmanager
    def under_way(self, line: ClientLine | None, deadline: asyncio.Timeout) -> Iterator[ClientRequest]:
        """While open, what the server says in answer to the present task's request goes to `line`."""
        exchange = ClientRequest(line, deadline)
        self._exchanges.append(exchange)
        token = _own_exchange.set(exchange)
        try:
            yield exchange
        finally:
            _own_exchange.reset(token)
            self._exchanges.remove(exchange)
            exchange.is_over = True
            for question in tuple(exchange.questions):
                question.cancel()

    def take(self, message: Envelope, reply_soon: ReplySoon, reply: Reply) -> bool:
        """Takes what the server asks or tells the client; False for what is not for it."""
        if bytes(message.id):
            return self._take_question(message, reply_soon, reply)
        is_taken = message.method in _TOLD or message.method == "notifications/cancelled"
        if is_taken and len(message.params) > _TOLD_BYTES:
            _log.debug("server %s: dropped %s with %d bytes", self._server, message.method, len(message.params))
        elif message.method == "notifications/cancelled":
            self._withdraw(_key(decode_object(message.params).get("requestId")))
        elif is_taken:
            self._queue(message.method, bytes(message.params))
        return is_taken

    def _withdraw(self, key: bytes) -> None:
        if (question := self._questions.get(key)) is not None:
            self._withdrawn.add(key)
            question.cancel()

    def _queue(self, method: str, params: bytes) -> None:
        """Has the client told of this once it was told of what came before."""
        exchange, _ = self._exchange()
        self._waiting.append((method, params, exchange.line if exchange is not None else None))
        self._waiting_bytes += len(params)
        while len(self._waiting) > _MOST_WAITING or self._waiting_bytes > _WAITING_BYTES:
            self._next_waiting()
        if self._pump is None or self._pump.done():
            self._pump = spawn(self._tell_all(), f"upstream-tell-{self._server}")

    def _next_waiting(self) -> tuple[str, bytes, ClientLine | None]:
        method, params, line = self._waiting.popleft()
        self._waiting_bytes -= len(params)
        return method, params, line

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
        """Takes back what the client has not answered; the session is over, and the server gets no reply."""
        self._withdrawn.update(self._questions)
        tasks = {*self._questions.values(), *self._replies, *([self._pump] if self._pump is not None else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _exchange(self) -> tuple[ClientRequest | None, bool]:
        """The client's request that the present message belongs to, and whether that is certain."""
        own = _own_exchange.get()
        if own in self._exchanges:
            return own, True
        return (self._exchanges[-1] if self._exchanges else None), len(self._exchanges) == 1

    def _take_question(self, message: Envelope, reply_soon: ReplySoon, reply: Reply) -> bool:
        if _ASKED.get(message.method) not in self.capabilities:
            return False
        # Without what else is on its line, which may be long and would be kept for as long as the client thinks.
        message = Envelope(id=message.id.copy(), method=message.method, params=message.params.copy())
        key = _key(_value(message.id))
        if (why_not := self._why_not(key, message)) is not None:
            reply_soon(_refusal(message.id, INVALID_REQUEST, why_not))
            return True
        exchange, is_certain = self._exchange()
        # Where nobody can tell which request the question belongs to, it may be any of them.
        waiting = [exchange] if exchange is not None and is_certain else list(self._exchanges)
        question = spawn(self._ask(message, exchange, waiting, reply), f"upstream-ask-{self._server}")
        self._questions[key] = question
        question.add_done_callback(partial(self._finish_question, key, message.id, reply_soon))
        if exchange is not None and is_certain:
            exchange.questions.add(question)
            question.add_done_callback(exchange.questions.discard)
        return True

    def _why_not(self, key: bytes, message: Envelope) -> str | None:
        """Why a question is refused at once; None if it is asked."""
        if self._is_unanswerable:
            return _GONE
        if key in self._questions or len(self._questions) + len(self._replies) >= _MOST_QUESTIONS:
            return f"{_MOST_QUESTIONS} questions are open, or this one is."
        if (size_bytes := len(message.id) + len(message.params)) > _QUESTION_BYTES:
            return f"The question has {size_bytes:,} bytes, of which {_QUESTION_BYTES:,} are passed on."
        return None

    def _finish_question(
        self, key: bytes, id_: msgspec.Raw, reply_soon: ReplySoon, question: "asyncio.Task[None]"
    ) -> None:
        del self._questions[key]
        is_withdrawn = key in self._withdrawn
        self._withdrawn.discard(key)
        if question.cancelled() and not is_withdrawn:
            reply_soon(_refusal(id_, INVALID_REQUEST, _GONE))

    async def _ask(
        self, message: Envelope, exchange: ClientRequest | None, waiting: Sequence[ClientRequest], reply: Reply
    ) -> None:
        try:
            with ExitStack() as stopped:
                for each in waiting:
                    stopped.enter_context(each.pause_deadline())
                result = msgspec.json.encode(await self._ask_client(message, exchange))
            answer = {"jsonrpc": "2.0", "id": message.id, "result": msgspec.Raw(result)}
        except ProxyError as error:
            facts = error.data or {}
            code, words = facts.get("client_code", error.jsonrpc_code), facts.get("client_message", str(error))
            answer = _refusal(message.id, code, words)
        except Exception:  # noqa: BLE001  # boundary: top of a background task; the server must not wait for ever
            _log.exception("a question of server %s failed inside the gateway", self._server)
            answer = _refusal(message.id, INTERNAL_ERROR, "The gateway failed.")
        # In a task of its own: the request's result may overtake it, and with the request its questions are over.
        sending = spawn(self._send(reply, answer), f"upstream-reply-{self._server}")
        self._replies.add(sending)
        sending.add_done_callback(self._replies.discard)

    async def _ask_client(self, message: Envelope, exchange: ClientRequest | None) -> Mapping[str, Any]:
        """Ask the client, on another request's stream if that of `exchange` has ended."""
        params = decode_object(message.params)
        while True:
            try:
                return await self._side.answer(message.method, params, exchange.line if exchange is not None else None)
            except RequestError as error:
                if error.error_code != "input_unavailable" or exchange is None or not exchange.is_over:
                    raise
            exchange, _ = self._exchange()

    async def _send(self, reply: Reply, answer: Mapping[str, Any]) -> None:
        try:
            await reply(answer)
        except ProxyError as exc:
            _log.debug("server %s did not take the answer to its question: %r", self._server, exc)

    async def _tell_all(self) -> None:
        while self._waiting:
            method, text, line = self._next_waiting()
            if not (params := await asyncio.to_thread(_redact_params, text)):
                continue
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


def _redact_params(params: bytes) -> Mapping[str, Any]:
    """Params with secrets masked; empty where nothing readable is left.

    They are written anew first: a server may spell a secret with escapes that nobody looks for.
    """
    return decode_object(redact(msgspec.json.encode(decode_object(params)).decode()).encode())


def _key(request_id: Any) -> bytes:
    """The id of a request of the server's in its one spelling."""
    return msgspec.json.encode(request_id)

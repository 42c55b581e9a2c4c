"""The endpoint on stdin and stdout: usual calls answered here, the rest by the SDK."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

import anyio.lowlevel
import msgspec
from anyio.abc import AsyncResource
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from smart_mcp_proxy.fastmcp_compat.eras import serve_streams
from smart_mcp_proxy.fastmcp_compat.message_guard import refuse, refuse_overlong, refuse_used_id
from smart_mcp_proxy.fastmcp_compat.methods import CheckedClient
from smart_mcp_proxy.fastmcp_compat.paths import bind_pipe, get_request_path
from smart_mcp_proxy.fastmcp_compat.server import AgentServer, dump_message, extract_request, parse_message, response_id
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.sessions.agent import DRAIN_S
from smart_mcp_proxy.greeting.answers import BacklogLine
from smart_mcp_proxy.greeting.eras import StdioEras
from smart_mcp_proxy.greeting.greeter import Greeter, Handed, HandedGreeter
from smart_mcp_proxy.io.lines import LineSplitter, OfferingReader, OverlongLine
from smart_mcp_proxy.models import LOCAL, Era
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.fast_path.messages import CallsInFlight, WireCall, WireCancel, error_reply, parse_wire
from smart_mcp_proxy.web.stdio.stdio_pipes import (
    CHUNK_BYTES,
    MOST_UNSENT_BYTES,
    Writer,
    claim_stdio,
    open_stdio_reader,
    open_stdio_writer,
)

REPEATED_S = 10.0
"""Seconds for the SDK to answer what was answered already; the client's next message waits for it."""
_GROUPS = ("prompts", "resources")

log = get_logger("stdio")
FLUSH_S = 1.0
"""Seconds for answers to leave once their calls have ended."""


class Greeted:
    """The client's first messages, and what became of them.

    Args:
        handed: From the process that answered until now; None where there was none.
    """

    def __init__(self, handed: Handed | None) -> None:
        self._handed = handed or Handed([], b"", b"")
        self._said: dict[int | str, BacklogLine] = {}
        """Messages that the SDK is answering once more, by their ids; usually one."""
        self._repeated = anyio.Event()

    @property
    def unsent(self) -> bytes:
        """Answers that the client has not been sent yet."""
        return self._handed.unsent

    async def lines(self, splitter: LineSplitter) -> AsyncIterator[bytes | OverlongLine]:
        """The lines that came before, one after the other; an unfinished one stays in `splitter`.

        What was answered already is repeated by itself: a client may give its next request the same id.
        """
        for kept in self._handed.kept:
            for line in splitter.feed(kept.line + b"\n"):
                if kept.said is not None and kept.request is not None:
                    self._said[coerce_request_id(kept.request.id)] = kept
                    self._repeated = anyio.Event()
                yield line
                if kept.said is not None:
                    with anyio.move_on_after(REPEATED_S):
                        await self._repeated.wait()
        for line in splitter.feed(self._handed.rest):
            yield line

    def take_back(self, request_id: int | str | None, answer: bytes) -> list[bytes] | None:
        """Messages for the client in place of an answer that it has; None if it has not.

        Args:
            request_id: Of the request that the SDK has answered.
            answer: The whole message.
        """
        kept = None if request_id is None else self._said.pop(coerce_request_id(request_id), None)
        if kept is None or kept.request is None or kept.said is None:
            return None
        self._repeated.set()
        return list(_corrections(kept.request.method, kept.said, answer)) if kept.said != answer else []


def _corrections(method: str, said: bytes, answer: bytes) -> Iterator[bytes]:
    """Notifications of changes since the last start, as far as the protocol has them."""
    if not said:  # a session that an earlier gateway had
        yield from () if method != "initialize" else map(_encode_list_changed, ("tools", *_GROUPS))
        return
    log.debug("the answer to %s has changed since the last start", method)
    before, now = (msgspec.json.decode(each).get("result") for each in (said, answer))
    if now is None:
        log.warning("%s was answered as at the last start, and is an error now: %s", method, answer.decode())
    elif method == "tools/list" and "resultType" not in now:  # the modern era tells only those that listen
        yield _encode_list_changed("tools")
    elif method == "initialize":
        yield from (
            _encode_list_changed(group)
            for group in _GROUPS
            if now["capabilities"].get(group) != before["capabilities"].get(group)
        )


def _encode_list_changed(group: str) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": f"notifications/{group}/list_changed"})


async def serve_stdio(gateway: Gateway, stop: asyncio.Event, greeter: Greeter | HandedGreeter | None = None) -> None:
    """Serves the client on stdin and stdout until stdin ends, `stop` is set or stdout breaks.

    In the first two cases the calls under way are answered, and later ones are told that it is too late.

    Args:
        gateway: Answers.
        stop: Set when it is told to end.
        greeter: Has answered until now.
    """
    # First: nobody else may have the client's pipes from here on.
    greeted = Greeted(greeter.hand_over() if greeter is not None else None)
    with claim_stdio() as (source, sink):
        reader = await open_stdio_reader(source)
        writer = await open_stdio_writer(sink, gateway.lists.admission)
        if greeted.unsent:
            writer.write(greeted.unsent)
        try:
            await _Client(gateway, reader, writer, stop, greeted).serve(gateway.agent_server())
        finally:
            with anyio.move_on_after(FLUSH_S):
                await writer.close()


class Leaving(NamedTuple):
    """End of a gateway that many share.

    Attributes:
        stop: Set when it ends.
        is_told: Whether somebody has told it to.
    """

    stop: asyncio.Event
    is_told: Callable[[], bool]


async def serve_joined(
    gateway: Gateway, server: AgentServer, reader: OfferingReader, writer: Writer, leaving: Leaving, eras: StdioEras
) -> None:
    """Serve a client among many; at the end its door hears what was read, for the rest to go elsewhere.

    Args:
        gateway: Answers.
        server: Has the SDK answer.
        reader: The client's messages.
        writer: Ours.
        leaving: The gateway's end.
        eras: That this client is offered.
    """
    await _Client(gateway, reader, writer, leaving.stop, Greeted(None), (leaving, eras)).serve(server)


class _Client(AsyncResource):
    """The client at the other end of the pipes; for the SDK both of its message streams, see `serve`.

    Args:
        gateway: Answers.
        reader: Its messages, one a line.
        writer: Ours.
        stop: Set when it is told to end.
        greeted: What it said before.
        joined: Of one of many that came through a door; None for the one client of this process.
    """

    def __init__(
        self,
        gateway: Gateway,
        reader: OfferingReader,
        writer: Writer,
        stop: asyncio.Event,
        greeted: Greeted,
        joined: tuple[Leaving, StdioEras] | None = None,
    ) -> None:
        self._checked: dict[None, CheckedClient] = {}
        self._agent = gateway.agent
        self._leaving: Leaving | None
        self._leaving, self._eras = joined or (None, gateway.stdio_eras)
        self._taken = 0
        """Lines that were read and begun."""
        self._clients = gateway.requests.clients
        self._calls: CallsInFlight | None = None
        """Of the client, once the SDK has let it call a tool."""
        self._reader = reader
        self._writer = writer
        self._limit_bytes = gateway.settings.max_message_bytes
        self._lines = LineSplitter(self._limit_bytes)
        self._stop = stop
        self._greeted = greeted
        self._is_gone = False
        self._listening = anyio.CancelScope()
        self._is_listening = True
        self._in_use: set[int | str] = set()
        """Ids of all requests that have not been answered; the SDK takes 7 and "7" for one."""
        self._unanswered: set[int | str] = set()
        """Requests whose answers have not left yet and will, those that the SDK was given included."""
        self._all_answered = asyncio.Event()
        self._all_answered.set()

    async def serve(self, server: AgentServer) -> None:
        """Serve until either pipe ends or a stop is requested.

        Args:
            server: Has the SDK answer what is not answered here.
        """
        heeding = spawn(self._heed(), "stop signal")
        self._messages = self._read()
        try:
            with bind_pipe(self._checked), anyio.CancelScope() as scope:
                self._gone = scope.cancel
                await serve_streams(server, self, self, self._eras)
        finally:
            heeding.cancel()
            # Many clients come and go on one gateway, and circles stay, see web/collector.py.
            self._reader.stop_offering()
            await self._messages.aclose()
            self._checked.clear()
            self._calls = None

    async def _heed(self) -> None:
        """Stop reading after a signal, once calls under way ended and later ones were refused.

        Through a door at once: what is not read the client's next gateway is asked.
        """
        await self._stop.wait()
        if self._leaving is None:
            await self._agent.drain()
        self._reader.stop_offering()
        self._is_listening = False
        self._listening.cancel()

    async def _finish(self) -> None:
        """Lets the answers to what was read leave."""
        if (client := self._checked.get(None)) is not None:
            self._clients.stop_asking(client.session)
        if self._leaving is not None and self._stop.is_set():
            said = {"taken": self._taken, "stopped": self._leaving.is_told()}
            await self._send(b"\0" + msgspec.json.encode(said))
            await self._agent.drain()  # of all clients; a door has the next gateway asked what this one refuses
        # At the end of the input nothing new can come, so nothing is refused; after a signal all calls have ended.
        with anyio.move_on_after(FLUSH_S if self._stop.is_set() and self._leaving is None else DRAIN_S):
            await self._all_answered.wait()
            await self._writer.flush()
        if self._leaving is None:
            await self._agent.drain(0)
        elif self._calls is not None:
            self._calls.cancel_all()
        with anyio.move_on_after(FLUSH_S):
            await self._all_answered.wait()

    def __aiter__(self) -> "_Client":
        return self

    async def __anext__(self) -> Any:
        """The client's next message that is not answered here."""
        if self._is_listening:
            with anyio.CancelScope() as self._listening:
                async for message in self._messages:
                    return message
        # Before the SDK hears of the end: it gives up what it has not answered then.
        await self._finish()
        raise StopAsyncIteration

    async def _read(self) -> AsyncGenerator[Any, None]:
        async for line in self._greeted.lines(self._lines):
            if (message := await self._receive(line)) is not None:
                yield message
        # What arrives is offered by the event loop, which knows nothing of whose it is.
        take: Callable[[bytes], bool] = partial(copy_context().run, self._take_at_once)  # type: ignore[call-arg]  # bound
        self._reader.take = take
        while chunk := await self._reader.read(CHUNK_BYTES):
            for line in self._lines.feed(chunk):
                await self._hold_back()
                message = await self._receive(line)
                self._taken += 1
                if message is not None:
                    yield message
                    await anyio.lowlevel.checkpoint()  # the SDK begins with it before the next one is read

    async def send(self, message: SessionMessage) -> None:
        """Sends a message of the SDK."""
        request_id = response_id(message)
        line = dump_message(message)
        told = self._greeted.take_back(request_id, line)
        for each in [line] if told is None else told:
            # Not waited for: what the SDK has not handed over yet would wait uncounted.
            await self._send(each, answers=request_id if told is None else None, waits=False)
        if request_id is not None:
            self._mark_answered(coerce_request_id(request_id))

    async def aclose(self) -> None:
        """Ends with `serve`, as a stream."""

    async def _hold_back(self) -> None:
        """Return when the client's next line may be begun."""
        if self._is_leaving():
            await anyio.sleep_forever()  # until `_heed` ends it, which has yet to hear of the stop
        if self._writer.is_behind:
            await self._send()

    async def _receive(self, line: bytes | OverlongLine) -> Any:
        """The message, if the SDK is to answer it."""
        if isinstance(line, OverlongLine):
            log.warning("a message of %d bytes was refused: it is over the limit", line.size_bytes)
            await self._send(refuse_overlong(line.head, line.tail, line.size_bytes, self._limit_bytes).reply)
            return None
        if not line.strip():
            return None
        match parse_wire(line):
            case WireCall() as call if self._began(call):
                pass
            case WireCancel() as cancel if self._calls is not None and self._calls.cancel(cancel.params.requestId):
                self._mark_answered(coerce_request_id(cancel.params.requestId))  # the call may not even have begun
            case wire:
                if isinstance(wire, WireCancel):
                    self._mark_answered(coerce_request_id(wire.params.requestId))  # nobody waits for it any more
                return await self._hand_on(line)
        return None

    def _is_leaving(self) -> bool:
        """Whether the client's next gateway is asked from now on."""
        return self._leaving is not None and self._stop.is_set()

    def _take_at_once(self, chunk: bytes) -> bool:
        """Begins a call where nothing but the call has arrived; everything else waits to be read."""
        line = None if self._writer.is_behind or self._is_leaving() else self._lines.whole(chunk)
        call = parse_wire(line) if line is not None else None
        is_taken = isinstance(call, WireCall) and self._began(call)
        self._taken += is_taken
        return is_taken

    def _began(self, call: WireCall) -> bool:
        """Whether the call is answered here, in a task of its own."""
        if (way := self._way(call)) is None:
            return False
        self._mark_unanswered(call.key)
        calls, era = way
        calls.add(call, spawn(self._answer(call, calls, era), "wire call"))
        return True

    async def _hand_on(self, line: bytes) -> Any:
        """The message for the SDK, unless it is one that nobody should be given."""
        refusal = refuse(line)
        message = _parse_line(line) if refusal is None else None
        request = extract_request(message) if message is not None else None
        key = coerce_request_id(request.id) if request is not None else None
        if request is not None and key in self._in_use:
            refusal = refuse_used_id(request.id)
        if refusal is not None:
            await self._send(refusal.reply)
            return None
        if request is not None and key is not None:
            self._mark_unanswered(key, has_end=request.method != "subscriptions/listen")
        return message

    def _mark_unanswered(self, key: int | str, *, has_end: bool = True) -> None:
        self._in_use.add(key)
        if has_end:
            self._unanswered.add(key)
            self._all_answered.clear()

    def _mark_answered(self, key: int | str) -> None:
        self._in_use.discard(key)
        self._unanswered.discard(key)
        if not self._unanswered:
            self._all_answered.set()

    def _way(self, call: WireCall) -> tuple[CallsInFlight, Era] | None:
        """Decide how this call is answered; None for the SDK, as all are before the greeting."""
        client = self._checked.get(None)
        if client is None or call.key in self._in_use:
            return None
        is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not (call.meta.is_modern if is_modern else call.meta.version is None):
            return None
        if self._calls is None:
            tools = self._agent.choose_tools(client.session, get_request_path(), LOCAL)
            is_askable = client.is_askable and not is_modern  # a modern one says it anew with each call
            extensions = client.extensions
            self._calls = CallsInFlight(self._agent, tools, is_askable=is_askable, extensions=extensions)
        return (self._calls, "modern" if is_modern else "handshake") if self._calls.takes(call) else None

    async def _answer(self, call: WireCall, calls: CallsInFlight, era: Era) -> None:
        try:
            try:
                reply = await calls.answer(call, era, LOCAL, self._send) or ()
            except MCPError as failure:
                reply = (error_reply(call, failure),)
            await self._send(*reply, answers=call.id)  # nothing, if the client cancelled the call
        finally:
            self._mark_answered(call.key)

    async def _send(self, *pieces: bytes, answers: int | str | None = None, waits: bool = True) -> None:
        """Sends one message, if any, and waits until the client has read enough.

        Args:
            pieces: The message.
            answers: The id of the request that it answers; None if it answers none.
            waits: Whether it waits also where the client has fallen behind.
        """
        if self._is_gone:
            return
        if pieces and not self._writer.has_room(size_bytes := sum(map(len, pieces))):
            pieces = () if answers is None else (_build_unread_error(answers, size_bytes),)
        try:
            if pieces:
                self._writer.write(b"".join((*pieces, b"\n")))
                del pieces  # the client may take its time
            if not self._writer.is_flowing and (waits or not self._writer.is_behind):
                await self._writer.drain()
        except OSError as exc:
            if not self._is_gone:  # one of many answers under way is the first to notice
                log.info("the client is gone: %s", exc.strerror or exc)
            self._is_gone = True
            self._gone()


def _build_unread_error(request_id: int | str, size_bytes: int) -> bytes:
    """Error for a client that did not read in time, in place of an answer too large to keep."""
    why = (
        f"The answer, {size_bytes:,} bytes, was left out: the client had left {MOST_UNSENT_BYTES:,} bytes of others "
        "unread. The call was carried out."
    )
    error = {"code": INTERNAL_ERROR, "message": why, "data": {"delivery": "executed"}}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def _parse_line(line: bytes) -> Any:
    """The message, or the error that the SDK answers with."""
    try:
        return parse_message(line)
    except ValidationError as exc:
        return exc

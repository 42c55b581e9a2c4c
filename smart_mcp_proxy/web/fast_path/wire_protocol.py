"""Fast path at the protocol: the usual call is answered before uvicorn parses it.

Everything else becomes the request it would have been: a message is held back only until it is whole.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, cast

from starlette.types import Scope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvicorn.server import ServerState

from smart_mcp_proxy.fastmcp_compat.paths import serve_at
from smart_mcp_proxy.gateway.admin.doors import AgentCaller, OperatorDoors
from smart_mcp_proxy.io.busy_poll import get_busy_poll
from smart_mcp_proxy.io.header_cache import HEAD_END, KnownHeads
from smart_mcp_proxy.io.server_processes import Address
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.auth.auth import CALLER
from smart_mcp_proxy.web.common.messages import BODY_LIMIT_BYTES
from smart_mcp_proxy.web.fast_path.messages import Pieces, WireCancel, WireInitialized
from smart_mcp_proxy.web.fast_path.wire_http import Fields, Headers, TakenCall, WireHttp, parse_wire_headers
from smart_mcp_proxy.web.server.protocol import BoundedProtocol

TICK_S: Final = 5.0
_QUIET_TICKS: Final = 3
"""After 10 to 15 s in which nothing was said a line without meaning is sent: what stands in between closes silent
connections, and clients that asked for progress take long silence for the end. The SDK's own streams wait 15 s."""

_FIELDS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"transfer-encoding", b"chunked"),
)
_PING: Final = b": ping\r\n\r\n"
_LAST_CHUNK: Final = b"0\r\n\r\n"
_JOINED_BYTES: Final = 16_384
_HEADS: Final = 256
"""Remembered: of each client one for every tool that it calls."""
_JSON_FIELDS: Final = ((b"content-type", b"application/json"),)
_PLAIN_PLACE: Final = re.compile(rb"[A-Za-z0-9._~/-]+")
"""Without escapes, a query, or anything else that has to be understood first."""
_VERSIONS: Final = frozenset({"1.0", "1.1"})

log = get_logger("http")


class Pings:
    """Timer shared by all replies to keep alive: one for each would cost more than its call.

    Attributes:
        discard: Keeps a stream alive no longer.
    """

    def __init__(self) -> None:
        self._streams: set[ReplyStream] = set()
        self.discard = self._streams.discard
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: "ReplyStream") -> None:
        """Keeps it alive from now on."""
        self._streams.add(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for stream in tuple(self._streams):
            stream.tick()
        if self._streams:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)


class ReplyStream:
    """The reply to a client that asked for progress: the form is decided by what has to be sent first.

    Args:
        transport: Of the connection.
        flow: Says whether the client takes what it is sent.
        state: Has the fields of every answer.
        pings: Keep it alive until it is closed.

    Attributes:
        is_open: Whether the client has been told that a stream comes; until then the reply may still be one body.
    """

    __slots__ = ("_flow", "_pings", "_quiet_ticks", "_state", "_transport", "is_open")

    def __init__(self, transport: asyncio.Transport, flow: FlowControl, state: ServerState, pings: Pings) -> None:
        self.is_open = False
        self._transport = transport
        self._flow = flow
        self._state = state
        self._pings = pings
        self._quiet_ticks = 0
        pings.add(self)

    async def tell(self, message: bytes) -> None:
        """Sends one message as an event, and returns when the client has taken enough of what was sent."""
        if not self._transport.is_closing():
            self._quiet_ticks = 0
            self._write(_event(message))
            if self._flow.write_paused:
                await self._flow.drain()

    def end(self, *pieces: bytes) -> None:
        """Sends the last message, in pieces, and nothing more."""
        self._transport.writelines((*_event(*pieces), _LAST_CHUNK))

    def close(self) -> None:
        """Nothing more is sent."""
        self._pings.discard(self)

    def tick(self) -> None:
        """Time goes by."""
        self._quiet_ticks += 1
        if self._quiet_ticks == _QUIET_TICKS:
            self._quiet_ticks = 0
            if not self._flow.write_paused and not self._transport.is_closing():  # else there is enough to read
                self._write((b"%x\r\n" % len(_PING), _PING, b"\r\n"))

    def _write(self, parts: tuple[bytes, ...]) -> None:
        head = b"" if self.is_open else self._head()
        self.is_open = True
        self._transport.write(b"".join((head, *parts)))

    def _head(self) -> bytes:
        fields = b"".join([b"%b: %b\r\n" % field for field in (*self._state.default_headers, *_FIELDS)])
        return b"%b%b\r\n" % (STATUS_LINE[200], fields)


def _event(*pieces: bytes) -> tuple[bytes, ...]:
    """Encode a message, which has no line ends, as an HTTP chunk with a single event."""
    start, end = b"event: message\r\ndata: ", b"\r\n\r\n"
    return (b"%x\r\n%b" % (len(start) + sum(map(len, pieces)) + len(end), start), *pieces, end, b"\r\n")


class CallHead(NamedTuple):
    """The head of a request that may be a call.

    Attributes:
        fields: As they were read, names in lower case.
        headers: Those of them that the fast path looks at.
        place: Below the endpoint, see `get_request_path`.
        is_kept: Whether the connection stays open for another request.
    """

    fields: Fields
    headers: Headers
    place: str
    is_kept: bool


class FastPath:
    """Address of the fast path, and what decides there.

    Args:
        wire: Decides and answers.
        path: Of the endpoint.
        address: The endpoint's address as the client wrote it, from its header fields.
        doors: Refuse servers where no token is asked for; None where one is.

    Attributes:
        doors: The same.
        heads: Of calls that came in before, on whatever connection.
        pings: Of replies to clients that asked for progress.
    """

    def __init__(
        self, wire: WireHttp, path: str, address: Callable[[str, Fields], str], doors: OperatorDoors | None = None
    ) -> None:
        self.wire = wire
        self.doors = doors
        self.path = path.encode()
        self.prefix = self.path + b"/"
        self.address = address
        self.heads: KnownHeads[CallHead] = KnownHeads(_HEADS)
        self.pings = Pings()
        self._openings: dict[int, bytes] = {}
        self._defaults: Sequence[tuple[bytes, bytes]] = ()

    def build_response_head(self, status: int, defaults: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The first lines of an answer, up to its length.

        Args:
            status: Of HTTP.
            defaults: Fields of every answer; the server makes them anew each second.
        """
        if defaults is not self._defaults:
            self._defaults = defaults
            self._openings = {}
        opening = self._openings.get(status)
        if opening is None:
            fields = b"".join([b"%b: %b\r\n" % field for field in (*defaults, *_JSON_FIELDS)])
            opening = self._openings[status] = b"%b%bcontent-length: " % (STATUS_LINE[status], fields)
        return opening


class _Exchange:
    """A call under way, where uvicorn expects its own noun: with all that uvicorn asks of it and tells it.

    Args:
        leave: To be called if the client closes the connection before it is answered.
        is_kept: Whether the connection stays open after it.

    Attributes:
        stream: The reply, where the client asked for progress.
    """

    message_event = asyncio.Event()
    """Event of a body that is whole: nobody waits for it."""
    scope: ClassVar[Scope] = {"type": "http", "method": "POST", "headers": ()}
    """A call: its answer has an end of its own."""

    __slots__ = ("disconnected", "keep_alive", "leave", "response_complete", "stream")

    def __init__(self, leave: Callable[[], None], *, is_kept: bool) -> None:
        self.leave = leave
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = is_kept
        self.stream: ReplyStream | None = None


class WireProtocol(BoundedProtocol):
    """Client connection that answers tool calls on the fast path where it can.

    Args:
        fast_path: Where calls come in.
    """

    def __init__(self, *args: Any, fast_path: FastPath, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fast_path = fast_path
        self._poll = get_busy_poll(self.loop)
        self._side = self._poll.side("http clients")
        self._held: bytearray | None = None
        """The body so far of a message that may be a call; None where uvicorn has it already."""
        self._exchange: _Exchange | None = None
        self._read_call: tuple[bytes, CallHead] | None = None
        """Body and head of a call that the parser has just read."""
        self._is_judged = False
        """Whether the message that the parser reads was found to be for uvicorn."""
        self._first = b""
        """A head that came without its body: many clients send them in two packets."""
        self._is_first_unread = False
        """Whether the parser has not seen it, because such a head was read before."""
        self._caller: AgentCaller | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client is there."""
        super().connection_made(transport)
        if self._fast_path.doors is not None:
            self._caller = AgentCaller(
                self._fast_path.doors, *cast(tuple[Address, Address], (self.client, self.server))
            )
            self.app_state = {**self.app_state, CALLER: self._caller}

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._poll.note_arrival()
        heads, first = self._fast_path.heads, self._first
        is_next = bool(first) or self._begins_request()
        if is_next and not first and data.endswith(HEAD_END):
            self._take_first(data)
            return
        whole, unread = (first + data, self._is_first_unread) if first else (data, True)
        self._first, self._is_first_unread = b"", False
        known = heads.find(whole) if is_next and unread else None
        if known is not None and self._is_answered_unread(*known):
            return
        self._is_judged = known is not None
        super().data_received(whole if unread else data)
        call, self._read_call = self._read_call, None
        if is_next and call is not None:
            heads.learn(whole, *call)

    def _begins_request(self) -> bool:
        """Whether what comes next is the beginning of a request, and none before it is under way."""
        is_idle = self.cycle is None or self.cycle.response_complete
        return is_idle and self._is_between_requests and not self._first

    def _take_first(self, head: bytes) -> None:
        """Waits for the body of a head that was read before, and has the parser read any other one."""
        self._first = head
        self._is_first_unread = self._fast_path.heads.awaits_body(head)
        if self._is_first_unread:
            if self._limit is None:
                self._start_limit()
            return
        self._is_judged = False
        super().data_received(head)
        if self._is_between_requests:  # it was a whole message
            self._first, self._read_call = b"", None

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection, if it has been idle for so long."""
        if self._is_first_unread:
            self.timeout_keep_alive_task = None  # the answer's end starts it anew
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        exchange = self._exchange
        if exchange is not None and not exchange.response_complete:
            exchange.disconnected = True
            exchange.leave()

    # --- called by the parser

    def on_headers_complete(self) -> None:
        """The head is whole."""
        # A request that was sent together with the one before begins after that one's answer has set the timer.
        self._unset_keepalive_if_required()
        if not self._may_be_call():
            super().on_headers_complete()
            return
        self._held = bytearray()
        self.headers = []  # see BoundedProtocol

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._held is not None:
            self._held += body
            self._wordless_bytes = 0
            if len(self._held) > BODY_LIMIT_BYTES:
                self._hand_on()
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        held = self._held
        if held is not None:
            body, head = bytes(held), self._call_head()
            taken = self._try_take(head, body) if head is not None else None
            if head is None or taken is None:
                self._hand_on()
            else:
                self._held = None
                self._is_between_requests = True
                self._wordless_bytes = 0
                self._read_call = (body, head)
                self._start(taken, head)
                return
        super().on_message_complete()

    def shutdown(self) -> None:
        """The server stops: what is on its way is still answered."""
        if self._is_first_unread:
            first, self._first, self._is_first_unread = self._first, b"", False
            super().data_received(first)
        if self._held is not None:
            self._hand_on()
        super().shutdown()

    def _is_answered_unread(self, head: CallHead, body: bytes) -> bool:
        """Whether a message whose head was read before is a call, and answered here; the parser never sees it."""
        taken = None if self.transport.is_closing() else self._try_take(head, body)
        if taken is None:
            return False
        self._wordless_bytes = 0
        self._end_limit()
        self._start(taken, head)
        return True

    def _try_take(self, head: CallHead, body: bytes) -> TakenCall | WireCancel | WireInitialized | None:
        try:
            may_call = self._caller is None or head.headers.authorization is not None or self._caller.is_known()
            return self._fast_path.wire.take(head.headers, body, head.place, may_call=may_call)
        except Exception:  # boundary: a callback, whose caller would take it for a request that is not valid
            log.exception("a call could not be judged on the fast path")
            return None

    def _call_head(self) -> CallHead | None:
        """Facts read from a message's head; None if only the SDK can judge it."""
        fields = cast(Fields, self.scope["headers"])
        headers = parse_wire_headers(fields)
        if headers is None:
            return None
        is_kept = self.parser.get_http_version() == "1.1" and self.parser.should_keep_alive()
        return CallHead(fields, headers, self.url.removeprefix(self._fast_path.path)[1:].decode(), is_kept)

    def _may_be_call(self) -> bool:
        parser, fast_path = self.parser, self._fast_path
        return (
            not self._is_judged
            and (self.url == fast_path.path or _is_plain_place(self.url, fast_path.prefix))
            and parser.get_method() == b"POST"
            and parser.get_http_version() in _VERSIONS
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
            and not self.transport.is_closing()
        )

    def _hand_on(self) -> None:
        """Makes a request of what was held back, as if nothing had been."""
        held, self._held = self._held or b"", None
        self.expect_100_continue = False  # it was when the head was whole; a field after the body says nothing
        super().on_headers_complete()
        if held:
            super().on_body(bytes(held))

    def _is_unanswered_post(self) -> bool:
        """Whether a message is under way, and nothing of its answer has been sent."""
        cycle: object = self.cycle
        if not isinstance(cycle, _Exchange):
            return super()._is_unanswered_post()
        return cycle.stream is None or not cycle.stream.is_open

    # --- answering

    def _start(self, taken: TakenCall | WireCancel | WireInitialized, head: CallHead) -> None:
        leave = taken.leave if isinstance(taken, TakenCall) else _nobody_waits
        exchange = self._exchange = _Exchange(leave, is_kept=head.is_kept)
        self.cycle = cast(RequestResponseCycle, exchange)
        if not isinstance(taken, TakenCall):  # it was heeded
            self._send(exchange, 202, ())
            return
        taken.begin()
        if taken.call.token is not None:
            exchange.stream = ReplyStream(self.transport, self.flow, self.server_state, self._fast_path.pings)
        task = spawn(self._answer(taken, exchange, head), "wire call")
        task.add_done_callback(partial(self._end, taken, exchange))
        self.tasks.add(task)

    def _end(self, taken: TakenCall, exchange: _Exchange, task: "asyncio.Task[None]") -> None:
        taken.end()
        if exchange.stream is not None and not exchange.response_complete:
            exchange.stream.close()
        self.tasks.discard(task)

    async def _answer(self, taken: TakenCall, exchange: _Exchange, head: CallHead) -> None:
        try:
            # Said here: the event loop may call in the context of an earlier request, which came in elsewhere.
            serve_at(head.place, partial(self._fast_path.address, self.scheme or "http", head.fields))
            status, reply = await taken.answer(exchange.stream.tell if exchange.stream is not None else None)
            if self.flow.write_paused:
                await self.flow.drain()
        except BaseException:
            self.transport.close()  # the client must not wait for what will not come
            raise
        self._send(exchange, status, reply)

    def _send(self, exchange: _Exchange, status: int, body: Pieces) -> None:
        if (stream := exchange.stream) is not None:
            stream.close()
        if exchange.disconnected or self.transport.is_closing():
            return
        if stream is not None and stream.is_open:
            stream.end(*body)
        else:
            self._send_body(status, body, is_kept=exchange.keep_alive)
        self._poll.begin(self.loop, self._side)
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.rest()

    def _send_body(self, status: int, body: Pieces, *, is_kept: bool) -> None:
        opening = self._fast_path.build_response_head(status, self.server_state.default_headers)
        ending = b"" if is_kept else b"connection: close\r\n"
        size_bytes = sum(map(len, body))
        pieces = (b"%b%d\r\n%b\r\n" % (opening, size_bytes, ending), *body)
        # To copy a long body costs more than to send several parts.
        self.transport.writelines(pieces if size_bytes > _JOINED_BYTES else (b"".join(pieces),))


def _is_plain_place(url: bytes, prefix: bytes) -> bool:
    """Whether a place below the endpoint is addressed in its one plain spelling."""
    return url.startswith(prefix) and _PLAIN_PLACE.fullmatch(url, len(prefix)) is not None


def _nobody_waits() -> None:
    """For an exchange that is over as soon as it has begun."""

"""The fast door at the protocol itself: the common call is answered before uvicorn makes a request of it.

Everything else becomes the request it would have been: a message is held back only until it is whole.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from smart_mcp_proxy.busy_poll import busy_poll_of
from smart_mcp_proxy.fastmcp_compat.paths import serve_at
from smart_mcp_proxy.known_heads import KnownHeads
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.messages import BODY_LIMIT_BYTES
from smart_mcp_proxy.web.protocol import BoundedProtocol
from smart_mcp_proxy.web.wire import Pieces, WireCancel
from smart_mcp_proxy.web.wire_http import JSON_FIELDS, Fields, Headers, TakenCall, WireHttp, headers_of

__all__ = ["WireDoor", "WireProtocol"]

_JOINED_BYTES: Final = 16_384
_HEADS: Final = 256
"""Remembered: of each client one for every tool that it calls."""

log = get_logger("http")


class CallHead(NamedTuple):
    """The head of a request that may be a call.

    Attributes:
        fields: As they were read, names in lower case.
        headers: Those of them that the door looks at.
    """

    fields: Fields
    headers: Headers


class WireDoor:
    """Where the door is, and who decides at it.

    Args:
        wire: Decides and answers.
        path: Of the endpoint.
        address: The endpoint's address as the client wrote it, from its header fields.

    Attributes:
        heads: Of calls that came in before, on whatever connection.
    """

    def __init__(self, wire: WireHttp, path: str, address: Callable[[str, Fields], str]) -> None:
        self.wire = wire
        self.path = path.encode()
        self.address = address
        self.heads: KnownHeads[CallHead] = KnownHeads(_HEADS)
        self._openings: dict[int, bytes] = {}
        self._defaults: Sequence[tuple[bytes, bytes]] = ()

    def opening(self, status: int, defaults: Sequence[tuple[bytes, bytes]]) -> bytes:
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
            fields = b"".join([b"%b: %b\r\n" % field for field in (*defaults, *JSON_FIELDS)])
            opening = self._openings[status] = b"%b%bcontent-length: " % (STATUS_LINE[status], fields)
        return opening


class _Exchange:
    """A call under way, where uvicorn expects its own noun: with all that uvicorn asks of it and tells it.

    Args:
        leave: To be called if the client closes the connection before it is answered.
    """

    message_event = asyncio.Event()
    """Nobody waits for a body that is whole."""

    __slots__ = ("disconnected", "keep_alive", "leave", "response_complete")

    def __init__(self, leave: Callable[[], None]) -> None:
        self.leave = leave
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True


class WireProtocol(BoundedProtocol):
    """One connection of a client that may make calls.

    Args:
        door: Where calls come in.
    """

    def __init__(self, *args: Any, door: WireDoor, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._door = door
        self._poll = busy_poll_of(self.loop)
        self._held: bytearray | None = None
        """The body so far of a message that may be a call; None where uvicorn has it already."""
        self._exchange: _Exchange | None = None
        self._read_call: tuple[bytes, CallHead] | None = None
        """Body and head of a call that the parser has just read."""
        self._is_judged = False
        """Whether the message that the parser reads was found to be for uvicorn."""

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        is_next = self._is_between_requests and (self.cycle is None or self.cycle.response_complete)
        known = self._door.heads.find(data) if is_next else None
        if known is not None and self._is_answered_unread(*known):
            return
        self._is_judged = known is not None
        super().data_received(data)
        call, self._read_call = self._read_call, None
        if is_next and call is not None:
            self._door.heads.learn(data, *call)

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
            fields, body = cast(Fields, self.scope["headers"]), bytes(held)
            headers = headers_of(fields)
            taken = self._taken(headers, body) if headers is not None else None
            if headers is None or taken is None:
                self._hand_on()
            else:
                self._held = None
                self._is_between_requests = True
                self._wordless_bytes = 0
                self._read_call = (body, CallHead(fields, headers))
                self._start(taken, fields)
                return
        super().on_message_complete()

    def shutdown(self) -> None:
        """The server stops: what is on its way is still answered."""
        if self._held is not None:
            self._hand_on()
        super().shutdown()

    def _is_answered_unread(self, head: CallHead, body: bytes) -> bool:
        """Whether a message whose head was read before is a call, and answered here; the parser never sees it."""
        taken = None if self.transport.is_closing() else self._taken(head.headers, body)
        if taken is None:
            return False
        self._wordless_bytes = 0
        self._end_limit()
        self._start(taken, head.fields)
        return True

    def _taken(self, headers: Headers, body: bytes) -> TakenCall | WireCancel | None:
        try:
            # Said here: the event loop may call in the context of an earlier request, which came in elsewhere.
            return self._door.wire.take(headers, body, "")
        except Exception:  # boundary: a callback, whose caller would take it for a request that is not valid
            log.exception("a call could not be judged at the door")
            return None

    def _may_be_call(self) -> bool:
        parser = self.parser
        return (
            not self._is_judged
            and self.url == self._door.path
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
        )

    def _hand_on(self) -> None:
        """Makes a request of what was held back, as if nothing had been."""
        held, self._held = self._held or b"", None
        self.expect_100_continue = False  # it was when the head was whole; a field after the body says nothing
        super().on_headers_complete()
        if held:
            super().on_body(bytes(held))

    # --- answering

    def _start(self, taken: TakenCall | WireCancel, fields: Fields) -> None:
        exchange = self._exchange = _Exchange(taken.leave if isinstance(taken, TakenCall) else _nobody_waits)
        self.cycle = cast(RequestResponseCycle, exchange)
        if isinstance(taken, WireCancel):  # it was heeded
            self._send(exchange, 202, ())
            return
        taken.begin()
        task = spawn(self._answer(taken, exchange, fields), "wire call")
        task.add_done_callback(partial(self._end, taken))
        self.tasks.add(task)

    def _end(self, taken: TakenCall, task: "asyncio.Task[None]") -> None:
        taken.end()
        self.tasks.discard(task)

    async def _answer(self, taken: TakenCall, exchange: _Exchange, fields: Fields) -> None:
        try:
            serve_at("", partial(self._door.address, self.scheme or "http", fields))
            status, reply = await taken.answer()
            if self.flow.write_paused:
                await self.flow.drain()
        except BaseException:
            self.transport.close()  # the client must not wait for what will not come
            raise
        self._send(exchange, status, reply)

    def _send(self, exchange: _Exchange, status: int, body: Pieces) -> None:
        if exchange.disconnected or self.transport.is_closing():
            return
        opening = self._door.opening(status, self.server_state.default_headers)
        ending = b"" if exchange.keep_alive else b"connection: close\r\n"
        size_bytes = sum(map(len, body))
        pieces = (b"%b%d\r\n%b\r\n" % (opening, size_bytes, ending), *body)
        # To copy a long body costs more than to send several parts.
        self.transport.writelines(pieces if size_bytes > _JOINED_BYTES else (b"".join(pieces),))
        self._poll.begin(self.loop)
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.rest()


def _nobody_waits() -> None:
    """For an exchange that is over as soon as it has begun."""

"""The fast door at the protocol itself: the common call is answered before uvicorn makes a request of it.

Everything else becomes the request it would have been: a message is held back only until it is whole.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from smart_mcp_proxy.fastmcp_compat.paths import serving_path
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.messages import BODY_LIMIT_BYTES
from smart_mcp_proxy.web.protocol import BoundedProtocol
from smart_mcp_proxy.web.wire import WireCancel
from smart_mcp_proxy.web.wire_http import JSON_FIELDS, Fields, TakenCall, WireHttp

__all__ = ["WireDoor", "WireProtocol"]

_JOINED_BYTES: Final = 16_384

log = get_logger("http")


class WireDoor:
    """Where the door is, and who decides at it.

    Args:
        wire: Decides and answers.
        path: Of the endpoint.
        address: The endpoint's address as the client wrote it, from its header fields.
    """

    def __init__(self, wire: WireHttp, path: str, address: Callable[[str, Fields], str]) -> None:
        self.wire = wire
        self.path = path.encode()
        self.address = address


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
        self._held: bytearray | None = None
        """The body so far of a message that may be a call; None where uvicorn has it already."""
        self._exchange: _Exchange | None = None

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
        if self._held is not None:
            taken = self._taken(bytes(self._held))
            if taken is None:
                self._hand_on()
            else:
                self._held = None
                self._is_between_requests = True
                self._wordless_bytes = 0
                self._start(taken if isinstance(taken, TakenCall) else None)
                return
        super().on_message_complete()

    def shutdown(self) -> None:
        """The server stops: what is on its way is still answered."""
        if self._held is not None:
            self._hand_on()
        super().shutdown()

    def _taken(self, body: bytes) -> TakenCall | WireCancel | None:
        try:
            # Said here: the event loop may call in the context of an earlier request, which came in elsewhere.
            return self._door.wire.take(self._fields(), body, "")
        except Exception:  # boundary: a callback, whose caller would take it for a request that is not valid
            log.exception("a call could not be judged at the door")
            return None

    def _may_be_call(self) -> bool:
        parser = self.parser
        return (
            self.url == self._door.path
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

    def _start(self, taken: TakenCall | None) -> None:
        exchange = self._exchange = _Exchange(_nobody_waits if taken is None else taken.leave)
        self.cycle = cast(RequestResponseCycle, exchange)
        if taken is None:  # a cancellation, which was heeded
            self._send(exchange, 202, b"")
            return
        taken.begin()
        task = spawn(self._answer(taken, exchange, self._fields()), "wire call")
        task.add_done_callback(partial(self._end, taken))
        self.tasks.add(task)

    def _end(self, taken: TakenCall, task: "asyncio.Task[None]") -> None:
        taken.end()
        self.tasks.discard(task)

    async def _answer(self, taken: TakenCall, exchange: _Exchange, fields: Fields) -> None:
        try:
            with serving_path("", partial(self._door.address, self.scheme or "http", fields)):
                status, reply = await taken.answer()
            if self.flow.write_paused:
                await self.flow.drain()
        except BaseException:
            self.transport.close()  # the client must not wait for what will not come
            raise
        self._send(exchange, status, reply)

    def _send(self, exchange: _Exchange, status: int, body: bytes) -> None:
        if exchange.disconnected or self.transport.is_closing():
            return
        fields = [*self.server_state.default_headers, *JSON_FIELDS, (b"content-length", b"%d" % len(body))]
        if not exchange.keep_alive:
            fields.append((b"connection", b"close"))
        head = b"".join([b"%b: %b\r\n" % field for field in fields])
        head = b"%b%b\r\n" % (STATUS_LINE[status], head)
        if len(body) > _JOINED_BYTES:  # to copy it costs more than to send two parts
            self.transport.writelines((head, body))
        else:
            self.transport.writelines((head + body,))
        exchange.response_complete = True
        if not exchange.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _fields(self) -> Fields:
        return cast(Fields, self.scope["headers"])


def _nobody_waits() -> None:
    """For an exchange that is over as soon as it has begun."""

"""uvicorn's HTTP protocol, with bounds on what a request may take before it is whole."""

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedProtocol"]

REQUEST_S = 60.0
"""A client has so long to send a request, head and body, and as long to begin with the first one: one that sends a byte
a second would hold its connection for ever. Source: notes/reliability.md, B32."""
STALL_S = 60.0
"""A client that takes nothing of an answer for so long is taken for gone: the gateway would keep it for ever.
Source: notes/reliability.md, F48."""
HEAD_LIMIT_BYTES = 64 * 1024
"""Of a head, or of what stands between the parts of a body; several times what proxies in front let through."""


_STATUS_LINE: Final = b"HTTP/1.1 "


class _JoinedWrites:
    """A transport that sends the head of an answer together with what follows in the same turn of the event loop.

    uvicorn writes head and body apart: two system calls, two packets, and a client that is woken twice.

    Args:
        transport: Of the connection.
        loop: Runs it.
    """

    __slots__ = ("_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Sends `data`, the beginning of an answer at the end of the turn at the latest."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_STATUS_LINE):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def writelines(self, parts: Iterable[bytes]) -> None:
        """Sends parts that belong together at once."""
        self._flush()
        self._transport.writelines(parts)

    def close(self) -> None:
        """Closes the connection once all is sent."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        data, self._head = self._head, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client.

    Attributes:
        request_s: See `REQUEST_S`.
        stall_s: See `STALL_S`.
    """

    request_s: ClassVar[float] = REQUEST_S
    stall_s: ClassVar[float] = STALL_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_between_requests = True
        self._wordless_bytes = 0
        """Since the request began, or since the last byte of its body: head, chunk sizes, trailers."""
        self._limit: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client is there."""
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _JoinedWrites(transport, self.loop))
        self._start_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._end_limit()
        self._end_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client takes an answer more slowly than it is made."""
        super().pause_writing()
        self._watch_unsent()

    def resume_writing(self) -> None:
        """It has caught up."""
        self._end_stall()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._wordless_bytes += len(data)
        super().data_received(data)
        if self._is_between_requests:
            self._end_limit()
        elif self._wordless_bytes > HEAD_LIMIT_BYTES:
            self._refuse(431, "Request Header Fields Too Large")
        elif self._limit is None:
            self._start_limit()

    # --- between requests

    def on_response_complete(self) -> None:
        """An answer is sent."""
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def rest(self) -> None:
        """The same, for less: the timer of the answer before stays, and goes on from here when it is due."""
        if self.timeout_keep_alive_task is None or self.pipeline or self.transport.is_closing():
            self.on_response_complete()
            return
        self._idle_since_s = self.loop.time()
        self.server_state.total_requests += 1
        self.flow.resume_reading()

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection, if it has been idle for so long."""
        self.timeout_keep_alive_task = None
        if self.cycle is not None and not self.cycle.response_complete:
            return  # the answer's end starts it anew
        idle_s = self.loop.time() - self._idle_since_s
        if idle_s < self.timeout_keep_alive:
            left_s = self.timeout_keep_alive - idle_s
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _start_limit(self) -> None:
        self._limit = self.loop.call_later(self.request_s, self._refuse, 408, "Request Timeout")

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _watch_unsent(self) -> None:
        unsent_bytes = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.stall_s, self._drop_stalled, unsent_bytes)

    def _drop_stalled(self, unsent_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < unsent_bytes:  # slow, but there
            self._watch_unsent()
        else:
            self.transport.abort()

    def _end_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _refuse(self, status: int, reason: str) -> None:
        """Ends the connection, with an answer where none is on its way."""
        self._end_limit()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            head = f"HTTP/1.1 {status} {reason}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode("ascii"))
        self.transport.close()

    # --- called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_between_requests = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        super().on_headers_complete()
        self.headers = []  # where those after the body go: nobody in front of this has looked at them

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._wordless_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._is_between_requests = True
        self._wordless_bytes = 0
        super().on_message_complete()

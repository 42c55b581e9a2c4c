"""uvicorn's HTTP protocol, with bounds on what a request may take before it is whole."""

import asyncio
import socket
from collections.abc import Iterable
from typing import Any, ClassVar, Final, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from smart_mcp_proxy.io.open_files import OPEN_FILES_HINT, is_scarce, most_open_files
from smart_mcp_proxy.io.server_processes import read_peer
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.web.common.streams import is_kept_open

REQUEST_S = 60.0
"""A client has so long to send a request, head and body, and as long to begin with the first one: one that sends a byte
a second would hold its connection for ever. Source: docs/design/limits.md#clients-over-http"""
STALL_S = 60.0
"""A client that takes nothing of an answer for so long is taken for gone: the gateway would keep it for ever.
Source: docs/design/limits.md#clients-over-http"""
MOST_UNSENT_BYTES = 256 * 1024 * 1024
"""Limit on all answers together that clients are slow to take, or never take; beyond it those who fell behind first are
let go. Sixteen of the longest messages that servers may send."""
TELL_S = 60.0
"""The log tells this often that clients are refused."""
LEFT_S = 0.5
"""A client that sends nothing more may wait for its answer, or have left; it is waited for so long."""
HEAD_LIMIT_BYTES = 64 * 1024
"""Limit on a head, or on what stands between the parts of a body; several times what proxies in front let through."""


log = get_logger("http")

_STATUS_LINE: Final = b"HTTP/1.1 "


class _JoinedWrites:
    """Transport that sends a response head together with what follows in the same loop turn.

    uvicorn writes head and body apart: two system calls, two packets, and a client that is woken twice.

    Args:
        transport: Of the connection.
        loop: Runs it.
    """

    __slots__ = ("_head", "_loop", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing  # asked for several times in each exchange

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
    """Client connection with limits on request time, head size and unread answers.

    Attributes:
        request_s: See `REQUEST_S`.
        stall_s: See `STALL_S`.
    """

    request_s: ClassVar[float] = REQUEST_S
    stall_s: ClassVar[float] = STALL_S
    _behind: ClassVar[dict["BoundedProtocol", None]] = {}
    """Connections with answers that their clients have not taken, those that fell behind first in front."""
    _told_s: ClassVar[float] = -TELL_S
    """When the log last told that clients are refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_between_requests = True
        self._wordless_bytes = 0
        """Since the request began, or since the last byte of its body: head, chunk sizes, trailers."""
        self._limit: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client is there."""
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _JoinedWrites(transport, self.loop))
        self._start_limit()
        connection = transport.get_extra_info("socket")
        # The user's own command line, on a Unix socket, is let in: it is how to find out what is open.
        if connection is not None and connection.family != socket.AF_UNIX and is_scarce(connection.fileno()):
            self._turn_away()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers of a connection that is gone."""
        self._end_limit()
        self._end_stall()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The gateway ends: a stream whose reader does not even take what it was sent ends at once.

        It has no end of its own that would come in time; every other answer gets the grace of the server.
        """
        cycle = self.cycle
        is_sending = cycle is not None and not cycle.response_complete
        if is_sending and self in self._behind and is_kept_open(cast(Scope, cycle.scope)):
            self.transport.abort()
        else:
            super().shutdown()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's own closes whatever is under way
        """The client sends nothing more; whether it gets the answer that is under way, if that comes soon."""
        cycle = self.cycle
        if not self._is_between_requests or self.pipeline or cycle is None or cycle.response_complete:
            return False
        if not self._is_unanswered_post():
            return False
        cycle.keep_alive = False
        self._leaving = self.loop.call_later(LEFT_S, self.transport.close)
        return True

    def pause_writing(self) -> None:
        """The client takes an answer more slowly than it is made."""
        super().pause_writing()
        self._watch_unsent()
        self._behind[self] = None
        self._let_go_of_longest_behind()

    def resume_writing(self) -> None:
        """Stop the stall timer: the client has caught up."""
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

    def _is_unanswered_post(self) -> bool:
        """Whether a message is under way, and nothing of its answer has been sent."""
        # Asked of the request itself: the parser may have read another one, or none.
        return self.cycle.scope["method"] == "POST" and not self.cycle.response_started

    def _start_limit(self) -> None:
        self._limit = self.loop.call_later(self.request_s, self._refuse, 408, "Request Timeout")

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _watch_unsent(self) -> None:
        unsent_bytes = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.stall_s, self._drop_stalled, unsent_bytes)

    def _let_go_of_longest_behind(self) -> None:
        """End the most backlogged other connections until the total backlog is within bounds."""
        unsent_bytes = {one: one.transport.get_write_buffer_size() for one in self._behind}
        total_bytes = sum(unsent_bytes.values())
        for one, size_bytes in unsent_bytes.items():
            if total_bytes <= MOST_UNSENT_BYTES or one is self:
                return
            log.warning("clients leave %d bytes of answers unread: one is disconnected", total_bytes)
            total_bytes -= size_bytes
            one.transport.abort()

    def _drop_stalled(self, unsent_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < unsent_bytes:  # slow, but there
            self._watch_unsent()
        else:
            self.transport.abort()

    def _end_stall(self) -> None:
        self._behind.pop(self, None)
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _turn_away(self) -> None:
        """Refuses a client: those that are there, and servers, need what descriptors are left."""
        why = f"The gateway has nearly as many files and connections open as it may, {most_open_files():,}"
        if BoundedProtocol._told_s + TELL_S < self.loop.time():
            BoundedProtocol._told_s = self.loop.time()
            log.warning("%s: clients that connect are refused until some are closed. %s", why, OPEN_FILES_HINT)
        self._refuse(503, "Service Unavailable", f"{why}. Try again later; its operator can raise that limit.\n")

    def _refuse(self, status: int, reason: str, why: str = "") -> None:
        """Ends the connection, with an answer where none is on its way."""
        self._end_limit()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            fields = f"content-type: text/plain\r\ncontent-length: {len(why)}\r\nconnection: close"
            self.transport.write(f"HTTP/1.1 {status} {reason}\r\n{fields}\r\n\r\n{why}".encode("ascii"))
        self.transport.close()

    # --- called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_between_requests = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        # Behind a request that ended the connection: nobody would get the answer, and a call may be sent again.
        if self.transport.is_closing() and self.cycle is not None and self.cycle.response_complete:
            return
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


class PeerProtocol(BoundedProtocol):
    """Connection by a Unix socket; the state of its requests has the process that made it as `peer`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client is there."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "peer": read_peer(transport.get_extra_info("socket"))}

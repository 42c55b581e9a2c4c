"""Requests at the worker that keeps their session: a connection that comes in elsewhere is handed on.

Once. One that serves sessions of several workers, as that of a proxy may, stays at the worker it was handed to, and
what is for others is relayed: to hand a connection on costs as much as a call.
"""

import asyncio
import re
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import httptools

from smart_mcp_proxy.io.open_files import is_scarce
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.fast_path.wire_protocol import WireProtocol
from smart_mcp_proxy.web.server.protocol import LEFT_S
from smart_mcp_proxy.web.workers.relay import RELAY, Relays, WorkerRelay
from smart_mcp_proxy.web.workers.session_names import find_field_worker, find_head_worker

CONNECTION: Final = b"c"
_LINE_END: Final = b"\r\n"
_HEAD_END: Final = 2 * _LINE_END
_LONGEST_HEAD_BYTES: Final = 64 * 1024
"""A longer one is refused anyway."""
_LENGTH: Final = re.compile(rb"\r\n(?i:content-length):[ \t]*([0-9]{1,7})[ \t]*\r\n")
_NOT_RELAYED: Final = re.compile(rb"\r\n(?i:expect|transfer-encoding|upgrade):")
"""Fields of requests that have no end of their own in sight, or wait for more than their answer."""
_UNSENT_S: Final = 0.005
"""Seconds between two looks at a connection whose client has yet to take the answer before."""

log = get_logger("http")


class _HeadEnd:
    """Ends a parser's work at the end of a head."""

    def on_headers_complete(self) -> None:
        """Stop at a head without `_HEAD_END`: HTTP/0.9, which names no session."""
        raise ValueError("the head is whole")


class RoutedProtocol(WireProtocol):
    """Client connection that relays or hands over requests for sessions of other workers.

    Args:
        relays: Of this process.
        begun: What another worker had read of the connection.
        is_relay: Whether the client is another worker, with requests of its clients.
    """

    def __init__(self, *args: Any, relays: Relays, begun: bytes = b"", is_relay: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._all_relays = relays
        self._worker = relays.worker
        self._begun = begun
        self._is_relay = is_relay
        self._was_handed_on = self._is_next_ours = bool(begun)
        """Whether the next request is for this worker, whatever it says: it was sent here."""
        self._relays: dict[int, WorkerRelay] = {}
        """To other workers, by number."""
        self._relay: WorkerRelay | None = None
        """Whose answer is on its way."""
        self._is_ending = False
        self._is_refused = False
        """Whether nothing that comes from now on is read."""
        self._head = b""
        """Of a request whose head has not come whole."""
        self._look_out: httptools.HttpRequestParser | None = None
        """Has read the same, to tell what will never be a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client is there."""
        super().connection_made(transport)
        self._unjoined = transport
        self._is_refused = self._is_relay and is_scarce(transport.get_extra_info("socket").fileno())
        begun, self._begun = self._begun, b""
        if begun and not self.transport.is_closing():  # refused, for want of descriptors: the client may try it again
            self.data_received(begun)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self._is_refused:
            if self.cycle is None or self.cycle.response_complete:  # no answer is on its way
                self._turn_away()
            return
        if self._relay is not None:  # a client that does not wait for its answer
            self._head += data
            self.transport.pause_reading()
            return
        if not self._head and not self._begins_request():
            super().data_received(data)
            return
        news, look_out = data, None
        if self._head:
            data, self._head = self._head + data, b""
            look_out, self._look_out = self._look_out, None
        head_bytes = data.find(_HEAD_END)
        if head_bytes < 0 and len(data) < _LONGEST_HEAD_BYTES and self._is_held(data, news, look_out):
            return
        keeper = None if self._is_next_ours else find_head_worker(data, head_bytes + len(_LINE_END))
        self._is_next_ours = False
        if keeper is None or keeper == self._worker.number or keeper >= self._worker.count:
            super().data_received(data)
        elif left_bytes := self._unread_bytes(data, head_bytes):
            self._hold(data)
        elif left_bytes is None or self.flow.write_paused or not self._relay_to(keeper, data):
            self._move_to(keeper, data)

    # --- called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        if not self._is_refused:
            super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Route a request whose head is complete; a pipelined one is seen here for the first time."""
        if self._is_refused:
            return
        keeper = find_field_worker(self.headers)
        if keeper is None or keeper == self._worker.number or keeper >= self._worker.count:
            super().on_headers_complete()
        else:
            self._end_before()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request."""
        if not self._is_refused:  # an answer that is on its way must stay whole
            super().send_400_response(msg)

    def _end_before(self) -> None:
        """End the connection before a request for another worker that cannot be handed on: the parser has it.

        Its client sends it again. To be told here that there is no such session it would give the session up.
        """
        self._is_refused = self._is_between_requests = True
        self._wordless_bytes = 0
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(503, "Service Unavailable", "The session is kept elsewhere. Send this on a new connection.\n")
        else:
            self.cycle.keep_alive = False

    # --- the way to other workers

    def _move_to(self, keeper: int, begun: bytes) -> None:
        """Hand the connection on once the answer before is sent, which would be lost with this end."""
        if self.transport.get_write_buffer_size():
            self._hold(begun)
            self.transport.pause_reading()
            self.loop.call_later(_UNSENT_S, self._go_on)
            return
        try:
            self._worker.send(keeper, CONNECTION, begun, self._unjoined.get_extra_info("socket").fileno())
        except OSError:  # no descriptor is left for a copy
            self._turn_away()
        else:
            self.transport.abort()  # of this process's descriptor alone

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        self._all_relays.end(self)
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()  # they refer to this
        self._relay = None

    def eof_received(self) -> bool:  # type: ignore[override]  # as the base class has it
        """The client sends nothing more; see the base class."""
        if self._relay is None:
            return super().eof_received()
        self._is_ending = True
        self._leaving = self.loop.call_later(LEFT_S, self._leave_unanswered)
        return True

    def _leave_unanswered(self) -> None:
        if self._relay is None or not self._relay.has_begun:
            self.transport.close()

    def pause_writing(self) -> None:
        """The client takes an answer more slowly than it comes."""
        super().pause_writing()
        if self._relay is not None:
            self._relay.pause()

    def resume_writing(self) -> None:
        """Resume the relay: the client has caught up."""
        super().resume_writing()
        if self._relay is not None:
            self._relay.resume()

    def timeout_keep_alive_handler(self) -> None:
        """Closes the connection, if it has been idle for so long; another worker closes its own."""
        if self._relay is not None or self._is_relay:
            self.timeout_keep_alive_task = None  # the answer's end starts it anew
        else:
            super().timeout_keep_alive_handler()

    def _watch_unsent(self) -> None:
        """Watches a client that is slow; that of another worker's is watched there, where it can be seen."""
        if not self._is_relay:
            super()._watch_unsent()

    def shutdown(self) -> None:
        """The server stops: what is on its way is still answered."""
        if self._relay is not None:
            self._is_ending = True
        else:
            super().shutdown()

    def _unread_bytes(self, data: bytes, head_bytes: int) -> int | None:
        """Bytes of a request that are still to come; None for one that is not relayed."""
        if not self._was_handed_on or not self._is_message(data[: data.find(_LINE_END)]):
            return None
        length = _LENGTH.search(data, 0, head_bytes + len(_LINE_END))
        if length is None:
            return None
        whole_bytes = head_bytes + len(_HEAD_END) + int(length[1])
        if len(data) > whole_bytes or whole_bytes > _LONGEST_HEAD_BYTES or _NOT_RELAYED.search(data, 0, head_bytes):
            return None
        return whole_bytes - len(data)

    def _is_message(self, line: bytes) -> bool:
        """Whether a request's first line is that of an MCP message.

        Others stay here: sign-ins count their clients' addresses.
        """
        path = self._fast_path.path
        return line.startswith((b"POST %b " % path, b"POST %b/" % path)) and line.endswith(b" HTTP/1.1")

    def _relay_to(self, keeper: int, request: bytes) -> bool:
        """Send a whole request to the worker that keeps its session; return whether there is a way."""
        relay = self._relays.get(keeper)
        if relay is None or not relay.is_open:
            try:
                anew = partial(self._relay_anew, keeper)
                relay = self._all_relays.open(keeper, self._unjoined, self._go_on_after, anew)
            except OSError:  # too few descriptors are left: handing this one over keeps none
                return False
            self._relays[keeper] = relay
        self._end_limit()
        self._relay = relay
        self._all_relays.begin(self)
        relay.send(request)
        return True

    def _relay_anew(self, keeper: int, request: bytes) -> None:
        """Sends a request again that a worker had not read when it ended: its replacement may answer."""
        if self._is_ending or not self._relay_to(keeper, request):
            self.transport.close()

    def _go_on_after(self, is_kept: bool) -> None:
        """Waits for the next request, after an answer that was relayed."""
        self._relay = None
        self._all_relays.end(self)
        if not is_kept or self._is_ending:
            self.transport.close()
            return
        self.rest()
        if self._head:
            self._go_on()

    def _is_held(self, begun: bytes, news: bytes, look_out: httptools.HttpRequestParser | None) -> bool:
        """Keep bytes that may become the head of a request; False for anything else.

        Args:
            begun: All of it.
            news: The part of it that has just come.
            look_out: Has read what came before; None if nothing has.
        """
        if look_out is None:
            look_out, news = httptools.HttpRequestParser(_HeadEnd()), begun
        try:
            look_out.feed_data(news)
        except httptools.HttpParserError:  # or there is no more to wait for
            return False
        self._hold(begun)
        self._look_out = look_out
        return True

    def _hold(self, begun: bytes) -> None:
        """Keeps what there is of a request until it can be dealt with."""
        self._head = begun
        self._unset_keepalive_if_required()
        if self._limit is None:
            self._start_limit()

    def _go_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self.data_received(b"")


def adopt_connections(worker: Worker, make: Callable[..., asyncio.Protocol]) -> None:
    """Go on with connections that other workers hand on.

    Args:
        worker: This process.
        make: Makes the protocol of a connection.
    """
    if worker.is_alone:
        return

    def adopt(handed: socket.socket, **how: Any) -> None:
        spawn(_adopt_connection(partial(make, **how), handed), "adopted connection")

    worker.listen(CONNECTION, lambda begun, handed: adopt(handed, begun=begun))
    worker.listen(RELAY, lambda _, handed: adopt(handed, is_relay=True))


async def _adopt_connection(make: Callable[[], asyncio.Protocol], handed: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(make, handed)
    except OSError as exc:
        log.debug("a connection ended on its way between workers: %s", exc)
        handed.close()

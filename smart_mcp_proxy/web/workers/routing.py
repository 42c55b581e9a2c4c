"""Connections at the worker that keeps their session: one that comes in elsewhere is handed on."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.fast_path.wire_protocol import WireProtocol
from smart_mcp_proxy.web.workers.session_names import worker_of

__all__ = ["CONNECTION", "RoutedProtocol", "adopt_connections"]

CONNECTION: Final = b"c"
_LINE_END: Final = b"\r\n"
_HEAD_END: Final = 2 * _LINE_END
_LONGEST_HEAD_BYTES: Final = 64 * 1024
"""A longer one is refused anyway."""
_UNSENT_S: Final = 0.005
"""How often a connection is looked at whose client has yet to take the answer before."""

log = get_logger("http")


class RoutedProtocol(WireProtocol):
    """One connection of a client whose session may be another worker's.

    Args:
        worker: This process.
        begun: What another worker had read of the connection.
    """

    def __init__(self, *args: Any, worker: Worker, begun: bytes = b"", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._worker = worker
        self._begun = begun
        self._is_handed = bool(begun)
        """Whether the next request is for this worker, whatever it says: it was sent here."""
        self._head = b""
        """Of a request whose head has not come whole."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """A client is there."""
        super().connection_made(transport)
        begun, self._begun = self._begun, b""
        if begun:
            self.data_received(begun)

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        if not self._head and not self._begins_request():
            super().data_received(data)
            return
        data = self._head + data
        self._head = b""
        head_bytes = data.find(_HEAD_END)
        if head_bytes < 0 and len(data) < _LONGEST_HEAD_BYTES:
            self._hold(data)
            return
        keeper = None if self._is_handed else worker_of(data, head_bytes + len(_LINE_END))
        self._is_handed = False
        if keeper is None or keeper == self._worker.number or keeper >= self._worker.count:
            super().data_received(data)
        elif self.transport.get_write_buffer_size():  # of the answer before, which would be lost with this end
            self._hold(data)
            self.transport.pause_reading()
            self.loop.call_later(_UNSENT_S, self._go_on)
        else:
            self._worker.send(keeper, CONNECTION, data, self.transport.get_extra_info("socket").fileno())
            self.transport.abort()  # of this process's descriptor alone

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

    def adopt(begun: bytes, handed: socket.socket) -> None:
        spawn(_adopted(partial(make, begun=begun), handed), "adopted connection")

    worker.listen(CONNECTION, adopt)


async def _adopted(make: Callable[[], asyncio.Protocol], handed: socket.socket) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(make, handed)
    except OSError as exc:
        log.debug("a connection ended on its way between workers: %s", exc)
        handed.close()

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
_HEAD_END: Final = b"\r\n\r\n"
_LONGEST_HEAD_BYTES: Final = 64 * 1024
"""A longer one is refused anyway."""

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
        if _HEAD_END not in data and len(data) < _LONGEST_HEAD_BYTES:
            self._head = data
            self._unset_keepalive_if_required()
            if self._limit is None:
                self._start_limit()
            return
        keeper = None if self._is_handed else worker_of(data)
        self._is_handed = False
        if keeper is None or keeper == self._worker.number or keeper >= self._worker.count:
            super().data_received(data)
            return
        self._worker.send(keeper, CONNECTION, data, self.transport.get_extra_info("socket").fileno())
        self.transport.abort()  # of this process's descriptor alone


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

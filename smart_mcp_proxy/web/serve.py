"""Serving: a private Unix socket for the command line; signals end it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from smart_mcp_proxy.desktop.background import listen_at
from smart_mcp_proxy.desktop.places import make_private, sockets_folder
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.io.memory import keep_freed
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.collector import run_collector
from smart_mcp_proxy.web.common.streams import EndingStreams
from smart_mcp_proxy.web.rest import build_rest_app
from smart_mcp_proxy.web.rest.authorization import build_socket_admit
from smart_mcp_proxy.web.server.protocol import BoundedProtocol, PeerProtocol

GRACE_S = 1
"""Time that open streams get to end after the calls have."""

SWITCH_S = 0.0001
"""How long a thread that computes may keep the event loop waiting, each time the loop comes back from the system.

While 5,000 tools of another server are read and indexed, the 95th percentile of calls is 6.2 ms with Python's own 5 ms,
1.9 ms with 0.5 ms, 1.1 ms with this and 1.5 ms with half of it; it is 0.6 ms without (measured).
"""

OnStarted = Callable[[Callable[..., Any]], None]

log = get_logger("serve")


class _State(ServerState):
    """State of a server whose header of the date is made when it is asked for, not ten times a second."""

    def __init__(self, more: list[tuple[bytes, bytes]]) -> None:
        self._made = (0, more)
        self._more = more
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every response; the date is right to the second."""
        second = int(time.time())
        if second != self._made[0]:
            self._made = second, [(b"date", formatdate(second, usegmt=True).encode()), *self._more]
        return self._made[1]

    @default_headers.setter
    def default_headers(self, _: list[tuple[bytes, bytes]]) -> None:
        """Drops uvicorn's own."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: one process runs two servers under one handler.

    It waits for its end and does not look for it ten times a second.

    Args:
        config: Of uvicorn.
        on_started: Given what makes the protocol of a connection that was accepted elsewhere, once there is an app.
    """

    def __init__(self, config: uvicorn.Config, on_started: OnStarted) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._ended = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to serve."""
        self.server_state = _State(self.config.encoded_headers)
        await super().startup(sockets)
        protocol = cast(Callable[..., Any], self.config.http_protocol_class)
        self._on_started(partial(protocol, self.config, self.server_state, self.lifespan.state))

    async def main_loop(self) -> None:
        """Serves until `end`."""
        await self._ended.wait()

    def end(self) -> None:
        """Lets it stop serving."""
        self.should_exit = True
        self._ended.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield


@asynccontextmanager
async def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    protocol: Callable[..., BoundedProtocol] = BoundedProtocol,
    on_started: OnStarted = lambda make: None,
) -> AsyncIterator[None]:
    """Serves `app` on `listener` while open; open streams get a moment to end.

    Args:
        app: Answers.
        listener: Listens already.
        protocol: Reads what comes in.
        on_started: Given what makes the protocol of a connection that was accepted elsewhere.
    """
    config = uvicorn.Config(
        app,
        http=cast(type[BoundedProtocol], protocol),
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        ws="none",
    )
    server = _Server(config, on_started)
    task = spawn(server.serve(sockets=[listener]), "http server")
    # The socket listens already: who connects before the server runs waits in its queue.
    try:
        yield
    finally:
        server.end()
        await asyncio.wait([task])
        listener.close()


def socket_path(data_dir: Path, pid: int) -> Path:
    """Path of the REST socket of gateway process `pid`."""
    return Path(sockets_folder(str(data_dir))) / f"{pid}.sock"


@asynccontextmanager
async def open_socket(gateway: Gateway) -> AsyncIterator[Path | None]:
    """Serves REST to the same user's command line on a Unix socket (0600) while open; yields its path.

    Where the directory cannot be written, the gateway serves without it.
    """
    path = socket_path(gateway.settings.data_dir, os.getpid())
    listener = _unix_listener(path)
    if listener is None:
        yield None
        return
    is_over = asyncio.Event()
    try:
        app = build_rest_app(gateway, build_socket_admit(gateway.admin.doors))
        async with serve_app(EndingStreams(app, is_over), listener, PeerProtocol):
            yield path
            await gateway.agent.drain()
            is_over.set()
    finally:
        path.unlink(missing_ok=True)


def _unix_listener(path: Path) -> socket.socket | None:
    try:
        make_private(str(path.parent))
        listener = listen_at(str(path))
    except OSError as exc:
        log.warning("no command line socket: %s: %s", path, exc.strerror)
        return None
    listener.setblocking(False)
    return listener


class StopEvent(asyncio.Event):
    """Set by the first signal that asks the process to end.

    Attributes:
        number: That signal; None before it.
    """

    number: int | None = None


@contextlib.contextmanager
def stop_signals() -> Iterator[StopEvent]:
    """An event that SIGINT or SIGTERM sets; a second signal ends the process at once."""
    loop = asyncio.get_running_loop()
    stop = StopEvent()

    def handle_stop_signal(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.number = number
        stop.set()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, handle_stop_signal, number)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@asynccontextmanager
async def tune_process() -> AsyncIterator[None]:
    """Arranges memory and threads for serving while open, once everything is loaded."""
    keep_freed()
    sys.setswitchinterval(SWITCH_S)
    async with run_collector():
        yield

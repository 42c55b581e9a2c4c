"""Serving: a private Unix socket for the command line; signals end it."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from anyio import to_thread

from smart_mcp_proxy.desktop.background import listen_at
from smart_mcp_proxy.desktop.places import make_private, sockets_folder
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.io.memory import keep_freed
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.web.collector import run_collector

SWITCH_S = 0.0001
"""Seconds that a thread that computes may keep the event loop waiting, each time the loop comes back from the system.

While 5,000 tools of another server are read and indexed, the 95th percentile of calls is 6.2 ms with Python's own 5 ms,
1.9 ms with 0.5 ms, 1.1 ms with this and 1.5 ms with half of it; it is 0.6 ms without (measured).
"""

log = get_logger("serve")


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
    is_asked, is_over = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(listener, is_asked.set)
    serving = spawn(_serve_commands(gateway, listener, is_asked, is_over), "command line socket")
    try:
        yield path
        await gateway.agent.drain()
    finally:
        path.unlink(missing_ok=True)
        is_over.set()
        is_asked.set()
        await asyncio.wait([serving])


async def _serve_commands(
    gateway: Gateway, listener: socket.socket, is_asked: asyncio.Event, is_over: asyncio.Event
) -> None:
    """Serve REST on a socket that listens, from the first connection to the end."""
    await is_asked.wait()
    asyncio.get_running_loop().remove_reader(listener)
    if is_over.is_set():
        listener.close()
        return
    # Here and not above: few gateways are asked, and it takes 50 ms, in a thread so that calls go on meanwhile.
    for name in ("rest.authorization", "server.uvicorn_server"):
        await to_thread.run_sync(import_module, f"smart_mcp_proxy.web.{name}")
    from smart_mcp_proxy.web.common.streams import EndingStreams
    from smart_mcp_proxy.web.rest import build_rest_app
    from smart_mcp_proxy.web.rest.authorization import build_socket_admit
    from smart_mcp_proxy.web.server.protocol import PeerProtocol
    from smart_mcp_proxy.web.server.uvicorn_server import serve_app

    app = build_rest_app(gateway, build_socket_admit(gateway.admin.doors))
    async with serve_app(EndingStreams(app, is_over), listener, PeerProtocol):
        await is_over.wait()


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

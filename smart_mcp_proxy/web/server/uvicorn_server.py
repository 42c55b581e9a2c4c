"""HTTP server of a process, or several in one: uvicorn without its signals and its looks at the clock."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.web.server.protocol import BoundedProtocol

GRACE_S = 1
"""Time that open streams get to end after the calls have."""

OnStarted = Callable[[Callable[..., Any]], None]


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

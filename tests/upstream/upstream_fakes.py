"""Servers to talk to: a raw one on pipes, any ASGI app on loopback."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from run_wire import Watched

from smart_mcp_proxy.servers import ServerConfig, ServerLimits

FAKE_SERVER = Path(__file__).with_name("fake_server.py")


def fake_config(mode: str = "handshake", **changes: Any) -> ServerConfig:
    """The raw server in one of its modes, as a configured server named `fake`."""
    values: dict[str, Any] = {
        "name": "fake",
        "transport": "stdio",
        "command": sys.executable,
        "args": ("-S", "-E", str(FAKE_SERVER), mode),
        "limits": ServerLimits(init_s=30, list_s=30, call_s=30),
    }
    return ServerConfig(**(values | changes))


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """An ASGI app on a free port of loopback; yields its address."""
    server = uvicorn.Server(uvicorn.Config(Watched(app), log_level="critical", ws="none", timeout_graceful_shutdown=0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            with anyio.fail_after(20):
                while not server.started:
                    await anyio.lowlevel.checkpoint()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.should_exit = True

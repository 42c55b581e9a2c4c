"""Memory that clients of one gateway take while they are joined; test_ended_joins.py says that they give it back."""

import asyncio
import gc
import json
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agents import Era
from transports import odd_server, settled
from wires import opening

from smart_mcp_proxy.fastmcp_compat.server import AgentServer
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.greeting.eras import EVERY_ERA
from smart_mcp_proxy.web.stdio.stdio import Leaving, serve_joined
from smart_mcp_proxy.web.stdio.stdio_pipes import open_joined_streams

pytestmark = pytest.mark.anyio

CLIENTS = 12
MOST_BYTES = 40_000
"""Of one client, as Python counts them, with the test's end; 33,500 and 27,000 today, nearly three times that with a
server and streams of its own for each."""
MOST_TASKS = 2
"""One that serves it, and one that heeds the gateway's end."""


@asynccontextmanager
async def joined(gateway: Gateway, server: AgentServer, era: Era) -> AsyncIterator[None]:
    """A client that has listed the tools, which the SDK answers, and called one past it."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reader, writer = await open_joined_streams(theirs)
    leaving = Leaving(asyncio.Event(), lambda: False)
    serving = asyncio.create_task(serve_joined(gateway, server, reader, writer, leaving, EVERY_ERA))

    async def ask(number: int, request: dict[str, Any]) -> None:
        await loop.sock_sendall(ours, json.dumps({"jsonrpc": "2.0", "id": number, **request}).encode() + b"\n")
        while not (await loop.sock_recv(ours, 1 << 20)).endswith(b"\n"):
            pass

    first = opening(era)
    meta = {"_meta": first["params"]["_meta"]} if era == "modern" else {}
    call = {"name": "retrieve_tools", "arguments": {"query": "odd"}, **meta}
    try:
        await ask(1, first)
        await ask(2, {"method": "tools/list", "params": meta})
        await ask(3, {"method": "tools/call", "params": call})
        yield
    finally:
        ours.close()
        await serving
        await writer.close()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_joined_client_costs_little(era: Era, tmp_path: Path) -> None:
    """It has no server, streams or reading and writing tasks of its own."""
    async with settled(tmp_path, {"old": odd_server(era)}) as gateway:
        server = gateway.agent_server()
        for _ in range(3):
            async with joined(gateway, server, era):
                pass
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            before, tasks = tracemalloc.get_traced_memory()[0], len(asyncio.all_tasks())
            async with AsyncExitStack() as stack:
                for _ in range(CLIENTS):
                    await stack.enter_async_context(joined(gateway, server, era))
                held = (tracemalloc.get_traced_memory()[0] - before) / CLIENTS
                more_tasks = (len(asyncio.all_tasks()) - tasks) / CLIENTS
        finally:
            tracemalloc.stop()
            gc.enable()
    print(f"{era}: {held:.0f} bytes and {more_tasks:.1f} tasks while joined")
    assert held <= MOST_BYTES
    assert more_tasks <= MOST_TASKS

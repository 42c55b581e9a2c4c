"""Clients that share a gateway and leave: all that was kept for one is freed, though the collector never looks."""

import asyncio
import gc
import json
import socket
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from living import living
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from transports import odd_server, settled

from smart_mcp_proxy.fastmcp_compat.methods import CheckedClient, HandshakeClient
from smart_mcp_proxy.fastmcp_compat.server import AgentServer
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.sessions.tool_surface import PooledTools
from smart_mcp_proxy.gateway.shared.sessions import Session
from smart_mcp_proxy.greeting.eras import EVERY_ERA
from smart_mcp_proxy.io.lines import OfferingReader
from smart_mcp_proxy.web.stdio.stdio import Leaving, serve_joined
from smart_mcp_proxy.web.stdio.stdio_pipes import open_joined_streams

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("sessions-freed")]

ENDED = 10
LIMIT_S = 30
KEPT = (
    AgentServer,
    Session,
    HandshakeClient,
    CheckedClient,
    Connection,
    ServerRunner,
    JSONRPCDispatcher,
    PooledTools,
    OfferingReader,
)
"""Classes of what is kept for a client."""
META = "io.modelcontextprotocol/"
CLIENT = {"name": "test", "version": "1"}
ENVELOPE = {META + "protocolVersion": "2026-07-28", META + "clientInfo": CLIENT, META + "clientCapabilities": {}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
GREETINGS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "handshake": ("initialize", HELLO),
    "modern": ("server/discover", {}),
}


def alive() -> Counter[str]:
    """How many objects there are of each class that a client has one of."""
    return Counter(type(each).__name__ for each in living(KEPT))


async def visit(gateway: Gateway, server: AgentServer, era: str) -> None:
    """A client that lists, searches, calls and leaves."""
    ours, theirs = socket.socketpair()
    reader, writer = await open_joined_streams(ours)
    leaving = Leaving(asyncio.Event(), lambda: False)
    serving = asyncio.create_task(serve_joined(gateway, server, reader, writer, leaving, EVERY_ERA))
    answers, requests = await asyncio.open_connection(sock=theirs)

    async def ask(number: int, method: str, params: dict[str, Any]) -> None:
        meta = {"_meta": ENVELOPE} if era == "modern" else {}
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params | meta}
        requests.write(json.dumps(message).encode() + b"\n")
        while json.loads(line := await answers.readline()).get("id") != number:
            pass
        assert b'"result"' in line, line

    await ask(1, *GREETINGS[era])
    if era == "handshake":
        requests.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    await ask(2, "tools/list", {})
    await ask(3, "tools/call", {"name": "retrieve_tools", "arguments": {"query": "look"}})
    for number in (4, 5):  # the second call takes the short way
        await ask(number, "tools/call", {"name": "call_tool_read", "arguments": {"name": "new:look", "args": {}}})
    gc.collect(1)  # what is kept for the client grows old
    requests.close()
    await serving
    await writer.close()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("era", GREETINGS)
async def test_a_client_that_left_is_freed_without_a_collection(tmp_path: Path, era: str) -> None:
    servers = {"new": odd_server("modern")}
    async with settled(tmp_path, servers) as gateway:
        server = gateway.agent_server()
        await visit(gateway, server, era)
        gc.collect()
        gc.disable()
        try:
            before = alive()
            for _ in range(ENDED):
                await visit(gateway, server, era)
            gc.collect(0)  # a cancelled task leaves a circle of its traceback, which is as young as its end
            with anyio.fail_after(LIMIT_S):
                while alive() - before:
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()

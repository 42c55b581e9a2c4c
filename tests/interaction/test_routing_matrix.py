"""What a search does to the client's list: every era, over every transport, in each routing."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent, Era
from doors import in_memory, odd_servers, on_stdio, over_http, over_sse, served, spawned
from test_dynamic_door import OWN_TOOLS, found, settled
from test_passthrough_door import CHANGED, LIMIT_S, Announcements, listed

pytestmark = pytest.mark.anyio

KNOWN, UNKNOWN = "claude-code", "unheard of"
"""Clients that AUTO knows to ask for a changed list, and that it does not know."""
CELLS = [
    pytest.param("memory", "handshake", "CALL_TOOL", marks=pytest.mark.requirement("memory-handshake-call-tool")),
    pytest.param("memory", "handshake", "DYNAMIC", marks=pytest.mark.requirement("memory-handshake-dynamic")),
    pytest.param("memory", "handshake", "AUTO", marks=pytest.mark.requirement("memory-handshake-auto")),
    pytest.param("memory", "modern", "CALL_TOOL", marks=pytest.mark.requirement("memory-modern-call-tool")),
    pytest.param("memory", "modern", "DYNAMIC", marks=pytest.mark.requirement("memory-modern-dynamic")),
    pytest.param("memory", "modern", "AUTO", marks=pytest.mark.requirement("memory-modern-auto")),
    pytest.param("stdio", "handshake", "CALL_TOOL", marks=pytest.mark.requirement("stdio-handshake-call-tool")),
    pytest.param("stdio", "handshake", "DYNAMIC", marks=pytest.mark.requirement("stdio-handshake-dynamic")),
    pytest.param("stdio", "handshake", "AUTO", marks=pytest.mark.requirement("stdio-handshake-auto")),
    pytest.param("stdio", "modern", "CALL_TOOL", marks=pytest.mark.requirement("stdio-modern-call-tool")),
    pytest.param("stdio", "modern", "DYNAMIC", marks=pytest.mark.requirement("stdio-modern-dynamic")),
    pytest.param("stdio", "modern", "AUTO", marks=pytest.mark.requirement("stdio-modern-auto")),
    pytest.param("http", "handshake", "CALL_TOOL", marks=pytest.mark.requirement("http-handshake-call-tool")),
    pytest.param("http", "handshake", "DYNAMIC", marks=pytest.mark.requirement("http-handshake-dynamic")),
    pytest.param("http", "handshake", "AUTO", marks=pytest.mark.requirement("http-handshake-auto")),
    pytest.param("http", "modern", "CALL_TOOL", marks=pytest.mark.requirement("http-modern-call-tool")),
    pytest.param("http", "modern", "DYNAMIC", marks=pytest.mark.requirement("http-modern-dynamic")),
    pytest.param("http", "modern", "AUTO", marks=pytest.mark.requirement("http-modern-auto")),
    pytest.param("sse", "handshake", "CALL_TOOL", marks=pytest.mark.requirement("sse-handshake-call-tool")),
    pytest.param("sse", "handshake", "DYNAMIC", marks=pytest.mark.requirement("sse-handshake-dynamic")),
    pytest.param("sse", "handshake", "AUTO", marks=pytest.mark.requirement("sse-handshake-auto")),
]


@asynccontextmanager
async def agent_at(
    transport: str, era: Era, data_dir: Path, servers: dict[str, Any], routing: str
) -> AsyncIterator[Agent]:
    """An agent at a gateway with this routing."""
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            process = await stack.enter_async_context(spawned(data_dir, servers, ROUTING_TYPE=routing))
            yield await stack.enter_async_context(on_stdio(process, era))
            return
        gateway = await stack.enter_async_context(settled(data_dir, servers, routing_type=routing))
        if transport == "memory":
            yield await stack.enter_async_context(in_memory(gateway, era))
            return
        base = await stack.enter_async_context(served(gateway))
        yield await stack.enter_async_context(over_http(base, era) if transport == "http" else over_sse(base))


async def search_shows(agent: Agent, *, is_growing: bool, has_toolset: bool, takes_toolset: bool) -> None:
    """A search registers, announces once, and lets the found tool be called by its listed name; or does none of it."""
    await found(agent, "qqqq")  # nothing; from here on the servers are listed
    announcements = Announcements(agent)
    await announcements.subscribe()
    before = await listed(agent)
    assert len(before) == OWN_TOOLS
    assert ("toolset" in before[0]["inputSchema"]["properties"]) is takes_toolset
    answer = await found(agent, "new:look", limit=2)
    assert (answer["toolset"] is not None) is has_toolset
    if is_growing:
        assert answer["newly_registered"] == [tool["listed_name"] for tool in answer["tools"]]
        assert answer["pool"] == {"size": len(answer["tools"]), "limit": 15}
        await announcements.until(CHANGED, 1)
    else:
        assert (answer["newly_registered"], answer["evicted"], answer["pool"]) == ([], [], None)
    after = await listed(agent)
    assert after[:OWN_TOOLS] == before
    assert [tool["name"] for tool in after[OWN_TOOLS:]] == answer["newly_registered"]
    reply = await agent.request("tools/call", name="new__look", arguments={"entry": 1})
    assert ("error" not in reply) is is_growing
    by_name = await agent.call(answer["tools"][0]["call_with"], name="new:look", args={"entry": 1})
    assert not by_name.get("isError")
    assert announcements.count(CHANGED) == int(is_growing)
    await announcements.close()


@pytest.mark.parametrize(("transport", "era", "routing"), CELLS)
async def test_each_cell_of_the_matrix_behaves_as_promised(
    transport: str, era: Era, routing: str, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list grows in the handshake era alone, and there only where the routing says so, of this client."""
    for name in (KNOWN, UNKNOWN) if routing == "AUTO" else (UNKNOWN,):
        monkeypatch.setattr("agents.CLIENT", {"name": name, "version": "1"})
        is_growing = era == "handshake" and (routing == "DYNAMIC" or (routing == "AUTO" and name == KNOWN))
        has_toolset = (transport, era) == ("http", "modern") and routing != "CALL_TOOL"
        with anyio.fail_after(2 * LIMIT_S):
            async with agent_at(transport, era, tmp_path / name, odd_servers(ledger), routing) as agent:
                is_fixed = routing == "CALL_TOOL"
                assert agent.greeting["result"]["capabilities"]["tools"] == {"listChanged": not is_fixed}
                await search_shows(agent, is_growing=is_growing, has_toolset=has_toolset, takes_toolset=not is_fixed)

"""What a search does to the client's list: every era, over every transport, in each routing."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import PAUSE_S, Agent, Era
from test_agent_dynamic import OWN_TOOLS, found, settled
from test_agent_passthrough import CHANGED, GROWING, LIMIT_S, Announcements, listed
from transports import CHANNELS, in_memory, odd_servers, on_stdio, over_http, over_sse, served, spawned

from smart_mcp_proxy.gateway.shared.changes import MERGE_S
from smart_mcp_proxy.greeting.eras import StdioEras, stdio_eras

pytestmark = [pytest.mark.anyio, pytest.mark.long]

KNOWN, UNKNOWN = "claude-code", "unheard of"
"""Clients that AUTO knows to ask for a changed list, and that it does not know."""
BY_AUTO = pytest.mark.soak
"""In CI AUTO takes these paths, which is DYNAMIC for a client that it knows; each row starts a process."""
CELLS = [
    pytest.param("memory", "handshake", "CALL_TOOL", marks=pytest.mark.requirement("memory-handshake-call-tool")),
    pytest.param("memory", "handshake", "DYNAMIC", marks=pytest.mark.requirement("memory-handshake-dynamic")),
    pytest.param("memory", "handshake", "AUTO", marks=pytest.mark.requirement("memory-handshake-auto")),
    pytest.param("memory", "modern", "CALL_TOOL", marks=pytest.mark.requirement("memory-modern-call-tool")),
    pytest.param("memory", "modern", "DYNAMIC", marks=pytest.mark.requirement("memory-modern-dynamic")),
    pytest.param("memory", "modern", "AUTO", marks=pytest.mark.requirement("memory-modern-auto")),
    pytest.param("stdio", "handshake", "CALL_TOOL", marks=pytest.mark.requirement("stdio-handshake-call-tool")),
    pytest.param("stdio", "handshake", "DYNAMIC", marks=[pytest.mark.requirement("stdio-handshake-dynamic"), BY_AUTO]),
    pytest.param("stdio", "handshake", "AUTO", marks=pytest.mark.requirement("stdio-handshake-auto")),
    pytest.param("stdio", "modern", "CALL_TOOL", marks=pytest.mark.requirement("stdio-modern-call-tool")),
    pytest.param("stdio", "modern", "DYNAMIC", marks=[pytest.mark.requirement("stdio-modern-dynamic"), BY_AUTO]),
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
    transport: str, era: Era, data_dir: Path, servers: dict[str, Any], routing: str, **settings: Any
) -> AsyncIterator[Agent]:
    """An agent at a gateway with this routing."""
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            environ = {name.upper(): str(value) for name, value in settings.items()}
            process = await stack.enter_async_context(spawned(data_dir, servers, ROUTING_TYPE=routing, **environ))
            yield await stack.enter_async_context(on_stdio(process, era))
            return
        gateway = await stack.enter_async_context(settled(data_dir, servers, routing_type=routing, **settings))
        if transport == "memory":
            yield await stack.enter_async_context(in_memory(gateway, era))
            return
        base = await stack.enter_async_context(served(gateway))
        yield await stack.enter_async_context(over_http(base, era) if transport == "http" else over_sse(base))


@pytest.mark.requirement("servers-changes")
@pytest.mark.parametrize("channel", CHANNELS, ids="-".join)
async def test_a_servers_change_reaches_every_client_whose_list_it_changes(
    channel: tuple[str, Any], tmp_path: Path
) -> None:
    """Each change is announced once, outside of any request, and the next list is the new one."""
    transport, era = channel
    with anyio.fail_after(2 * LIMIT_S):
        async with agent_at(
            transport, era, tmp_path, {"growing": GROWING}, "CALL_TOOL", list_all_below_tokens=100_000
        ) as agent:
            while len(await listed(agent)) == OWN_TOOLS:  # over stdio the process has just started
                await asyncio.sleep(PAUSE_S)
            announcements = Announcements(agent)
            await announcements.subscribe()
            before = await merged(agent, announcements)
            for count in (1, 2):
                reply = await agent.request("tools/call", name="growing__grow", arguments={})
                assert "error" not in reply
                await announcements.until(CHANGED, before + count)
                names = [tool["name"] for tool in (await listed(agent))[OWN_TOOLS:]]
                assert names == ["growing__grow", "growing__grown_1", "growing__grown_2"][: 1 + count]
            await announcements.close()


@pytest.mark.requirement("servers-changes")
async def test_a_servers_change_is_not_told_where_it_changes_nothing(tmp_path: Path) -> None:
    """A pool that does not hold the tool, and a fixed list, are what they were."""
    async with (
        agent_at("memory", "handshake", tmp_path / "1", {"growing": GROWING}, "DYNAMIC") as pooled,
        agent_at("memory", "handshake", tmp_path / "2", {"growing": GROWING}, "CALL_TOOL") as fixed,
    ):
        for agent in (pooled, fixed):
            announcements = Announcements(agent)
            await announcements.subscribe()
            told = announcements.count(CHANGED)
            await agent.call("call_tool_write", name="growing:grow")
            with anyio.fail_after(LIMIT_S):
                while (await found(agent, "qqqq"))["total"] < 2:
                    await asyncio.sleep(PAUSE_S)
            assert await merged(agent, announcements) == told
            await announcements.close()


async def merged(agent: Agent, announcements: Announcements) -> int:
    """How often the agent was told of a change, once all that is merged must have been told."""
    later_s = time.monotonic() + 2 * MERGE_S
    while time.monotonic() < later_s:
        await listed(agent)
    return announcements.count(CHANGED)


async def search_shows(agent: Agent, *, is_growing: bool, has_toolset: bool, takes_toolset: bool) -> None:
    """A search registers, announces once, and lets the found tool be called by its listed name; or does none of it.

    Where lists of other clients grow, a modern one is told why its own does not.
    """
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
    assert ("stays as it is" in answer["hint"]) is (takes_toolset and agent.era == "modern")
    assert ("The toolset lists these tools" in answer["hint"]) is has_toolset
    after = await listed(agent)
    assert after[:OWN_TOOLS] == before
    assert [tool["name"] for tool in after[OWN_TOOLS:]] == answer["newly_registered"]
    reply = await agent.request("tools/call", name="new__look", arguments={"entry": 1})
    assert ("error" not in reply) is is_growing
    by_name = await agent.call(answer["tools"][0]["call_with"], name="new:look", args={"entry": 1})
    assert not by_name.get("isError")
    assert announcements.count(CHANGED) == int(is_growing)
    await announcements.close()


def eras_for(routing: str) -> StdioEras:
    """What clients on stdio are offered, as long as nobody says otherwise."""
    return stdio_eras("auto", routing)


async def refusal_shows(agent: Agent) -> None:
    """Neither a probe nor a request is served, and both say which setting serves them; a session can still begin."""
    assert agent.greeting["error"]["code"] == -32601
    unprobed = await agent.request("tools/list")
    assert unprobed["error"]["code"] == -32022
    for error in (agent.greeting["error"], unprobed["error"]):
        assert "MCPPROXY_STDIO_ERA=both" in error["message"]
    agent.era = "handshake"
    await agent.greet()
    assert agent.greeting["result"]["protocolVersion"] == "2025-11-25"
    await search_shows(agent, is_growing=True, has_toolset=False, takes_toolset=True)


@pytest.mark.parametrize("routing", [pytest.param("DYNAMIC", marks=BY_AUTO), "AUTO"])
async def test_both_eras_are_kept_on_stdio_where_the_setting_says_so(
    routing: str, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of a modern client then stays as it is, without a toolset; each search says why, and what to set."""
    monkeypatch.setattr("agents.CLIENT", {"name": KNOWN, "version": "1"})
    with anyio.fail_after(2 * LIMIT_S):
        async with agent_at("stdio", "modern", tmp_path, odd_servers(ledger), routing, stdio_era="both") as agent:
            await search_shows(agent, is_growing=False, has_toolset=False, takes_toolset=True)
            assert "MCPPROXY_STDIO_ERA=handshake" in (await found(agent, "new:look"))["hint"]


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
                if (transport, era) == ("stdio", "modern") and not eras_for(routing).offers_modern(name):
                    await refusal_shows(agent)
                    continue
                assert agent.greeting["result"]["capabilities"]["tools"] == {"listChanged": not is_fixed}
                await search_shows(agent, is_growing=is_growing, has_toolset=has_toolset, takes_toolset=not is_fixed)

"""The first minutes: the first answer, a restart from the stored catalog, several gateways on one data directory."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent, Era
from transports import STDIO_COMMAND, in_memory, odd_server, on_stdio, opened_gateway, rest_at, spawned

from smart_mcp_proxy.web.serve import socket_path

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["handshake", "modern"])


async def search(agent: Agent, query: str, **more: Any) -> dict[str, Any]:
    """The answer of `retrieve_tools`."""
    answer: dict[str, Any] = (await agent.call("retrieve_tools", query=query, **more))["structuredContent"]
    return answer


@asynccontextmanager
async def met(data_dir: Path, servers: dict[str, Any], era: Era) -> AsyncIterator[Agent]:
    """An agent of a gateway that was just opened."""
    async with opened_gateway(data_dir, servers) as gateway, in_memory(gateway, era) as agent:
        yield agent


async def covered(agent: Agent) -> None:
    """Returns when every server has been listed."""
    while (await search(agent, "lighthouse"))["not_covered"]:
        await asyncio.sleep(0.01)


@pytest.mark.requirement("restart-stale")
@ERAS
async def test_the_first_search_after_a_restart_is_answered_from_the_stored_index(tmp_path: Path, era: Era) -> None:
    """It waits for the index instead of saying that nothing fits."""
    with anyio.fail_after(20):
        async with met(tmp_path, {"odd": odd_server("modern")}, era) as agent:
            await covered(agent)
        async with met(tmp_path, {"odd": odd_server("modern", gate=tmp_path / "gate")}, era) as agent:
            found = await search(agent, "paint the lighthouse", limit=1)
            assert [tool["name"] for tool in found["tools"]] == ["odd:paint"]
            assert (found["total"] > 0, found["degraded"]) == (True, [])


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("restart-stale")
@ERAS
async def test_after_a_restart_the_stored_catalog_answers_before_any_server_is_ready(tmp_path: Path, era: Era) -> None:
    """Marked stale and named as not covered, until the server has confirmed its tools."""
    gate = tmp_path / "gate"
    with anyio.fail_after(20):
        async with met(tmp_path, {"odd": odd_server("modern")}, era) as agent:
            await covered(agent)
        async with met(tmp_path, {"odd": odd_server("modern", gate=gate)}, era) as agent:
            found = await search(agent, "paint the lighthouse", limit=1)
            assert [(tool["name"], tool["stale"]) for tool in found["tools"]] == [("odd:paint", True)]
            assert [row["server"] for row in found["not_covered"]] == ["odd"]
            assert "Stale tools" in found["hint"]
            assert "search again soon" in found["hint"]
            gate.touch()
            await covered(agent)
            found = await search(agent, "paint the lighthouse", limit=1)
            assert [(tool["name"], tool["stale"]) for tool in found["tools"]] == [("odd:paint", False)]
            assert "Stale" not in found["hint"]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("call-waits")
@ERAS
async def test_a_call_of_a_stored_tool_waits_for_its_server(tmp_path: Path, era: Era) -> None:
    """An agent that is quicker than a server's start gets its result all the same."""
    gate = tmp_path / "gate"
    with anyio.fail_after(20):
        async with met(tmp_path, {"odd": odd_server("handshake")}, era) as agent:
            await covered(agent)
        async with met(tmp_path, {"odd": odd_server("handshake", gate=gate)}, era) as agent:
            call = {"name": "odd:echo", "args": {"early": True}}
            exchange = await agent.begin("tools/call", name="call_tool_write", arguments=call)
            found = await search(agent, "odd:echo")
            assert not exchange.answer.done()
            assert found["tools"][0]["stale"] is True
            gate.touch()
            result = (await exchange.answer)["result"]
    assert json.loads(result["content"][0]["text"]) == {"early": True}


@ERAS
async def test_the_first_call_ever_waits_for_a_server_that_has_never_listed(tmp_path: Path, era: Era) -> None:
    """Nothing is stored that knows the tool; still it is not called unknown while its server connects."""
    gate = tmp_path / "gate"
    with anyio.fail_after(20):
        async with met(tmp_path, {"odd": odd_server("handshake", gate=gate)}, era) as agent:
            call = {"name": "odd:echo", "args": {"early": True}}
            exchange = await agent.begin("tools/call", name="call_tool_write", arguments=call)
            await agent.call("read_output", key="none")  # what was sent after it is answered before it
            assert not exchange.answer.done()
            gate.touch()
            result = (await exchange.answer)["result"]
    assert json.loads(result["content"][0]["text"]) == {"early": True}


@ERAS
async def test_tools_of_a_server_that_failed_before_its_first_list_say_so(tmp_path: Path, era: Era) -> None:
    """In calls, descriptions and the proxy tool alike; the names of other servers' tools are not offered instead."""
    broken = {"command": sys.executable, "args": ["-S", "-c", "raise SystemExit(3)"]}
    servers = {"odd": odd_server("modern"), "lost": broken, "unset": {"command": "${NOT_SET_ANYWHERE}"}}
    settings = {"proxy_tool": "proxy"}
    with anyio.fail_after(20):
        async with opened_gateway(tmp_path, servers, **settings) as gateway, in_memory(gateway, era) as agent:
            await gateway.wait_settled(15)
            for server, state in (("lost", "error"), ("unset", "needs_env")):
                name = f"{server}:echo"
                call = await agent.call("call_tool_write", name=name)
                described = await agent.call("describe_tool", names=[name])
                proxied = await agent.call("proxy", action="call", type="tool", path=name)
                for error in (call["structuredContent"]["error"], described["structuredContent"]["errors"][0]):
                    assert error["data"]["state"] == state
                    assert "odd:" not in json.dumps(error)
                assert f"Server '{server}'" in json.dumps(proxied) and "odd:" not in json.dumps(proxied)
            found = await search(agent, "echo", servers=["unset"])
            assert {"server": "unset", "state": "needs_env"} in found["not_covered"]
            assert "Server 'unset' lacks a variable" in found["hint"]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("removed-server")
async def test_tools_of_a_server_that_is_no_longer_configured_are_gone(tmp_path: Path) -> None:
    """The catalog may still hold them, an agent does not see them."""
    with anyio.fail_after(20):
        async with met(tmp_path, {"odd": odd_server("modern"), "gone": odd_server("modern")}, "modern") as agent:
            await covered(agent)
        async with met(tmp_path, {"odd": odd_server("modern")}, "modern") as agent:
            await covered(agent)
            found = await search(agent, "paint the lighthouse", limit=20)
            assert {tool["server"] for tool in found["tools"]} == {"odd"}
            result = await agent.call("call_tool_write", name="gone:echo")
            assert result["structuredContent"]["error"]["code"] == "tool_not_found"


@pytest.mark.requirement("server-died")
@ERAS
@pytest.mark.long  # much work for one test
async def test_a_call_whose_server_dies_is_answered_and_the_next_one_finds_it_back(tmp_path: Path, era: Era) -> None:
    """The agent learns that the call may have run; the server is started again by itself."""
    with anyio.fail_after(20):
        async with met(tmp_path, {"odd": odd_server("modern")}, era) as agent:
            await covered(agent)
            result = await agent.call("call_tool_write", name="odd:die")
            error = result["structuredContent"]["error"]
            assert (error["code"], error["delivery"]) == ("upstream_failed", "unknown")
            assert "'odd'" in error["message"]
            while (result := await agent.call("call_tool_write", name="odd:echo")).get("isError"):
                assert result["structuredContent"]["error"]["delivery"] == "not_sent"
            await covered(agent)


# --- the first answer over stdio


async def first_answer(data_dir: Path, servers: dict[str, Any]) -> tuple[float, float]:
    """Seconds from spawn to the answer of `initialize`, and of a second gateway from `initialize` to its answer."""
    began = time.monotonic()
    async with spawned(data_dir, servers, program=STDIO_COMMAND) as process, on_stdio(process, "handshake"):
        from_spawn_s = time.monotonic() - began
    async with (
        spawned(data_dir, servers, program=STDIO_COMMAND) as process,
        on_stdio(process, "handshake", is_greeting=False) as agent,
    ):
        assert (await agent.request("ping"))["result"] == {}
        began = time.monotonic()
        await agent.greet()
        return from_spawn_s, time.monotonic() - began


async def best_ratios(tmp_path: Path, rounds: int, count: int) -> tuple[float, float, float]:
    """How much longer the two first answers take with so many servers, a fifth of them silent, than with none; the
    best of each; and the worst request in seconds."""
    servers = {f"s{number}": odd_server("never" if number < count // 5 else "modern") for number in range(count)}
    none, many = [], []
    for turn in range(rounds):
        none.append(await first_answer(tmp_path / f"none{turn}", {"off": {"command": "none", "disabled": True}}))
        many.append(await first_answer(tmp_path / f"many{turn}", servers))
    spawn, request = (min(pair[at] for pair in many) / min(pair[at] for pair in none) for at in (0, 1))
    print(f"\nfirst answer: none {none}, many {many}: spawn x{spawn:.2f}, request x{request:.2f}")
    return spawn, request, max(pair[1] for pair in many)


@pytest.mark.requirement("first-answer")
@pytest.mark.long
async def test_the_first_answer_does_not_wait_for_servers(tmp_path: Path) -> None:
    """Four of twenty servers never say a word. The bounds are wide enough for a busy machine; the strict ones are
    checked with the big numbers."""
    spawn, _, worst_s = await best_ratios(tmp_path, 1, 20)
    assert spawn < 2
    assert worst_s < 1


@pytest.mark.soak
@pytest.mark.requirement("first-answer")
async def test_the_first_answer_is_as_fast_with_fifty_servers_as_with_none(tmp_path: Path) -> None:
    """At most a fifth slower, from spawn and from the request."""
    spawn, request, _ = await best_ratios(tmp_path, 5, 50)
    assert spawn <= 1.2
    assert request <= 1.2


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.requirement("probe-first")
@pytest.mark.parametrize("is_waiting", [True, False], ids=["waits for the answer", "waits for nothing"])
async def test_a_client_may_probe_and_then_begin_with_a_handshake(tmp_path: Path, is_waiting: bool) -> None:
    """Clients that know both eras ask first, and fall back if the answer takes too long."""
    servers = {"off": {"command": "none", "disabled": True}}
    with anyio.fail_after(30):
        async with spawned(tmp_path, servers) as process, on_stdio(process, "handshake", is_greeting=False) as agent:
            envelope = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "x", "version": "1"}}
            meta = {f"io.modelcontextprotocol/{key}": part for key, part in envelope.items()}
            meta["io.modelcontextprotocol/clientCapabilities"] = {}
            probe = await agent.begin("server/discover", _meta=meta)
            if is_waiting:
                await probe.answer
            await agent.greet()
            assert agent.greeting["result"]["protocolVersion"] == "2025-11-25"
            assert "2026-07-28" in (await probe.answer)["result"]["supportedVersions"]
            assert (await agent.request("tools/list"))["result"]["tools"]
            assert (await search(agent, "lighthouse"))["tools"] == []


# --- several gateways on one data directory


async def catalog_of(data_dir: Path, process: asyncio.subprocess.Process) -> dict[str, Any]:
    """What a gateway process knows: generation, and every tool without what changes with time."""
    async with rest_at(socket_path(data_dir, process.pid)) as rest:
        status, tools = (await rest.get("/status")).json(), (await rest.get("/tools")).json()
    fresh = not any(tool.pop("stale") for tool in tools)
    return {"generation": status["generation"], "is_settled": status["is_settled"] and fresh, "tools": tools}


async def index_at_once(data_dir: Path, count: int, era: Era) -> None:
    """Starts gateways together, lets an agent of each search while all index, and compares their catalogs."""
    servers = {f"s{number}": odd_server("modern", count=60) for number in range(4)}
    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(spawned(data_dir, servers)) for _ in range(count)]
        agents = [await stack.enter_async_context(on_stdio(process, era)) for process in processes]

        async def use(agent: Agent) -> None:
            while True:
                found = await search(agent, "more lighthouse", limit=50)
                if found["tools"]:
                    best = found["tools"][0]
                    variant = best["call_with"]
                    result = await agent.call(variant, name=best["name"], args={"entry": 1, "colour": "red"})
                    assert "lock" not in json.dumps(result)
                if not found["not_covered"] and found["total"] == 4 * (60 + 19):
                    return

        async with asyncio.TaskGroup() as group:
            for agent in agents:
                group.create_task(use(agent))
        first, *others = [await catalog_of(data_dir, process) for process in processes]
        while any(other != first for other in others) or not first["is_settled"]:
            await asyncio.sleep(0.1)
            first, *others = [await catalog_of(data_dir, process) for process in processes]
        assert len(first["tools"]) == 4 * (60 + 19)
    log = (data_dir / "stderr.log").read_text("utf-8")
    assert "lock" not in log
    assert "ERROR" not in log
    assert "Traceback" not in log


@pytest.mark.requirement("shared-data")
@pytest.mark.long
async def test_two_gateways_on_one_data_directory_index_at_once(tmp_path: Path) -> None:
    """No lock error reaches an agent or the log, and both end with the same catalog."""
    with anyio.fail_after(60):
        await index_at_once(tmp_path, 2, "handshake")


@pytest.mark.soak
@pytest.mark.requirement("shared-data")
async def test_ten_gateways_on_one_data_directory_index_at_once(tmp_path: Path) -> None:
    """The same with as many windows as somebody may have open."""
    with anyio.fail_after(240):
        await index_at_once(tmp_path, 10, "modern")

"""The wall clock jumps under a running gateway: agents notice nothing. F57."""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import Agent, wait_covered
from transports import odd_server, on_stdio, opened_gateway, rest_at, spawned

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.desktop.places import sockets_folder
from smart_mcp_proxy.gateway.activity.activity_log import steady

pytestmark = pytest.mark.anyio

DAY_S = 86_400
YEAR_S = 365 * DAY_S
BURST = 4
CALLS = 9
QUERIES = ("paint the lighthouse", "erase one entry", "look up one entry", "work in two steps")


def put(clock: Path, jump_s: int) -> None:
    """Moves the clock, at once: somebody looks at any moment."""
    moved = clock.with_suffix(".new")
    moved.write_text(str(jump_s))
    moved.replace(clock)


async def tell(agent: Agent, clock: Path, jumps: tuple[int, ...]) -> list[Any]:
    """What an agent hears that searches, calls, reads on and is refused, with the clock moved in between."""
    heard: list[Any] = []
    cut = await agent.call("call_tool_write", name="old:lines", args={"count": 500})
    key = cut["_meta"]["dev.smartmcpproxy/truncated"]["key"]
    for jump_s, query in zip((0, *jumps), QUERIES, strict=True):
        put(clock, jump_s)
        found = (await agent.call("retrieve_tools", query=query))["structuredContent"]
        heard.append([found[part] for part in ("newly_registered", "evicted", "pool", "degraded")])
        heard.append([tool["name"] for tool in found["tools"]])
        assert 0 <= found["index_age_s"] < 60
        called = await agent.call("call_tool_write", name="old:echo", args={"query": query})
        again = await agent.call("call_tool_write", name="old:echo", args={"query": query})
        for result in (called, again):
            error = result.get("structuredContent", {}).get("error", {})
            heard.append((result.get("isError", False), error.get("code")))
            assert error.get("retry_after_s", 0) <= 2_000
        page = await agent.call("read_output", key=key, offset=0)
        heard.append(page.get("isError", False))
    return heard


async def calls_recorded(rest: httpx2.AsyncClient) -> list[tuple[str, str]]:
    """Tool and outcome of all calls, newest first."""
    async with asyncio.timeout(20):
        while True:  # they are stored a moment after their answers
            page = (await rest.get("/activity", params={"kind": "call", "limit": "50"})).json()
            if len(page["items"]) == CALLS:
                return [(record["tool"], record["outcome"]) for record in page["items"]]


@pytest.mark.long  # a gateway process for each clock
async def test_agents_notice_nothing_of_a_year_ahead_or_a_day_back(tmp_path: Path) -> None:
    """Pool, evictions, limits, cut outputs, order of records: all as without a jump."""
    servers = {"old": odd_server("handshake") | {"limits": {"calls_per_s": 0.001, "burst": BURST}}}
    settings = {"ROUTING_TYPE": "DYNAMIC", "TOOLS_LIMIT": "2", "TRUNCATE_OUTPUT_LEN": "2000"}

    async def lived(name: str, *jumps: int) -> list[Any]:
        clock, data_dir = tmp_path / f"clock-{name}", tmp_path / name
        put(clock, 0)
        program = (sys.executable, "-m", "tests.interaction.jumping_clock", str(clock), "serve")
        async with (
            spawned(data_dir, servers, program=program, **settings) as process,
            on_stdio(process, "handshake") as agent,
            rest_at(Path(sockets_folder(str(data_dir))) / f"{process.pid}.sock") as rest,
        ):
            await wait_covered(agent)
            return [*await tell(agent, clock, jumps), await calls_recorded(rest)]

    still, jumping = await asyncio.gather(lived("still", 0, 0, 0), lived("jumping", YEAR_S, -DAY_S, YEAR_S))
    assert jumping == still
    assert ("echo", "rate_limited") in still[-1]


async def test_what_was_stored_a_year_ahead_is_new_and_no_more(tmp_path: Path) -> None:
    """After a restart on the right clock: a list is 0 s old, and a process that was killed meanwhile is not alive."""
    async with Catalog.open(tmp_path / "ahead", name_limit=60, clock=lambda: time.time() + YEAR_S) as ahead:
        await ahead.sync("old", [{"name": "echo"}])
        await ahead.register_instance(1, ["old"])
        shutil.copytree(tmp_path / "ahead", tmp_path / "left")  # as a kill leaves it
    async with opened_gateway(tmp_path / "left", {"old": odd_server("never")}) as gateway:
        assert gateway.lists.tool_lists.age_s(["old"]) == 0
        assert [one.pid for one in await gateway.catalog.instances()] == [os.getpid()]


def test_the_age_of_records_is_counted_on_a_clock_that_never_runs_ahead() -> None:
    """A wall clock a year ahead removes no record; one set back keeps them for as much longer; time itself counts."""
    monotonic, wall = [100.0], [1_700_000_000.0]
    now = steady(lambda: monotonic[0], lambda: wall[0])
    wall[0] += YEAR_S
    assert now() == 1_700_000_000.0
    monotonic[0] += DAY_S
    assert now() == 1_700_000_000.0 + DAY_S
    wall[0] -= YEAR_S + DAY_S
    assert now() == 1_700_000_000.0 - DAY_S

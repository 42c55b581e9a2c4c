"""A gateway is never its own server, by whatever way it comes round; gateways in a row are fine."""

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from forked_programs import ForkedProcess, start_forked
from transports import ENVIRON, STDIO_COMMAND, in_memory, odd_server, on_stdio, opened_gateway, rest_at, served

from smart_mcp_proxy.desktop.places import sockets_folder
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.models import ServerStatus
from smart_mcp_proxy.servers import load_servers

# Marked long: several gateways.
pytestmark = [pytest.mark.anyio, pytest.mark.requirement("no-circles"), pytest.mark.long]

LEADS_BACK = "leads back to this gateway"
NOBODY = {"off": {"command": "none", "disabled": True}}


class Served(NamedTuple):
    """A gateway in this process, and where it serves."""

    gateway: Gateway
    base: str

    async def lead_to(self, path: str = "/mcp", **others: "Served") -> None:
        """Makes these gateways its servers, and waits until each is listed or has failed."""
        entries = {name: {"url": f"{other.base}{path}", "trust": "trusted"} for name, other in others.items()}
        await self.gateway.apply(load_servers(json.dumps({"mcpServers": entries})).servers)
        self.gateway.start_upstreams()
        assert await self.gateway.wait_settled(20)

    def status(self, name: str) -> ServerStatus:
        """Of one of its servers."""
        return next(one for one in self.gateway.status().servers if one.name == name)


@asynccontextmanager
async def gateways(directory: Path, count: int) -> AsyncIterator[list[Served]]:
    """So many, each with a place of its own."""
    async with AsyncExitStack() as stack:
        found = []
        for number in range(count):
            gateway = await stack.enter_async_context(opened_gateway(directory / str(number), NOBODY))
            found.append(Served(gateway, await stack.enter_async_context(served(gateway))))
        yield found


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
async def test_a_gateway_refuses_its_own_address(tmp_path: Path, path: str) -> None:
    """B51: with a reason of its own, and what to do; an agent that asks for its tools reads the same."""
    async with gateways(tmp_path, 1) as (alone,):
        await alone.lead_to(path, me=alone)
        status = alone.status("me")
        assert (status.state, status.error.startswith(f"Server 'me' {LEADS_BACK}")) == ("error", True)
        assert "Take 'me' out of this gateway's configuration" in status.hint
        async with in_memory(alone.gateway, "modern") as agent:
            found = await agent.call("retrieve_tools", query="call a tool")
            assert found["structuredContent"]["total"] == 0
            result = await agent.call("call_tool_write", name="me:call_tool_write", args={"name": "me:x"})
        assert result["structuredContent"]["error"]["delivery"] == "not_sent"


@pytest.mark.parametrize("count", [2, 3])
async def test_the_last_one_to_close_a_circle_is_refused(tmp_path: Path, count: int) -> None:
    """B51: A -> B -> A, and longer; what was there before goes on."""
    async with gateways(tmp_path, count) as found:
        for one, other in reversed(list(itertools.pairwise(found))):
            await one.lead_to(next=other)
            assert one.status("next").state == "ready", "in a row they are fine"
        await found[-1].lead_to(first=found[0])
        status = found[-1].status("first")
        assert (status.state, LEADS_BACK in status.error) == ("error", True)
        assert found[0].status("next").state == "ready"


async def test_an_opened_circle_is_forgotten(tmp_path: Path) -> None:
    """Once A does not lead to B any more, B may lead to A."""
    async with gateways(tmp_path, 2) as (one, other):
        await one.lead_to(next=other)
        await other.lead_to(back=one)
        assert other.status("back").state == "error"
        await one.lead_to()
        other.gateway.upstreams.fleet.retry("back")
        with anyio.fail_after(20):
            while other.status("back").state != "ready":
                await asyncio.sleep(0.05)


async def test_two_gateways_may_share_a_third(tmp_path: Path) -> None:
    """Two ways to one place are no circle."""
    async with gateways(tmp_path, 3) as (top, left, shared):
        await left.lead_to(shared=shared)
        await top.lead_to(left=left, shared=shared)
        assert {one.state for one in top.gateway.status().servers} == {"ready"}


async def test_only_gateways_are_told_who_is_there(tmp_path: Path) -> None:
    """To an agent the greeting is what it always was."""
    async with opened_gateway(tmp_path, NOBODY) as gateway, in_memory(gateway, "handshake") as agent:
        assert "experimental" not in agent.greeting["result"]["capabilities"]


def gateway_entry(folder: Path, **environ: str) -> dict[str, Any]:
    """A gateway as somebody's server: it reads the file in `folder`."""
    own = {"MCPPROXY_DATA_DIR": str(folder / "data"), "PYTHONPATH": os.pathsep.join(sys.path), **environ}
    return {
        "command": STDIO_COMMAND[0],
        "args": [*STDIO_COMMAND[1:]],
        "cwd": str(folder),
        "env": own,
        "isolation": "none",
    }


def configured(folder: Path, **entries: Any) -> Path:
    """A folder whose server file has these entries."""
    folder.mkdir(parents=True, exist_ok=True)
    named = {name: {**entry, "trust": "trusted"} for name, entry in entries.items()}
    (folder / "mcp_config.json").write_text(json.dumps({"mcpServers": named}))
    return folder


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[ForkedProcess]:
    """A gateway process of the file in `folder`, an agent greeting it."""
    entry = gateway_entry(folder)
    with open(os.devnull, "wb") as nothing:
        process = await start_forked("serve", env=ENVIRON | entry["env"], cwd=folder, stderr=nothing)
    try:
        async with on_stdio(process, "handshake"):
            yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 20)


async def shown(folder: Path, process: ForkedProcess, name: str) -> dict[str, Any]:
    """What the process's status shows of one server once it is neither new nor connecting."""
    address = Path(sockets_folder(str(folder / "data"))) / f"{process.pid}.sock"
    with anyio.fail_after(30):
        while not address.exists():  # a client is greeted before the gateway is loaded
            await asyncio.sleep(0.1)
        async with rest_at(address) as rest:
            while True:
                rows = (await rest.get("/status")).json()["servers"]
                row: dict[str, Any] = next(row for row in rows if row["name"] == name)
                if row["state"] not in ("disconnected", "connecting"):
                    return row
                await asyncio.sleep(0.1)


@pytest.mark.long
async def test_a_gateway_that_starts_itself_is_refused(tmp_path: Path) -> None:
    """B51: the child is recognised and starts nothing, so there is one of it and no chain."""
    folder = configured(tmp_path / "one", me=gateway_entry(tmp_path / "one"))
    async with running(folder) as process:
        row = await shown(folder, process, "me")
    assert (row["state"], LEADS_BACK in row["error"]) == ("error", True)
    assert "needs a configuration file of its own" in row["hint"]


@pytest.mark.long
async def test_a_gateway_below_another_is_a_server_like_any_other(tmp_path: Path) -> None:
    """Each has a file of its own; the one that leads back up is refused where it does."""
    top, below = tmp_path / "top", tmp_path / "below"
    configured(top, below=gateway_entry(below))
    configured(below, good=odd_server("modern"), top=gateway_entry(top))
    async with running(top) as process:
        row = await shown(top, process, "below")
        assert row["state"] == "ready"
        with anyio.fail_after(30):
            while not (sockets := list(Path(sockets_folder(str(below / "data"))).glob("*.sock"))):
                await asyncio.sleep(0.1)
        child = sockets[0].stem
        async with rest_at(sockets[0]) as rest:
            with anyio.fail_after(30):
                while True:
                    rows = {row["name"]: row for row in (await rest.get("/status")).json()["servers"]}
                    if {rows["good"]["state"], rows["top"]["state"]} == {"ready", "error"}:
                        break
                    await asyncio.sleep(0.1)
    assert child.isdecimal()
    assert LEADS_BACK in rows["top"]["error"]

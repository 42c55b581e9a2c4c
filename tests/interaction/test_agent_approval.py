"""A server turns after it was trusted: what a real MCP client sees of it, finds and can call."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from mcp import MCPError
from transports import opened_gateway

from smart_mcp_proxy.catalog import change_hash
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.models import ToolKey

pytestmark = pytest.mark.anyio

UPSTREAM = Path(__file__).parent / "turning_upstream.py"
SECRET = "xyzzy"
"""A word of poisoned definitions that must never reach the client."""
PAINT: dict[str, Any] = {
    "name": "paint",
    "description": "Paint the wall.",
    "inputSchema": {"type": "object", "properties": {"colour": {"type": "string", "description": "Which one."}}},
    "outputSchema": {"type": "object", "properties": {"done": {"type": "boolean"}}},
    "annotations": {"destructiveHint": True},
}
POISONED_TEXT = PAINT | {"description": f"Paint the wall. {SECRET}"}
POISONED_SCHEMA = PAINT | {"inputSchema": {"type": "object", "properties": {"colour": {"description": SECRET}}}}
RUG_PULLS: dict[str, list[dict[str, Any]]] = {
    "description": [POISONED_TEXT],
    "schema": [POISONED_SCHEMA],
    "output schema": [PAINT | {"outputSchema": {"type": "object", "description": SECRET}}],
    "annotations": [PAINT | {"annotations": {"readOnlyHint": True, "title": SECRET}}],
    "metadata": [PAINT | {"_meta": {"note": SECRET}}],
    "two steps": [POISONED_TEXT, POISONED_SCHEMA],
}


@dataclass
class World:
    """A client of a gateway in front of the turning server."""

    directory: Path
    gateway: Gateway
    client: Any

    async def turn(self, *tools: dict[str, Any]) -> None:
        """The server lists other tools now, says so, and the gateway has heard it."""
        self.write(*tools)
        await self.call("write", "up:poke")
        wanted = {tool["name"]: change_hash("up", tool) for tool in tools}
        await self.until(lambda: self.listed() == wanted and self.gateway.lists.tool_lists.is_fresh("up"))

    def write(self, *tools: dict[str, Any]) -> None:
        part = self.directory / "tools.part"
        part.write_text(json.dumps(tools))
        part.replace(self.directory / "tools")

    def listed(self) -> dict[str, str]:
        records = self.gateway.catalog.snapshot.collect_server_tools("up")
        own = {record.key.tool: self.gateway.catalog.get_listed_hash(record.key) for record in records}
        stored = {record.key.tool: record.change_hash for record in records if record.key.tool != "poke"}
        return stored if all(own[name] == hash_ for name, hash_ in stored.items()) else {}

    async def until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not is_true():
                await asyncio.sleep(0.01)

    async def call(self, variant: str, name: str, **more: Any) -> dict[str, Any]:
        """The structured result of a call tool, an error included."""
        arguments = {"name": name, "args": {}, **more}
        result = await self.client.call_tool(f"call_tool_{variant}", arguments, raise_on_error=False)
        return {"isError": result.is_error, **(result.structured_content or {})}

    async def found(self, query: str) -> dict[str, Any]:
        answer: dict[str, Any] = (await self.client.call_tool("retrieve_tools", {"query": query})).structured_content
        return answer

    def calls(self) -> int:
        """How many calls of other tools than `poke` have reached the server."""
        ledger = self.directory / "ledger"
        return len(ledger.read_text().splitlines()) if ledger.exists() else 0


@asynccontextmanager
async def world(
    directory: Path, *tools: dict[str, Any], settings: Mapping[str, Any] | None = None, **entry: Any
) -> AsyncIterator[World]:
    made = World(directory, None, None)  # type: ignore[arg-type]
    made.write(*tools)
    command = ["-S", str(UPSTREAM), str(directory / "tools"), str(directory / "ledger")]
    server = {"command": sys.executable, "args": command, **entry}
    async with (
        opened_gateway(directory / "data", {"up": server}, **(settings or {})) as made.gateway,
        Client(made.gateway.mcp_server()) as made.client,
    ):
        made.gateway.start_upstreams()
        assert await made.gateway.wait_settled(20)
        yield made


@pytest.mark.requirement("approval-rug-pull")
@pytest.mark.parametrize("steps", RUG_PULLS.values(), ids=RUG_PULLS)
async def test_a_tool_that_turns_is_gone_until_its_user_agrees(tmp_path: Path, steps: list[dict[str, Any]]) -> None:
    """Not found, not described, not called, no word of it told; reverted it is back, approved it is there."""
    async with world(tmp_path, PAINT) as at:
        assert not (await at.call("destructive", "up:paint"))["isError"]
        reached = at.calls()
        for step in steps:
            await at.turn(step)
        for query in ("paint the wall", SECRET, "up:paint"):
            answer = await at.found(query)
            assert "up:paint" not in [tool["name"] for tool in (*answer["tools"], *answer["near_misses"])]
            assert {"server": "up", "state": "partly_quarantined"} in answer["not_covered"]
            assert SECRET not in json.dumps(answer | {"query": ""})
        asked = await at.client.call_tool("describe_tool", {"names": ["up:paint"]}, raise_on_error=False)
        described = asked.structured_content
        assert SECRET not in json.dumps(described)
        assert described["errors"][0]["data"].keys() >= {"digest", "findings", "review", "approve"}
        for variant in ("read", "write", "destructive"):
            refused = await at.call(variant, "up:paint")
            assert refused["error"]["code"] == "quarantined"
            assert "mcpproxy approve up:paint" in refused["error"]["hint"]
            assert SECRET not in json.dumps(refused)
        assert at.calls() == reached
        await at.turn(PAINT)
        assert not (await at.call("destructive", "up:paint"))["isError"]
        await at.turn(steps[-1])
        await at.gateway.admin.approvals.approve({"up:paint": change_hash("up", steps[-1])}, "operator")
        assert "up:paint" in [tool["name"] for tool in (await at.found("paint the wall"))["tools"]]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("approval-rug-pull")
async def test_every_way_to_a_tool_that_turned_is_refused_with_the_analysis(tmp_path: Path) -> None:
    """By its listed name, which a client may still show, by the `proxy` tool, from a script, by preflight."""
    settings = {"proxy_tool": "proxy", "code": "python"}
    async with world(tmp_path, PAINT, settings=settings, pin=["paint"]) as at:
        assert "up__paint" in [tool.name for tool in await at.client.list_tools()]
        reached = at.calls()
        await at.turn(POISONED_TEXT)
        script = "call_tool('up:paint', {})"
        ways = {
            "up__paint": {},
            "proxy": {"action": "call", "type": "tool", "path": "up:paint"},
            "code_execution": {"code": script},
            "describe_tool": {"names": ["up:paint"], "check": True},
        }
        for tool, arguments in ways.items():
            said = json.dumps((await at.client.call_tool(tool, arguments, raise_on_error=False)).structured_content)
            assert "The scanner, of the definition that waits (sha256:" in said, (tool, said)
            assert SECRET not in said
        assert "up__paint" not in [tool.name for tool in await at.client.list_tools()]
        with pytest.raises(MCPError, match="Unknown tool"):
            await at.client.call_tool("up__nothing", {})
        assert at.calls() == reached


@pytest.mark.requirement("approval-new-tool")
async def test_a_tool_that_comes_later_waits_for_the_user(tmp_path: Path) -> None:
    """Also when it takes the place of one that left."""
    async with world(tmp_path, PAINT) as at:
        await at.turn({"name": "prime", "description": SECRET, "inputSchema": {"type": "object"}})
        assert (await at.found(SECRET))["tools"] == []
        assert (await at.call("write", "up:prime"))["error"]["data"]["state"] == "pending"
        assert (await at.call("destructive", "up:paint"))["error"]["code"] == "tool_not_found"
        assert at.calls() == 0


@pytest.mark.requirement("approval-trusted")
async def test_a_trusted_server_may_change_its_tools(tmp_path: Path) -> None:
    """Its user said so in its entry."""
    async with world(tmp_path, PAINT, trust="trusted") as at:
        await at.turn(POISONED_TEXT)
        async with asyncio.timeout(20):
            while not (tools := (await at.found(SECRET))["tools"]):
                await asyncio.sleep(0.01)
        assert [tool["name"] for tool in tools] == ["up:paint"]


@pytest.mark.requirement("approval-server")
async def test_a_quarantined_server_is_not_started(tmp_path: Path) -> None:
    """It is named as what it is, its tools are refused, and its command never ran."""
    touched = tmp_path / "touched"
    code = f"open({str(touched)!r}, 'w')"
    async with (
        opened_gateway(
            tmp_path / "data", {"bad": {"command": sys.executable, "args": ["-c", code], "quarantined": True}}
        ) as gateway,
        Client(gateway.mcp_server()) as client,
    ):
        gateway.start_upstreams()
        assert await gateway.wait_settled(20)
        answer = (await client.call_tool("retrieve_tools", {"query": "anything"})).structured_content
        assert answer["not_covered"] == [{"server": "bad", "state": "quarantined"}]
        call = {"name": "bad:tool", "args": {}}
        refused = (await client.call_tool("call_tool_write", call, raise_on_error=False)).structured_content
        assert refused["error"]["code"] == "quarantined"
        assert "mcpproxy server approve bad" in refused["error"]["hint"]
        assert "Nothing is known of its definitions" in refused["error"]["message"]
        assert refused["error"]["data"] == {
            **{"state": "quarantined", "server": "bad", "approve": "mcpproxy server approve bad"},
            **{"definitions": 0, "review": False, "findings": []},
        }
        upstream = gateway.upstreams.fleet.upstreams.get("bad")
        assert upstream is not None
        await upstream.restart()
        assert upstream.status.state == "quarantined"
    assert not touched.exists()


async def flap(directory: Path, rounds: int) -> None:
    """Calls go on while the server turns back and forth; none goes out while it is known to have turned."""
    async with world(directory, PAINT) as at:
        key, good = ToolKey("up", "paint"), change_hash("up", PAINT)
        (digest,) = (record.digest for record in at.gateway.visible.records() if record.key == key)
        outcomes: set[str] = set()

        async def caller() -> None:
            while not is_over:
                answer = await at.call("destructive", "up:paint", digest=digest)
                outcomes.add(answer["error"]["code"] if answer["isError"] else "ok")
                await asyncio.sleep(0.005)  # as a client would, not a flood: the server has to get its turn

        is_over = False
        async with asyncio.TaskGroup() as group:
            callers = [group.create_task(caller()) for _ in range(3)]
            for _ in range(rounds):
                await at.turn(POISONED_TEXT)
                reached = at.calls()
                for _ in range(3):
                    assert (await at.call("destructive", "up:paint"))["error"]["code"] == "quarantined"
                # What was on its way when the list arrived may have come in since, and no more than that.
                assert at.calls() <= reached + len(callers)
                await at.turn(PAINT)
                assert at.gateway.catalog.snapshot.by_key[key].change_hash == good
            is_over = True
        assert outcomes <= {"ok", "quarantined"}, outcomes
        assert "ok" in outcomes


@pytest.mark.requirement("approval-flapping")
@pytest.mark.long
async def test_no_call_reaches_a_server_that_is_known_to_have_turned(tmp_path: Path) -> None:
    """Six times back and forth, under calls."""
    await flap(tmp_path, 6)


@pytest.mark.soak
async def test_no_call_reaches_a_server_that_is_known_to_have_turned_in_the_long_run(tmp_path: Path) -> None:
    """A thousand times."""
    await flap(tmp_path, 1_000)

"""Every request to a server passes all gates in their order, whatever brought it in."""

import ast
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from broker_upstream import BrokerUpstream
from plain_http import plain_client
from syntax_trees import package_trees
from transports import in_memory, listening, odd_servers, over_http, served, settled
from wires import call_text, http_wire

from smart_mcp_proxy.cli.support.local_gateway import open_local_api
from smart_mcp_proxy.errors import RefusedError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.calls import gates, request_path
from smart_mcp_proxy.gateway.calls.exchange import RequestExchange

pytestmark = pytest.mark.anyio

HELD = {
    "declares": {"prompts": {}, "resources": {}, "completions": {}},
    "prompts": [{"name": "greet", "arguments": [{"name": "who"}]}],
    "resources": [{"name": "plan", "uri": "test://plan"}],
    "resourceTemplates": [],
    "tools": [],
}
SCRIPT = "result = call_tool('old:echo', {'text': 'x'})"
LIMIT_S = 60
Way = Callable[["World"], Awaitable[Any]]


class World(NamedTuple):
    """A gateway in this process, and its address."""

    gateway: Gateway
    base: str


@asynccontextmanager
async def opened_world(directory: Path, **settings: Any) -> AsyncIterator[World]:
    held = directory / "held.json"
    held.write_text(json.dumps(HELD), "utf-8")
    shelf = {"command": sys.executable, "args": ["-S", str(Path(__file__).parent / "contents_upstream.py"), "modern"]}
    shelf["args"] = [*shelf["args"], str(held)]
    async with listening(BrokerUpstream()) as there:
        brokered = {"url": f"{there}/mcp", "proxy": True}
        servers = {**odd_servers(directory / "ledger"), "shelf": shelf, "b": brokered}
        async with settled(directory / "data", servers, **settings) as gateway, served(gateway) as base:
            yield World(gateway, base)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    settings = {"routing_type": "DYNAMIC", "proxy_tool": "proxy", "code": "python"}
    async with opened_world(tmp_path_factory.mktemp("gates"), **settings) as opened:
        yield opened


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The gates that requests have passed."""
    names: list[str] = []

    def noting(gate: gates.Gate) -> gates.Gate:
        def note(exchange: RequestExchange, rules: gates.GateRules) -> None:
            names.append(gate.__name__)
            gate(exchange, rules)

        return note

    monkeypatch.setattr(request_path, "GATES", tuple(map(noting, gates.GATES)))
    return names


async def by_fast_path(world: World) -> None:
    async with http_wire(world.base, "handshake") as wire:
        answer = await wire.tell(call_text("handshake", 1, "old:echo", {"text": "x"}))
        assert not answer["result"].get("isError"), answer


async def by_sdk(world: World) -> None:
    async with in_memory(world.gateway, "handshake") as agent:
        await called(agent, "call_tool_write", name="old:echo", args={"text": "x"})


async def by_sdk_modern(world: World) -> None:
    async with in_memory(world.gateway, "modern") as agent:
        await called(agent, "call_tool_write", name="old:echo", args={"text": "x"})


async def by_proxy_tool(world: World) -> None:
    async with in_memory(world.gateway, "handshake") as agent:
        await called(agent, "proxy", action="call", type="tool", path="old__echo", args={"text": "x"})


async def by_script(world: World) -> None:
    async with in_memory(world.gateway, "handshake") as agent:
        await called(agent, "code_execution", code=SCRIPT, language="python")


async def by_toolset(world: World) -> None:
    async with over_http(world.base, "modern") as agent:
        found = (await agent.call("retrieve_tools", query="echo"))["structuredContent"]
    path = "/mcp/t/" + found["toolset"]["handle"]
    async with over_http(world.base, "handshake", path=path) as agent:
        await called(agent, "old__echo", text="x")


async def by_own_list(world: World) -> None:
    async with in_memory(world.gateway, "handshake") as agent:
        await agent.call("retrieve_tools", query="echo")
        await called(agent, "call_tool_write", name="old__echo", args={"text": "x"})


async def by_rest(world: World) -> None:
    async with open_local_api(world.gateway) as api:  # the command line's way, too
        assert not (await api.call("old:echo", {"text": "x"})).get("isError")


async def by_broker(world: World) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "x"}},
    }
    async with plain_client(base_url=world.base, timeout=LIMIT_S) as client:
        answer = (await client.post("/api/mcp/b/proxy", json=message)).json()
        assert "result" in answer, answer


async def by_prompt(world: World) -> None:
    await asked(world, "prompts/get", name="shelf__greet", arguments={"who": "x"})


async def by_resource(world: World) -> None:
    await asked(world, "resources/read", uri="mcpproxy://shelf/test%3A%2F%2Fplan")


async def by_completion(world: World) -> None:
    reference = {"type": "ref/prompt", "name": "shelf__greet"}
    await asked(world, "completion/complete", ref=reference, argument={"name": "who", "value": "x"})


async def called(agent: Any, tool: str, /, **arguments: Any) -> None:
    result = await agent.call(tool, **arguments)
    assert not result.get("isError"), result


async def asked(world: World, method: str, **params: Any) -> None:
    async with in_memory(world.gateway, "handshake") as agent:
        answer = await agent.request(method, **params)
        assert "result" in answer, answer


WAYS: dict[str, Way] = {name: way for name, way in list(globals().items()) if name.startswith("by_")}


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_in_passes_all_gates_in_their_order(world: World, passed: list[str], way: str) -> None:
    """Each request all of them once."""
    with anyio.fail_after(LIMIT_S):
        await WAYS[way](world)
    assert passed and passed == [gate.__name__ for gate in gates.GATES] * (len(passed) // len(gates.GATES))


async def test_a_passed_through_server_is_behind_the_same_gates(tmp_path: Path, passed: list[str]) -> None:
    """Although its tools have their own names."""
    async with opened_world(tmp_path, passthrough="old") as world, in_memory(world.gateway, "handshake") as agent:
        await called(agent, "echo", text="x")
    assert passed == [gate.__name__ for gate in gates.GATES]


async def test_a_gate_that_closes_stops_a_request_before_the_next_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent; a new gate is one function and one row."""

    def closed(exchange: RequestExchange, rules: gates.GateRules) -> None:
        raise RefusedError(f"No {exchange.method} today.", hint="Come back tomorrow.")

    def never(exchange: RequestExchange, rules: gates.GateRules) -> None:
        raise AssertionError("passed")

    monkeypatch.setattr(request_path, "GATES", (closed, never))
    async with in_memory(world.gateway, "handshake") as agent:
        result = await agent.call("call_tool_write", name="old:echo", args={"text": "x"})
        assert "No tools/call today." in result["content"][0]["text"]
        answer = await agent.request("prompts/get", name="shelf__greet", arguments={"who": "x"})
        assert "No prompts/get today." in answer["error"]["message"]


@pytest.mark.long  # a third of a second of processor time
def test_nothing_else_sends_a_request_to_a_server() -> None:
    """`Upstream.request` is called on the path of requests, and for the task that such a request waits for."""
    found = [
        path
        for path, tree in package_trees().items()
        if path.startswith(("gateway/", "web/", "cli/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("upstream.request", "sender.request")
    ]
    assert sorted(found) == ["gateway/calls/request_path.py"] * 2 + ["gateway/calls/tasks.py"]

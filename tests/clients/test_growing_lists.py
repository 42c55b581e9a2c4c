"""Real clients whose lists grow by their searches, and modern ones that are given a toolset, over stdio and HTTP."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client as FastMCPClient
from fastmcp.client.transports import StdioTransport
from installed import Installation, serving
from mcp import Client, StdioServerParameters
from mcp.client.subscriptions import ToolsListChanged
from node_tools import TYPESCRIPT_SDK, node_environment, node_folder, npm_package
from pydantic_ai.mcp import MCPToolset
from stories import OWN_TOOLS, Reply, check, live

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

HERE = Path(__file__).parent
LIMIT_S = 60
PAUSE_S = 0.05
GROWING = {
    "command": sys.executable,
    "args": ["-S", str(HERE.parent / "interaction" / "growing_upstream.py")],
    "trust": "trusted",
}
LISTED_WHOLE = {"MCPPROXY_LIST_ALL_BELOW_TOKENS": "100000"}
EVERY_ERA = {"MCPPROXY_STDIO_ERA": "both"}


@pytest.fixture(scope="module")
def growing(installation: Installation) -> Installation:
    """One found tool fits into a client's list at a time."""
    return replace(
        installation, env=installation.env | {"MCPPROXY_ROUTING_TYPE": "DYNAMIC", "MCPPROXY_TOOLS_LIMIT": "1"}
    )


@pytest.fixture(scope="module")
def growing_url(growing: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same over HTTP."""
    with serving(growing, tmp_path_factory.mktemp("growing")) as url:
        yield url


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest, growing: Installation) -> dict[str, Any]:
    """What a client is pointed at: an address, or a command to start."""
    if request.param == "http":
        return {"url": request.getfixturevalue("growing_url")}
    command, *arguments = growing.command
    return {"command": command, "args": arguments, "env": growing.env}


@pytest.fixture
def modern_target(target: dict[str, Any]) -> dict[str, Any]:
    """The same, where clients on stdio may keep to the modern era."""
    return target | {"env": target["env"] | EVERY_ERA} if "env" in target else target


def handshake(target: dict[str, Any]) -> Any:
    """The `mode` that brings a client into the handshake era; on stdio it is offered no other where lists grow."""
    return "legacy" if "url" in target else "auto"


class SdkVisitor:
    """A client of the official Python SDK, of the handshake era."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._told = 0
        server: Any = target["url"] if "url" in target else StdioServerParameters(**target)
        self.opened = self.client = Client(server, mode=handshake(target), message_handler=self._hear)

    async def _hear(self, message: Any) -> None:
        self._told += getattr(message, "method", "") == "notifications/tools/list_changed"

    def told(self) -> int:
        return self._told

    async def names(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        result = await self.client.call_tool(name, arguments)
        structured = result.structured_content
        return Reply(structured if isinstance(structured, dict) else {}, result.model_dump_json())


class PydanticVisitor:
    """A toolset of pydantic-ai, on a client of the handshake era."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._told = 0
        way: Any = target.get("url") or StdioTransport(**target, keep_alive=False)
        client = FastMCPClient(way, mode=handshake(target), message_handler=self._hear)
        self.opened = self.toolset = MCPToolset[Any](client, cache_tools=False)

    async def _hear(self, message: Any) -> None:
        self._told += getattr(message, "method", "") == "notifications/tools/list_changed"

    def told(self) -> int:
        return self._told

    async def names(self) -> list[str]:
        return [tool.name for tool in await self.toolset.list_tools()]

    async def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        result: Any = await self.toolset.direct_call_tool(name, arguments)
        return Reply(result if isinstance(result, dict) else {}, json.dumps(result, default=str))


@pytest.mark.parametrize("kind", [SdkVisitor, PydanticVisitor])
async def test_a_python_client_lives_with_a_growing_list(kind: Any, target: dict[str, Any]) -> None:
    """It is told, lists and calls what it found, sees what was evicted leave; its neighbour sees nothing of it."""
    visitor, other = kind(target), kind(target)
    with anyio.fail_after(LIMIT_S):
        async with visitor.opened, other.opened:
            check(await live(visitor, other))


def told_by(command: list[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The story that a client of its own program prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=environment, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    story: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return story


def test_openai_agents_lives_with_a_growing_list(target: dict[str, Any]) -> None:
    """The same, with its tool caching off, where it speaks the handshake era."""
    era = "handshake" if "url" in target else "own"
    check(told_by([sys.executable, str(HERE / "openai_agents_client.py"), era, json.dumps(target)]))


def test_openai_agents_uses_what_it_found(modern_target: dict[str, Any]) -> None:
    """As a modern client: its list stays; over HTTP it is given a toolset, over stdio it goes by the call tools."""
    seen = told_by([sys.executable, str(HERE / "openai_agents_client.py"), "modern", json.dumps(modern_target)])
    assert seen["own"] == seen["others"] == OWN_TOOLS
    assert seen["found"] == (["todo__add_task"] if "url" in modern_target else None)
    assert "Milk" in seen["said"]


def test_the_typescript_sdk_lives_with_a_growing_list(target: dict[str, Any]) -> None:
    """The same."""
    node, sdk = node_folder() / "node", npm_package(TYPESCRIPT_SDK)
    program = HERE / "typescript_client.mjs"
    check(told_by([str(node), str(program), str(sdk), json.dumps(target)], node_environment()))


def modern(kind: str, target: dict[str, Any]) -> AbstractAsyncContextManager[Any]:
    """A modern client of one library."""
    if kind == "pydantic-ai":
        way: Any = target.get("url") or StdioTransport(**target, keep_alive=False)
        return MCPToolset[Any](way, cache_tools=False, init_timeout=LIMIT_S)
    server: Any = target["url"] if "url" in target else StdioServerParameters(**target)
    return Client(server, cache=None)


async def names_of(client: Any) -> list[str]:
    listed = await client.list_tools()
    return [tool.name for tool in getattr(listed, "tools", listed)]


async def call_of(client: Any, name: str, arguments: dict[str, Any]) -> Any:
    """What a tool answers: structured, if it is."""
    if isinstance(client, MCPToolset):
        return await client.direct_call_tool(name, arguments)
    result = await client.call_tool(name, arguments)
    return result.structured_content or result


@pytest.mark.parametrize("kind", ["sdk", "pydantic-ai"])
async def test_a_modern_client_uses_what_it_found(kind: str, modern_target: dict[str, Any]) -> None:
    """Its own list stays, and so does its neighbour's; over HTTP it finds at the toolset's address what it searched.

    A second search makes another toolset, of both if it is asked to, and the first one stays as it was.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(deadline())
        client = await stack.enter_async_context(modern(kind, modern_target))
        other = await stack.enter_async_context(modern(kind, modern_target))
        answer: Any = {"tools": []}
        while not answer["tools"]:  # a gateway that was just started may still be listing its servers
            answer = await call_of(client, "retrieve_tools", {"query": "todo:add_task", "limit": 1})
        assert (answer["newly_registered"], answer["pool"]) == ([], None)
        assert await names_of(client) == await names_of(other) == OWN_TOOLS
        if "url" not in modern_target:
            call = {"name": "todo:add_task", "args": {"title": "Milk"}}
            assert answer["toolset"] is None
            assert "Milk" in str(await call_of(client, answer["tools"][0]["call_with"], call))
            return
        own = await stack.enter_async_context(modern(kind, {"url": answer["toolset"]["url"]}))
        more = {"query": "clock:now", "limit": 1, "toolset": answer["toolset"]["handle"]}
        extended = (await call_of(client, "retrieve_tools", more))["toolset"]
        both = await stack.enter_async_context(modern(kind, {"url": extended["url"]}))
        assert await names_of(own) == ["todo__add_task"]
        assert await names_of(both) == ["todo__add_task", "clock__now"]
        assert "Milk" in str(await call_of(own, "todo__add_task", {"title": "Milk"}))


async def test_a_modern_client_hears_of_a_servers_change(growing: Installation, tmp_path: Path) -> None:
    """With the SDK's own subscription, over stdio and HTTP; the next list is the new one."""
    config = json.dumps({"mcpServers": {"growing": GROWING}})
    changing = replace(growing, env=growing.env | {"MCPPROXY_CONFIG_JSON": config, **LISTED_WHOLE})
    changing.env.pop("MCPPROXY_CONFIG_PATH")
    command, *arguments = changing.command
    stdio = changing.env | EVERY_ERA | {"MCPPROXY_DATA_DIR": str(tmp_path / "stdio")}
    with serving(changing, tmp_path) as url:
        for target in ({"url": url}, {"command": command, "args": arguments, "env": stdio}):
            async with deadline(), modern("sdk", target) as client:
                while await names_of(client) != [*OWN_TOOLS, "growing__grow"]:
                    await anyio.sleep(PAUSE_S)
                async with client.listen(tools_list_changed=True) as changes:
                    await call_of(client, "growing__grow", {})
                    assert isinstance(await anext(changes), ToolsListChanged)
                    assert await names_of(client) == [*OWN_TOOLS, "growing__grow", "growing__grown_1"]


@asynccontextmanager
async def deadline() -> AsyncIterator[None]:
    """No story takes longer."""
    with anyio.fail_after(LIMIT_S):
        yield

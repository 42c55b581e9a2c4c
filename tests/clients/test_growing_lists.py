"""Real clients whose lists grow by their searches, and modern ones that are given a toolset, over stdio and HTTP."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp import Client as FastMCPClient
from fastmcp.client.transports import StdioTransport
from installed import Installation, serving
from mcp import Client, StdioServerParameters
from node_tools import TYPESCRIPT_SDK, node_environment, node_folder, npm_package
from pydantic_ai.mcp import MCPToolset
from stories import OWN_TOOLS, Reply, check, live

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

HERE = Path(__file__).parent
LIMIT_S = 60


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


class SdkVisitor:
    """A client of the official Python SDK, of the handshake era."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._told = 0
        server: Any = target["url"] if "url" in target else StdioServerParameters(**target)
        self.opened = self.client = Client(server, mode="legacy", message_handler=self._hear)

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
        client = FastMCPClient(way, mode="legacy", message_handler=self._hear)
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


def test_openai_agents_uses_what_it_found(target: dict[str, Any]) -> None:
    """It is a modern client: its list stays; over HTTP it is given a toolset, over stdio it goes by the call tools."""
    seen = told_by([sys.executable, str(HERE / "openai_agents_client.py"), json.dumps(target)])
    assert seen["own"] == OWN_TOOLS
    assert seen["found"] == (["todo__add_task"] if "url" in target else None)
    assert "Milk" in seen["said"]


def test_the_typescript_sdk_lives_with_a_growing_list(target: dict[str, Any]) -> None:
    """The same."""
    node, sdk = node_folder() / "node", npm_package(TYPESCRIPT_SDK)
    program = HERE / "typescript_client.mjs"
    check(told_by([str(node), str(program), str(sdk), json.dumps(target)], node_environment()))


def modern(kind: str, url: str) -> AbstractAsyncContextManager[Any]:
    """A modern client of one library."""
    return Client(url) if kind == "sdk" else MCPToolset[Any](url)


@pytest.mark.parametrize("kind", ["sdk", "pydantic-ai"])
async def test_a_modern_client_uses_the_toolset_it_is_given(kind: str, growing_url: str) -> None:
    """Its own list stays; at the toolset's address it finds what it searched for."""
    with anyio.fail_after(LIMIT_S):
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(growing_url))
            assert client.protocol_version == "2026-07-28"
            result = await client.call_tool("retrieve_tools", {"query": "todo:add_task", "limit": 1})
            answer: Any = result.structured_content
            assert [tool.name for tool in (await client.list_tools()).tools] == OWN_TOOLS
            own: Any = await stack.enter_async_context(modern(kind, answer["toolset"]["url"]))
            listed = await own.list_tools()
            tools = listed.tools if kind == "sdk" else listed
            assert [tool.name for tool in tools] == ["todo__add_task"]
            call = own.call_tool if kind == "sdk" else own.direct_call_tool
            assert "Milk" in str(await call("todo__add_task", {"title": "Milk"}))

"""`ProxyFastMCP` around a server that exists, and `ProxyMCP` in one that is written."""

from collections.abc import Mapping
from typing import Any

import anyio
import httpx2
import pytest
from client_fakes import mixed_server
from fastmcp import Client, FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.tools import ToolResult

from smart_mcp_proxy.client import ProxyClient, ProxyFastMCP, ProxyMCP
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.proxying.metadata import META_PREFIX

pytestmark = pytest.mark.anyio

LIMIT_S = 30


@pytest.mark.seed("server-wraps")
async def test_a_wrapped_server_is_whole_and_stays_as_it_was() -> None:
    """Name, instructions and version are its own; what it gets later is there; it has no new tool itself."""
    inner = mixed_server()
    outer = ProxyFastMCP(inner)
    with anyio.fail_after(LIMIT_S):
        async with Client(outer) as client, Client(inner) as direct:
            assert {tool.name for tool in await client.list_tools()} == {
                *(tool.name for tool in await direct.list_tools()),
                "proxy",
            }
            assert await client.list_resources() == await direct.list_resources()
            assert (await client.read_resource("page://x"))[0] == (await direct.read_resource("page://x"))[0]

            @inner.tool
            def later() -> str:
                return "here"

            answer = await client.call_tool("proxy", {"action": "call", "type": "tool", "path": "later"})
            assert answer.content[0].text == "here"  # type: ignore[union-attr]
    assert (outer.name, outer.instructions, outer.version) == ("mixed", "Look around.", "7")
    assert outer.wrapped is inner


@pytest.mark.seed("server-name")
async def test_tool_and_server_can_have_other_names() -> None:
    """The name that the client is told, too."""
    outer = ProxyFastMCP(mixed_server(), proxy_tool_name="everything", name="outer")
    assert outer.name == "outer"
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(outer, transparent=True, proxy_tool_name="everything") as client:
            assert "everything" not in [tool.name for tool in await client.list_tools()]
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


@pytest.mark.seed("server-access")
async def test_the_wrapped_servers_middleware_holds_for_the_tool() -> None:
    """Whoever may not call a tool may not call it this way either."""
    inner = mixed_server()
    seen: list[str] = []

    class Watching(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            seen.append(context.message.name)
            return await call_next(context)

    inner.add_middleware(Watching())
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(ProxyFastMCP(inner), transparent=True) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    assert seen == ["add"]


async def test_of_several_versions_the_newest_is_listed_and_called() -> None:
    """As the standard methods do."""
    inner: FastMCP = FastMCP("versions")
    for version in ("1.0", "2.0"):

        @inner.tool(name="which", version=version)
        def which(version: str = version) -> str:
            return version

    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(ProxyFastMCP(inner), transparent=True) as client:
            assert [tool.name for tool in await client.list_tools()] == ["which"]
            assert (await client.call_tool("which")).data == "2.0"


class Aggregator(ProxyMCP, FastMCP):
    """A server that is written with the tool."""

    def __init__(self, wrapper: Any = None) -> None:
        super().__init__("aggregator")
        self.tool(self.hello)
        self._register_proxy_tool(wrapper)

    def hello(self) -> str:
        """Say hello."""
        return "hello"


class Manager:
    """Holds a server, as Magg's managed servers do."""

    def __init__(self) -> None:
        self.mcp = mixed_server()


class Managed(ProxyMCP):
    """Has a manager that has a server."""

    PROXY_TOOL_NAME = "reach"

    def __init__(self) -> None:
        self.server_manager = Manager()
        self._register_proxy_tool()


@pytest.mark.seed("mixin")
async def test_a_server_can_be_written_with_the_tool() -> None:
    """As a FastMCP server itself, or as something that holds one."""
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(Aggregator(), transparent=True) as client:
            assert [tool.name for tool in await client.list_tools()] == ["hello"]
            assert (await client.call_tool("hello")).data == "hello"
        managed = Managed()
        async with ProxyClient(managed.server_manager.mcp, transparent=True, proxy_tool_name="reach") as client:
            assert len(await client.list_tools()) == 5


@pytest.mark.seed("query-annotations")
@pytest.mark.parametrize("server", [ProxyFastMCP(mixed_server()), Aggregator()], ids=["wrapped", "mixin"])
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_the_metadata_reach_the_wire_where_the_era_looks_for_them(server: FastMCP, version: str) -> None:
    """In annotations up to 2025-11-25, though the models of FastMCP and the SDK do not know them there."""
    app = server.http_app(json_response=True, stateless_http=True)
    arguments = {"action": "list", "type": "tool", "limit": 1}
    params: dict[str, Any] = {"name": "proxy", "arguments": arguments}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}
    if version == "2026-07-28":
        known = {"protocolVersion": version, "clientInfo": {"name": "t", "version": "1"}, "clientCapabilities": {}}
        params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in known.items()}
        headers |= {"mcp-method": "tools/call", "mcp-name": "proxy"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with anyio.fail_after(LIMIT_S):
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8000") as client,
        ):
            reply = await client.post("/mcp", json=message, headers=headers)
    [block] = reply.json()["result"]["content"]
    said = {"proxyAction": "list", "proxyType": "tool", "pythonType": "Tool", "many": True}
    assert said.items() <= {key.removeprefix(META_PREFIX): value for key, value in block["_meta"].items()}.items()
    assert said.items() <= block["annotations"].items() if version != "2026-07-28" else "annotations" not in block


@pytest.mark.seed("mixin-wrapper")
async def test_a_wrapper_stands_around_every_call() -> None:
    """It sees the arguments and the answer."""
    seen: list[Any] = []

    def watched(run: Any) -> Any:
        async def around(arguments: Mapping[str, Any]) -> ToolResult:
            result: ToolResult = await run(arguments)
            seen.append((dict(arguments), result.is_error))
            return result

        return around

    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(Aggregator(watched)) as client:
            await client.proxy("tool", "list")
    assert seen == [({"action": "list", "type": "tool"}, False)]


def test_a_mixin_without_a_server_says_what_it_wants() -> None:
    """At once, not at the first call."""

    class Homeless(ProxyMCP):
        pass

    with pytest.raises(TypeError, match="override proxied_server"):
        Homeless()._register_proxy_tool()


@pytest.mark.seed("mixin-validate")
def test_the_mixin_checks_action_and_type() -> None:
    """As the tool does."""
    ProxyMCP.validate_operation(action="list", a_type="tool")
    with pytest.raises(ValueError, match="type is 'root'") as caught:
        ProxyMCP.validate_operation("list", "root")
    assert isinstance(caught.value, RequestError)


@pytest.mark.seed("mixin-query")
async def test_the_mixin_reads_the_answers_to_queries() -> None:
    """One definition, or a list of them."""
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(Aggregator()) as client:
            assert ProxyMCP.get_proxy_query_result(await client.proxy("tool", "info", "hello")).name == "hello"
            assert ProxyMCP.get_proxy_query_result(await client.proxy("prompt", "list")) == []
            with pytest.raises(ValueError, match="not a proxy tool's answer"):
                ProxyMCP.get_proxy_query_result(await client.proxy("tool", "call", "hello"))

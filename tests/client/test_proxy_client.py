"""`ProxyClient` in front of a server that offers a `proxy` tool, of today's form and of the older one."""

import inspect
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest
from client_fakes import OLDER_SERVER, mixed_server
from fastmcp import Client, FastMCP
from fastmcp.client.client import CallToolResult
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp.server.middleware import Middleware
from mcp import MCPError

import smart_mcp_proxy
from smart_mcp_proxy.client import (
    InvalidAnswerError,
    InvalidOperationError,
    MissingProxyToolError,
    ProxyClient,
    ProxyFastMCP,
    ProxyMCP,
    ProxyResponseInfo,
    ProxyResult,
    get_proxy_query_result,
)
from smart_mcp_proxy.errors import ProxyError, RequestError

pytestmark = pytest.mark.anyio

LIMIT_S = 30


@pytest.fixture(params=["legacy", "auto"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[ProxyClient]:
    """A client that does not hide the tool, of each era of the protocol."""
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(ProxyFastMCP(mixed_server()), mode=request.param) as found:
            yield found


@pytest.fixture(params=["legacy", "auto"])
async def transparent(request: pytest.FixtureRequest) -> AsyncIterator[ProxyClient]:
    """A client that hides the tool."""
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(ProxyFastMCP(mixed_server()), transparent=True, mode=request.param) as found:
            yield found


@pytest.fixture
async def older() -> AsyncIterator[ProxyClient]:
    """A transparent client of a server that says everything in annotations, under another tool name."""
    transport = StdioTransport(sys.executable, [OLDER_SERVER], keep_alive=False)
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(transport, transparent=True, proxy_tool_name="mcp_proxy", mode="legacy") as found:
            yield found


@pytest.mark.seed("client-proxy")
@pytest.mark.seed("client-raw")
async def test_proxy_gives_the_tools_own_answer(client: ProxyClient) -> None:
    """A list of content blocks, raw: for list and info one resource, for call what was called."""
    listed = await client.proxy("tool", "list")
    assert isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], mcp_types.EmbeddedResource)
    assert ProxyResponseInfo.from_content(listed[0]) == ProxyResponseInfo("tool", "list", None, "Tool", True, None, 5)
    called = await client.proxy("tool", "call", "add", {"a": 5, "b": 3})
    [block] = called
    assert isinstance(block, mcp_types.TextContent) and block.text == "8"
    assert ProxyResponseInfo.from_content(block) == ProxyResponseInfo("tool", "call", "add")
    info = get_proxy_query_result(await client.proxy("prompt", "info", "greeting"))
    assert isinstance(info, mcp_types.Prompt) and info.name == "greeting"


@pytest.mark.seed("client-validates")
@pytest.mark.parametrize(
    "wrong", [("x", "list"), ("tool", "x"), ("tool", "info"), ("tool", "list", "path"), ("tool", "info", "add", {})]
)
async def test_what_does_not_go_together_is_not_sent(wrong: tuple[Any, ...]) -> None:
    """The client needs no connection to say so."""
    with pytest.raises(RequestError, match="proxy: "):
        await ProxyClient(mixed_server()).proxy(*wrong)


@pytest.mark.seed("client-value-errors")
async def test_errors_of_the_client_are_value_errors_and_ours() -> None:
    """As programs written for Magg's client catch them, and as the gateway's errors are told."""
    impossible = ProxyClient(mixed_server()).proxy("tool", "info")
    async with ProxyClient(mixed_server(), transparent=True) as without:
        missing = without.list_tools()
        with pytest.raises(ValueError, match="no tool named 'proxy'") as caught:
            await missing
        assert isinstance(caught.value, MissingProxyToolError) and "discover_proxy" in caught.value.hint
    async with ProxyClient(ProxyFastMCP(mixed_server()), transparent=True) as client:
        for failing, kind in (
            (impossible, InvalidOperationError),
            (client.get_prompt("greeting", version="1"), InvalidOperationError),
            (client.batch([]), InvalidOperationError),
            (client.list_tools(max_pages=0), InvalidAnswerError),
        ):
            with pytest.raises(ValueError) as caught:
                await failing
            assert type(caught.value) is kind and isinstance(caught.value, ProxyError) and caught.value.hint
    with pytest.raises(InvalidAnswerError, match="not a proxy tool's answer"):
        get_proxy_query_result(mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text="x")]))


@pytest.mark.seed("client-value-errors")
async def test_a_gateway_without_the_tool_is_told_likewise() -> None:
    """There an unknown tool is a JSON-RPC error."""
    server: FastMCP = FastMCP("strict")

    class Strict(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            raise MCPError(code=mcp_types.INVALID_PARAMS, message="Unknown tool")

    server.add_middleware(Strict())
    async with ProxyClient(server) as client:
        with pytest.raises(MissingProxyToolError) as caught:
            await client.proxy("tool", "list")
        assert isinstance(caught.value.__cause__, MCPError)


@pytest.mark.seed("client-pages")
async def test_a_list_can_be_filtered_and_paged(client: ProxyClient) -> None:
    """The metadata has the total and where to go on."""
    page = await client.proxy("tool", "list", limit=2)
    assert [tool.name for tool in get_proxy_query_result(page)] == ["add", "fails"]
    info = ProxyResponseInfo.from_content(page[0])
    assert (info.total_count, info.next_cursor) == (5, "fails")
    following = await client.proxy("tool", "list", limit=2, cursor=info.next_cursor)
    assert [tool.name for tool in get_proxy_query_result(following)] == ["picture", "refuses"]
    tagged = await client.proxy("tool", "list", filter={"tags": ["math"]})
    assert [tool.name for tool in get_proxy_query_result(tagged)] == ["add"]


@pytest.mark.seed("client-progress")
async def test_progress_reaches_its_handler(client: ProxyClient) -> None:
    """Of `proxy`, and of `call_tool` in transparent mode."""
    heard: list[Any] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    await client.proxy("tool", "call", "slow", progress_handler=hear)
    client.is_transparent = True
    await client.call_tool("slow", progress_handler=hear)
    assert heard == [(1.0, 2.0, "half")] * 2


@pytest.mark.seed("client-timeout")
async def test_a_timeout_ends_the_waiting() -> None:
    """As it does for any call."""
    server: FastMCP = FastMCP("sleepy")
    never = anyio.Event()

    @server.tool
    async def sleep() -> None:
        await never.wait()

    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(ProxyFastMCP(server), transparent=True) as client:
            with pytest.raises(MCPError, match=r"[Tt]imed out"):
                await client.call_tool("sleep", timeout=0.05)
            never.set()


@pytest.mark.seed("client-batch")
async def test_a_batch_gives_one_result_for_each_operation(client: ProxyClient) -> None:
    """In order, failures among them."""
    results = await client.batch(
        [
            {"action": "call", "type": "tool", "path": "add", "args": {"a": 1, "b": 1}},
            {"action": "call", "type": "tool", "path": "fails"},
            {"action": "info", "type": "tool", "path": "nope"},
            {"action": "info", "type": "tool", "path": "add"},
        ]
    )
    assert [result.is_error for result in results] == [False, True, True, False]
    assert results[0].data == 2
    assert get_proxy_query_result(results[3]).name == "add"


@pytest.mark.seed("client-list-tools")
async def test_transparent_list_tools(transparent: ProxyClient) -> None:
    """The tools behind the tool, whole, and not the tool itself."""
    tools = await transparent.list_tools()
    assert [tool.name for tool in tools] == ["add", "fails", "picture", "refuses", "slow"]
    assert all(isinstance(tool, mcp_types.Tool) for tool in tools)
    assert tools[0].annotations is not None and tools[0].annotations.read_only_hint is True


@pytest.mark.seed("client-list-resources")
async def test_transparent_list_resources(transparent: ProxyClient) -> None:
    """Resources and templates together; the templates alone as well."""
    resources = await transparent.list_resources()
    assert [type(each).__name__ for each in resources] == ["Resource", "Resource", "Resource", "ResourceTemplate"]
    [template] = await transparent.list_resource_templates()
    assert template.uri_template == "page://{name}"


@pytest.mark.seed("client-list-prompts")
async def test_transparent_list_prompts(transparent: ProxyClient) -> None:
    """As the protocol's own type."""
    [prompt] = await transparent.list_prompts()
    assert isinstance(prompt, mcp_types.Prompt) and prompt.name == "greeting"


@pytest.mark.seed("client-call-tool")
async def test_transparent_call_tool(transparent: ProxyClient) -> None:
    """A list of blocks that is also what FastMCP's client returns: structured content, data, meta, isError."""
    result = await transparent.call_tool("picture")
    assert isinstance(result, list) and isinstance(result, CallToolResult) and isinstance(result, ProxyResult)
    assert [block.type for block in result] == ["text", "image"] == [block.type for block in result.content]
    assert (result.data, result.structured_content, result.is_error) == ({"width": 1}, {"width": 1}, False)
    assert result.meta is not None and result.meta["took"] == 2
    assert result[0].meta is not None and result[0].meta["own"] == 1
    assert (await transparent.call_tool("add", {"a": 2, "b": 3})).data == 5


@pytest.mark.seed("client-read-resource")
async def test_transparent_read_resource(transparent: ProxyClient) -> None:
    """With the type that the resource has on its server, and nothing of how it came."""
    [settings] = await transparent.read_resource("config://settings")
    assert isinstance(settings, mcp_types.TextResourceContents)
    assert settings.text == '{"b":1.00,"a":[12345678901234567890,null]}'
    assert (settings.mime_type, settings.meta) == ("text/plain", None)
    [dot] = await transparent.read_resource("image://dot")
    assert isinstance(dot, mcp_types.BlobResourceContents) and dot.mime_type == "image/png"
    [page] = await transparent.read_resource("page://seven")
    assert isinstance(page, mcp_types.TextResourceContents) and page.text == "page seven"
    [number] = await transparent.read_resource("note://number")
    assert isinstance(number, mcp_types.TextResourceContents) and number.text == "123"


@pytest.mark.seed("client-get-prompt")
async def test_transparent_get_prompt(transparent: ProxyClient) -> None:
    """The messages, with the arguments filled in."""
    prompt = await transparent.get_prompt("greeting", {"name": "Ada"})
    assert isinstance(prompt, mcp_types.GetPromptResult)
    assert isinstance(prompt.messages[0].content, mcp_types.TextContent)
    assert prompt.messages[0].content.text == "Greet Ada."


@pytest.mark.seed("client-errors")
async def test_failures_are_raised_or_returned_as_asked(transparent: ProxyClient) -> None:
    """A failing tool, an unknown name, a missing argument: ToolError with the words of the server."""
    for failing, words in (
        (transparent.call_tool("fails"), "ladder"),
        (transparent.call_tool("refuses"), "no"),
        (transparent.call_tool("nope"), "nope"),
        (transparent.call_tool("proxy"), "cannot reach itself"),
        (transparent.call_tool("add", {"a": "x"}), "valid integer"),
        (transparent.read_resource("nope://x"), "Unknown resource"),
        (transparent.get_prompt("greeting"), "Missing required arguments"),
        (transparent.get_prompt("nope"), "nope"),
    ):
        with pytest.raises(ToolError, match=words):
            await failing
    refused = await transparent.call_tool("refuses", raise_on_error=False)
    assert refused.is_error and refused.structured_content == {"why": "late"}
    for asking in (
        transparent.call_tool("add", version="1"),
        transparent.read_resource("note://number", version="1"),
        transparent.get_prompt("greeting", version="1"),
    ):
        with pytest.raises(ValueError, match="version"):
            await asking


@pytest.mark.seed("client-not-transparent")
async def test_without_transparent_mode_it_is_fastmcps_client(client: ProxyClient) -> None:
    """Every standard method answers as that one does."""
    async with Client(ProxyFastMCP(mixed_server())) as plain:
        assert [tool.name for tool in await client.list_tools()] == [tool.name for tool in await plain.list_tools()]
        assert await client.list_resources() == await plain.list_resources()
        assert await client.list_resource_templates() == await plain.list_resource_templates()
        assert await client.list_prompts() == await plain.list_prompts()
        result, theirs = [await each.call_tool("add", {"a": 1, "b": 2}) for each in (client, plain)]
        assert type(result) is CallToolResult and (result.data, result.content) == (theirs.data, theirs.content)
        assert await client.read_resource("note://number") == await plain.read_resource("note://number")
        prompt = await plain.get_prompt("greeting", {"name": "A"})
        assert (await client.get_prompt("greeting", {"name": "A"})).messages == prompt.messages


@pytest.mark.seed("client-constructor")
async def test_everything_else_goes_to_fastmcps_client() -> None:
    """Where to, how, and with which name of the tool."""
    given = ProxyClient(mixed_server(), timeout=3, name="mine", transparent=True, proxy_tool_name="reach")
    assert isinstance(given, Client) and given.name == "mine"
    assert (given.is_transparent, given.proxy_tool_name) == (True, "reach")
    plain = ProxyClient(mixed_server())
    assert (plain.is_transparent, plain.proxy_tool_name) == (False, "proxy")


@pytest.mark.seed("client-typed")
def test_every_public_method_says_its_types() -> None:
    """Parameters and answers, and the package says that it has types."""
    for cls in (ProxyClient, ProxyFastMCP, ProxyMCP, ProxyResponseInfo):
        for name, method in vars(cls).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                parameters = list(inspect.signature(method).parameters.values())[1:]
                assert "return" in method.__annotations__, name
                assert all(each.annotation is not inspect.Parameter.empty for each in parameters), name
    assert (Path(str(smart_mcp_proxy.__file__)).parent / "py.typed").exists()


@pytest.mark.seed("client-overhead")
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        *(("list_tools", ()), ("list_resources", ()), ("list_prompts", ()), ("call_tool", ("add", {"a": 1, "b": 2}))),
        *(("read_resource", ("note://number",)), ("get_prompt", ("greeting", {"name": "Ada"}))),
    ],
)
async def test_transparent_mode_costs_one_call_of_the_tool(method: str, arguments: tuple[Any, ...]) -> None:
    """Whatever the standard method would have cost."""
    calls: list[Mapping[str, Any]] = []

    def watched(run: Any) -> Any:
        async def around(given: Mapping[str, Any]) -> Any:
            calls.append(given)
            return await run(given)

        return around

    class Watched(ProxyMCP):
        mcp = mixed_server()

    Watched()._register_proxy_tool(watched)
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(Watched.mcp, transparent=True) as client:
            await getattr(client, method)(*arguments)
    assert len(calls) == 1


@pytest.mark.seed("discovery")
@pytest.mark.long  # starts programs, a second of it
async def test_the_tool_is_found_by_name_by_description_and_by_trying(older: ProxyClient) -> None:
    """A tool that only looks like one is passed over; a server without one has none."""
    older.proxy_tool_name = "proxy"
    assert await older.discover_proxy() == "mcp_proxy" == older.proxy_tool_name
    async with ProxyClient(ProxyFastMCP(mixed_server())) as named:
        assert await named.discover_proxy() == "proxy"
    async with ProxyClient(mixed_server()) as without:
        assert await without.discover_proxy() is None


@pytest.mark.seed("older-form")
@pytest.mark.long  # a process of its own
async def test_a_server_of_the_older_form_is_understood(older: ProxyClient) -> None:
    """What it says in annotations today's models drop; what was asked for says the same."""
    assert [tool.name for tool in await older.list_tools()] == ["old_add"]
    assert [type(each).__name__ for each in await older.list_resources()] == ["Resource", "ResourceTemplate"]
    assert await older.list_prompts() == []
    result = await older.call_tool("old_add", {"a": 5, "b": 3})
    assert result[0].text == "8"
    assert ProxyResponseInfo.from_content(result[0]) == ProxyResponseInfo("tool", "call", "old_add")
    [read] = await older.read_resource("config://s")
    assert isinstance(read, mcp_types.TextResourceContents) and read.text == '{"k":1}'
    assert len((await older.get_prompt("greeting")).messages) == 1
    assert get_proxy_query_result(await older.proxy("tool", "info", "old_add")).name == "old_add"

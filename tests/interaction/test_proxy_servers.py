"""The `proxy` tool in front of servers over HTTP: what reaches them, and what of their failures reaches the agent."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent
from broker_upstream import BrokerUpstream
from fastmcp import FastMCP
from transports import in_memory, listening, opened_gateway

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIMIT_S = 40
BIG_CHARS = 20_000_000


@dataclass
class Reach:
    """A gateway with the tool, an agent that has it, and the server `b` behind it, which can go away."""

    gateway: Gateway
    agent: Agent
    upstream: BrokerUpstream
    leaving: AsyncExitStack

    async def ask(self, **arguments: Any) -> dict[str, Any]:
        """The tool's answer."""
        with anyio.fail_after(LIMIT_S):
            return await self.agent.call("proxy", **arguments)

    async def error(self, **arguments: Any) -> dict[str, Any]:
        """What it says went wrong."""
        result = await self.ask(**arguments)
        assert result["isError"] is True, result
        found: dict[str, Any] = result["structuredContent"]["error"]
        return found


def books() -> FastMCP:
    """A server of FastMCP with a prompt that wants an argument, and a large resource."""
    server: FastMCP = FastMCP("books")

    @server.prompt
    def review(title: str) -> str:
        return f"Review {title}."

    @server.resource("book://whole", mime_type="text/plain")
    def whole() -> str:
        return "x" * BIG_CHARS

    return server


@asynccontextmanager
async def opened_reach(data_dir: Path, **settings: Any) -> AsyncIterator[Reach]:
    """All of them, when everything is listed."""
    upstream = BrokerUpstream()
    async with AsyncExitStack() as stack, AsyncExitStack() as leaving:
        shop = await stack.enter_async_context(listening(books().http_app()))
        # The one that goes first comes last: each puts the signal handlers back that it found.
        there = await leaving.enter_async_context(listening(upstream))
        servers = {"b": {"url": f"{there}/mcp"}, "books": {"url": f"{shop}/mcp"}}
        gateway = await stack.enter_async_context(opened_gateway(data_dir, servers, proxy_tool="proxy", **settings))
        gateway.start_upstreams()
        assert await gateway.wait_settled(20)
        found = Reach(gateway, await stack.enter_async_context(in_memory(gateway, "modern")), upstream, leaving)
        with anyio.fail_after(LIMIT_S):
            for type_ in ("prompt", "resource"):
                while (
                    len(json.loads((await found.ask(action="list", type=type_))["content"][0]["resource"]["text"])) < 2
                ):
                    await anyio.sleep(0.01)
        yield found


@pytest.fixture
async def reach(tmp_path: Path) -> AsyncIterator[Reach]:
    """A gateway of its own for each test."""
    async with opened_reach(tmp_path) as found:
        yield found


@pytest.mark.requirement("proxy-call-tool")
@pytest.mark.seed("pooling")
@pytest.mark.seed("query-cached")
async def test_calls_share_one_connection_and_lists_ask_no_server(reach: Reach) -> None:
    """However many there are."""
    heard = reach.upstream.heard
    before = [len(heard(method)) for method in ("initialize", "tools/list", "resources/list", "prompts/list")]
    for _ in range(5):
        for type_ in ("tool", "resource", "prompt"):
            await reach.ask(action="list", type=type_)
        await reach.ask(action="info", type="tool", path="b:echo")
        assert (await reach.ask(action="call", type="tool", path="b:echo", args={}))["content"][0]["text"] == "{}"
    assert [len(heard(method)) for method in ("initialize", "tools/list", "resources/list", "prompts/list")] == before
    assert len(heard("tools/call")) == 5


@pytest.mark.requirement("proxy-refusals")
@pytest.mark.seed("no-bypass")
async def test_a_server_that_wants_a_sign_in_gets_one_or_nothing(reach: Reach) -> None:
    """The tool says so, as the call tools do, and is no way around it."""
    error = await reach.error(action="call", type="tool", path="b:locked")
    assert error["code"] == "upstream_auth"
    assert "sk-upstream" not in json.dumps(error)


@pytest.mark.requirement("proxy-refusals")
@pytest.mark.seed("error-connection")
async def test_a_server_that_has_gone_is_an_error_and_its_definitions_stay(reach: Reach) -> None:
    """Tools, resources and prompts of it fail with its name; what else there is goes on."""
    await reach.leaving.aclose()
    for type_, path in (("tool", "b:echo"), ("prompt", "b__greet"), ("resource", "mcpproxy://b/memo%3A%2F%2F1")):
        error = await reach.error(action="call", type=type_, path=path)
        assert error["code"] in ("upstream_failed", "breaker_open") and "'b'" in error["message"]
    got = await reach.ask(action="call", type="prompt", path="books__review", args={"title": "Emma"})
    assert "Review Emma." in got["content"][0]["resource"]["text"]


@pytest.mark.requirement("proxy-refusals")
@pytest.mark.parametrize(
    "uri",
    [
        *("javascript:alert(1)", "data:text/plain,x", "http://127.0.0.1:9/", "FILE:///etc/passwd", "//b/memo://1"),
        *("mcpproxy:b/memo://1", "MCPPROXY://b/memo%3A%2F%2F1", "mcpproxy://B/memo%3A%2F%2F1", "mcpproxy:///memo://1"),
        *("mcpproxy://b", "mcpproxy://b/", "mcpproxy://b:80/memo%3A%2F%2F1", "mcpproxy://x@b/memo%3A%2F%2F1"),
        *(
            "mcpproxy://../b/memo%3A%2F%2F1",
            "mcpproxy://b%00/memo",
            " mcpproxy://b/memo%3A%2F%2F1",
            "mcpproxy://%62%2F/x",
        ),
        *("mcpproxy://mcpproxy%3A%2F%2Fb/memo", "mcpproxy://proxy/list", "memo://1\r\nx: y", "\x00"),
    ],
)
async def test_a_uri_of_another_scheme_or_with_tricks_leads_nowhere(reach: Reach, uri: str) -> None:
    """And no server hears of it."""
    error = await reach.error(action="call", type="resource", path=uri)
    assert (error["code"], error["delivery"]) == ("not_found", "not_sent")
    assert reach.upstream.heard("resources/read") == []


@pytest.mark.requirement("proxy-prompts")
async def test_a_prompt_without_its_argument_is_its_servers_error(reach: Reach) -> None:
    """In the server's words, which name the argument."""
    error = await reach.error(action="call", type="prompt", path="books__review")
    assert error["code"] == "upstream_failed"
    assert error["delivery"] in {"executed", "unknown"}  # an internal error of older FastMCP, invalid params since
    assert "title" in error["message"]


@pytest.mark.requirement("proxy-resources")
@pytest.mark.parametrize("limit_bytes", [16 * 1024 * 1024, 2 * BIG_CHARS])
async def test_a_resource_of_twenty_megabytes_comes_whole_where_messages_may_be_that_long(
    tmp_path: Path, limit_bytes: int
) -> None:
    """Elsewhere it is refused, with the setting that lets it in."""
    async with opened_reach(tmp_path, max_message_bytes=limit_bytes) as reach:
        result = await reach.ask(action="call", type="resource", path="mcpproxy://books/book%3A%2F%2Fwhole")
    if limit_bytes > BIG_CHARS:
        assert len(result["content"][0]["resource"]["text"]) == BIG_CHARS
    else:
        error = result["structuredContent"]["error"]
        assert error["code"] == "upstream_failed" and "MCPPROXY_MAX_MESSAGE_BYTES" in error["hint"]


@pytest.mark.requirement("proxy-list")
@pytest.mark.seed("audit-queries")
async def test_looking_around_is_on_record_too(reach: Reach) -> None:
    """Lists, descriptions and batches, with who asked and what came of it."""
    await reach.ask(action="info", type="tool", path="b:echo")
    await reach.error(action="info", type="tool", path="b:none")
    await reach.ask(action="batch", operations=[{"action": "list", "type": "tool"}])
    wanted = {("list", "", "ok"), ("info", "b:echo", "ok"), ("info", "b:none", "tool_not_found"), ("batch", "", "ok")}
    with anyio.fail_after(LIMIT_S):
        while True:
            page = await reach.gateway.catalog.activity_page(ActivityFilter(kind="search"), 100)
            rows = [found.activity for found in page if found.activity.detail.get("tool") == "proxy"]
            if wanted <= {(row.detail["action"], row.subject, row.outcome) for row in rows}:
                return
            await anyio.sleep(0.02)

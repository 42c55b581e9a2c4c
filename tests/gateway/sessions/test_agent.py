"""The gateway as an agent meets it: its list, its calls, its end."""

import asyncio
import json
from typing import Any, ClassVar

import anyio
import pytest
from gateway_fakes import Parts, agent_with, surface_of
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.gateway.results.results import build_structured_result
from smart_mcp_proxy.gateway.sessions.agent import Agent
from smart_mcp_proxy.gateway.sessions.tool_list import LIST_TTL_MS
from smart_mcp_proxy.gateway.shared.agent_tools import Arguments
from smart_mcp_proxy.gateway.tools import AgentTool, Caller
from smart_mcp_proxy.models import LOCAL, ClientInput, Era, Principal
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream.protocol.session import rpc_error

pytestmark = pytest.mark.anyio


class Words(Arguments):
    """Arguments of the echo."""

    text: str
    times: int = 1


class Echo(AgentTool[Words]):
    """The echo."""

    name = "echo"
    description = "Say it back."
    annotations: ClassVar[Any] = {"readOnlyHint": True}
    arguments = Words

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.busy = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, arguments: Words, caller: Caller) -> RawResult:
        self.callers.append(caller)
        self.busy.set()
        await self.gate.wait()
        if arguments.text == "undeclared":
            raise rpc_error("alpha", "tools/call", -32021, "needs it", {"requiredCapabilities": {"sampling": {}}})
        if arguments.text == "bad":
            raise RequestError("That is bad.", hint="Say something else.")
        return build_structured_result({"said": arguments.text * arguments.times})


def inbound(era: Era = "handshake", **params: Any) -> Inbound:
    """A request of an agent."""
    return Inbound(params, {"example.org/a": 1}, era, "", Principal("ann"), None)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def agent(echo: Echo, parts: Parts) -> Agent:
    return agent_with(surface_of(parts, echo).fixed)


async def test_the_list_in_both_eras(agent: Agent) -> None:
    """The same tools; the modern era adds how long they may be kept, and by whom."""
    old = await agent.list_tools(inbound())
    new = await agent.list_tools(inbound("modern"))
    assert old == {"tools": new["tools"]}
    assert (new["ttlMs"], new["cacheScope"], new["resultType"]) == (LIST_TTL_MS, "private", "complete")
    assert old["tools"] == [
        {
            "name": "echo",
            "description": "Say it back.",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 1}},
                "required": ["text"],
            },
            "annotations": {"readOnlyHint": True},
            "_meta": {"anthropic/alwaysLoad": True},
        }
    ]
    assert agent.input_schema("echo") == old["tools"][0]["inputSchema"]
    assert agent.input_schema("other") is None


async def test_a_call_knows_who_calls(agent: Agent, echo: Echo) -> None:
    """Principal and metadata reach the tool, and the answer is fitted to the era."""
    request: dict[str, Any] = {"name": "echo", "arguments": {"text": "a", "times": 3}}
    old = await agent.call_tool(inbound(**request))
    new = await agent.call_tool(inbound("modern", **request))
    assert old["structuredContent"] == new["structuredContent"] == {"said": "aaa"}
    assert ("resultType" in old, "resultType" in new) == (False, True)
    assert {(caller.principal, caller.meta["example.org/a"]) for caller in echo.callers} == {("ann", 1)}


@pytest.mark.parametrize("name", ["", "ehco", "x" * 10_000])
async def test_an_unknown_tool_is_a_protocol_error_that_names_the_known_ones(agent: Agent, name: str) -> None:
    """And the way to all others; the name itself comes back shortened."""
    assert not agent.require_tools("", LOCAL).has(name)
    with pytest.raises(MCPError) as caught:
        await agent.call_tool(inbound(name=name, arguments={}))
    assert caught.value.error.code == -32602
    assert "echo" in caught.value.error.message
    assert "retrieve_tools" in caught.value.error.message
    assert len(caught.value.error.message) < 400


UNDECLARED: dict[str, Any] = {"name": "echo", "arguments": {"text": "undeclared"}}


@pytest.mark.parametrize("declared", [None, {"elicitation": {}}])
async def test_a_capability_that_a_modern_client_lacks_is_a_protocol_error(agent: Agent, declared: Any) -> None:
    """As the server said it: the client can declare it and send the request again."""
    able = None if declared is None else ClientInput(declared)
    with pytest.raises(MCPError) as caught:
        await agent.call_tool(replace(inbound("modern", **UNDECLARED), input=able))
    error = caught.value.error
    assert (error.code, error.message) == (-32021, "needs it")
    assert error.data == {"requiredCapabilities": {"sampling": {}}}


async def test_a_capability_that_no_client_can_add_is_told_by_a_result(agent: Agent) -> None:
    """One that it declares and the server may not use, or one in an era that has no such error."""
    able = replace(inbound("modern", **UNDECLARED), input=ClientInput({"sampling": {}}))
    for request in (able, inbound("handshake", **UNDECLARED)):
        result = await agent.call_tool(request)
        assert result["isError"] is True
        assert "input_requests" in result["structuredContent"]["error"]["hint"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"text": "bad"}, "invalid_request", "That is bad."),
        ({}, "invalid_arguments", "text is missing"),
        (None, "invalid_arguments", "text is missing"),
        ({"text": "a", "loud": True}, "invalid_arguments", "loud is not a parameter"),
        ({"text": "a", "times": "3"}, "invalid_arguments", "times is '3'"),
        ({"text": 5}, "invalid_arguments", "text is 5"),
    ],
)
async def test_a_failure_is_a_result(agent: Agent, arguments: Any, code: str, words: str) -> None:
    """With code, message and hint, as structured content and as text."""
    result = await agent.call_tool(inbound(name="echo", arguments=arguments))
    assert result["isError"] is True
    error = result["structuredContent"]["error"]
    assert json.loads(result["content"][0]["text"])["error"] == error
    assert (error["code"], error["delivery"]) == (code, "not_sent")
    assert words in error["message"]
    assert error["hint"]
    if code == "invalid_arguments":
        assert error["hint"] == "Parameters: text (required), times."


def test_the_first_answer_is_reported_once() -> None:
    """However many clients come."""
    reports: list[str] = []
    nothing: Any = None
    agent = agent_with(nothing, lambda: reports.append("answered"))
    assert reports == []
    agent.first_answered()
    agent.first_answered()
    assert reports == ["answered"]


async def test_at_the_end_calls_under_way_are_answered_and_new_ones_refused(agent: Agent, echo: Echo) -> None:
    """The refused agent is told when to come back."""
    echo.gate.clear()
    call: dict[str, Any] = {"name": "echo", "arguments": {"text": "a"}}
    with anyio.fail_after(20):
        under_way = asyncio.ensure_future(agent.call_tool(inbound(**call)))
        await echo.busy.wait()
        draining = asyncio.ensure_future(agent.drain())
        await anyio.lowlevel.checkpoint()
        error = (await agent.call_tool(inbound(**call)))["structuredContent"]["error"]
        assert not draining.done()
        echo.gate.set()
        assert (await under_way)["structuredContent"] == {"said": "a"}
        await draining
    assert (error["code"], error["delivery"]) == ("shutting_down", "not_sent")
    assert error["retry_after_s"] > 0


async def test_a_gateway_without_calls_under_way_ends_at_once(agent: Agent) -> None:
    """A call that failed or was cancelled before is not waited for."""
    await agent.call_tool(inbound(name="echo", arguments={}))
    with anyio.fail_after(20):
        await agent.drain()

"""A foreign server's every tool, called directly and through the gateway: what comes back is the same.

Only the URIs of resources that a result links to or embeds lead to the gateway.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from agents import Agent
from node_tools import SERVER_EVERYTHING, node_folder, npm_package
from transports import ENVIRON, LONGEST_LINE_BYTES, on_stdio, spawned

from smart_mcp_proxy.upstream.stdio.inheritance import child_environment

pytestmark = [pytest.mark.anyio, pytest.mark.clients, pytest.mark.requirement("fidelity")]

DATA_URI = "data:text/plain;base64,SGVsbG8="
CASES: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"message": "grüße ✓ \U0001f600 \n\t\"'\\"}),
    *(("get-annotated-message", {"messageType": kind, "includeImage": True}) for kind in ("error", "success", "debug")),
    ("get-env", {}),
    ("get-resource-links", {"count": 10}),
    ("get-resource-links", {}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
    ("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
    ("get-structured-content", {"location": "Chicago"}),
    ("get-sum", {"a": 0.1, "b": 2e10}),
    ("get-tiny-image", {}),
    ("gzip-file-as-resource", {"name": "a b.gz", "data": DATA_URI, "outputType": "resource"}),
    ("gzip-file-as-resource", {"name": "c.gz", "data": DATA_URI, "outputType": "resourceLink"}),
    ("gzip-file-as-resource", {"name": "d.gz", "data": "data:broken", "outputType": "resource"}),
    ("simulate-research-query", {"topic": "lamps"}),
    ("toggle-simulated-logging", {}),
    ("toggle-subscriber-updates", {}),
    ("trigger-long-running-operation", {"duration": 0.2, "steps": 4}),
]
CLOCK = re.compile(r"\d{1,2}:\d\d:\d\d\s?[AP]M|\d{4}-\d\d-\d\dT[\d:.]+Z")
"""Some answers hold the time of day."""
OURS = re.compile(r',\\n  "SMART_MCP_PROXY_\w+": "[\w:. ]*"')
"""What a server finds in its environment of ours."""


@pytest.fixture(scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Agent, dict[str, Agent]]]:
    """An agent at the server itself, and one of each era at a gateway in front of it."""
    script = str(npm_package(SERVER_EVERYTHING) / "dist" / "index.js")
    node = str(node_folder() / "node")
    async with AsyncExitStack() as stack:
        pipe = asyncio.subprocess.PIPE
        server = await asyncio.create_subprocess_exec(
            node,
            script,
            "stdio",
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.DEVNULL,
            env=child_environment(ENVIRON, {}),
            limit=LONGEST_LINE_BYTES,
        )
        stack.push_async_callback(server.wait)
        stack.callback(server.kill)
        direct = await stack.enter_async_context(on_stdio(server, "handshake"))
        through: dict[str, Agent] = {}
        for era in ("handshake", "modern"):
            config = {"any": {"command": node, "args": [script, "stdio"]}}
            process = await stack.enter_async_context(
                spawned(tmp_path_factory.mktemp(era), config, are_entrusted=False)
            )
            through[era] = await stack.enter_async_context(on_stdio(process, era))
            with anyio.fail_after(20):
                while not (await through[era].call("retrieve_tools", query="echo"))["structuredContent"]["tools"]:
                    await asyncio.sleep(0.05)
        yield direct, through


def plain(result: dict[str, Any], era: str) -> str:
    """A result without what the era adds, the time of day, and the variables that say who started the server."""
    if era == "modern":
        assert result.pop("resultType") == "complete"
        assert list(result.pop("_meta")) == ["io.modelcontextprotocol/serverInfo"]
    return OURS.sub("", CLOCK.sub("<time>", repr(sorted(result.items()))))


def relinked(result: dict[str, Any]) -> dict[str, Any]:
    """A direct result with the URIs under which the gateway reaches its resources."""
    for block in result["content"]:
        if (holder := {"resource_link": block, "resource": block.get("resource")}.get(block["type"])) is not None:
            holder["uri"] = f"mcpproxy://any/{quote(holder['uri'], safe='')}"
    return result


async def through_gateway(agent: Agent, tool: str, arguments: dict[str, Any], token: bool = False) -> Any:
    """The exchange of one call through the gateway, with the call tool that the search names."""
    found = await agent.call("describe_tool", names=[f"any:{tool}"])
    (described,) = found["structuredContent"]["tools"]
    params = {"name": described["call_with"], "arguments": {"name": f"any:{tool}", "args": arguments}}
    exchange = await agent.begin("tools/call", token=token, **params)
    await exchange.answer
    return exchange


async def test_every_tool_of_the_server_is_compared(both: tuple[Agent, dict[str, Agent]]) -> None:
    """A tool that a new version brings fails here until it has a case."""
    listed = {tool["name"] for tool in (await both[0].request("tools/list"))["result"]["tools"]}
    assert listed == {tool for tool, _ in CASES}


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_definitions_are_the_same(both: tuple[Agent, dict[str, Agent]], era: str) -> None:
    """Title, description, both schemas and annotations."""
    direct, through = both
    for tool in (await direct.request("tools/list"))["result"]["tools"]:
        found = await through[era].call("describe_tool", names=[f"any:{tool['name']}"])
        (described,) = found["structuredContent"]["tools"]
        pairs = {"title": "title", "description": "description", "input_schema": "inputSchema"}
        pairs |= {"output_schema": "outputSchema", "annotations": "annotations"}
        assert {ours: described.get(ours) for ours in pairs} == {ours: tool.get(pairs[ours]) for ours in pairs}


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(("tool", "arguments"), CASES)
async def test_a_result_is_the_same(
    both: tuple[Agent, dict[str, Agent]], era: str, tool: str, arguments: dict[str, Any]
) -> None:
    """Content, structured content, errors and metadata: every member, and none more."""
    direct, through = both
    with anyio.fail_after(30):
        expected = (await direct.request("tools/call", name=tool, arguments=arguments))["result"]
        exchange = await through_gateway(through[era], tool, arguments)
        if tool.startswith("toggle-"):  # the second call switches it back, on both sides
            await direct.request("tools/call", name=tool, arguments=arguments)
            await through_gateway(through[era], tool, arguments)
    assert plain(exchange.answer.result()["result"], era) == plain(relinked(expected), "")


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_progress_is_the_same(both: tuple[Agent, dict[str, Agent]], era: str) -> None:
    """Every step, in order, where they are a tenth of a second apart; quicker ones are merged, the last always told."""
    direct, through = both
    arguments = {"duration": 0.8, "steps": 4}

    def steps(exchange: Any) -> list[dict[str, Any]]:
        heard = [exchange.heard.get_nowait()["params"] for _ in range(exchange.heard.qsize())]
        return [{key: value for key, value in step.items() if key != "progressToken"} for step in heard]

    with anyio.fail_after(30):
        tool = "trigger-long-running-operation"
        expected = await direct.begin("tools/call", token=True, name=tool, arguments=arguments)
        await expected.answer
        exchange = await through_gateway(through[era], tool, arguments, token=True)
    wanted = steps(expected)
    assert len(wanted) == 4
    assert steps(exchange) == wanted


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_arguments_that_do_not_fit_never_reach_the_server(both: tuple[Agent, dict[str, Agent]], era: str) -> None:
    """The documented exception: the server would refuse them in its words, the gateway does so with the schema."""
    direct, through = both
    expected = (await direct.request("tools/call", name="get-sum", arguments={"a": "x"}))["result"]
    assert expected["isError"] is True
    exchange = await through_gateway(through[era], "get-sum", {"a": "x"})
    error = exchange.answer.result()["result"]["structuredContent"]["error"]
    assert (error["code"], error["delivery"]) == ("invalid_arguments", "not_sent")
    assert set(error["data"]["input_schema"]["required"]) == {"a", "b"}

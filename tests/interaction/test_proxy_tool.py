"""The `proxy` tool as an agent meets it: everything that the servers offer, through one tool, in both eras."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent, wait_covered
from transports import ENVIRON, in_memory, odd_servers, opened_gateway, over_http, served

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.client import ProxyClient, ProxyResponseInfo
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.proxying.metadata import ProxyResponseInfo as Info
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

LIMIT_S = 40
KEY = "dev.smartmcpproxy/"
PROXY_CHANNELS = [("memory", "handshake"), ("memory", "modern"), ("http", "handshake"), ("http", "modern")]
HELD = {
    "declares": {"prompts": {}, "resources": {}, "tools": {}},
    "prompts": [
        {"name": "greet", "description": "Greet", "arguments": [{"name": "who", "required": True}]},
        {"name": "odd name", "description": "Gone when asked for"},
    ],
    "resources": [
        {"name": "plan", "uri": "test://plan", "mimeType": "text/plain"},
        {"name": "missing", "uri": "test://missing"},
    ],
    "resourceTemplates": [{"name": "page", "uriTemplate": "test://page/{n}"}],
    "tools": [],
}


def _servers(directory: Path) -> dict[str, Any]:
    held = directory / "held.json"
    held.write_text(json.dumps(HELD), "utf-8")
    upstream = str(Path(__file__).parent / "contents_upstream.py")
    shelf = {"command": sys.executable, "args": ["-S", upstream, "modern", str(held)]}
    return {**odd_servers(directory / "ledger"), "shelf": shelf}


@pytest.fixture(scope="session")
async def proxying(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway that lists the tool, and its address."""
    directory = tmp_path_factory.mktemp("proxying")
    async with (
        opened_gateway(directory / "data", _servers(directory), proxy_tool="proxy") as gateway,
        served(gateway) as base,
    ):
        yield gateway, base


@pytest.fixture(params=PROXY_CHANNELS, ids="-".join)
async def proxier(request: pytest.FixtureRequest, proxying: tuple[Gateway, str]) -> AsyncIterator[Agent]:
    """An agent that has the tool, when everything is listed."""
    transport, era = request.param
    gateway, base = proxying
    async with AsyncExitStack() as stack:
        opening = in_memory(gateway, era) if transport == "memory" else over_http(base, era)
        agent = await stack.enter_async_context(opening)
        await _wait_listed(agent)
        yield agent


async def _wait_listed(agent: Agent) -> None:
    await wait_covered(agent)
    async with asyncio.timeout(20):
        while not all([await _listed(agent, "prompt"), len(await _listed(agent, "resource")) == 3]):
            pass


async def _listed(agent: Agent, type: str, **more: Any) -> list[dict[str, Any]]:
    [block] = (await agent.call("proxy", action="list", type=type, **more))["content"]
    found: list[dict[str, Any]] = json.loads(block["resource"]["text"])
    return found


async def _error(agent: Agent, **arguments: Any) -> dict[str, Any]:
    result = await agent.call("proxy", **arguments)
    assert result["isError"] is True, result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    error: dict[str, Any] = result["structuredContent"]["error"]
    return error


@pytest.mark.requirement("proxy-listed")
@pytest.mark.seed("tool-name")
@pytest.mark.long  # much work for one test
async def test_the_tool_is_listed_only_where_the_settings_name_it(proxier: Agent, inner: Any) -> None:
    """Last in the list, marked as one that may destroy; elsewhere its name is unknown."""
    listed = (await proxier.request("tools/list"))["result"]["tools"]
    assert listed[-1]["name"] == "proxy" and listed[-1]["annotations"]["destructiveHint"] is True
    async with in_memory(inner["whole"][0], proxier.era) as other:
        assert "proxy" not in [tool["name"] for tool in (await other.request("tools/list"))["result"]["tools"]]
        answer = await other.request("tools/call", name="proxy", arguments={"action": "list", "type": "tool"})
        assert answer["error"]["code"] == -32602


@pytest.mark.requirement("proxy-list")
@pytest.mark.seed("list-tools")
async def test_every_tool_is_listed_under_a_name_that_can_be_called(proxier: Agent) -> None:
    """Those of all servers and none of the gateway's own; a server's definition is whole."""
    tools = await _listed(proxier, "tool")
    names = [tool["name"] for tool in tools]
    assert names == sorted(names) and "old__echo" in names and "new__look" in names
    assert not {"proxy", "retrieve_tools"} & set(names)
    [odd] = [tool for tool in tools if tool["name"] == "old__odd_definition"]
    assert odd["futureKey"] == {"kept": True} and odd["_meta"] == {"example.org/kept": [1, 2.5, None]}
    assert [tool["name"] for tool in await _listed(proxier, "tool", filter={"server": "new", "prefix": "new__l"})] == [
        "new__lines",
        "new__look",
    ]
    assert len(await _listed(proxier, "tool", limit=2, cursor="new__lines")) == 2


@pytest.mark.requirement("proxy-info")
@pytest.mark.seed("info-tool")
@pytest.mark.parametrize("path", ["old__look", "old:look"])
async def test_info_takes_both_forms_of_a_name(proxier: Agent, path: str) -> None:
    """And says what was asked for."""
    result = await proxier.call("proxy", action="info", type="tool", path=path)
    [block] = result["content"]
    assert json.loads(block["resource"]["text"])["name"] == "old__look"
    assert Info.from_content(block) == Info("tool", "info", path, "Tool", False)
    assert "structuredContent" not in result


@pytest.mark.requirement("proxy-call-tool")
@pytest.mark.seed("tool-call-endpoint")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("old:echo", {"a": 1}),
        ("new:kinds", {}),
        ("new:fails", {}),
        ("old:structured", {"value": {"n": [1, None, 2.5]}}),
        ("old:erase", {"entry": 3}),
        ("new:meta", {}),
        ("old:unknown_kind", {}),
    ],
)
async def test_a_call_answers_as_the_call_tools_do(proxier: Agent, tool: str, arguments: dict[str, Any]) -> None:
    """Every block, structured content, isError and `_meta`; only our words on each block come in addition."""
    direct = await proxier.call(
        "call_tool_destructive" if "erase" in tool else "call_tool_write", name=tool, args=arguments
    )
    result = await proxier.call("proxy", action="call", type="tool", path=tool, args=arguments)
    for block in result["content"]:
        assert Info.from_content(block) == Info("tool", "call", tool)
        block["_meta"] = {key: value for key, value in block["_meta"].items() if not key.startswith(KEY)}
        if not block["_meta"]:
            del block["_meta"]
        if proxier.era == "handshake":
            ours = {"proxyAction": "call", "proxyType": "tool", "proxyPath": tool}
            assert ours.items() <= block["annotations"].items()
            block["annotations"] = {key: value for key, value in block["annotations"].items() if key not in ours}
            if not block["annotations"]:
                del block["annotations"]
    assert result == direct


@pytest.mark.requirement("proxy-call-tool")
@pytest.mark.seed("audit")
async def test_a_call_passes_the_same_gates_as_any_other(proxier: Agent, proxying: tuple[Gateway, str]) -> None:
    """Arguments are checked before they are sent, a server's JSON-RPC error is told, and all of it is on record."""
    wrong = await _error(proxier, action="call", type="tool", path="old:look", args={"entry": "three"})
    assert (wrong["code"], wrong["delivery"]) == ("invalid_arguments", "not_sent")
    broken = await _error(proxier, action="call", type="tool", path="old:rpc_error")
    assert (broken["code"], broken["delivery"]) == ("upstream_failed", "executed")
    gateway = proxying[0]
    async with asyncio.timeout(20):
        while True:
            page = await gateway.catalog.activity_page(ActivityFilter(), 200)
            lines = [found.activity for found in page]
            if {"old:look", "old:rpc_error"} <= {line.subject for line in lines if line.kind == "call"}:
                break


@pytest.mark.requirement("proxy-refusals")
@pytest.mark.seed("capability-errors-endpoint")
@pytest.mark.seed("disclosure")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ({"action": "call", "type": "tool", "path": "proxy", "args": {"action": "list"}}, "own_tool", "gateway's own"),
        ({"action": "info", "type": "tool", "path": "retrieve_tools"}, "own_tool", "gateway's own"),
        ({"action": "info", "type": "tool", "path": "old:ecko"}, "tool_not_found", "old:echo"),
        ({"action": "call", "type": "tool", "path": "nowhere:x"}, "tool_not_found", "No tool is named 'nowhere:x'"),
        ({"action": "info", "type": "prompt", "path": "nope"}, "prompt_not_found", "No prompt is named 'nope'"),
        ({"action": "call", "type": "prompt", "path": "shelf__gree"}, "not_found", "shelf__greet"),
        ({"action": "call", "type": "resource", "path": "file:///etc/passwd"}, "not_found", "No resource"),
        ({"action": "call", "type": "resource", "path": "mcpproxy://nowhere/x"}, "not_found", "No resource"),
        ({"action": "call", "type": "resource", "path": "mcpproxy://shelf@old/x"}, "not_found", "No resource"),
        ({"action": "call", "type": "resource", "path": "mcpproxy://shelf%2Fold/x"}, "not_found", "No resource"),
        ({"action": "call", "type": "resource", "path": "a" * 10_240}, "invalid_arguments", "10240 characters"),
        ({"action": "delete", "type": "tool"}, "invalid_arguments", "action is 'delete'"),
        ({"action": "list", "type": "root"}, "invalid_arguments", "type is 'root'"),
        ({"action": "info", "type": "tool"}, "invalid_arguments", "path is missing"),
        ({"action": "list", "type": "tool", "args": {}}, "invalid_arguments", "args is given"),
        ({"action": "list", "type": "tool", "path": "x"}, "invalid_arguments", "path is given"),
        ({}, "invalid_arguments", "action is missing"),
    ],
)
async def test_what_cannot_be_had_is_told_in_words(
    proxier: Agent, arguments: dict[str, Any], code: str, words: str
) -> None:
    """With a code, nothing of the gateway's inside, and never as anything but a result with isError."""
    error = await _error(proxier, **arguments)
    assert error["code"] == code and error["delivery"] == "not_sent"
    assert words in f"{error['message']} {error['hint']}"


@pytest.mark.requirement("proxy-resources")
@pytest.mark.seed("resource-read")
async def test_resources_and_templates_are_listed_described_and_read(proxier: Agent) -> None:
    """Under the gateway's URIs; JSON text is shown as JSON and keeps its own type beside it."""
    listed = {each["name"]: each for each in await _listed(proxier, "resource")}
    plan, page = listed["plan"]["uri"], listed["page"]["uriTemplate"]
    assert plan.startswith("mcpproxy://shelf/") and page.startswith("mcpproxy://shelf/")
    [info] = (await proxier.call("proxy", action="info", type="resource", path="plan"))["content"]
    assert json.loads(info["resource"]["text"])["uri"] == plan
    result = await proxier.call("proxy", action="call", type="resource", path=plan)
    text, blob = result["content"]
    assert json.loads(text["resource"]["text"])["uri"] == "test://plan"
    assert (text["resource"]["uri"], text["resource"]["mimeType"]) == (plan, "application/json")
    assert text["resource"]["_meta"]["kept"] is True
    assert Info.from_content(text) == Info("resource", "call", plan, content_type="application/json")
    assert blob["resource"]["blob"] == "AAEC" and blob["resource"]["mimeType"] == "application/octet-stream"
    filled = page.replace("{n}", "7")
    [one, _] = (await proxier.call("proxy", action="call", type="resource", path=filled))["content"]
    assert json.loads(one["resource"]["text"])["uri"] == "test://page/7"


@pytest.mark.requirement("proxy-resources")
async def test_a_resource_that_its_server_has_not_is_its_servers_error(proxier: Agent) -> None:
    """A result with isError, which says that the server was asked."""
    [uri] = [each["uri"] for each in await _listed(proxier, "resource") if each["name"] == "missing"]
    error = await _error(proxier, action="call", type="resource", path=uri)
    assert (error["code"], error["delivery"]) == ("upstream_failed", "executed")
    assert "it is gone" in error["message"]


@pytest.mark.requirement("proxy-prompts")
@pytest.mark.seed("prompt-get-endpoint")
async def test_prompts_are_listed_described_and_got(proxier: Agent) -> None:
    """Under the gateway's names, with their messages whole."""
    assert (await _listed(proxier, "prompt"))[0]["name"] == "shelf__greet"
    [info] = (await proxier.call("proxy", action="info", type="prompt", path="shelf:greet"))["content"]
    assert json.loads(info["resource"]["text"])["name"] == "shelf__greet"
    assert json.loads(info["resource"]["text"])["arguments"] == [{"name": "who", "required": True}]
    [block] = (await proxier.call("proxy", action="call", type="prompt", path="shelf__greet", args={"who": "Ada"}))[
        "content"
    ]
    assert Info.from_content(block) == Info("prompt", "call", "shelf__greet", "GetPromptResult", False)
    prompt = json.loads(block["resource"]["text"])
    assert [message["content"]["type"] for message in prompt["messages"]] == [
        "text",
        "image",
        "audio",
        "resource",
        "resource_link",
    ]
    assert json.loads(prompt["messages"][0]["content"]["text"])["arguments"] == {"who": "Ada"}


@pytest.mark.requirement("proxy-batch")
@pytest.mark.seed("batch-endpoint")
async def test_a_batch_is_answered_item_by_item(proxier: Agent) -> None:
    """In order; what fails fails alone."""
    operations = [
        {"action": "call", "type": "tool", "path": "old:echo", "args": {"n": 1}},
        {"action": "call", "type": "tool", "path": "nowhere:x"},
        {"action": "info", "type": "tool", "path": "new:look"},
        {"action": "call", "type": "tool", "path": "new:echo", "args": {"n": 2}},
    ]
    result = await proxier.call("proxy", action="batch", operations=operations)
    [block] = result["content"]
    first, second, third, fourth = json.loads(block["resource"]["text"])
    assert (first["content"][0]["text"], fourth["content"][0]["text"]) == ('{"n": 1}', '{"n": 2}')
    assert second["structuredContent"]["error"]["code"] == "tool_not_found"
    assert third["content"][0]["resource"]["uri"] == "proxy:info/tool/new%3Alook"


@pytest.mark.requirement("proxy-progress")
async def test_progress_of_a_call_reaches_whoever_asked(proxier: Agent) -> None:
    """As it does for the call tools."""
    label = f"proxy-{proxier.era}-{type(proxier).__name__}"
    asked = {"action": "call", "type": "tool", "path": "old:steps", "args": {"label": label}}
    with anyio.fail_after(LIMIT_S):
        exchange = await proxier.begin("tools/call", token=True, name="proxy", arguments=asked)
        assert (await exchange.heard.get())["params"]["message"] == "half"
        await proxier.call("call_tool_write", name="old:go", args={"label": label})
        assert (await exchange.heard.get())["params"]["message"] == "whole"
        answer = await exchange.answer
    assert answer["result"]["content"][0]["text"] == "two steps"


@pytest.mark.requirement("proxy-scope")
@pytest.mark.seed("access-control")
@pytest.mark.long  # much work for one test
async def test_the_tool_reaches_no_further_than_the_place_it_is_listed_at(tmp_path: Path) -> None:
    """In a profile the other servers' tools, resources and prompts do not exist, to list, to describe or to call."""
    text = json.dumps({"mcpServers": _servers(tmp_path), "profiles": {"small": {"servers": ["old"]}}})
    loaded = load_servers(text)
    settings = Settings(data_dir=tmp_path / "data", proxy_tool="everything")
    async with (
        open_gateway(settings, loaded.servers, environ=ENVIRON, profiles=loaded.profiles) as gateway,
        served(gateway) as base,
        over_http(base, "modern", path="/mcp/p/small") as agent,
        over_http(base, "modern") as whole,
    ):
        await wait_covered(whole)

        async def ask(**arguments: Any) -> dict[str, Any]:
            return await agent.call("everything", **arguments)

        [block] = (await ask(action="list", type="tool"))["content"]
        assert {tool["name"].partition("__")[0] for tool in json.loads(block["resource"]["text"])} == {"old"}
        for type_ in ("resource", "prompt"):
            [block] = (await ask(action="list", type=type_))["content"]
            assert block["resource"]["text"] == "[]"
        for arguments in (
            {"action": "info", "type": "tool", "path": "new:look"},
            {"action": "call", "type": "tool", "path": "new:look", "args": {"entry": 1}},
            {"action": "call", "type": "prompt", "path": "shelf__greet", "args": {"who": "A"}},
            {"action": "call", "type": "resource", "path": "mcpproxy://shelf/test%3A%2F%2Fplan"},
        ):
            result = await ask(**arguments)
            assert result["isError"] and result["structuredContent"]["error"]["code"].endswith("not_found"), result


@pytest.mark.requirement("proxy-client")
@pytest.mark.seed("client-transparent")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_our_client_sees_everything_through_the_tool(proxying: tuple[Gateway, str], mode: Any) -> None:
    """Transparent mode in front of this gateway, both eras."""
    gateway, base = proxying
    async with in_memory(gateway, "handshake") as agent:
        await _wait_listed(agent)
    with anyio.fail_after(LIMIT_S):
        async with ProxyClient(f"{base}/mcp", transparent=True, mode=mode) as client:
            assert await client.discover_proxy() == "proxy"
            tools = {tool.name for tool in await client.list_tools()}
            assert {"old__echo", "new__look"} <= tools and "retrieve_tools" not in tools
            result = await client.call_tool("old__structured", {"value": {"n": 1}})
            assert result[0].text == "see the value" and result.data == {"n": 1}
            resources = await client.list_resources()
            assert sorted(type(each).__name__ for each in resources) == ["Resource", "Resource", "ResourceTemplate"]
            [plan] = [str(each.uri) for each in resources if each.name == "plan"]  # type: ignore[union-attr]
            text, blob = await client.read_resource(plan)
            assert json.loads(text.text)["uri"] == "test://plan" and blob.blob == "AAEC"  # type: ignore[union-attr]
            prompt = await client.get_prompt("shelf__greet", {"who": "Ada"})
            assert len(prompt.messages) == 5
            raw = await client.proxy("tool", "list", limit=1)
            assert ProxyResponseInfo.from_content(raw[0]).next_cursor == "new__big"

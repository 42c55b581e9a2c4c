"""Names, URIs and filters that the `proxy` tool understands, where several servers have things of one name."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent
from transports import in_memory, opened_gateway, over_http, served

from smart_mcp_proxy.gateway import Gateway

pytestmark = pytest.mark.anyio

LIMIT_S = 40
CALCULATES = {"name": "calculator_add", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
SEARCHES = {"name": "search", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
SETTINGS = {"name": "settings", "uri": "config://settings.json"}
ALL = ("alpha", "beta", "gamma", "hidden")


def _held(server: str) -> dict[str, Any]:
    """Listed by every server, and more by some of them."""
    held: dict[str, Any] = {
        "declares": {"prompts": {}, "resources": {}, "tools": {}},
        "tools": [SEARCHES],
        "prompts": [{"name": "greet"}],
        "resources": [SETTINGS],
        "resourceTemplates": [{"name": "page", "uriTemplate": "page://{n}"}],
    }
    if server == "alpha":
        held["tools"] = [SEARCHES, CALCULATES]
        held["prompts"] = [{"name": "greet"}, {"name": "part"}]
        held["resources"] = [SETTINGS, {"name": "one", "uri": "only://one"}]
        held["resourceTemplates"] += [{"name": "leaf", "uriTemplate": "leaf://{n}"}]
    if server == "beta":
        # Names that look like another server's: they lead there or nowhere, never here.
        held["tools"] = [SEARCHES, {**SEARCHES, "name": "alpha:find"}, {**SEARCHES, "name": "alpha:search"}]
        held["prompts"] = [{"name": "greet"}, {"name": "alpha:greet"}, {"name": "alpha:find"}]
    return held


@pytest.fixture(scope="module")
async def alike(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway whose servers have the same names for most of what they offer; one of them is quarantined."""
    directory = tmp_path_factory.mktemp("alike")
    servers: dict[str, Any] = {}
    for server in ALL:
        held = directory / f"{server}.json"
        held.write_text(json.dumps(_held(server)), "utf-8")
        upstream = str(Path(__file__).parent / "contents_upstream.py")
        servers[server] = {"command": sys.executable, "args": ["-S", upstream, "modern", str(held)]}
    servers["hidden"]["quarantined"] = True
    profiles = {"pair": {"servers": ["alpha", "beta"]}, "one": {"servers": ["gamma"]}}
    async with (
        opened_gateway(directory / "data", servers, profiles=profiles, proxy_tool="proxy") as gateway,
        served(gateway) as base,
    ):
        yield gateway, base


@pytest.fixture(params=["handshake", "modern"])
async def agent(request: pytest.FixtureRequest, alike: tuple[Gateway, str]) -> AsyncIterator[Agent]:
    """An agent of either era, when everything is listed."""
    async with in_memory(alike[0], request.param) as found:
        async with asyncio.timeout(20):
            while [len(await _paths(found, type_)) for type_ in ("tool", "prompt", "resource")] != [6, 6, 8]:
                pass
        yield found


async def _paths(agent: Agent, type: str, **wanted: Any) -> list[str]:
    [block] = (await agent.call("proxy", action="list", type=type, filter=wanted))["content"]
    return [
        each.get("uri") or each.get("uriTemplate") or each["name"] for each in json.loads(block["resource"]["text"])
    ]


async def _error(agent: Agent, **arguments: Any) -> dict[str, Any]:
    result = await agent.call("proxy", **arguments)
    assert result["isError"] is True, result
    error: dict[str, Any] = result["structuredContent"]["error"]
    return error


@pytest.mark.requirement("proxy-names")
@pytest.mark.seed("filter-names")
@pytest.mark.parametrize(
    ("type", "prefix", "paths"),
    [
        ("tool", "calculator_", ["alpha__calculator_add"]),
        ("tool", "alpha:calc", ["alpha__calculator_add"]),
        ("tool", "alpha__calc", ["alpha__calculator_add"]),
        ("tool", "sear", ["alpha__search", "beta__search", "gamma__search"]),
        ("tool", "x", []),
        ("prompt", "par", ["alpha__part"]),
        ("prompt", "alpha:p", ["alpha__part"]),
        ("resource", "only:", ["mcpproxy://alpha/only%3A%2F%2Fone"]),
        ("resource", "mcpproxy://alpha/only", ["mcpproxy://alpha/only%3A%2F%2Fone"]),
        ("resource", "leaf://", ["mcpproxy://alpha/leaf%3A%2F%2F{n}"]),
    ],
)
async def test_a_prefix_is_that_of_any_name(agent: Agent, type: str, prefix: str, paths: list[str]) -> None:
    """The server's own, the canonical and the listed one."""
    assert await _paths(agent, type, prefix=prefix) == paths


@pytest.mark.requirement("proxy-names")
async def test_a_filter_that_cannot_be_meant_is_refused_and_the_rest_of_a_batch_is_done(agent: Agent) -> None:
    """With what was sent, cut short, and what to send."""
    error = await _error(agent, action="list", type="tool", filter={"prefix": "p" * 10_000})
    assert error["message"].startswith("proxy: filter.prefix has 10000 characters and begins with 'ppp")
    assert len(error["message"]) < 200 and "At most 4096" in error["hint"]
    wrong = {"action": "list", "type": "tool", "filter": {"tags": [{"of": "x" * 500}]}}
    right = {"action": "list", "type": "tool", "filter": {"prefix": "calculator_", "all_tags": []}}
    [block] = (await agent.call("proxy", action="batch", operations=[wrong, right]))["content"]
    first, second = json.loads(block["resource"]["text"])
    said = first["structuredContent"]["error"]
    assert said["message"].startswith('proxy: filter.tags is [{"of":"xxx') and len(said["message"]) < 200
    assert said["hint"] == "Send a list of strings."
    assert "calculator_add" in second["content"][0]["resource"]["text"]


@pytest.mark.requirement("proxy-names")
@pytest.mark.seed("bare-names")
async def test_a_servers_own_name_is_enough_where_one_server_has_it(agent: Agent) -> None:
    """To describe and to call: tools, prompts, resources, and resources of a template."""
    for action, type_, path in (
        ("info", "tool", "calculator_add"),
        ("call", "tool", "calculator_add"),
        ("info", "prompt", "part"),
        ("call", "prompt", "part"),
        ("info", "resource", "only://one"),
        ("call", "resource", "only://one"),
        ("info", "resource", "leaf://{n}"),
        ("call", "resource", "leaf://3"),
    ):
        result = await agent.call("proxy", action=action, type=type_, path=path)
        assert not result.get("isError"), (action, type_, path, result)


@pytest.mark.requirement("proxy-names")
@pytest.mark.seed("bare-names")
@pytest.mark.parametrize("action", ["info", "call"])
@pytest.mark.parametrize(
    ("type", "path", "forms"),
    [
        ("tool", "search", ["alpha:search", "beta:search", "gamma:search"]),
        ("prompt", "greet", ["alpha__greet", "beta__greet", "gamma__greet"]),
        (
            "resource",
            "config://settings.json",
            [f"mcpproxy://{server}/config%3A%2F%2Fsettings.json" for server in ("alpha", "beta", "gamma")],
        ),
    ],
)
async def test_a_name_that_several_servers_have_is_refused_with_the_ways_out(
    agent: Agent, action: str, type: str, path: str, forms: list[str]
) -> None:
    """Each of which works; the quarantined server is not named."""
    error = await _error(agent, action=action, type=type, path=path)
    assert error["code"] == "ambiguous_name"
    assert error["message"] == f"3 servers have a {type} {path!r}: alpha, beta, gamma."
    assert error["hint"] == f"Use one of: {', '.join(forms)}."
    assert error["data"]["did_you_mean"] == forms
    for form in forms:
        assert not (await agent.call("proxy", action=action, type=type, path=form)).get("isError"), form


@pytest.mark.requirement("proxy-names")
async def test_a_uri_that_fits_templates_of_several_servers_is_refused_likewise(agent: Agent) -> None:
    """With URIs that can be read."""
    error = await _error(agent, action="call", type="resource", path="page://7")
    assert error["code"] == "ambiguous_name" and "alpha, beta, gamma" in error["message"]
    for uri in error["data"]["did_you_mean"]:
        [text, _] = (await agent.call("proxy", action="call", type="resource", path=uri))["content"]
        assert json.loads(text["resource"]["text"])["uri"] == "page://7"


@pytest.mark.requirement("proxy-names")
async def test_a_name_that_says_a_server_never_leads_to_another_one(agent: Agent) -> None:
    """Although that one calls something of its own so."""
    found = await agent.call("proxy", action="info", type="tool", path="alpha:search")
    assert json.loads(found["content"][0]["resource"]["text"])["name"] == "alpha__search"
    prompt = await agent.call("proxy", action="info", type="prompt", path="alpha:greet")
    assert json.loads(prompt["content"][0]["resource"]["text"])["name"] == "alpha__greet"
    for action in ("info", "call"):
        error = await _error(agent, action=action, type="tool", path="alpha:find")
        assert error["code"] == "tool_not_found", error
    assert (await _error(agent, action="call", type="prompt", path="alpha:find"))["code"] == "not_found"
    for path in ("hidden:search", "hidden__search"):
        assert (await _error(agent, action="call", type="tool", path=path))["code"] == "quarantined"


@pytest.mark.requirement("proxy-names")
async def test_the_call_tools_take_no_bare_name_and_say_which_was_meant(agent: Agent) -> None:
    """They are approved by clients for what they may do; a name there is that of one tool for good."""
    one = await agent.call("call_tool_read", name="calculator_add")
    assert one["structuredContent"]["error"]["data"]["did_you_mean"] == ["alpha:calculator_add"]
    several = await agent.call("call_tool_read", name="search")
    assert several["structuredContent"]["error"]["code"] == "ambiguous_name"


@pytest.mark.requirement("proxy-names")
@pytest.mark.seed("access-control")
async def test_servers_beyond_a_profile_neither_count_nor_are_named(alike: tuple[Gateway, str], agent: Agent) -> None:
    """Of two servers that are seen, two are named; of one, the name is enough."""
    with anyio.fail_after(LIMIT_S):
        for path, servers in (("/mcp/p/pair", ["alpha", "beta"]), ("/mcp/p/one", ["gamma"])):
            async with over_http(alike[1], agent.era, path=path) as narrow:
                for type_, name in (("tool", "search"), ("prompt", "greet"), ("resource", "config://settings.json")):
                    result = await narrow.call("proxy", action="call", type=type_, path=name)
                    if len(servers) == 1:
                        assert not result.get("isError"), result
                        continue
                    error = result["structuredContent"]["error"]
                    assert error["message"] == f"2 servers have a {type_} {name!r}: alpha, beta."
                    assert "gamma" not in json.dumps(error)

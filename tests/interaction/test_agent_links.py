"""What results name, and what agents then read by it: links, embedded resources, interfaces, templates, pages."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from agents import PAUSE_S, Agent
from plain_http import plain_client
from transports import CHANNELS, agent_at, in_memory, over_http, served, settled

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.web.rest import operator_token

pytestmark = pytest.mark.anyio

LIMIT_S = 60
UPSTREAM = Path(__file__).parent / "linking_upstream.py"
ERAS = ("handshake", "modern")
MADE = "note://made/a b?q=1%2F2#é"


def linking(mode: str = "handshake", **entry: Any) -> dict[str, Any]:
    """The configuration of a server of `linking_upstream.py`."""
    return {"command": sys.executable, "args": ["-S", str(UPSTREAM), mode], **entry}


def shown(server: str, uri: str) -> str:
    """The URI of the gateway."""
    return f"mcpproxy://{server}/{quote(uri, safe='')}"


def link(uri: str) -> dict[str, Any]:
    return {"type": "resource_link", "uri": uri, "name": "made", "size": 150, "_meta": {"kept": uri}}


def embedded(uri: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "text": uri, "_meta": {"kept": uri}}, "annotations": {}}


def linking_result(uri: str, card: str = "ui://card/1") -> dict[str, Any]:
    """A result that names one resource in every way, and in text and structured content too."""
    said = [{"type": "text", "text": f'see {uri} or "resource"'}]
    return {
        "content": [link(uri), *said, embedded(uri)],
        "structuredContent": {"uri": uri, "link": link(uri), "resource": {"uri": uri}},
        "_meta": {"ui": {"resourceUri": card, "kept": uri}, "kept/uri": uri},
    }


def rewritten(result: dict[str, Any], server: str, uri: str, card: str) -> dict[str, Any]:
    """The same as an agent is to see it."""
    first, *said, last = result["content"]
    content = [first | {"uri": uri}, *said, last | {"resource": last["resource"] | {"uri": uri}}]
    meta = result["_meta"] | {"ui": result["_meta"]["ui"] | {"resourceUri": card}}
    return result | {"content": content, "_meta": meta}


def bare(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what an era adds."""
    own = {key: value for key, value in result.items() if key != "resultType"}
    own["_meta"] = {key: value for key, value in result["_meta"].items() if not key.startswith("io.model")}
    return own


async def answered(agent: Agent, result: dict[str, Any], *adds: str, token: bool = False, **how: Any) -> dict[str, Any]:
    """What the agent gets where the server answers so."""
    tool, server = how.pop("tool", "call_tool_write"), how.pop("server", "left")
    arguments: dict[str, Any] = {"result": result, "adds": adds}
    if tool == "call_tool_write":
        arguments = {"name": f"{server}:answer", "args": arguments}
    exchange = await agent.begin("tools/call", token=token, name=tool, arguments=arguments)
    with anyio.fail_after(LIMIT_S):
        got: dict[str, Any] = (await exchange.answer)["result"]
    return got


async def read(agent: Agent, uri: str) -> str:
    """The URI that the server was asked for; or the refusal's code."""
    answer = await agent.request("resources/read", uri=uri)
    if "error" in answer:
        return str((answer["error"].get("data") or {}).get("code", answer["error"]["code"]))
    (part,) = answer["result"]["contents"]
    return str(part["text"])


async def listed(agent: Agent, method: str = "resources/list") -> list[str]:
    """The URIs of a list, once there are any."""
    member, key = {"resources/list": ("resources", "uri")}.get(method, ("resourceTemplates", "uriTemplate"))
    with anyio.fail_after(LIMIT_S):
        while True:
            if found := (await agent.request(method))["result"][member]:
                return [item[key] for item in found]
            await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def linked_agent(directory: Path, era: Any = "modern", **settings: Any) -> AsyncIterator[tuple[Gateway, Agent]]:
    """A gateway in front of the server `left`, and an agent at it."""
    async with settled(directory, {"left": linking()}, **settings) as gateway, in_memory(gateway, era) as agent:
        yield gateway, agent


async def withheld(gateway: Gateway, uri: str, server: str = "left") -> None:
    """Returns when a resource waits for the user."""
    with anyio.fail_after(LIMIT_S):
        while ToolKey(f"{server}:resources", uri) not in gateway.catalog.snapshot.withheld:
            await asyncio.sleep(0.01)


async def recorded(gateway: Gateway, subject: str) -> dict[str, Any]:
    """The detail of the newest record of this subject, once it is stored."""
    with anyio.fail_after(LIMIT_S):
        while True:
            page = await gateway.catalog.activity_page(ActivityFilter(), 50)
            if found := [each.activity.detail for each in page if each.activity.subject == subject]:
                return dict(found[0])
            await asyncio.sleep(0.01)


@pytest.mark.requirement("links-lead-here")
@pytest.mark.requirement("links-open")
@pytest.mark.parametrize("channel", [channel for channel in CHANNELS if channel[0] != "sse"], ids="-".join)
@pytest.mark.long  # much work for one test
async def test_a_result_names_what_can_be_read(channel: tuple[str, Any], tmp_path: Path) -> None:
    """A tool makes a resource and names it: the URI leads to the gateway, and is read at once, new as it is.

    From a server of each era, in a usual call and in one that asks for progress.
    """
    servers = {"left": linking("handshake"), "right": linking("modern")}
    async with agent_at(channel, tmp_path / "data", servers) as agent:
        with anyio.fail_after(LIMIT_S):
            found: list[str] = []
            while not all(any(f"://{name}/" in uri for uri in found) for name in servers):
                found = await listed(agent)
        for server, token in itertools.product(servers, (False, True)):
            made = f"{MADE}-{token}"
            result = linking_result(made)
            got = await answered(agent, result, made, server=server, token=token)
            assert bare(got) == rewritten(result, server, shown(server, made), f"ui://{server}/card/1")
            assert await read(agent, shown(server, made)) == made
            contents = (await agent.request("resources/read", uri=shown(server, made)))["result"]["contents"]
            assert contents[0]["uri"] == shown(server, made)
            assert shown(server, made) not in await listed(agent)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("links-lead-here")
@pytest.mark.parametrize("era", ERAS)
async def test_interfaces_of_two_servers_keep_their_scheme_and_their_place(era: Any, tmp_path: Path) -> None:
    """Listed, named by a tool, of a template: each is read from its own server."""
    servers = {name: linking(pin=["card"]) for name in ("left", "right")}
    async with settled(tmp_path / "data", servers) as gateway, in_memory(gateway, era) as agent:
        resources, templates = await listed(agent), await listed(agent, "resources/templates/list")
        tools = {tool["name"]: tool for tool in (await agent.request("tools/list"))["result"]["tools"]}
        for name in servers:
            assert f"ui://{name}/card" in resources and f"ui://{name}/cards/{{id}}" in templates
            meta = tools[f"{name}__card"]["_meta"]
            assert meta == {"ui": {"resourceUri": f"ui://{name}/card", "visibility": ["model"]}, "kept": 1}
            for uri in ("card", "cards/a%20b"):
                assert await read(agent, f"ui://{name}/{uri}") == f"ui://{uri}"
            await gateway.catalog.block(ToolKey("left:resources", "ui://card"), "tester")
            await gateway.lists.index_sync.follow()
        assert await read(agent, "ui://left/card") == "quarantined"
        assert await read(agent, "ui://right/card") == "ui://card"
        assert await read(agent, "ui://nobody/card") == "not_found"


TEMPLATES = {
    "note://by/{name}": "mcpproxy://left/note%3A%2F%2Fby%2F{name}",
    "disk://{+path}": "mcpproxy://left/disk%3A%2F%2F{+path}",
    "ui://cards/{id}": "ui://left/cards/{id}",
    "https://docs.example/pages/{id}": "https://docs.example/pages/{id}",
}
TEMPLATED = [
    ("note://by/{name}", "a%20b"),
    ("note://by/{name}", "a%2Fb"),
    ("note://by/{name}", "plain"),
    ("disk://{+path}", "a/b%20c.txt"),
    ("disk://{+path}", "/a/../b?q#f"),
    ("ui://cards/{id}", "a%2Fb%20c"),
    ("https://docs.example/pages/{id}", "a%20b"),
]


@pytest.mark.requirement("links-lead-here")
@pytest.mark.parametrize(("template", "value"), TEMPLATED)
async def test_what_a_template_gives_is_read_filled_in_or_linked(template: str, value: str, tmp_path: Path) -> None:
    """The server is asked for the same URI, as if it had been asked directly."""
    expression = "{" + template.split("{")[1]
    async with linked_agent(tmp_path / "data") as (_, agent):
        assert await listed(agent, "resources/templates/list") == list(TEMPLATES.values())
        own = template.replace(expression, value)
        assert await read(agent, TEMPLATES[template].replace(expression, value)) == own
        got = await answered(agent, {"content": [link(own), {"type": "text", "text": ""}]})
        assert await read(agent, got["content"][0]["uri"]) == own


@pytest.mark.requirement("links-lead-here")
async def test_a_link_that_its_template_would_not_give_is_read_as_it_was_linked(tmp_path: Path) -> None:
    """Many servers write `{name}` where values hold a slash."""
    async with linked_agent(tmp_path / "data") as (_, agent):
        own = "note://by/a/b c"
        got = await answered(agent, {"content": [link(own)]})
        assert await read(agent, got["content"][0]["uri"]) == own


@pytest.mark.requirement("links-lead-here")
async def test_pages_of_the_web_stay_as_they_are(tmp_path: Path) -> None:
    """Listed or linked they are read through the server; what nobody named is not fetched."""
    servers = {"left": linking(), "right": linking()}
    async with settled(tmp_path / "data", servers) as gateway, in_memory(gateway, "modern") as agent:
        page, other = "https://docs.example/page", "HTTP://other.example/a b"
        assert (await listed(agent)).count(page) == 1
        assert await read(agent, page) == page
        assert await read(agent, other) == "not_found"
        got = await answered(agent, {"content": [link(page), link(other)]}, server="right")
        assert [block["uri"] for block in got["content"]] == [page, other]
        assert await read(agent, page) == page
        assert await read(agent, other) == other
        assert (await recorded(gateway, f"right:resources/read:{other}"))["via"] == "link"


@pytest.mark.requirement("links-open")
async def test_a_link_opens_what_is_new_and_nothing_else(tmp_path: Path) -> None:
    """Not what was changed or blocked, no interface, no skill; another URI of the server waits for the user as ever."""
    new, blocked, skill = "note://new", "note://blocked", "skill://review/SKILL.md"
    async with linked_agent(tmp_path / "data") as (gateway, agent):
        uris = [new, blocked, "note://other", "ui://new", skill, "file:///x/SKILL.md"]
        result = {"content": [link(uri) for uri in uris if uri != "note://other"]}
        await answered(agent, {"content": []}, *uris)
        await withheld(gateway, uris[-1])
        assert await read(agent, shown("left", new)) == "quarantined"
        await gateway.admin.approvals.block(f"left:resources:{blocked}", "tester")
        got = await answered(agent, result)
        assert await read(agent, got["content"][0]["uri"]) == new
        for uri in [*(block["uri"] for block in got["content"][1:]), shown("left", "note://other")]:
            assert await read(agent, uri) == "quarantined", uri
        assert await read(agent, shown("left", "NOTE://new")) == "quarantined"
        assert shown("left", new) not in await listed(agent)
        waiting = {
            str(each.withheld.record.key)
            for each in await gateway.admin.approvals.explain(gateway.admin.approvals.withheld())
        }
        assert f"left:resources:{new}" in waiting

        detail = await recorded(gateway, f"left:resources/read:{new}")
        assert detail == {"method": "resources/read", "via": "link"}


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("links-open")
async def test_a_link_is_followed_by_its_principal_alone(tmp_path: Path) -> None:
    """Whoever else reaches the server waits for the user; and who does not reach it learns nothing."""
    servers = {"left": linking(), "right": linking()}
    async with (
        settled(tmp_path / "data", servers) as gateway,
        served(gateway, token="own") as base,
        AsyncExitStack() as stack,
    ):
        agents = []
        for name, reach in (("ann", ("left",)), ("bob", ("left",)), ("carl", ("right",))):
            secret = (await gateway.admin.agent_tokens.create(name, Scope(reach, "write"))).secret
            opening = over_http(base, "modern", {"authorization": f"Bearer {secret}"})
            agents.append(await stack.enter_async_context(opening))
        ann, bob, carl = agents
        got = await answered(ann, {"content": [link(MADE), link("https://other.example/")]}, MADE)
        await withheld(gateway, MADE)
        for uri, own in zip((each["uri"] for each in got["content"]), (MADE, "https://other.example/"), strict=True):
            assert await read(ann, uri) == own
            assert await read(bob, uri) in ("quarantined", "not_found")
            assert await read(carl, uri) == "not_found"


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("links-open")
async def test_all_processes_on_one_store_know_a_link(tmp_path: Path) -> None:
    """Read through a gateway that has never seen the result."""
    servers = {"left": linking()}
    async with linked_agent(tmp_path / "data") as (gateway, agent):
        got = await answered(agent, {"content": [link(MADE)]}, MADE)
        await withheld(gateway, MADE)
        async with settled(tmp_path / "data", servers) as other, in_memory(other, "modern") as reader:
            assert await read(reader, got["content"][0]["uri"]) == MADE


@pytest.mark.requirement("links-open")
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_is_passed_through_keeps_its_uris(era: Any, tmp_path: Path) -> None:
    """Results are its own to the letter, and what they link to is read."""
    async with linked_agent(tmp_path / "data", era, passthrough="left") as (gateway, agent):
        assert (await listed(agent))[0] == "ui://card"
        result = linking_result(MADE)
        assert bare(await answered(agent, result, MADE, tool="answer")) == result
        await withheld(gateway, MADE)
        assert await read(agent, MADE) == MADE
        assert await read(agent, "note://other") == "quarantined"


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("links-lead-here")
async def test_scripts_the_proxy_tool_and_programs_get_the_same_links(tmp_path: Path) -> None:
    """One path of all calls; and what one of them was linked to, the same principal reads by each."""
    async with linked_agent(tmp_path / "data", code="python", proxy_tool="proxy") as (gateway, agent):
        result = {"content": [link(MADE)]}
        script = f"call_tool('left:answer', {json.dumps({'result': result, 'adds': [MADE]})})"
        got = await agent.call("code_execution", code=script)
        assert shown("left", MADE) in json.dumps(got, ensure_ascii=False), got
        await withheld(gateway, MADE)

        got = await agent.call("proxy", action="call", type="resource", path=shown("left", MADE))
        assert got["content"][0]["resource"]["text"] == MADE
        got = await agent.call("proxy", action="call", type="tool", path="left:answer", args={"result": result})
        assert got["content"][0]["uri"] == shown("left", MADE)
        got = await agent.call("proxy", action="info", type="tool", path="left:card")
        meta = json.loads(got["content"][0]["resource"]["text"])["_meta"]
        assert meta["ui"]["resourceUri"] == "ui://left/card"


@pytest.mark.requirement("links-lead-here")
async def test_rest_answers_with_links_that_lead_here(tmp_path: Path) -> None:
    """What the user calls by the command line or a program, the user reads."""
    async with linked_agent(tmp_path / "data") as (gateway, agent), served(gateway) as base:
        token = operator_token(gateway.settings)
        headers = {"authorization": f"Bearer {token}"}
        call = {"name": "left:answer", "arguments": {"result": {"content": [link(MADE)]}, "adds": [MADE]}}
        async with plain_client(base_url=base, timeout=LIMIT_S, headers=headers) as client:
            got = (await client.post("/api/v1/call", json=call)).json()
        assert got["content"][0]["uri"] == shown("left", MADE)
        await withheld(gateway, MADE)
        assert await read(agent, shown("left", MADE)) == MADE


@pytest.mark.requirement("links-lead-here")
async def test_the_resources_of_a_prompt_can_be_read(tmp_path: Path) -> None:
    """Linked or embedded; its text stays as it is."""
    async with linked_agent(tmp_path / "data") as (_, agent):
        messages = (await agent.request("prompts/get", name="left__review"))["result"]["messages"]
        first, second, third = (message["content"] for message in messages)
        assert first["uri"] == second["resource"]["uri"] == shown("left", "note://first")
        assert second["resource"]["text"] == third["text"] == "note://first"
        assert await read(agent, first["uri"]) == "note://first"


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("links-open")
async def test_the_broker_passes_uris_on_and_opens_what_is_linked(tmp_path: Path) -> None:
    """It speaks of each server in the server's own words."""
    async with AsyncExitStack() as stack:
        inner = await stack.enter_async_context(settled(tmp_path / "inner", {"deep": linking()}))
        address = await stack.enter_async_context(served(inner)) + "/mcp"
        servers = {"left": {"url": address, "proxy": True}}
        gateway = await stack.enter_async_context(settled(tmp_path / "data", servers))
        base = await stack.enter_async_context(served(gateway))
        client = await stack.enter_async_context(plain_client(base_url=base, timeout=LIMIT_S))

        async def sent(method: str, **params: Any) -> dict[str, Any]:
            asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            found: dict[str, Any] = (await client.post("/api/mcp/left/proxy", json=asked)).json()
            return found

        args = {"name": "deep:answer", "args": {"result": {"content": [link(MADE)]}, "adds": [MADE]}}
        got = (await sent("tools/call", name="call_tool_write", arguments=args))["result"]
        assert got["content"][0]["uri"] == shown("deep", MADE)
        await withheld(inner, MADE, "deep")
        assert (await sent("resources/read", uri=shown("deep", MADE)))["result"]["contents"][0]["text"] == MADE

        async with in_memory(gateway, "modern") as agent:
            got = await agent.call("call_tool_write", name="left:call_tool_write", args=args)
            twice = shown("left", shown("deep", MADE))
            assert got["content"][0]["uri"] == twice
            assert await read(agent, twice) == MADE
            assert "ui://left/deep/card" in await listed(agent)
            assert await read(agent, "ui://left/deep/card") == "ui://card"

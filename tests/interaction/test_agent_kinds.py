"""Searches for prompts, resources and templates beside tools, at a real gateway: what is found can be used as it says,
and what a caller is not shown is not found."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import Agent
from test_agent_contents import ERAS, METHODS, listed, server, turn, write
from transports import in_memory, over_http, served, settled

from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.web.rest import build_rest_app

pytestmark = pytest.mark.anyio

KINDS = ["tool", "prompt", "resource", "resource_template"]
QUERY = "harbour storm warning"
LISTED: dict[str, Any] = {
    "tools": [
        {"name": "poke", "inputSchema": {"type": "object"}},
        {"name": "warn", "description": "Send a storm warning to the harbour.", "inputSchema": {"type": "object"}},
    ],
    "prompts": [
        {"name": "draft", "description": "Draft a storm warning for a harbour.", "arguments": [{"name": "who"}]}
    ],
    "resources": [{"uri": "test://storms", "name": "storms", "description": "Storm warning log of the harbour."}],
    "resourceTemplates": [
        {
            "uriTemplate": "test://storms/{day}/log{?part}",
            "name": "day",
            "description": "Storm warning of one day at a harbour.",
        }
    ],
}


async def search(agent: Agent, **arguments: Any) -> dict[str, Any]:
    answer = await agent.call("retrieve_tools", **{"query": QUERY} | arguments)
    assert answer["isError"] is False, answer
    assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    found: dict[str, Any] = answer["structuredContent"]
    return found


def named(answer: dict[str, Any]) -> list[str]:
    members = ("name", "uri", "uri_template")
    return sorted(next(entry[member] for member in members if member in entry) for entry in answer["found"])


@pytest.mark.requirement("search-kinds")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_found_is_used_as_it_says(era: Any, mode: str, tmp_path: Path) -> None:
    """By the request that it names and by the tool that it names, arguments and all."""
    write(tmp_path / "listed", **LISTED)
    servers = {"fx": server(mode, tmp_path / "listed")}
    async with settled(tmp_path / "data", servers, proxy_tool="proxy") as gateway, in_memory(gateway, era) as agent:
        answer = await search(agent, types=KINDS)
        found = {entry["kind"]: entry for entry in answer["found"]}
        assert sorted(found) == sorted(KINDS)
        assert answer["tools"] == (await search(agent))["tools"]

        prompt, resource, template = (found[kind] for kind in KINDS[1:])
        assert prompt["arguments"] == [{"name": "who", "description": "", "required": False}]
        got = await agent.request(prompt["use"]["request"], name=prompt["name"], arguments={"who": "all"})
        assert "messages" in got["result"]
        assert template["variables"] == ["day", "part"]
        uri = template["uri_template"].replace("{day}", "monday").replace("{?part}", "?part=2")
        for each, own in ((resource["uri"], "test://storms"), (uri, "test://storms/monday/log?part=2")):
            read = await agent.request(resource["use"]["request"], uri=each)
            assert json.loads(read["result"]["contents"][0]["text"]) == {"uri": own}
        for entry in (prompt, resource):
            assert entry["use"]["tool"] == "proxy"
            used = await agent.call("proxy", **entry["use"]["args"])
            assert used.get("isError", False) is False, used
        called = await agent.call(found["tool"]["use"]["tool"], name=found["tool"]["name"], args={})
        assert called.get("isError", False) is False, called


@pytest.mark.requirement("search-kinds")
async def test_types_are_spelt_as_any_list_and_a_wrong_one_is_refused_with_those_that_are(tmp_path: Path) -> None:
    """One text, JSON in a text, null and nothing; and no other member than found is added to an answer."""
    write(tmp_path / "listed", **LISTED)
    servers = {"fx": server("handshake", tmp_path / "listed")}
    async with settled(tmp_path / "data", servers) as gateway, in_memory(gateway, "modern") as agent:
        plain = await search(agent)
        none: list[Any] = [None, "", [], "[]", ["tool"], "tool"]
        for spelt in none:
            assert (await search(agent, types=spelt)).keys() == plain.keys()
        for spelt in ("prompt", ["prompt"], '["prompt"]'):
            answer = await search(agent, types=spelt)
            assert named(answer) == ["fx__draft"]
            assert answer.keys() - plain.keys() == {"found"}
        for spelt in (["promt"], "promt", '["tool", "promt"]'):
            refused = (await agent.call("retrieve_tools", query=QUERY, types=spelt))["structuredContent"]["error"]
            assert refused["code"] == "invalid_arguments"
            assert all(kind in refused["message"] for kind in (*KINDS, "promt"))


@pytest.mark.requirement("search-kinds")
async def test_what_waits_for_the_user_or_is_blocked_is_not_found(tmp_path: Path) -> None:
    """Not by its words, not by its exact name; approved it is found, as it is now."""
    file = tmp_path / "listed"
    write(file, **LISTED)
    servers = {"fx": server("handshake", file)}
    async with settled(tmp_path / "data", servers) as gateway, in_memory(gateway, "modern") as agent:
        assert len((await search(agent, types=KINDS[1:]))["found"]) == 3
        poisoned = [{"name": "draft", "description": "Harbour storm warning of xyzzy."}, {"name": "xyzzy"}]
        await turn(gateway, agent, file, **LISTED | {"prompts": poisoned})
        for query in (QUERY, "xyzzy", "fx__draft", "fx:draft"):
            answer = await search(agent, types=["prompt"], query=query)
            assert answer["found"] == [] == answer["near_misses"]
            assert "xyzzy" not in json.dumps(answer).replace(json.dumps(query), "")
        waiting = {
            str(each.withheld.record.key): each.withheld.record.change_hash
            for each in await gateway.admin.approvals.explain(gateway.admin.approvals.withheld())
        }
        await gateway.admin.approvals.approve(waiting, "tester")
        assert named(await search(agent, types=["prompt"], query="xyzzy")) == ["fx__draft", "fx__xyzzy"]
        await gateway.admin.approvals.block("fx:prompts:draft", "tester")
        assert named(await search(agent, types=["prompt"], query="xyzzy")) == ["fx__xyzzy"]


@pytest.mark.requirement("search-kinds")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.long  # much work for one test
async def test_a_principal_finds_what_its_token_and_its_profile_reach(era: Any, tmp_path: Path) -> None:
    """As the lists of prompts and resources show it there."""
    for name in ("left", "right"):
        write(tmp_path / name, **LISTED)
    servers = {name: server("modern", tmp_path / name) for name in ("left", "right")}
    profiles = {"half": {"servers": ["right"]}, "few": {"tools": ["left:draft"]}}
    async with settled(tmp_path / "data", servers, profiles=profiles) as gateway, served(gateway, token="own") as base:
        secret = (await gateway.admin.agent_tokens.create("left", Scope(("left",), "read"))).secret
        for token, path in ((secret, "/mcp"), ("own", "/mcp/p/half"), ("own", "/mcp/p/few"), ("own", "/mcp")):
            headers = {"authorization": f"Bearer {token}"}
            async with over_http(base, era, headers, path=path) as agent:
                shown = [
                    item.get("name") if kind == "prompts" else item.get("uri", item.get("uriTemplate"))
                    for method, kind in METHODS.items()
                    for item in await listed(agent, method)
                ]
                found = named(await search(agent, types=KINDS[1:], limit=50))
                assert found == sorted(shown), path
                assert len(found) == {"/mcp/p/half": 3, "/mcp/p/few": 1}.get(path, 3 if token == secret else 6)


@pytest.mark.requirement("search-kinds")
@pytest.mark.long  # half a second of work and more
async def test_only_tools_are_registered_where_found_tools_are(tmp_path: Path) -> None:
    """In the pool of a session; prompts and resources stay in their own lists."""
    write(tmp_path / "listed", **LISTED)
    servers = {"fx": server("modern", tmp_path / "listed")}
    async with (
        settled(tmp_path / "data", servers, routing_type="DYNAMIC") as gateway,
        in_memory(gateway, "handshake") as agent,
    ):
        answer = await search(agent, types=KINDS)
        assert len(answer["found"]) == 4
        assert answer["newly_registered"] == [tool["listed_name"] for tool in answer["tools"]]
        tools = [tool["name"] for tool in (await agent.request("tools/list"))["result"]["tools"]]
        assert not {"fx__draft"} & set(tools)
        assert "fx__warn" in tools


@pytest.mark.requirement("search-kinds")
async def test_people_find_all_kinds_over_rest(tmp_path: Path) -> None:
    """The same answer; a type that is none is a bad request."""
    write(tmp_path / "listed", **LISTED)
    servers = {"fx": server("modern", tmp_path / "listed")}
    async with settled(tmp_path / "data", servers) as gateway, in_memory(gateway, "modern") as agent:
        transport = httpx2.ASGITransport(build_rest_app(gateway))
        async with httpx2.AsyncClient(base_url="http://x/api/v1/", transport=transport) as client:
            params: dict[str, Any] = {"q": QUERY, "types": KINDS[1:], "why": "true"}
            answer = (await client.get("search", params=params)).json()
            assert named(answer) == named(await search(agent, types=KINDS[1:]))
            assert all(entry["why"]["matched"] for entry in answer["found"])
            refused = await client.get("search", params={"q": QUERY, "types": "promt"})
            assert refused.status_code == 400
            error = refused.json()["error"]
            assert (error["message"], error["hint"]) == ("types has 'promt'.", f"Known: {', '.join(KINDS)}, skill.")
            assert "found" not in (await client.get("search", params={"q": QUERY})).json()

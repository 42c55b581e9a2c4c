"""Who comes in with which token, what it reaches, and that nothing of another principal's ever reaches it."""

import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from agents import HttpAgent
from plain_http import plain_client
from transports import odd_servers, opened_gateway, over_http, rest_at, served

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.web.serve import open_socket

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("principals")]

OWN = "the-gateways-own-token"
ERAS = pytest.mark.parametrize("era", ["handshake", "modern"])
SCOPES = {
    "old-read": Scope(("old",), "read"),
    "old-write": Scope(("old",), "write"),
    "new-all": Scope(("new",), "destructive"),
    "everything": Scope(None, "destructive"),
    "nothing": Scope(("gone",), "destructive"),
}


class TokenGateway:
    """A gateway that is served with a token of its own and has made one for each of `SCOPES`."""

    def __init__(self, gateway: Gateway, base: str, tokens: dict[str, str], ledger: Path) -> None:
        self.gateway = gateway
        self.base = base
        self.tokens = tokens
        self.ledger = ledger

    def headers(self, name: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[name]}"}


@pytest.fixture(scope="module")
async def token_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TokenGateway]:
    """The gateway that all tests here call."""
    directory = tmp_path_factory.mktemp("principals")
    ledger = directory / "ledger"
    ledger.touch()
    async with opened_gateway(directory / "data", odd_servers(ledger)) as gateway, served(gateway, token=OWN) as base:
        assert await gateway.wait_settled(20)
        tokens = {name: (await gateway.admin.agent_tokens.create(name, scope)).secret for name, scope in SCOPES.items()}
        yield TokenGateway(gateway, base, {"own": OWN, **tokens}, ledger)


@pytest.fixture(params=["handshake", "modern"])
async def agents(token_gateway: TokenGateway, request: pytest.FixtureRequest) -> AsyncIterator[dict[str, HttpAgent]]:
    """One agent for each token."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                over_http(token_gateway.base, request.param, token_gateway.headers(name))
            )
            for name in token_gateway.tokens
        }


def error_of(result: dict[str, Any]) -> dict[str, Any]:
    """The error that a tool of the gateway's answered with."""
    assert result["isError"], result
    error: dict[str, Any] = json.loads(result["content"][0]["text"])["error"]
    return error


def without_names(text: str) -> str:
    """Words with every quoted name blanked out."""
    return re.sub(r"'[^']*'", "''", text)


@pytest.mark.long  # a third of a second of processor time
async def test_a_search_stays_inside_the_tokens_servers(agents: dict[str, HttpAgent]) -> None:
    """Hits, totals, near misses and what is not covered; the exact name of a tool elsewhere finds nothing."""
    found = {}
    for name, agent in agents.items():
        for query in ("paint a wall", "new:paint", "old:look", "new:look"):
            answer = (await agent.call("retrieve_tools", query=query, limit=50))["structuredContent"]
            found.setdefault(name, set()).update(tool["server"] for tool in answer["tools"])
            found[name].update(near["name"].partition(":")[0] for near in answer["near_misses"])
            found[name].update(row["server"] for row in answer["not_covered"])
    assert found == {
        "own": {"old", "new"},
        "everything": {"old", "new"},
        "old-read": {"old"},
        "old-write": {"old"},
        "new-all": {"new"},
        "nothing": set(),
    }


@pytest.mark.long  # a third of a second of processor time
async def test_a_search_shows_only_what_the_access_allows(agents: dict[str, HttpAgent]) -> None:
    """A tool that says nothing about itself is taken to write."""
    kinds = {}
    for name in ("old-read", "old-write", "new-all"):
        answer = await agents[name].call("retrieve_tools", query="echo look erase paint", limit=50)
        answer = answer["structuredContent"]
        kinds[name] = {tool["call_with"] for tool in answer["tools"]}
    assert kinds["old-read"] == {"call_tool_read"}
    assert "call_tool_destructive" not in kinds["old-write"]
    assert "call_tool_write" in kinds["old-write"]
    assert "call_tool_destructive" in kinds["new-all"]


@pytest.mark.parametrize("tool", ["call_tool_read", "call_tool_write", "call_tool_destructive"])
@pytest.mark.parametrize("form", ["{}:echo", "{}__echo"])
async def test_a_tool_elsewhere_is_worded_like_one_that_does_not_exist(
    token_gateway: TokenGateway, agents: dict[str, HttpAgent], tool: str, form: str
) -> None:
    """Neither the code nor the words tell the two apart, and nothing is sent."""
    before = token_gateway.ledger.read_text()
    real = error_of(await agents["old-write"].call(tool, name=form.format("new"), args={"text": "x"}))
    unreal = error_of(await agents["old-write"].call(tool, name=form.format("nowhere"), args={"text": "x"}))
    assert real["code"] == unreal["code"] == "tool_not_found"
    assert without_names(real["message"]) == without_names(unreal["message"])
    assert "new" not in real["hint"].replace("new:echo", "").replace("new__echo", "")
    assert token_gateway.ledger.read_text() == before
    described = await agents["old-write"].call("describe_tool", names=[form.format("new")])
    assert described["structuredContent"]["errors"][0]["code"] == "tool_not_found"
    searched = error_of(await agents["old-write"].call("retrieve_tools", query="x", servers=["new"]))
    assert searched["code"] == "server_not_found"
    assert searched["hint"] in ("Known: old.", "Close: old.")


async def test_a_call_beyond_the_access_is_refused_with_a_code_of_its_own(
    token_gateway: TokenGateway, agents: dict[str, HttpAgent]
) -> None:
    """The hint says who can widen it; nothing is sent, whichever call tool is used."""
    before = token_gateway.ledger.read_text()
    for name, tool, access, needed in (
        ("old-read", "old:paint", "read", "write"),
        ("old-read", "old:echo", "read", "write"),
        ("old-read", "old:erase", "read", "destructive"),
        ("old-write", "old:erase", "write", "destructive"),
    ):
        for call_tool in ("call_tool_read", "call_tool_write", "call_tool_destructive"):
            error = error_of(await agents[name].call(call_tool, name=tool, args={"label": "refused"}))
            assert (error["code"], error["data"]) == ("access_denied", {"access": access, "needed": needed})
            assert "operator" in error["hint"]
            assert error["delivery"] == "not_sent"
    assert token_gateway.ledger.read_text() == before


async def test_what_is_within_the_reach_is_answered(agents: dict[str, HttpAgent]) -> None:
    """As without any token."""
    result = await agents["old-write"].call("call_tool_write", name="old:echo", args={"text": "light"})
    assert "isError" not in result or not result["isError"]
    result = await agents["new-all"].call("call_tool_destructive", name="new:erase", args={"entry": 1})
    assert not result.get("isError")


@ERAS
@pytest.mark.long  # half a second of work and more
async def test_both_ways_to_a_call_take_the_same_decision(token_gateway: TokenGateway, era: str) -> None:
    """A member that JSON-RPC does not know makes the fast path hand a message on; the answers are equal."""
    async with plain_client(timeout=20) as client:
        for name in (*token_gateway.tokens, "none", "wrong", "lower"):
            headers = {"authorization": f"Bearer {token_gateway.tokens.get(name, 'mcpp_wrong')}"}
            if name == "none":
                headers = {}
            elif name == "lower":
                headers = {"authorization": f"bearer {OWN}"}
            for tool in ("old:look", "old:paint", "new:erase", "new:echo", "nowhere:x"):
                pair = await _both_ways(client, token_gateway, era, headers, tool)
                assert pair[0] == pair[1], (name, tool)
                assert (pair[0][0] == 401) == (name in ("none", "wrong"))


async def _both_ways(
    client: httpx2.AsyncClient, token_gateway: TokenGateway, era: str, headers: dict[str, str], tool: str
) -> list[tuple[int, Any]]:
    async with AsyncExitStack() as stack:
        arguments = {"name": tool, "args": {"entry": 1}}
        if "authorization" in headers and "wrong" not in headers["authorization"]:
            agent = await stack.enter_async_context(over_http(token_gateway.base, era, headers))  # type: ignore[arg-type]
            await agent.call("read_output", key="x")  # from here on the fast path may answer it
        else:
            agent = HttpAgent(era, f"{token_gateway.base}/mcp", client)  # type: ignore[arg-type]
        found = []
        for extra in ({}, {"unknown": 0}):
            body = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", **extra}
            body["params"] = {"name": "call_tool_destructive", "arguments": arguments}
            if era == "modern":
                meta = "io.modelcontextprotocol/"
                body["params"]["_meta"] = {meta + "protocolVersion": "2026-07-28", meta + "clientCapabilities": {}}
            reply = await client.post(f"{token_gateway.base}/mcp", json=body, headers=agent._headers(body) | headers)
            assert reply.headers["content-type"] == "application/json"
            found.append((reply.status_code, reply.json()))
        return found


async def test_a_session_answers_only_the_principal_that_opened_it(token_gateway: TokenGateway) -> None:
    """To anybody else, and to an id that is none, it does not exist: 404, whatever the request."""
    async with over_http(token_gateway.base, "handshake", token_gateway.headers("own")) as agent:
        await agent.call("read_output", key="x")
        session = agent.session_id
        assert session is not None
        ids = [session, "unknown", "0" * 32, session.upper() + "x", "x" * 60_000]
        async with plain_client() as client:
            for session_id in ids:
                for method in ("POST", "GET", "DELETE"):
                    headers = token_gateway.headers("everything") | {
                        "mcp-session-id": session_id,
                        "mcp-protocol-version": "2025-11-25",
                        "accept": "application/json, text/event-stream",
                    }
                    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"} if method == "POST" else None
                    reply = await client.request(method, f"{token_gateway.base}/mcp", headers=headers, json=body)
                    assert reply.status_code == 404, (method, session_id[:40])
                    assert "Session not found" in reply.text
        assert (await agent.request("tools/list"))["result"]["tools"]


async def test_a_session_id_longer_than_any_head_ends_the_request(token_gateway: TokenGateway) -> None:
    """A megabyte of it is refused before anybody reads it."""
    async with plain_client() as client:
        headers = token_gateway.headers("own") | {"mcp-session-id": "x" * 1_000_000}
        try:
            reply = await client.post(f"{token_gateway.base}/mcp", headers=headers, json={})
        except httpx2.HTTPError:
            return  # the connection is closed while it is still being sent
        assert reply.status_code in (400, 431)


async def test_the_older_transport_is_bound_to_its_principal_too(token_gateway: TokenGateway) -> None:
    """Its messages are posted to an address that another principal may have seen."""
    async with (
        plain_client(base_url=token_gateway.base, timeout=20) as client,
        client.stream("GET", "/sse", headers=token_gateway.headers("own")) as stream,
    ):
        address = await _until_data(stream.aiter_lines())
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        for name, status in (("everything", 404), ("old-read", 404), ("own", 202)):
            reply = await client.post(address, json=body, headers=token_gateway.headers(name))
            assert reply.status_code == status, name
        assert (await client.post(address, json=body)).status_code == 401


async def _until_data(lines: AsyncIterator[str]) -> str:
    async for line in lines:
        if line.startswith("data:"):
            return line[5:].strip()
    raise AssertionError("the stream ended without an address")


@pytest.mark.requirement("principals-cancel")
async def test_cancellations_and_progress_never_cross_principals(token_gateway: TokenGateway) -> None:
    """Two principals call with the same request ids and cancel both calls: only one's own cancellation counts."""
    seed = random.Random(7)
    async with (
        over_http(token_gateway.base, "handshake", token_gateway.headers("own")) as ann,
        over_http(token_gateway.base, "handshake", token_gateway.headers("everything")) as bob,
    ):
        for turn in range(8):
            ann._last_id = bob._last_id = 100 + 10 * turn
            with anyio.fail_after(20):
                labels = {ann: f"ann-{turn}", bob: f"bob-{turn}"}
                running = {agent: await _steps(agent, labels[agent]) for agent in seed.sample([ann, bob], 2)}
                assert running[ann].id == running[bob].id
                await _cancel_in(ann, token_gateway, bob, running[bob].id)
                await _cancel_in(bob, token_gateway, ann, running[ann].id)
                cancelled = seed.choice([ann, bob, None])
                if cancelled is not None:
                    await cancelled.cancel(running[cancelled])
                    assert "error" in await running[cancelled].answer
                for agent in (ann, bob):
                    if agent is not cancelled:
                        go = {"name": "old:go", "args": {"label": labels[agent]}}
                        await other_of(agent, ann, bob).call("call_tool_write", **go)
                        answer = (await running[agent].answer)["result"]
                        assert answer["content"][0]["text"] == "two steps"
                        assert running[agent].heard.get_nowait()["params"]["message"] == "whole"
                    assert running[agent].heard.empty()


def other_of(agent: HttpAgent, ann: HttpAgent, bob: HttpAgent) -> HttpAgent:
    """The other one of the two."""
    return bob if agent is ann else ann


async def _steps(agent: HttpAgent, label: str) -> Any:
    """A call that is under way."""
    exchange = await agent.begin(
        "tools/call", token=True, name="call_tool_write", arguments={"name": "old:steps", "args": {"label": label}}
    )
    await exchange.heard.get()
    return exchange


async def _cancel_in(agent: HttpAgent, token_gateway: TokenGateway, other: HttpAgent, request_id: int) -> None:
    """Has `agent` try to cancel a request in the other's session: for it there is none."""
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": other.session_id or ""}
    reply = await agent.http.post(f"{token_gateway.base}/mcp", json=body, headers=headers)
    assert reply.status_code == 404


async def test_a_token_that_has_ended_opens_nothing(token_gateway: TokenGateway) -> None:
    """Revoked or expired: 401 with the scheme, nothing of the catalog, and its sessions are closed to it."""
    made = await token_gateway.gateway.admin.agent_tokens.create("short", Scope(None, "destructive", None, 3_600))
    headers = {"authorization": f"Bearer {made.secret}"}
    async with (
        over_http(token_gateway.base, "handshake", headers) as agent,
        over_http(token_gateway.base, "modern", headers) as other,
    ):
        for one in (agent, other):
            await one.call("read_output", key="x")
        await token_gateway.gateway.admin.agent_tokens.revoke("short")
        for one in (agent, other):
            body: dict[str, Any] = {"jsonrpc": "2.0", "id": 5, "method": "tools/call"}
            body["params"] = {"name": "retrieve_tools", "arguments": {"query": "paint"}}
            reply = await one.http.post(f"{token_gateway.base}/mcp", json=body, headers=one._headers(body))
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"] == 'Bearer error="invalid_token"'
            assert "paint" not in reply.text and "old" not in reply.text
            assert made.secret not in reply.text


@pytest.mark.long  # a third of a second of processor time
async def test_on_an_open_endpoint_a_token_still_narrows_its_holder(tmp_path: Path) -> None:
    """Whoever sends none is the machine's own user; one that has ended does not fall back to that."""
    ledger = tmp_path / "ledger"
    ledger.touch()
    async with opened_gateway(tmp_path / "data", odd_servers(ledger)) as gateway, served(gateway) as base:
        assert await gateway.wait_settled(20)
        made = await gateway.admin.agent_tokens.create("narrow", Scope(("old",), "read"))
        headers = {"authorization": f"Bearer {made.secret}"}
        for era in ("handshake", "modern"):
            async with over_http(base, era, headers) as narrow, over_http(base, era) as local:  # type: ignore[arg-type]
                for _ in range(2):
                    assert error_of(await narrow.call("call_tool_write", name="new:echo", args={}))["code"] == (
                        "tool_not_found"
                    )
                    assert not (await local.call("call_tool_write", name="new:echo", args={})).get("isError")
        await gateway.admin.agent_tokens.revoke("narrow")
        async with plain_client() as client:
            assert (await client.post(f"{base}/mcp", json={}, headers=headers)).status_code == 401


async def test_no_place_is_told_to_who_is_not_let_in(token_gateway: TokenGateway) -> None:
    """A profile or toolset that exists is answered like one that does not: 401."""
    async with plain_client() as client:
        for place in ("p/any", "t/any", "p/", "x"):
            for headers in ({}, {"authorization": "Bearer wrong"}):
                reply = await client.post(f"{token_gateway.base}/mcp/{place}", json={}, headers=headers)
                assert reply.status_code == 401, place
            reply = await client.post(
                f"{token_gateway.base}/mcp/{place}", json={}, headers=token_gateway.headers("old-read")
            )
            assert reply.status_code == 404 or place == "p/", place


@pytest.mark.requirement("tokens-secret")
@pytest.mark.long  # much work for one test
async def test_no_byte_of_a_token_is_written_anywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Made, used, refused, listed, revoked: it is in the one answer that makes it and nowhere else."""
    caplog.set_level("DEBUG")
    data_dir = tmp_path / "d"
    ledger = tmp_path / "ledger"
    ledger.touch()
    async with (
        opened_gateway(data_dir, odd_servers(ledger)) as gateway,
        open_socket(gateway) as socket_file,
        served(gateway, token=OWN) as base,
    ):
        assert socket_file is not None
        async with rest_at(socket_file) as rest:
            made = (await rest.post("/tokens", json={"name": "canary", "servers": ["old"]})).json()
            secret = made["token"]
            headers = {"authorization": f"Bearer {secret}"}
            async with over_http(base, "modern", headers) as agent:
                await agent.call("retrieve_tools", query="paint")
                await agent.call("call_tool_write", name="new:echo", args={"text": "x"})
            async with over_http(base, "handshake", headers) as agent:
                await agent.call("call_tool_read", name="old:look", args={"label": "x"})
            answers = [(await rest.get("/tokens")).text, (await rest.get("/status")).text]
            answers.append((await rest.post("/tokens", json={"name": "canary"})).text)
            answers.append((await rest.delete("/tokens/canary")).text)
            answers.append((await rest.get("/tokens")).text)
        async with plain_client() as client:
            refused = await client.post(f"{base}/mcp", json={}, headers=headers)
            assert refused.status_code == 401
            answers += [refused.text, str(refused.headers)]
    assert secret.startswith("mcpp_") and len(secret) == 48
    written = [answer.encode() for answer in answers]
    written += [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    written += [text.encode() for text in (caplog.text, *capfd.readouterr())]
    for part in (secret, secret[5:25], OWN):
        assert not any(part.encode() in text for text in written), part

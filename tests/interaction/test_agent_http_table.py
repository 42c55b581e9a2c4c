"""One table of requests and what each is answered, at every endpoint, on both request paths."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agents import HANDSHAKE_VERSION, META, MODERN_VERSION
from plain_http import plain_client
from transports import odd_servers, opened_gateway, over_http, served

from smart_mcp_proxy.gateway.admin.agent_tokens import Scope

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("http-table")]

OWN = "the-gateways-own-token"
BOTH = "application/json, text/event-stream"
ABSENT = "absent"


class Row(NamedTuple):
    """A change of a good request, and the status it is answered with."""

    changes: dict[str, str]
    status: int
    method: str = "POST"


ROWS = [
    Row({}, 200),
    Row({"host": "localhost:9"}, 200),
    Row({"host": "evil.example"}, 421),
    Row({"host": "127.0.0.1.evil.example"}, 421),
    Row({"host": "evil.example", "authorization": ABSENT}, 421),
    Row({"host": "evil.example", "origin": "http://evil.example"}, 421),
    Row({"host": "evil.example", "content-type": "text/plain"}, 421),
    Row({"origin": "http://127.0.0.1:3000"}, 200),
    Row({"origin": "http://evil.example"}, 403),
    Row({"origin": "null"}, 403),
    Row({"origin": "https://evil.example", "authorization": ABSENT}, 403),
    Row({"origin": "http://evil.example", "content-type": "text/plain"}, 403),
    Row({"authorization": ABSENT}, 401),
    Row({"authorization": "Bearer wrong"}, 401),
    Row({"authorization": "Bearer mcpp_wrong"}, 401),
    Row({"authorization": f"Basic {OWN}"}, 401),
    Row({"authorization": f"Bearer  {OWN}"}, 401),
    Row({"authorization": f"bearer {OWN}"}, 200),
    Row({"authorization": ABSENT, "content-type": "text/plain"}, 401),
    Row({"content-type": "text/plain"}, 415),
    Row({"content-type": "multipart/form-data; boundary=x"}, 415),
    Row({"content-type": "application/x-www-form-urlencoded"}, 415),
    Row({"content-type": "application/jsonx"}, 415),
    Row({"content-type": ABSENT}, 415),
    Row({"content-type": "application/json; charset=utf-8"}, 200),
    Row({}, 405, "PUT"),
    Row({}, 405, "PATCH"),
    Row({}, 405, "OPTIONS"),
    Row({"authorization": ABSENT}, 401, "PUT"),
    Row({"origin": "http://evil.example"}, 403, "OPTIONS"),
    Row({"origin": "http://evil.example"}, 403, "DELETE"),
]


@pytest.fixture(scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a gateway with a token of its own; the fast way is open for everything that is good."""
    directory = tmp_path_factory.mktemp("table")
    ledger: Path = directory / "ledger"
    ledger.touch()
    async with (
        opened_gateway(directory / "data", odd_servers(ledger), profiles={"work": {"servers": ["old"]}}) as gateway,
        served(gateway, token=OWN) as address,
    ):
        assert await gateway.wait_settled(20)
        await gateway.admin.agent_tokens.create("other", Scope())
        yield address


def call(era: str, *, is_fast: bool) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and body of a good call; the slow way takes what has a member that JSON-RPC does not know."""
    params: dict[str, Any] = {"name": "call_tool_write", "arguments": {"name": "old:echo", "args": {}}}
    headers = {"accept": BOTH, "content-type": "application/json", "authorization": f"Bearer {OWN}"}
    if era == "modern":
        params["_meta"] = {META + "protocolVersion": MODERN_VERSION, META + "clientCapabilities": {}}
        headers |= {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/call", "mcp-name": params["name"]}
    else:
        headers["mcp-protocol-version"] = HANDSHAKE_VERSION
    return headers, {"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": params} | (
        {} if is_fast else {"unknown": 0}
    )


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_request_to_mcp_is_answered_alike_on_both_ways(base: str, era: str, row: Row) -> None:
    """The same status and the same words."""
    own = {"authorization": f"Bearer {OWN}"}
    async with over_http(base, era, own) as agent, plain_client() as client:  # type: ignore[arg-type]
        await agent.call("read_output", key="x")
        answers = []
        for is_fast in (True, False):
            headers, body = call(era, is_fast=is_fast)
            if agent.session_id is not None:
                headers["mcp-session-id"] = agent.session_id
            given = {name: value for name, value in {**headers, **row.changes}.items() if value != ABSENT}
            content = json.dumps(body) if row.method == "POST" else None
            reply = await client.request(row.method, f"{base}/mcp", headers=given, content=content)
            assert reply.status_code == row.status, reply.text
            assert "access-control-allow-origin" not in reply.headers
            answers.append(json.loads(reply.text) if reply.text.startswith("{") else reply.text)
        assert answers[0] == answers[1]


SSE_ROWS = [
    Row({"host": "evil.example"}, 421, "GET"),
    Row({"host": "evil.example", "authorization": ABSENT}, 421, "GET"),
    Row({"origin": "http://evil.example"}, 403, "GET"),
    Row({"origin": "null"}, 403, "GET"),
    Row({"authorization": ABSENT}, 401, "GET"),
    Row({"authorization": "Bearer wrong"}, 401, "GET"),
    Row({}, 405, "PUT"),
]


@pytest.mark.parametrize("row", SSE_ROWS, ids=str)
@pytest.mark.parametrize("path", ["/sse", "/messages/?session_id=" + "0" * 32])
async def test_a_request_to_the_older_transport_is_checked_alike(base: str, path: str, row: Row) -> None:
    """Its two endpoints stand behind the same checks; messages are posted."""
    method = "POST" if path.startswith("/messages") and row.method == "GET" else row.method
    given = {"authorization": f"Bearer {OWN}", "content-type": "application/json", **row.changes}
    async with plain_client() as client:
        headers = {name: value for name, value in given.items() if value != ABSENT}
        reply = await client.request(method, base + path, headers=headers)
    assert reply.status_code == row.status, reply.text


PATHS = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("POST", "/mcp/p/work"),
    ("GET", "/sse"),
    ("POST", "/messages/?session_id=" + "0" * 32),
    ("POST", "/api/mcp/old/proxy"),
    ("GET", "/api/mcp/old/proxy/status"),
    ("GET", "/api/connections"),
    ("GET", "/api/v1/status"),
    ("POST", "/api/v1/servers"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("GET", "/"),
    ("POST", "/"),
]
STRANGERS = [
    ([("host", "evil.example")], 421),
    ([("host", "127.0.0.1.evil.example")], 421),
    ([("host", "[::1]evil.example")], 421),
    ([("host", "[::1]:80@evil.example")], 421),
    ([("host", "user@127.0.0.1")], 421),
    ([("origin", "http://evil.example")], 403),
    ([("origin", "null")], 403),
    ([("origin", "http://127.0.0.1@evil.example")], 403),
    ([("origin", "http://127.0.0.1"), ("origin", "http://evil.example")], 403),
    ([("origin", "http://evil.example"), ("origin", "http://127.0.0.1")], 403),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(("headers", "status"), STRANGERS, ids=str)
async def test_no_page_of_elsewhere_is_let_in_anywhere(
    base: str, method: str, path: str, headers: list[tuple[str, str]], status: int
) -> None:
    """Whatever it asks for and with whichever token, also where it names two hosts or origins, one of them good."""
    sent = [("authorization", f"Bearer {OWN}"), ("content-type", "application/json"), ("accept", BOTH), *headers]
    async with plain_client() as client:
        reply = await client.request(method, base + path, headers=sent, content="{}" if method == "POST" else None)
    assert reply.status_code == status, reply.text
    assert "access-control-allow-origin" not in reply.headers


REST_ROWS = [
    Row({"host": "evil.example"}, 421, "GET"),
    Row({"origin": "http://evil.example"}, 403, "GET"),
    Row({"host": "evil.example"}, 421),
    Row({"origin": "null"}, 403),
    Row({}, 401, "GET"),
    Row({}, 401),
    Row({"authorization": f"Bearer {OWN}"}, 401),
    Row({"authorization": f"Bearer {OWN}", "content-type": "text/plain"}, 401),
    Row({"authorization": "Bearer wrong"}, 401, "GET"),
    Row({}, 405, "PUT"),
]


@pytest.mark.parametrize("row", REST_ROWS, ids=str)
async def test_tokens_are_made_for_the_operator_only(base: str, row: Row) -> None:
    """No agent's token, not even the gateway's own, makes another one or reads which there are."""
    async with plain_client() as client:
        content = '{"name": "mine", "access": "destructive"}' if row.method == "POST" else None
        headers = {"content-type": "application/json", **row.changes}
        reply = await client.request(row.method, f"{base}/api/v1/tokens", headers=headers, content=content)
    assert reply.status_code == row.status, reply.text

"""Servers for the broker as its document writes them, and the credentials that are sent to them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import keyring
import pytest
from broker_upstream import BrokerUpstream
from keyring.backends.fail import Keyring as NoKeyring
from plain_http import plain_client
from sign_in_fakes import Person, guarded
from transports import ENVIRON, listening, opened_gateway, served

from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio

CALL = {"method": "tools/call", "params": {"name": "whoami", "arguments": {}}}


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("broker-config")
async def test_servers_are_configured_as_the_document_has_them(tmp_path: Path) -> None:
    """A list of entries of the type `url`, with a token or without, for the broker or not."""
    upstream = BrokerUpstream()
    async with listening(upstream) as there:
        common = {"type": "url", "url": f"{there}/mcp", "tool_configuration": {"enabled": True}}
        entries = [
            {"name": "jira", "authorization_token": None, "proxy": True, **common},
            {"name": "github", "authorization_token": "ghp_token_here", "proxy": True, **common},
            {"name": "other", "proxy": False, **common},
        ]
        loaded = load_servers(json.dumps(entries))
        assert not loaded.problems
        async with (
            open_gateway(Settings(data_dir=tmp_path), loaded.servers, environ=ENVIRON) as gateway,
            served(gateway) as base,
            plain_client(base_url=f"{base}/api/mcp") as client,
        ):
            gateway.start_upstreams()
            for name, token in (("jira", None), ("github", "Bearer ghp_token_here")):
                assert (await client.post(f"/{name}/proxy", json={"method": "ping"})).status_code == 200
                [sent] = [headers for headers, message in upstream.requests if message.get("method") == "ping"][-1:]
                assert sent.get("authorization") == token
                status = (await client.get(f"/{name}/proxy/status")).json()
                assert (status["isProxy"], status["hasToken"]) == (True, token is not None)
            assert (await client.post("/other/proxy", json={"method": "ping"})).status_code == 400


@pytest.mark.requirement("broker-config")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "x", "proxy": True}, "Proxy is only supported for 'url' type MCP servers, got 'stdio'"),
        ({"type": "url", "proxy": True}, "has neither 'command' nor 'url'"),
        ({"type": "url", "url": "ftp://h", "proxy": True}, "a url that is not an http or https address"),
    ],
)
def test_an_entry_that_cannot_be_brokered_says_so_when_it_is_loaded(entry: dict[str, Any], words: str) -> None:
    """With the server's name, and the others are served."""
    loaded = load_servers(json.dumps([{"name": "bad", **entry}, {"name": "good", "url": "http://127.0.0.1:9/mcp"}]))
    [problem] = loaded.problems
    assert "'bad'" in problem.message and words in problem.message
    assert list(loaded.usable) == ["good"]


@pytest.mark.requirement("broker-request")
async def test_a_call_right_after_the_start_waits_until_the_tools_are_known(tmp_path: Path) -> None:
    """A name that the first list will hold is not unknown before it has come."""
    upstream = BrokerUpstream()
    upstream.may_list.clear()
    async with (
        listening(upstream) as there,
        opened_gateway(tmp_path, {"b": {"url": f"{there}/mcp", "proxy": True}}) as gateway,
        served(gateway) as base,
        plain_client(base_url=base, timeout=30) as client,
    ):
        gateway.start_upstreams()
        body = {"method": "tools/call", "params": {"name": "echo", "arguments": {"a": 1}}}
        asking = asyncio.create_task(client.post("/api/mcp/b/proxy", json=body))
        with anyio.fail_after(20):
            while not upstream.heard("tools/list"):
                await asyncio.sleep(0.01)
            assert not asking.done()
            upstream.may_list.set()
            assert (await asking).json()["result"]["content"][0]["text"] == '{"a": 1}'
        none = await client.post("/api/mcp/b/proxy", json={"method": "tools/call", "params": {"name": "none"}})
        assert (none.status_code, none.json()["details"]["code"]) == (404, "tool_not_found")


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("broker-oauth")
async def test_a_server_that_was_signed_in_to_gets_its_token_and_a_new_one_when_it_is_over(tmp_path: Path) -> None:
    """Without a word of it to the caller."""
    keyring.set_keyring(NoKeyring())
    async with guarded() as server:
        server.provider.lifetime_s = 4
        async with Person().browser() as browser:
            first = await SignIns(tmp_path).authorize_server(server.config(), browser)
        server.provider.lifetime_s = 3600
        entry = {"web": {"url": server.url, "oauth": True, "proxy": True}}
        async with (
            opened_gateway(tmp_path, entry) as gateway,
            served(gateway) as base,
            plain_client(base_url=f"{base}/api/mcp/web", timeout=30) as client,
        ):
            gateway.start_upstreams()
            assert (await client.post("/proxy", json=CALL)).json()["result"]["content"][0]["text"] == "somebody"
            await server.until(lambda: first.access_token not in server.provider.access_tokens)
            server.wire.clear()
            reply = await client.post("/proxy", json=CALL)
            status = (await client.get("/proxy/status")).json()
        assert reply.json()["result"]["content"][0]["text"] == "somebody"
        assert (status["isAuthorized"], status["hasToken"]) == (True, True)
        [asked] = [seen for seen in server.wire if b'"tools/call"' in seen.body]
    token = asked.headers["authorization"].removeprefix("Bearer ")
    assert token != first.access_token and token not in reply.text + json.dumps(status)

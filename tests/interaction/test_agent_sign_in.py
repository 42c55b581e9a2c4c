"""A server that wants a sign-in, as an agent meets it: what it is told, and that nothing of its own goes there."""

from pathlib import Path

import keyring
import pytest
from agents import Era
from keyring.backends.fail import Keyring as NoKeyring
from run_wire import UPSTREAM_HEADERS
from sign_in_fakes import Person, guarded
from transports import opened_gateway, over_http, served

from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio

TOKEN = "inbound-gateway-token"
MINE = {
    "authorization": f"Bearer {TOKEN}",
    "cookie": "inbound-cookie=1",
    "x-api-key": "inbound-key",
    "proxy-authorization": "Basic inbound-proxy",
    "mcp-param-region": "inbound-param",
    "x-forwarded-for": "192.0.2.77",
    "forwarded": "for=192.0.2.77",
}


@pytest.fixture(autouse=True)
def no_keyring() -> None:
    """The desktop's keyring is none of the tests' business."""
    keyring.set_keyring(NoKeyring())


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("sign-in-own")
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_an_upstream_gets_its_own_token_and_nothing_of_the_agents(
    tmp_path: Path, era: Era, transport: str
) -> None:
    """Every header that reaches it is on a short list, and the Authorization is that of its own sign-in."""
    async with guarded(transport) as server:
        async with Person().browser() as browser:
            got = await SignIns(tmp_path).authorize_server(server.config(transport=transport), browser)
        server.wire.clear()
        entry = {"url": server.url, "type": transport, "oauth": True}
        async with (
            opened_gateway(tmp_path, {"web": entry}) as gateway,
            served(gateway, token=TOKEN) as base,
            over_http(base, era, MINE) as agent,
        ):
            assert await gateway.wait_settled(20)
            result = await agent.call("call_tool_write", name="web:whoami", args={})
            assert result["content"] == [{"type": "text", "text": "somebody"}]
    assert any(b"tools/call" in seen.body for seen in server.wire)
    for seen in server.wire:
        assert seen.headers.keys() <= UPSTREAM_HEADERS
        assert seen.headers["authorization"] == f"Bearer {got.access_token}"
        assert not any("inbound" in text or "192.0.2.77" in text for text in seen.headers.values())
        assert b"inbound" not in seen.body


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("sign-in-needed")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_an_agent_is_told_that_its_user_has_to_sign_in(tmp_path: Path, era: Era) -> None:
    """Searching names the server, calling fails with the command to type, and the agent's asking opens nothing."""
    async with guarded() as server:
        async with Person().browser() as browser:
            await SignIns(tmp_path).authorize_server(server.config(), browser)
        config = {"web": {"url": server.url, "oauth": True}}
        async with opened_gateway(tmp_path, config) as gateway:
            assert await gateway.wait_settled(20)
        await SignIns(tmp_path).sign_out(server.config())
        server.wire.clear()
        async with opened_gateway(tmp_path, config) as gateway, served(gateway) as base, over_http(base, era) as agent:
            assert await gateway.wait_settled(20)
            found = (await agent.call("retrieve_tools", query="says who calls"))["structuredContent"]
            assert found["not_covered"] == [{"server": "web", "state": "needs_auth"}]
            assert "mcpproxy server login web" in found["hint"]
            assert [tool["name"] for tool in found["tools"]] == ["web:whoami"]
            result = await agent.call("call_tool_write", name="web:whoami", args={})
            error = result["structuredContent"]["error"]
            assert (error["code"], error["delivery"]) == ("upstream_auth", "not_sent")
            assert error["hint"] == "Sign in with: mcpproxy server login web"
        assert server.wire == []

"""Quotas at the front door: the same count for MCP, REST and the page, and the same words."""

from pathlib import Path

import pytest
from page_gateway import Browser, opened, tool
from plain_http import plain_client
from signing_keys import RSAKeyPair

from smart_mcp_proxy.gateway.admin.roles import Admitted
from smart_mcp_proxy.models import WHOLE, Principal

pytestmark = pytest.mark.anyio

ISSUER = "https://id.example"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "call_tool_write",
    "accept": "application/json, text/event-stream",
}
CALL = {"name": "call_tool_write", "arguments": {"name": "s:a"}, "_meta": META}
MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL}


@pytest.mark.long  # a third of a second of processor time
async def test_a_quota_is_one_for_all_doors_and_each_says_which_and_when_again(tmp_path: Path) -> None:
    """Ann's is used up by two calls over MCP and one over REST; then her group's, by Bob."""
    key = RSAKeyPair.generate()
    given = {"jwt_public_key": key.public_key, "jwt_issuer": ISSUER, "jwt_audience": "tools"}
    quotas = {"person_quota": "3/day", "group_quotas": ("devs=4/hour",), "group_roles": ("devs=operator",)}

    def bearer(name: str) -> dict[str, str]:
        made = key.create_token(
            subject=name,
            issuer=ISSUER,
            audience="tools",
            scopes=["mcp:destructive"],
            additional_claims={"groups": ["devs"]},
        )
        return {"authorization": f"Bearer {made}"}

    async with opened(tmp_path, [tool("a")], **given, **quotas) as there, plain_client(base_url=there.base) as client:
        ann = bearer("ann")
        for _ in range(2):
            reply = await client.post("/mcp", json=MESSAGE, headers=HEADERS | ann)
            assert "rate_limited" not in reply.text and reply.status_code == 200, reply.text
        reply = await client.post("/api/v1/call", json={"name": "s:a"}, headers=ann)
        assert reply.status_code == 200, reply.text
        said, again = "A person may make 3 calls a day", "Try again in "
        reply = await client.post("/mcp", json=MESSAGE, headers=HEADERS | ann)
        assert said in reply.text and again in reply.text and "retry_after_s" in reply.text
        reply = await client.post("/api/v1/call", json={"name": "s:a"}, headers=ann)
        assert reply.status_code == 429 and int(reply.headers["retry-after"]) > 28_000
        assert reply.json()["error"]["data"] == {"quota": "person=3/day"}
        who = Principal(f"{ISSUER}#ann", WHOLE, "operator", "Ann")
        link = await there.gateway.admin.page_sessions.make_link(Admitted("web", "operator", who))
        page = Browser(client)
        await page.enter(link.url)
        await page.get("tool?name=s:a")
        text = (await page.send("tool/call", {"name": "s:a"})).text
        assert said in text and again in text
        reply = await client.post("/api/v1/call", json={"name": "s:a"}, headers=bearer("bob"))
        assert reply.status_code == 200, reply.text
        reply = await client.post("/mcp", json=MESSAGE, headers=HEADERS | bearer("bob"))
        assert "The people of group 'devs' may together make 4 calls an hour" in reply.text
        assert {each["outcome"] for each in await there.records("call")} == {"ok", "rate_limited"}

"""Which way each client was given, and why: in the status, in the activity log and in doctor's findings."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from test_agent_dynamic import LIMIT_S, settled
from transports import in_memory, odd_servers, opened_gateway, over_http, rest_at, served

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.cli.commands.operate.doctor_checks import examine
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity
from smart_mcp_proxy.web.serve import open_socket

pytestmark = pytest.mark.anyio

KNOWN = "it is known to ask for its list again when the list changes (2.1.332)"
WITHHELD = "2026-07-28 is not offered on stdio under MCPPROXY_ROUTING_TYPE=AUTO"
UNKNOWN = "it is not known to ask for its list again when the list changes"


async def logged(gateway: Gateway, count: int) -> list[Activity]:
    """The first lines about sessions, once they are stored."""
    with anyio.fail_after(LIMIT_S):
        while True:
            page = await gateway.catalog.activity_page(ActivityFilter(), 50)
            lines = [found.activity for found in page if found.activity.kind == "session"]
            if len(lines) >= count:
                return lines[::-1]
            await asyncio.sleep(0.01)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("auto-shown")
async def test_the_way_each_client_was_given_is_shown(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as it is connected in the status, for longer in the log; a modern client has no session."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(settled(tmp_path, odd_servers(ledger), routing_type="AUTO"))
        socket = await stack.enter_async_context(open_socket(gateway))
        assert socket is not None
        rest = await stack.enter_async_context(rest_at(socket))
        base = await stack.enter_async_context(served(gateway))
        await stack.enter_async_context(over_http(base, "modern"))
        monkeypatch.setattr("agents.CLIENT", {"name": "my agent", "version": "2"})
        over_wire = await stack.enter_async_context(over_http(base, "handshake"))
        await over_wire.call("retrieve_tools", query="anything")
        monkeypatch.setattr("agents.CLIENT", {"name": "claude-code", "version": "3.1"})
        async with in_memory(gateway, "handshake"):
            found = (await rest.get("/status")).json()["sessions"]
            assert sorted(found, key=lambda session: session["client"]) == [
                {
                    **{"client": "claude-code", "version": "3.1", "principal": "local", "route": "DYNAMIC"},
                    **{"reason": KNOWN, "protocol_version": "2025-11-25", "transport": "stdio", "era_reason": WITHHELD},
                },
                {
                    **{"client": "my agent", "version": "2", "principal": "local", "route": "CALL_TOOL"},
                    **{"reason": UNKNOWN, "protocol_version": "2025-11-25", "transport": "http"},
                    "era_reason": "its own choice",
                },
            ]
            findings = await examine(Settings(data_dir=tmp_path))
            told = sorted(each.message for each in findings if each.subject == "client" and "gets" in each.message)
            assert told == [
                f"claude-code 3.1 gets DYNAMIC: {KNOWN}. It speaks 2025-11-25 over stdio: {WITHHELD}",
                f"my agent 2 gets CALL_TOOL: {UNKNOWN}. It speaks 2025-11-25 over http: its own choice",
            ]
        with anyio.fail_after(LIMIT_S):
            while len((await rest.get("/status")).json()["sessions"]) > 1:
                await asyncio.sleep(0.01)
        lines = [line for line in await logged(gateway, 3) if "route" in line.detail]
        assert [(line.subject, line.outcome, line.principal) for line in lines] == [
            ("my agent", "ok", "local"),
            ("claude-code", "ok", "local"),
        ]
        assert lines[1].detail == {"route": "DYNAMIC", "reason": KNOWN, "version": "3.1"}
        (searched,) = [
            found.activity for found in await gateway.catalog.activity_page(ActivityFilter(kind="search"), 9)
        ]
        assert searched.session == lines[0].session != "" == lines[1].session


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("modern-shown")
async def test_a_client_that_has_no_session_is_shown_as_it_was_last_seen(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, however much it asks: by name, version, era, transport and path, in status, doctor and the log."""
    monkeypatch.setattr("agents.CLIENT", {"name": "claude-code", "version": "2.1"})
    async with AsyncExitStack() as stack:
        profiles = {"work": {"servers": ["old"]}}
        opening = opened_gateway(tmp_path, odd_servers(ledger), profiles=profiles)
        gateway = await stack.enter_async_context(opening)
        socket = await stack.enter_async_context(open_socket(gateway))
        assert socket is not None
        rest = await stack.enter_async_context(rest_at(socket))
        base = await stack.enter_async_context(served(gateway))
        at_work = await stack.enter_async_context(over_http(base, "modern", path="/mcp/p/work"))
        piped = await stack.enter_async_context(in_memory(gateway, "modern"))
        for agent in (at_work, piped, at_work):
            await agent.request("tools/list")
        found = (await rest.get("/status")).json()["clients"]
        assert [(each["path"], each["transport"]) for each in found] == [("", "stdio"), ("p/work", "http")]
        for each in found:
            assert (each["client"], each["version"], each["protocol_version"]) == ("claude-code", "2.1", "2026-07-28")
            assert (each["principal"], each["is_waiting"]) == ("local", False)
        findings = await examine(Settings(data_dir=tmp_path))
        told = [each.message for each in findings if each.subject == "client"]
        assert [words.partition(" has no session; it was last seen 20")[0] for words in told] == [
            "claude-code 2.1 (2026-07-28, stdio)",
            "claude-code 2.1 (2026-07-28, http at /mcp/p/work)",
        ]
        lines = await logged(gateway, 2)
        common = {"protocol": "2026-07-28", "version": "2.1"}
        assert [(line.subject, line.detail) for line in lines] == [
            ("claude-code", {**common, "transport": "http", "profile": "work"}),
            ("claude-code", {**common, "transport": "stdio"}),
        ]

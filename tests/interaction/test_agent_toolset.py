"""Found tools under an address of their own: who is given one, what is served there, and for how long."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent, Era
from msgspec.structs import replace
from sqlalchemy import delete
from test_agent_dynamic import LIMIT_S, found, settled
from test_agent_passthrough import listed
from transports import in_memory, odd_servers, over_http, over_sse, served

from smart_mcp_proxy.catalog.tables.schema import toolsets

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-the-test"
LIST_TTL_MS = 300_000
ERAS = ["handshake", "modern"]
RECHECK = "smart_mcp_proxy.gateway.sessions.toolsets.RECHECK_S"


@asynccontextmanager
async def at_gateway(
    data_dir: Path, ledger: Path, profiles: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Any, str, Agent]]:
    """A gateway, its base address, and a modern agent at `/mcp`."""
    async with AsyncExitStack() as stack:
        own = {"routing_type": "DYNAMIC", **settings}
        gateway = await stack.enter_async_context(settled(data_dir, odd_servers(ledger), profiles, **own))
        base = await stack.enter_async_context(served(gateway))
        yield gateway, base, await stack.enter_async_context(over_http(base, "modern"))


def place(toolset: dict[str, Any]) -> str:
    """The path of a toolset."""
    assert toolset["url"].endswith(f"/mcp/t/{toolset['handle']}")
    return f"/mcp/t/{toolset['handle']}"


async def names(agent: Agent) -> list[str]:
    return [tool["name"] for tool in await listed(agent)]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-served")
@pytest.mark.parametrize("era", ERAS)
async def test_a_toolset_lists_exactly_what_was_found(era: Era, ledger: Path, tmp_path: Path) -> None:
    """In the order of the answer, the same each time, with whole definitions, callable; searches change none of it."""
    async with at_gateway(tmp_path, ledger) as (_, base, agent):
        answer = await found(agent, "new:look", limit=3)
        toolset = answer["toolset"]
        assert toolset["url"] == f"{base}{place(toolset)}"
        assert toolset["expires_in_s"] == 3600
        assert len(toolset["handle"]) == 22
        async with over_http(base, era, path=place(toolset)) as own:
            assert own.greeting["result"]["instructions"].startswith("The tools of one toolset")
            assert "Servers:" not in own.greeting["result"]["instructions"]
            first = (await own.request("tools/list"))["result"]
            assert [tool["name"] for tool in first["tools"]] == [tool["listed_name"] for tool in answer["tools"]]
            if era == "modern":
                assert first["cacheScope"] == "private"
                assert 0 < first["ttlMs"] <= LIST_TTL_MS
            await found(agent, "old:kinds")
            assert await listed(own) == first["tools"]
            for token in (False, True):
                exchange = await own.begin("tools/call", token=token, name="new__look", arguments={"entry": 1})
                with anyio.fail_after(LIMIT_S):
                    reply = await exchange.answer
                assert reply["result"].get("isError") in (None, False)
            reply = await own.request("tools/call", name="retrieve_tools", arguments={"query": "x"})
            assert reply["error"]["code"] == -32602
            assert "toolset" in reply["error"]["message"]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-served")
@pytest.mark.parametrize("era", ERAS)
async def test_a_toolset_that_another_process_has_dropped_is_served_no_more(
    era: Era, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the fast path either, which has answered calls there."""
    monkeypatch.setattr(RECHECK, 0.01)
    async with at_gateway(tmp_path, ledger) as (gateway, base, agent):
        toolset = (await found(agent, "new:look", limit=1))["toolset"]
        async with over_http(base, era, path=place(toolset)) as own:
            for _ in range(3):
                assert not (await own.call("new__look", entry=1)).get("isError")
            await gateway.catalog.write(lambda connection: connection.execute(delete(toolsets)))
            body = {"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": {"name": "new__look"}}
            body["params"] |= {"arguments": {"entry": 1}, "_meta": own._meta({})}
            with anyio.fail_after(LIMIT_S):
                reply = await own.http.post(f"{base}{place(toolset)}", json=body, headers=own._headers(body))
                while reply.status_code == 200:
                    reply = await own.http.post(f"{base}{place(toolset)}", json=body, headers=own._headers(body))
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, "not_found")


def looks_for_toolsets(work: Any) -> bool:
    """Whether a piece of work on the database is that of the table of toolsets."""
    while isinstance(work, partial):
        work = next((each for each in work.args if callable(each)), work.func)
    return str(work.__module__).endswith(".toolsets")


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-served")
@pytest.mark.parametrize("era", ERAS)
async def test_nothing_at_a_toolset_waits_for_the_store(
    era: Era, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that answers nothing any more holds up neither calls nor lists there, on either path, however late it is."""
    monkeypatch.setattr(RECHECK, 0.01)
    later_s = 0.0
    goes_on = anyio.Event()
    async with at_gateway(tmp_path, ledger, clock=lambda: time.monotonic() + later_s) as (gateway, base, agent):
        toolset = (await found(agent, "new:look", limit=1))["toolset"]
        run, asked = gateway.catalog._database.run, []

        async def frozen(work: Any) -> Any:
            asked.append(work)
            await goes_on.wait()
            return await run(work)

        async with over_http(base, era, path=place(toolset)) as own:
            assert not (await own.call("new__look", entry=1)).get("isError")
            monkeypatch.setattr(gateway.catalog._database, "run", frozen)
            try:
                with anyio.fail_after(LIMIT_S):
                    for _ in range(50):
                        later_s += 2.0  # longer than a look at the store holds
                        assert not (await own.call("new__look", entry=1)).get("isError")
                        exchange = await own.begin("tools/call", token=True, name="new__look", arguments={"entry": 1})
                        assert not (await exchange.answer)["result"].get("isError")
                        assert await names(own) == ["new__look"]
                    while not any(looks_for_toolsets(work) for work in asked):  # it is looked at all the same
                        await anyio.lowlevel.checkpoint()
            finally:
                goes_on.set()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-served")
async def test_behind_another_address_a_toolset_has_that_one(ledger: Path, tmp_path: Path) -> None:
    """The one that the operator has set, as behind a proxy that speaks TLS."""
    async with at_gateway(tmp_path, ledger, public_url="https://tools.example.org") as (_, _, agent):
        toolset = (await found(agent, "new:look"))["toolset"]
        assert toolset["url"] == f"https://tools.example.org{place(toolset)}"


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-extended")
async def test_extending_makes_another_toolset(ledger: Path, tmp_path: Path) -> None:
    """The new one begins with the tools of the old one, which stays as it was."""
    async with at_gateway(tmp_path, ledger) as (_, base, agent):
        old = (await found(agent, "new:look", limit=1))["toolset"]
        new = (await found(agent, "new:meta", limit=1, toolset=old["handle"]))["toolset"]
        assert new["handle"] != old["handle"]
        async with over_http(base, "modern", path=place(old)) as agent_at_old:
            assert await names(agent_at_old) == ["new__look"]
        async with over_http(base, "modern", path=place(new)) as agent_at_new:
            assert await names(agent_at_new) == ["new__look", "new__meta"]
        async with over_http(base, "handshake") as anyone:  # whose own list changes by searches: both happen
            answer = await found(anyone, "new:kinds", limit=1, toolset=new["handle"])
            assert answer["pool"] is not None
            assert answer["toolset"]["handle"] not in (old["handle"], new["handle"])


@pytest.mark.requirement("toolset-unknown")
@pytest.mark.long  # much work for one test
async def test_whatever_is_not_there_for_the_sender_is_answered_alike(ledger: Path, tmp_path: Path) -> None:
    """An unknown toolset, one that is over and another principal's: the same status and words, in the parameter too."""
    async with at_gateway(tmp_path, ledger) as (_, base, agent), AsyncExitStack() as stack:
        handle = (await found(agent, "new:look"))["toolset"]["handle"]
        other = await stack.enter_async_context(settled(tmp_path, odd_servers(ledger), routing_type="DYNAMIC"))
        guarded = await stack.enter_async_context(served(other, token=TOKEN))
        headers = {"authorization": f"Bearer {TOKEN}"}
        stranger = await stack.enter_async_context(over_http(guarded, "modern", headers))
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        replies = {
            "unknown": await agent.http.post(f"{base}/mcp/t/{'0' * 22}", json=body),
            "another's": await stranger.http.post(f"{guarded}/mcp/t/{handle}", json=body),
        }
        call = {"name": "new__look", "arguments": {"entry": 1}}
        replies["another's call"] = await stranger.http.post(
            f"{guarded}/mcp/t/{handle}", json=body | {"method": "tools/call", "params": call}
        )
        for reply in replies.values():
            assert reply.status_code == 404
            text = reply.text.replace(handle, "0" * 22)
            assert text == replies["unknown"].text
        for agent_, wrong in ((agent, "0" * 22), (stranger, handle)):
            result = await agent_.call("retrieve_tools", query="new:look", toolset=wrong)
            error = result["structuredContent"]["error"]
            assert error["code"] == "toolset_not_found"
            assert wrong in error["message"] and "Leave toolset out" in error["hint"]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-unknown")
async def test_an_odd_handle_is_an_unknown_one(ledger: Path, tmp_path: Path) -> None:
    """As a place and as a parameter; of a long one no more than its beginning comes back."""
    async with at_gateway(tmp_path, ledger) as (_, base, agent):
        for handle in ("x", "%2e%2e", "../../healthz", "a/b", "é" * 40, "y" * 2_000):
            reply = await agent.http.post(f"{base}/mcp/t/{handle.replace('/', '%2F')}", json={})
            assert (handle, reply.status_code) == (handle, 404)
            assert len(reply.content) < 500
            result = await agent.call("retrieve_tools", query="new:look", toolset=handle)
            assert result["structuredContent"]["error"]["code"] == "toolset_not_found"
            assert len(json.dumps(result["structuredContent"])) < 800


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-expires")
async def test_a_toolset_is_served_for_an_hour(ledger: Path, tmp_path: Path) -> None:
    """Then it is as unknown as one that never was, for the sessions that were opened on it too."""
    later_s = 0.0
    async with at_gateway(tmp_path, ledger, clock=lambda: time.monotonic() + later_s) as (_, base, agent):
        toolset = (await found(agent, "new:look"))["toolset"]
        async with over_http(base, "handshake", path=place(toolset)) as session:
            later_s = 3500.0
            assert await names(session)
            later_s = 3600.0
            body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
            headers = {"mcp-session-id": str(session.session_id)}
            reply = await session.http.post(f"{base}{place(toolset)}", json=body, headers=headers)
            assert reply.status_code == 404
            assert "until it expires" in reply.text
        result = await agent.call("retrieve_tools", query="new:look", toolset=toolset["handle"])
        assert result["structuredContent"]["error"]["code"] == "toolset_not_found"


@pytest.mark.requirement("toolset-shared")
@pytest.mark.long  # much work for one test
async def test_another_process_on_the_catalog_serves_it_too(ledger: Path, tmp_path: Path) -> None:
    """It is kept in the catalog's file."""
    async with at_gateway(tmp_path, ledger) as (_, _, agent), at_gateway(tmp_path, ledger) as (_, other_base, _):
        answer = await found(agent, "new:look")
        async with over_http(other_base, "modern", path=place(answer["toolset"])) as own:
            assert await names(own) == [tool["listed_name"] for tool in answer["tools"]]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-session")
async def test_a_session_works_only_at_the_toolset_it_was_opened_on(ledger: Path, tmp_path: Path) -> None:
    """Not at another toolset, not at the whole catalog, and no other session works there."""
    async with at_gateway(tmp_path, ledger) as (_, base, agent):
        here, there = [(await found(agent, query))["toolset"] for query in ("new:look", "new:meta")]
        body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
        async with over_http(base, "handshake", path=place(here)) as session, over_http(base, "handshake") as whole:
            own = {"mcp-session-id": str(session.session_id)}
            for path in (place(there), "/mcp"):
                assert (await session.http.post(f"{base}{path}", json=body, headers=own)).status_code == 404
            others = {"mcp-session-id": str(whole.session_id)}
            assert (await whole.http.post(f"{base}{place(here)}", json=body, headers=others)).status_code == 404
            assert await names(session)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-withheld")
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_may_not_be_seen_any_more_leaves_the_toolset(era: Era, ledger: Path, tmp_path: Path) -> None:
    """The others keep their order; a call of it is one of an unknown tool."""
    async with at_gateway(tmp_path, ledger) as (gateway, base, agent):
        toolset = (await found(agent, "new:meta", limit=3))["toolset"]
        async with over_http(base, era, path=place(toolset)) as own:
            before = await names(own)
            assert before[0] == "new__meta"
            servers = dict(gateway.visible.servers)
            new = servers["new"]
            await gateway.apply(servers | {"new": replace(new, tools=replace(new.tools, exclude=("meta",)))})
            assert await names(own) == before[1:]
            reply = await own.request("tools/call", name="new__meta", arguments={})
            assert reply["error"]["code"] == -32602


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-withheld")
@pytest.mark.parametrize("change", ["quarantined", "disabled", "blocked"])
async def test_a_tool_that_was_taken_back_since_is_in_no_toolset(change: str, ledger: Path, tmp_path: Path) -> None:
    """Neither in one that stands nor in one that extends it, whether the user took back the tool or its server."""
    async with at_gateway(tmp_path, ledger) as (gateway, base, agent):
        toolset = (await found(agent, "new:meta", limit=1))["toolset"]
        async with over_http(base, "modern", path=place(toolset)) as own:
            assert await names(own) == ["new__meta"]
            if change == "blocked":
                await gateway.admin.approvals.block("new:meta", "user")
            else:
                servers = dict(gateway.visible.servers)
                await gateway.apply(servers | {"new": replace(servers["new"], **{change: True})})
            assert await names(own) == []
            for token in (False, True):
                exchange = await own.begin("tools/call", token=token, name="new__meta", arguments={})
                with anyio.fail_after(LIMIT_S):
                    answer = await exchange.answer
                if change == "disabled":
                    assert answer["error"]["code"] == -32602
                else:  # what waits for the user is refused with the analysis
                    assert answer["result"]["structuredContent"]["error"]["data"].keys() >= {"findings", "approve"}
        reply = await agent.call("retrieve_tools", query="old:look", limit=1, toolset=toolset["handle"])
        async with over_http(base, "modern", path=place(reply["structuredContent"]["toolset"])) as extended:
            assert await names(extended) == ["old__look"]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("toolset-profile")
async def test_a_toolset_of_a_profile_stays_inside_it(ledger: Path, tmp_path: Path) -> None:
    """It cannot be extended outside, and ends with the profile."""
    profiles = {"work": {"servers": ["new"], "tools": ["look", "meta"]}}
    async with at_gateway(tmp_path, ledger, profiles) as (gateway, base, agent):
        async with over_http(base, "modern", path="/mcp/p/work") as worker:
            toolset = (await found(worker, "new:look old:look kinds", limit=5))["toolset"]
        async with over_http(base, "modern", path=place(toolset)) as own:
            assert set(await names(own)) <= {"new__look", "new__meta"}
            result = await agent.call("retrieve_tools", query="old:look", toolset=toolset["handle"])
            assert result["structuredContent"]["error"]["code"] == "toolset_not_found"
            await gateway.apply(gateway.visible.servers, {})
            body = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
            assert (await own.http.post(f"{base}{place(toolset)}", json=body)).status_code == 404


@pytest.mark.requirement("toolset-none")
@pytest.mark.long  # much work for one test
async def test_none_is_made_where_it_is_not_wanted_or_cannot_be_served(ledger: Path, tmp_path: Path) -> None:
    """Under CALL_TOOL, for a list that changes by itself, for nothing found, and without an address: on pipes, SSE."""
    async with at_gateway(tmp_path / "fixed", ledger, routing_type="CALL_TOOL") as (_, _, agent):
        assert (await found(agent, "new:look"))["toolset"] is None
    async with at_gateway(tmp_path / "dynamic", ledger) as (gateway, base, agent):
        assert (await found(agent, "qqqq"))["toolset"] is None
        async with over_http(base, "handshake") as pooled:
            assert (await found(pooled, "new:look"))["toolset"] is None
        async with over_sse(base) as pooled:
            assert (await found(pooled, "new:look"))["toolset"] is None
        async with in_memory(gateway, "modern") as piped:
            assert (await found(piped, "new:look"))["toolset"] is None


@pytest.mark.requirement("toolset-none")
@pytest.mark.long  # half a second of work and more
async def test_whoever_cannot_be_given_one_is_told_so_when_it_asks(ledger: Path, tmp_path: Path) -> None:
    """Where none are made the parameter is not shown; without an address, as on pipes and over SSE, it is refused."""
    async with at_gateway(tmp_path / "fixed", ledger, routing_type="CALL_TOOL") as (_, _, agent):
        assert "toolset" not in (await listed(agent))[0]["inputSchema"]["properties"]
        error = (await agent.call("retrieve_tools", query="new:look", toolset="x"))["structuredContent"]["error"]
        assert (error["code"], error["message"]) == ("toolset_not_found", "This gateway makes no toolsets.")
        assert "MCPPROXY_ROUTING_TYPE" in error["hint"]
    async with at_gateway(tmp_path / "dynamic", ledger) as (gateway, base, agent):
        handle = (await found(agent, "new:look"))["toolset"]["handle"]
        async with over_sse(base) as over_one_stream, in_memory(gateway, "modern") as piped:
            for without_address in (over_one_stream, piped):
                result = await without_address.call("retrieve_tools", query="new:look", toolset=handle)
                error = result["structuredContent"]["error"]
                assert error["code"] == "toolset_not_found"
                assert "over HTTP alone" in error["message"]

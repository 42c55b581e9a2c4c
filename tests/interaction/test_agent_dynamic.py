"""Found tools in the client's own list: who gets them, who is told, who never sees them."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import PAUSE_S, Agent
from test_agent_passthrough import CHANGED, Announcements, listed
from transports import ENVIRON, in_memory, odd_servers, on_stdio, over_http, over_sse, served, spawned

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.servers import Profile, load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

LIMIT_S = 30
HANDSHAKE_CHANNELS = ["memory", pytest.param("stdio", marks=pytest.mark.long), "http", "sse"]
OWN_TOOLS = 6


@asynccontextmanager
async def two_agents(
    transport: str, data_dir: Path, servers: dict[str, Any], *, is_second_needed: bool = True, **settings: Any
) -> AsyncIterator[tuple[Agent, Agent]]:
    """Two agents of the handshake era of one gateway; over stdio each client has a gateway of its own.

    Where a test needs one agent only, no second gateway is started over stdio: both are then the same.
    """
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            environ = {name.upper(): str(value) for name, value in settings.items()}
            agents = []
            for _ in range(1 + is_second_needed):
                process = await stack.enter_async_context(spawned(data_dir, servers, **environ))
                agents.append(await stack.enter_async_context(on_stdio(process, "handshake")))
            yield agents[0], agents[-1]
            return
        gateway = await stack.enter_async_context(settled(data_dir, servers, **settings))
        if transport == "memory":
            first = await stack.enter_async_context(in_memory(gateway, "handshake"))
            yield first, await stack.enter_async_context(in_memory(gateway, "handshake"))
            return
        base = await stack.enter_async_context(served(gateway))
        if transport == "http":
            first = await stack.enter_async_context(over_http(base, "handshake"))
            yield first, await stack.enter_async_context(over_http(base, "handshake"))
        else:
            first = await stack.enter_async_context(over_sse(base))
            yield first, await stack.enter_async_context(over_sse(base))


@asynccontextmanager
async def settled(
    data_dir: Path,
    servers: dict[str, Any],
    profiles: dict[str, Any] | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """A gateway in this process that has listed its servers."""
    file = load_servers(json.dumps({"mcpServers": servers, "profiles": profiles or {}}))
    assert not file.problems
    own = Settings(data_dir=data_dir, **{"isolation": "none", "embedder": "BM25", **settings})
    async with open_gateway(own, file.servers, profiles=file.profiles, environ=ENVIRON, clock=clock) as gateway:
        gateway.start_upstreams()
        assert await gateway.wait_settled(LIMIT_S)
        yield gateway


async def found(agent: Agent, query: str, **more: Any) -> dict[str, Any]:
    """The answer to a search, once the servers are listed."""
    with anyio.fail_after(LIMIT_S):
        while True:
            reply = await agent.request("tools/call", name="retrieve_tools", arguments={"query": query, **more})
            answer: dict[str, Any] = reply["result"]["structuredContent"]
            if not answer["not_covered"]:
                return answer
            await asyncio.sleep(PAUSE_S)


async def names(agent: Agent) -> list[str]:
    """The names that the agent sees listed, the gateway's own left out."""
    return [tool["name"] for tool in await listed(agent)][OWN_TOOLS:]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-registers")
@pytest.mark.parametrize("transport", HANDSHAKE_CHANNELS)
async def test_a_search_registers_what_it_found_for_its_client_alone(
    transport: str, ledger: Path, tmp_path: Path
) -> None:
    """It is told once, sees the tools listed and calls one by its listed name; the other client sees nothing of it."""
    servers = odd_servers(ledger)
    async with two_agents(transport, tmp_path, servers, routing_type="DYNAMIC") as (agent, other):
        assert agent.greeting["result"]["capabilities"]["tools"] == {"listChanged": True}
        announcements, others = Announcements(agent), Announcements(other)
        await announcements.subscribe()
        await others.subscribe()
        assert await names(agent) == []
        await found(agent, "qqqq")  # until every server is listed: each search that finds something registers it
        answer = await found(agent, "new:look")
        assert answer["newly_registered"][0] == "new__look"
        assert answer["evicted"] == []
        assert answer["pool"] == {"size": len(answer["newly_registered"]), "limit": 15}
        await announcements.until(CHANGED, 1)
        assert await names(agent) == answer["newly_registered"]
        definition = next(tool for tool in await listed(agent) if tool["name"] == "new__look")
        assert "inputSchema" in definition
        reply = await agent.request("tools/call", name="new__look", arguments={"entry": 1})
        assert reply["result"].get("isError") in (None, False)

        again = await found(agent, "new:look")
        assert again["newly_registered"] == again["evicted"] == []
        assert await names(other) == []
        reply = await other.request("tools/call", name="new__look", arguments={"entry": 1})
        assert reply["error"]["code"] == -32602
        assert "call_tool_" in reply["error"]["message"]
        assert (announcements.count(CHANGED), others.count(CHANGED)) == (1, 0)
        await announcements.close()
        await others.close()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-registers")
@pytest.mark.parametrize("has_listed_since", [False, True])
async def test_a_client_hears_what_changed_before_it_listened(
    has_listed_since: bool, ledger: Path, tmp_path: Path
) -> None:
    """Its stream may open late, or break: once it is open it is told once, unless it has asked for its list since."""
    async with (
        settled(tmp_path, odd_servers(ledger), routing_type="DYNAMIC") as gateway,
        served(gateway) as base,
        over_http(base, "handshake") as agent,
    ):
        assert await names(agent) == []
        assert (await found(agent, "new:look", limit=1))["newly_registered"] == ["new__look"]
        if has_listed_since:
            assert await names(agent) == ["new__look"]
        announcements = Announcements(agent)
        await announcements.subscribe()
        if not has_listed_since:
            with anyio.fail_after(LIMIT_S):
                while not announcements.count(CHANGED):
                    await asyncio.sleep(0)
            assert await names(agent) == ["new__look"]
        assert (await found(agent, "new:meta", limit=1))["newly_registered"] == ["new__meta"]
        await announcements.until(CHANGED, 2 - has_listed_since)
        assert announcements.count(CHANGED) == 2 - has_listed_since
        await announcements.close()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-evicts")
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_the_pool_never_exceeds_its_limit(transport: str, ledger: Path, tmp_path: Path) -> None:
    """What leaves is named; hits of the search stay, as far as the limit goes."""
    async with two_agents(transport, tmp_path, odd_servers(ledger), routing_type="DYNAMIC", tools_limit=2, top_k=3) as (
        agent,
        _,
    ):
        first = await found(agent, "new:look")
        second = await found(agent, "new:meta", limit=1)
        assert second["newly_registered"] == ["new__meta"]
        assert len(second["evicted"]) == max(0, len(first["newly_registered"]) + 1 - 2)
        assert second["pool"]["size"] <= second["pool"]["limit"] == 2
        assert "new__meta" in await names(agent)
        assert len(await names(agent)) <= 2


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-registers")
@pytest.mark.parametrize("transport", HANDSHAKE_CHANNELS)
async def test_a_list_during_a_search_is_the_one_before_or_the_one_after(
    transport: str, ledger: Path, tmp_path: Path
) -> None:
    """Never a part of what was registered, and the last list is the whole of it."""
    async with two_agents(transport, tmp_path, odd_servers(ledger), is_second_needed=False, routing_type="DYNAMIC") as (
        agent,
        _,
    ):
        await found(agent, "qqqq")
        before = await names(agent)
        search = {"name": "retrieve_tools", "arguments": {"query": "new:look"}}
        exchanges = [await agent.begin("tools/list")]
        answer = await agent.begin("tools/call", **search)
        exchanges += [await agent.begin("tools/list") for _ in range(5)]
        with anyio.fail_after(LIMIT_S):
            registered = (await answer.answer)["result"]["structuredContent"]["newly_registered"]
            lists = [(await each.answer)["result"]["tools"][OWN_TOOLS:] for each in exchanges]
        after = before + registered
        assert registered
        assert all([tool["name"] for tool in each] in (before, after) for each in lists)
        assert await names(agent) == after


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-registers")
@pytest.mark.parametrize("transport", HANDSHAKE_CHANNELS)
async def test_a_request_that_is_cancelled_after_its_answer_changes_nothing(
    transport: str, ledger: Path, tmp_path: Path
) -> None:
    """OpenCode 1.18.33 cancels every request that was answered: what was registered stays, and calls go on."""
    async with two_agents(transport, tmp_path, odd_servers(ledger), is_second_needed=False, routing_type="DYNAMIC") as (
        agent,
        _,
    ):
        await found(agent, "qqqq")
        for _ in range(3):
            answered = await agent.begin("tools/call", name="retrieve_tools", arguments={"query": "new:look"})
            assert "result" in await answered.answer
            await agent.notify("notifications/cancelled", requestId=answered.id, reason="done")
            assert "new__look" in await names(agent)
            call = await agent.begin("tools/call", name="new__look", arguments={"entry": 1})
            assert (await call.answer)["result"].get("isError") in (None, False)
            await agent.notify("notifications/cancelled", requestId=call.id)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-registers")
async def test_registered_tools_are_shown_by_clients_that_defer_others(ledger: Path, tmp_path: Path) -> None:
    """Those alone that a search found, and none where the setting leaves it out; each search says what it did."""
    servers = odd_servers(ledger)
    servers["new"]["pin"] = ["meta"]
    for number, always_load in enumerate((True, False)):
        async with (
            settled(tmp_path / str(number), servers, routing_type="DYNAMIC", always_load=always_load) as gateway,
            in_memory(gateway, "handshake") as agent,
        ):
            first = await found(agent, "new:look", limit=1)
            assert "Now in your own list of tools as well" in first["hint"]
            assert "holds them already" in (await found(agent, "new:look", limit=1))["hint"]
            marked = {
                tool["name"]: (tool.get("_meta") or {}).get("anthropic/alwaysLoad")
                for tool in (await listed(agent))[OWN_TOOLS:]
            }
            assert marked == {"new__meta": None, "new__look": True if always_load else None}


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-evicts")
async def test_what_does_not_fit_into_the_pool_is_called_by_name(ledger: Path, tmp_path: Path) -> None:
    """More hits than places is legal: the first are registered, the rest come with the tool to call them with."""
    async with (
        settled(tmp_path, odd_servers(ledger), routing_type="DYNAMIC", tools_limit=1, top_k=5) as gateway,
        in_memory(gateway, "handshake") as agent,
    ):
        answer = await found(agent, "new:look")
        first, *rest = answer["tools"]
        assert rest
        assert answer["newly_registered"] == [first["listed_name"]] == await names(agent)
        assert answer["pool"] == {"size": 1, "limit": 1}
        for tool in rest:
            reply = await agent.request("tools/call", name=tool["listed_name"], arguments={})
            assert tool["call_with"] in reply["error"]["message"]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-modern-fixed")
@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_the_modern_list_stays_as_it_is(transport: str, ledger: Path, tmp_path: Path) -> None:
    """A list must not change as a side effect of a request there."""
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(settled(tmp_path, odd_servers(ledger), routing_type="DYNAMIC"))
        if transport == "memory":
            agent = await stack.enter_async_context(in_memory(gateway, "modern"))
        else:
            base = await stack.enter_async_context(served(gateway))
            agent = await stack.enter_async_context(over_http(base, "modern"))
        before = await listed(agent)
        answer = await found(agent, "new:look")
        assert answer["tools"]
        assert answer["newly_registered"] == []
        assert answer["pool"] is None
        assert await listed(agent) == before


@pytest.mark.requirement("auto-routes")
@pytest.mark.parametrize(("name", "is_dynamic"), [("claude-code", True), ("Cursor", False), ("unheard of", False)])
async def test_auto_routes_by_what_is_known_of_the_client(
    name: str, is_dynamic: bool, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that ask for their list again get found tools into it; others call them by the call tools."""
    async with settled(tmp_path, odd_servers(ledger), routing_type="AUTO") as gateway:
        monkeypatch.setattr("agents.CLIENT", {"name": name, "version": "1"})
        async with in_memory(gateway, "handshake") as agent:
            answer = await found(agent, "new:look")
            assert (answer["pool"] is not None) is is_dynamic
            assert bool(await names(agent)) is is_dynamic


@pytest.mark.requirement("pinned-listed")
async def test_pinned_tools_are_listed_for_everybody(ledger: Path, tmp_path: Path) -> None:
    """In both eras, in one order, callable by their listed names; a search does not register them again."""
    servers = odd_servers(ledger)
    servers["new"]["pin"] = ["meta", "look", "not there"]
    async with settled(tmp_path, servers, routing_type="DYNAMIC") as gateway:
        for era in ("handshake", "modern"):
            async with in_memory(gateway, era) as agent:
                assert await names(agent) == ["new__look", "new__meta"]
                answer = await found(agent, "new:look", limit=1)
                assert answer["newly_registered"] == []
                reply = await agent.request("tools/call", name="new__look", arguments={"entry": 1})
                assert "error" not in reply


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("pinned-listed")
@pytest.mark.parametrize("settings", [{}, {"pin": ["look"]}, {"list_all_below_tokens": 1}])
async def test_a_list_that_can_change_is_not_kept_for_long(
    settings: dict[str, Any], ledger: Path, tmp_path: Path
) -> None:
    """A modern client need not listen for changes; one that asks before the servers are listed sees them soon."""
    servers = odd_servers(ledger)
    pin = settings.pop("pin", [])
    servers["new"]["pin"] = pin
    can_change = bool(settings or pin)
    async with settled(tmp_path, servers, **settings) as gateway, in_memory(gateway, "modern") as agent:
        listing = (await agent.request("tools/list"))["result"]
        assert listing["ttlMs"] == (10_000 if can_change else 300_000)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("dynamic-evicts")
async def test_the_activity_log_keeps_what_entered_and_left(ledger: Path, tmp_path: Path) -> None:
    """By listed name, with the search that did it; a search that changed nothing says nothing of it."""
    async with (
        settled(tmp_path, odd_servers(ledger), routing_type="DYNAMIC", tools_limit=1) as gateway,
        in_memory(gateway, "handshake") as agent,
    ):
        for query in ("new:look", "new:look", "new:meta"):
            await found(agent, query, limit=1)
        with anyio.fail_after(LIMIT_S):
            while len(page := await gateway.catalog.activity_page(ActivityFilter(), 50)) < 4:  # one of the session
                await asyncio.sleep(0.01)
        searches = [line.activity for line in reversed(page) if line.activity.kind == "search"]
        assert [{key: line.detail.get(key) for key in ("registered", "evicted")} for line in searches] == [
            {"registered": ["new__look"], "evicted": None},
            {"registered": None, "evicted": None},
            {"registered": ["new__meta"], "evicted": ["new__look"]},
        ]


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("pinned-listed")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_pin_that_comes_and_goes_is_announced(era: Any, ledger: Path, tmp_path: Path) -> None:
    """Also where no list could change until then; whoever connects while there are pins is told that lists change."""
    profiles = {"work": {"servers": ["new"]}}
    async with (
        settled(tmp_path, odd_servers(ledger), profiles) as gateway,
        served(gateway) as base,
        over_http(base, era, path="/mcp/p/work") as agent,
    ):
        assert agent.greeting["result"]["capabilities"]["tools"] == {"listChanged": False}
        assert await names(agent) == []
        announcements = Announcements(agent)
        await announcements.subscribe()
        for count, pin in ((1, ("new:look",)), (2, ())):
            now = {"work": Profile("work", servers=("new",), pin=pin)}
            await gateway.apply(gateway.visible.servers, now)
            await announcements.until(CHANGED, count)
            assert await names(agent) == ["new__look"][: 2 - count]
            async with over_http(base, era) as newcomer:
                changes = newcomer.greeting["result"]["capabilities"]["tools"]["listChanged"]
                assert changes is (count == 1)
        assert announcements.count(CHANGED) == 2
        await announcements.close()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("list-whole")
async def test_a_small_catalog_is_listed_whole(ledger: Path, tmp_path: Path) -> None:
    """Where its definitions cost less than the setting says."""
    async with (
        settled(tmp_path, odd_servers(ledger), list_all_below_tokens=100_000) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        assert len(await names(agent)) == len(gateway.visible.records())


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("profile-inside")
@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_profile_shows_finds_and_calls_only_what_it_has(era: Any, ledger: Path, tmp_path: Path) -> None:
    """Search, list and call stay inside; nothing outside is named."""
    profiles = {"work": {"servers": ["new"], "tools": ["look", "meta"], "pin": ["new:meta"]}}
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(settled(tmp_path, odd_servers(ledger), profiles))
        base = await stack.enter_async_context(served(gateway))
        agent = await stack.enter_async_context(over_http(base, era, path="/mcp/p/work"))
        assert await names(agent) == ["new__meta"]
        answer = await found(agent, "new:look old:look kinds")
        assert answer["total"] == 2
        assert {tool["server"] for tool in answer["tools"]} == {"new"}
        call = {"name": "new:look", "args": {"entry": 1}}
        reply = await agent.request("tools/call", name="call_tool_write", arguments=call)
        assert reply["result"].get("isError") in (None, False)
        for outside in ("old:look", "new:kinds"):
            for token in (False, True):
                exchange = await agent.begin(
                    "tools/call", token=token, name="call_tool_read", arguments={"name": outside}
                )
                with anyio.fail_after(LIMIT_S):
                    error = (await exchange.answer)["result"]["structuredContent"]["error"]
                assert error["code"] == "tool_not_found"
                assert "old" not in json.dumps(error.get("data") or {})


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.requirement("profile-inside")
@pytest.mark.parametrize(
    ("era", "routing"),
    [
        ("handshake", "DYNAMIC"),
        ("modern", "CALL_TOOL"),
        pytest.param("handshake", "CALL_TOOL", marks=pytest.mark.soak),
        pytest.param("modern", "DYNAMIC", marks=pytest.mark.soak),
    ],
)  # of a profile's path each way is in CI over HTTP
async def test_over_stdio_a_process_serves_one_profile(era: Any, routing: str, ledger: Path, tmp_path: Path) -> None:
    """As at the profile's path; when it leaves the file nothing is seen any more, until it comes back."""
    profiles = {"work": {"servers": ["new"], "tools": ["look", "meta"], "pin": ["new__meta"]}}
    config = tmp_path / "config.json"
    document = {"mcpServers": odd_servers(ledger), "profiles": profiles}
    config.write_text(json.dumps(document), "utf-8")
    settings = {"CONFIG_JSON": "", "CONFIG_PATH": str(config), "ROUTING_TYPE": routing, "STDIO_ERA": "both"}
    async with (
        spawned(tmp_path / "data", {}, options=("--profile", "work"), **settings) as process,
        on_stdio(process, era) as agent,
    ):
        answer = await found(agent, "new:look old:look kinds")
        assert answer["total"] == 2
        assert {tool["server"] for tool in answer["tools"]} == {"new"}
        is_growing = (era, routing) == ("handshake", "DYNAMIC")
        assert await names(agent) == ["new__meta", "new__look"][: 1 + is_growing]
        result = await agent.call("call_tool_write", name="new:look", args={"entry": 1})
        assert not result.get("isError")
        result = await agent.call("call_tool_read", name="old:look")
        assert result["structuredContent"]["error"]["code"] == "tool_not_found"

        announcements = Announcements(agent)
        await announcements.subscribe()
        told = announcements.count(CHANGED)
        config.write_text(json.dumps(document | {"profiles": {}}), "utf-8")
        with anyio.fail_after(LIMIT_S):
            while (gone := await agent.request("tools/list")).get("result", {}).get("tools", [])[OWN_TOOLS:]:
                await asyncio.sleep(PAUSE_S)
        if era == "handshake":
            await announcements.until(CHANGED, told + 1)
            result = await agent.call("call_tool_write", name="new:look", args={"entry": 1})
            assert result["structuredContent"]["error"]["code"] == "tool_not_found"
        else:
            assert "Nothing is served at /mcp/p/work" in gone["error"]["message"]
        config.write_text(json.dumps(document), "utf-8")
        with anyio.fail_after(LIMIT_S):
            while "error" in (back := await agent.request("tools/list")) or not back["result"]["tools"][OWN_TOOLS:]:
                await asyncio.sleep(PAUSE_S)
        assert await names(agent) == ["new__meta"]
        await announcements.until(CHANGED, told + 2)


@pytest.mark.requirement("profile-unknown")
@pytest.mark.long  # a whole start; tests/cli refuses the same in this process
async def test_a_process_for_an_unknown_profile_does_not_start(ledger: Path, tmp_path: Path) -> None:
    """It says so, and which there are."""
    config = {"mcpServers": odd_servers(ledger), "profiles": {"work": {}}}
    async with spawned(tmp_path, {}, options=("--profile", "wrok"), CONFIG_JSON=json.dumps(config)) as process:
        with anyio.fail_after(LIMIT_S):
            assert await process.wait() == 2
    told = (tmp_path / "stderr.log").read_text("utf-8")
    assert "Profile 'wrok' is not configured." in told
    assert "Known: work." in told


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("profile-unknown")
async def test_an_unknown_place_is_not_served(ledger: Path, tmp_path: Path) -> None:
    """Nor one whose profile has left the configuration; a session works only where it was opened."""
    profiles = {"work": {"servers": ["new"]}, "play": {}}
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(settled(tmp_path, odd_servers(ledger), profiles))
        base = await stack.enter_async_context(served(gateway))
        agent = await stack.enter_async_context(over_http(base, "handshake", path="/mcp/p/work"))
        assert await found(agent, "new:look")
        headers = {"mcp-session-id": agent.session_id}
        body = {"jsonrpc": "2.0", "id": "x", "method": "tools/list", "params": {}}
        statuses = {}
        for path in ("/mcp", "/mcp/p/play", "/mcp/p/none", "/mcp/p/", "/mcp/t/0", "/mcp/x"):
            statuses[path] = (await agent.http.post(f"{base}{path}", json=body, headers=headers)).status_code
        assert set(statuses.values()) == {404}, statuses
        assert (await agent.http.post(f"{base}/mcp/p/work", json=body, headers=headers)).status_code == 200
        await gateway.apply(gateway.visible.servers, {})
        reply = await agent.http.post(f"{base}/mcp/p/work", json=body, headers=headers)
        assert reply.status_code == 404
        assert "A profile is served while" in reply.text


@pytest.mark.requirement("list-changed-hook")
async def test_the_operators_command_runs_after_a_list_has_changed(ledger: Path, tmp_path: Path) -> None:
    """Without a shell, and without holding up anybody."""
    mark = tmp_path / "a mark; $HOME"
    settings = {"routing_type": "DYNAMIC", "list_changed_exec": ("touch", str(mark))}
    async with (
        settled(tmp_path / "data", odd_servers(ledger), **settings) as gateway,
        in_memory(gateway, "handshake") as agent,
    ):
        await found(agent, "qqqq")
        assert not mark.exists()
        await found(agent, "new:look")
        with anyio.fail_after(LIMIT_S):
            while not mark.exists():
                await asyncio.sleep(0)

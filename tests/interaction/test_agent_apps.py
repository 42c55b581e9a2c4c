"""Interfaces of servers (MCP Apps) as hosts meet them through the gateway."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import PAUSE_S, Agent
from extended_servers import APPS, PAGE, SHOWS_APPS, Extended, approve, code_of, withheld
from transports import CHANNELS, agent_at, in_memory, over_http, served, settled

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope

# Marked long: gateways and servers of their own, most of them processes.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

ERAS = ("handshake", "modern")
CSP = {"csp": {"connectDomains": ["https://a.example"], "frameDomains": []}, "permissions": {"camera": {}}}
BOTH = {"ui": {"resourceUri": "ui://board", "visibility": ["model", "app"]}, "ui/resourceUri": "ui://board"}


def tool(name: str, **meta: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "description": name} | ({"_meta": meta} if meta else {})


def page(text: str, **ui: Any) -> dict[str, Any]:
    return {"text": text, "mimeType": PAGE, "_meta": {"ui": {**CSP, **ui}}}


def board(directory: Path, name: str, mode: str = "modern", **state: Any) -> Extended:
    """A server with an interface; two of them have all names alike."""
    tools = [
        tool("show", **BOTH),
        tool("refresh", ui={"visibility": ["app"]}),
        tool("think", ui={"visibility": ["model"]}),
    ]
    known: dict[str, Any] = {
        "tools": tools,
        "resources": [{"uri": "ui://board", "name": "board", "mimeType": PAGE, "_meta": {"ui": CSP}}],
        "pages": {"ui://board": page(f"<html>{name}\u202e\x07</html>")},
    }
    return Extended(directory, name, mode, **(known | state))


@asynccontextmanager
async def boards(directory: Path, *names: str, **state: Any) -> AsyncIterator[tuple[Gateway, dict[str, Extended]]]:
    """A gateway in front of servers with interfaces, whose tools are all listed."""
    servers = {name: board(directory, name, ERAS[number % 2], **state) for number, name in enumerate(names)}
    entries = {name: server.entry for name, server in servers.items()}
    async with settled(directory / "data", entries, list_all_below_tokens=100_000) as gateway:
        yield gateway, servers


async def opened(agent: Agent, server: str) -> dict[str, Any]:
    """The part of a server's page."""
    answer = await agent.request("resources/read", uri=f"ui://{server}/board")
    (part,) = answer["result"]["contents"]
    return dict(part)


async def text_of(agent: Agent, name: str, **meta: Any) -> str:
    """The text that a tool answered with, or the code of the refusal."""
    answer = await agent.request("tools/call", name=name, arguments={}, _meta=meta)
    return str(code_of(answer) if "error" in answer else answer["result"]["content"][0]["text"])


@pytest.mark.requirement("apps-side-by-side")
@pytest.mark.parametrize("channel", [channel for channel in CHANNELS if channel[0] != "sse"], ids="-".join)
async def test_equal_interfaces_of_two_servers_stand_side_by_side(channel: tuple[str, Any], tmp_path: Path) -> None:
    """Each is read under its server's name, as its server wrote it, what it asks of a host included."""
    servers = {name: board(tmp_path, name, era) for name, era in zip(("left", "right"), ERAS, strict=True)}
    async with agent_at(channel, tmp_path / "data", {name: each.entry for name, each in servers.items()}) as agent:
        listed = (await agent.request("resources/list"))["result"]["resources"]
        while len(listed) < 2:  # on stdio nothing has settled yet
            await anyio.sleep(PAUSE_S)
            listed = (await agent.request("resources/list"))["result"]["resources"]
        assert [item["uri"] for item in listed] == ["ui://left/board", "ui://right/board"]
        assert [item["_meta"] for item in listed] == [{"ui": CSP}] * 2
        for name, server in servers.items():
            part = await opened(agent, name)
            assert part == {"uri": f"ui://{name}/board", **server.state["pages"]["ui://board"]}


@pytest.mark.requirement("apps-side-by-side")
@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_and_its_result_name_the_page_in_both_forms(era: Any, tmp_path: Path) -> None:
    """The present form and the older one, each by itself too."""
    async with boards(tmp_path, "left", "right") as (gateway, _), in_memory(gateway, era) as agent:
        listed = {each["name"]: each for each in (await agent.request("tools/list"))["result"]["tools"]}
        for name in ("left", "right"):
            uri = f"ui://{name}/board"
            meta = {"ui": {"resourceUri": uri, "visibility": ["model", "app"]}, "ui/resourceUri": uri}
            assert listed[f"{name}__show"]["_meta"] == meta
            for given in (BOTH, {"ui/resourceUri": "ui://board"}, {"ui": {"resourceUri": "ui://board"}}):
                arguments = {"result": {"content": [], "_meta": {**given, "kept": 1}}}
                answer = await agent.request("tools/call", name=f"{name}__answer", arguments=arguments)
                got = {key: value for key, value in answer["result"]["_meta"].items() if "model" not in key}
                assert got == {key: value for key, value in meta.items() if key in given and key != "ui"} | (
                    {"ui": {**given["ui"], "resourceUri": uri}} if "ui" in given else {}
                ) | {"kept": 1}


@pytest.mark.requirement("apps-declared")
async def test_a_server_is_told_what_its_caller_can_show(tmp_path: Path) -> None:
    """With each call, over the fast path and beside it; one client's word is not another's."""
    servers = {"new": board(tmp_path, "new", "modern"), "old": board(tmp_path, "old", "handshake")}
    entries = {name: server.entry for name, server in servers.items()}
    entries["old"]["connection"] = "per_client"
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(settled(tmp_path / "data", entries))
        base = await stack.enter_async_context(served(gateway))
        agents = []
        for era in ERAS:
            for declared in ({}, {"extensions": {**SHOWS_APPS, "com.example/other": {}}}):
                agents += [
                    await stack.enter_async_context(in_memory(gateway, era, **declared)),
                    await stack.enter_async_context(over_http(base, era, **declared)),
                ]
        for agent in agents:
            for name in ("new", "old") if agent.era == "handshake" else ("new",):
                assert not (await agent.call("call_tool_write", name=f"{name}:show")).get("isError")
        said = [declared.get("extensions") for _, declared in servers["new"].asked("tools/call")]
        shown = [SHOWS_APPS if agent.capabilities else None for agent in agents]
        assert said == shown
        greeted = [declared.get("extensions") for _, declared in servers["old"].asked("initialize")]
        listing = SHOWS_APPS  # on the session that its lists are read on
        assert sorted(map(str, greeted)) == sorted(map(str, [listing, *shown[: len(agents) // 2]]))


@pytest.mark.requirement("apps-declared")
@pytest.mark.parametrize("era", ERAS)
async def test_the_extension_is_declared_where_there_are_interfaces(era: Any, tmp_path: Path) -> None:
    """And not where there are none."""
    async with boards(tmp_path, "left") as (gateway, _), in_memory(gateway, era) as agent:
        assert APPS in agent.greeting["result"]["capabilities"]["extensions"]
    bare = Extended(tmp_path, "bare")
    async with settled(tmp_path / "other", {"bare": bare.entry}) as gateway, in_memory(gateway, era) as agent:
        assert "extensions" not in agent.greeting["result"]["capabilities"]


@pytest.mark.requirement("apps-approved")
@pytest.mark.parametrize("change", ["text", "csp", "gone"])
async def test_a_changed_page_waits_for_the_user(change: str, tmp_path: Path) -> None:
    """Another text, or another word to the host, under the same definition; what was approved is given again after."""
    async with boards(tmp_path, "left", "right") as (gateway, servers), in_memory(gateway, "modern") as agent:
        before = await opened(agent, "left")
        new = {"text": page("evil"), "csp": page("<html>left\u202e\x07</html>", domain="evil.example"), "gone": None}
        servers["left"].store(pages={"ui://board": new[change]} if new[change] else {})
        answer = await agent.request("resources/read", uri="ui://left/board")
        assert code_of(answer) == (-32002 if change == "gone" else "quarantined")
        if change == "gone":
            return
        assert "evil" not in json.dumps(answer)
        await withheld(gateway, "left", "resources", "ui://board")
        assert await opened(agent, "right")
        (waiting,) = [
            each
            for each in await gateway.admin.approvals.explain(gateway.admin.approvals.withheld())
            if each.withheld.record.key.tool == "ui://board"
        ]
        assert [each.path for each in waiting.changes] == ['_meta["dev.smartmcpproxy/pageDigest"]']
        assert code_of(await agent.request("resources/read", uri="ui://left/board")) == "quarantined"
        await approve(gateway, "left", "resources", "ui://board")
        assert (await opened(agent, "left"))["text"] != before["text"] or change == "csp"


@pytest.mark.requirement("apps-approved")
async def test_a_page_that_only_a_tool_names_is_approved_too(tmp_path: Path) -> None:
    """It is read, in no list, and held back once it changes; one that nothing names is given to nobody."""
    pages = {"ui://board": page("first"), "ui://secret": page("secret")}
    async with (
        boards(tmp_path, "left", resources=[], pages=pages) as (gateway, servers),
        in_memory(gateway, "modern") as agent,
    ):
        assert (await agent.request("resources/list"))["result"]["resources"] == []
        assert (await opened(agent, "left"))["text"] == "first"
        assert code_of(await agent.request("resources/read", uri="ui://left/secret")) == "quarantined"
        servers["left"].store(pages={"ui://board": page("evil")})
        assert code_of(await agent.request("resources/read", uri="ui://left/board")) == "quarantined"


@pytest.mark.requirement("apps-approved")
@pytest.mark.parametrize("trust", ["trusted", "scan"])
async def test_only_a_trusted_server_changes_its_pages_at_will(trust: str, tmp_path: Path) -> None:
    """The scanner reads no pages: what it finds nothing in may still be another page."""
    server = board(tmp_path, "left")
    entry = {**server.entry, "trust": trust}
    async with settled(tmp_path / "data", {"left": entry}) as gateway, in_memory(gateway, "modern") as agent:
        assert await opened(agent, "left")
        server.store(pages={"ui://board": page("second")})
        if trust == "trusted":
            assert (await opened(agent, "left"))["text"] == "second"
        else:
            assert code_of(await agent.request("resources/read", uri="ui://left/board")) == "quarantined"
            await withheld(gateway, "left", "resources", "ui://board")


@pytest.mark.requirement("apps-call-back")
@pytest.mark.parametrize("era", ERAS)
async def test_a_page_calls_its_own_servers_tools(era: Any, tmp_path: Path) -> None:
    """By the server's own names, once its page was opened; equal names of a server whose page was not are no matter."""
    async with boards(tmp_path, "left", "right") as (gateway, servers), in_memory(gateway, era) as agent:
        assert await text_of(agent, "refresh") == "-32602"
        await opened(agent, "left")
        assert await text_of(agent, "refresh") == "left refresh"
        assert await text_of(agent, "think") == "model_only"
        await opened(agent, "right")
        assert await text_of(agent, "refresh") == "app_ambiguous"
        assert servers["right"].asked("tools/call") == []


@pytest.mark.requirement("apps-call-back")
async def test_a_page_whose_opening_cannot_be_looked_up_hears_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that there is no such tool; a name that no interface may call is as unknown as ever."""
    async with boards(tmp_path, "left") as (gateway, _), in_memory(gateway, "modern") as agent:
        await opened(agent, "left")

        async def broken(*work: Any, **how: Any) -> Any:
            raise CatalogError("The database does not answer.")

        monkeypatch.setattr(gateway.catalog, "read", broken)
        assert await text_of(agent, "refresh") == "catalog_failed"
        assert await text_of(agent, "think") == "-32602"


@pytest.mark.requirement("apps-call-back")
@pytest.mark.parametrize("channel", ["memory", "http"])
async def test_a_host_that_names_the_page_is_held_to_its_server(channel: str, tmp_path: Path) -> None:
    """Whatever the page calls: the tool of another server, its listed name included, is refused unsent."""
    async with AsyncExitStack() as stack:
        gateway, servers = await stack.enter_async_context(boards(tmp_path, "left", "right"))
        base = await stack.enter_async_context(served(gateway))
        open_agent = in_memory(gateway, "modern") if channel == "memory" else over_http(base, "modern")
        agent = await stack.enter_async_context(open_agent)
        for name in ("left", "right"):
            from_page = {"ui": {"resourceUri": f"ui://{name}/board"}}
            assert await text_of(agent, "refresh", **from_page) == f"{name} refresh"
            assert await text_of(agent, f"{name}__show", **from_page) == f"{name} show"
        from_left = {"ui": {"resourceUri": "ui://left/board"}}
        for wrong in ("right__show", "right__refresh", "right:show", "call_tool_write", "nothing"):
            assert await text_of(agent, wrong, **from_left) == "other_server"
        for nowhere in ("ui://nobody/board", "note://x", "ui:///", "ui://left" * 2_000):
            assert await text_of(agent, "refresh", ui={"resourceUri": nowhere}) == "other_server"
        sent = [params for params, _ in servers["left"].asked("tools/call")]
        assert all("ui" not in params.get("_meta", {}) for params in sent)


@pytest.mark.requirement("apps-call-back")
async def test_what_is_for_interfaces_alone_is_shown_to_no_model(tmp_path: Path) -> None:
    """Neither found nor called by the tools that models use; a host finds it in the list."""
    async with boards(tmp_path, "left", "right") as (gateway, servers), in_memory(gateway, "modern") as agent:
        listed = [each["name"] for each in (await agent.request("tools/list"))["result"]["tools"]]
        assert "left__refresh" in listed
        found = (await agent.call("retrieve_tools", query="refresh", limit=50))["structuredContent"]
        assert "left:refresh" not in json.dumps(found["tools"])
        refused = await agent.call("call_tool_write", name="left:refresh")
        assert refused["isError"] and refused["structuredContent"]["error"]["code"] == "app_only"
        assert servers["left"].asked("tools/call") == []


@pytest.mark.requirement("apps-call-back")
@pytest.mark.parametrize("era", ERAS)
async def test_what_one_principal_opened_opens_nothing_to_another(era: Any, tmp_path: Path) -> None:
    """Nor does a server that a token does not reach take part."""
    async with AsyncExitStack() as stack:
        gateway, _ = await stack.enter_async_context(boards(tmp_path, "left", "right"))
        scopes = {"all": Scope(None, "destructive"), "right": Scope(("right",), "write")}
        made = {name: (await gateway.admin.agent_tokens.create(name, scope)).secret for name, scope in scopes.items()}
        base = await stack.enter_async_context(served(gateway, token="own-token-of-sixteen-chars"))
        agents = {
            name: await stack.enter_async_context(over_http(base, era, {"authorization": f"Bearer {token}"}))
            for name, token in made.items()
        }
        await opened(agents["all"], "left")
        assert await text_of(agents["all"], "refresh") == "left refresh"
        assert await text_of(agents["right"], "refresh") == "-32602"
        await opened(agents["right"], "right")
        assert await text_of(agents["right"], "refresh") == "right refresh"
        assert await text_of(agents["all"], "refresh") == "left refresh"
        stated = {"ui": {"resourceUri": "ui://left/board"}}
        assert await text_of(agents["right"], "refresh", **stated) == "other_server"


@pytest.mark.requirement("apps-side-by-side")
async def test_a_server_of_the_official_sdk_shows_its_interface(tmp_path: Path) -> None:
    """By `mcp.server.apps` of the Python SDK, which nobody here wrote; in both eras from the same two processes."""
    program = tmp_path / "clock.py"
    program.write_text(
        "from mcp.server.apps import Apps, ResourceCsp\n"
        "from mcp.server.mcpserver import MCPServer\n"
        "apps = Apps()\n"
        "@apps.tool(resource_uri='ui://clock/app.html', description='Current time')\n"
        "def get_time() -> str:\n    return 'noon'\n"
        "csp = ResourceCsp(connect_domains=['https://time.example'])\n"
        "apps.add_html_resource('ui://clock/app.html', '<html>clock</html>', csp=csp)\n"
        "MCPServer('clock', extensions=[apps]).run()\n"
    )
    entry = {"command": sys.executable, "args": [str(program)]}
    servers = {"one": entry, "two": entry}
    async with settled(tmp_path / "data", servers, list_all_below_tokens=100_000) as gateway:
        for era in ERAS:
            async with in_memory(gateway, era, extensions=SHOWS_APPS) as agent:
                listed = {each["name"]: each for each in (await agent.request("tools/list"))["result"]["tools"]}
                for name in servers:
                    uri = listed[f"{name}__get_time"]["_meta"]["ui"]["resourceUri"]
                    assert uri == f"ui://{name}/clock/app.html"
                    (part,) = (await agent.request("resources/read", uri=uri))["result"]["contents"]
                    assert part["text"] == "<html>clock</html>" and part["mimeType"] == PAGE
                    assert part["_meta"]["ui"]["csp"] == {"connectDomains": ["https://time.example"]}
                    assert await text_of(agent, f"{name}__get_time") == "noon"


@pytest.mark.requirement("apps-approved")
async def test_a_page_for_hosts_alone_is_read_as_by_one(tmp_path: Path) -> None:
    """When a server is listed, too: else nobody could approve it."""
    async with (
        boards(tmp_path, "other", "left", shy=True) as (gateway, _),
        in_memory(gateway, "modern", extensions=SHOWS_APPS) as agent,
    ):
        assert "left" in (await opened(agent, "left"))["text"]


@pytest.mark.requirement("apps-call-back")
@pytest.mark.parametrize("era", ERAS)
async def test_a_host_learns_that_the_gateways_own_tools_are_for_its_model(era: Any, tmp_path: Path) -> None:
    """With them a page would reach every server. Nobody else's list has another byte."""
    shows = {"extensions": SHOWS_APPS}
    async with (
        boards(tmp_path, "left") as (gateway, _),
        in_memory(gateway, era, **shows) as host,
        in_memory(gateway, era) as other,
    ):
        shown = {each["name"]: each for each in (await host.request("tools/list"))["result"]["tools"]}
        plain = {each["name"]: each for each in (await other.request("tools/list"))["result"]["tools"]}
    own = {name for name in plain if "__" not in name}
    assert "call_tool_destructive" in own
    for name, each in plain.items():
        more = {"_meta": {**each.get("_meta", {}), "ui": {"visibility": ["model"]}}} if name in own else {}
        assert shown[name] == {**each, **more}
    bare = Extended(tmp_path, "bare")
    async with settled(tmp_path / "other", {"bare": bare.entry}) as gateway, in_memory(gateway, era, **shows) as agent:
        assert '"ui"' not in json.dumps(await agent.request("tools/list"))


UNTOLD = "dev.smartmcpproxy/appsNotDeclaredTo"


@pytest.mark.requirement("apps-declared")
@pytest.mark.parametrize("era", ERAS)
async def test_a_host_learns_which_servers_do_not_know_of_its_interfaces(era: Any, tmp_path: Path) -> None:
    """Those of the handshake era with one session for all clients: on it the protocol lets nobody declare it later."""
    kinds = {"new": ("modern", {}), "old": ("handshake", {}), "own": ("handshake", {"connection": "per_client"})}
    servers = {name: board(tmp_path, name, mode) for name, (mode, _) in kinds.items()}
    entries = {name: {**servers[name].entry, **more} for name, (_, more) in kinds.items()}
    async with (
        settled(tmp_path / "data", entries) as gateway,
        in_memory(gateway, era, extensions=SHOWS_APPS) as host,
        in_memory(gateway, era) as other,
    ):
        assert (await host.request("tools/list"))["result"]["_meta"][UNTOLD] == ["old"]
        assert UNTOLD not in json.dumps(await other.request("tools/list"))
        for agent in (host, other):
            for name in servers:
                assert not (await agent.call("call_tool_write", name=f"{name}:show")).get("isError")
    assert [declared for _, declared in servers["old"].asked("initialize")] == [{}]


@pytest.mark.requirement("apps-declared")
async def test_a_server_that_shows_its_interface_to_hosts_alone_is_used_by_one(tmp_path: Path) -> None:
    """With a session for each client, a server of the handshake era lists another tool to those that declare it."""
    plain = [tool("show")]
    server = board(tmp_path, "left", "handshake", tools=plain, shown_tools=[tool("show", **BOTH)], resources=[])
    entry = {**server.entry, "connection": "per_client"}
    async with (
        settled(tmp_path / "data", {"left": entry}, list_all_below_tokens=100_000) as gateway,
        in_memory(gateway, "handshake", extensions=SHOWS_APPS) as host,
        in_memory(gateway, "handshake") as other,
    ):
        listed = {each["name"]: each for each in (await host.request("tools/list"))["result"]["tools"]}
        assert listed["left__show"]["_meta"]["ui"]["resourceUri"] == "ui://left/board"
        assert await text_of(host, "left__show") == "left show"
        assert (await opened(host, "left"))["mimeType"] == PAGE
        refused = await other.call("left__show")
        assert refused["isError"] and refused["structuredContent"]["error"]["code"] == "quarantined"

"""Prompts, resources and completions of servers, over every transport: whose they are, what they answer, and when
they are not shown."""

import asyncio
import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import pytest
from agents import META, PAUSE_S, Agent
from test_agent_passthrough import Announcements
from transports import (
    CHANNELS,
    agent_at,
    in_memory,
    odd_server,
    on_stdio,
    opened_gateway,
    over_http,
    served,
    settled,
    spawned,
)

from smart_mcp_proxy.catalog import ActivityFilter
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.gateway.indexing.list_state import ListState

pytestmark = pytest.mark.anyio

LIMIT_S = 60
UPSTREAM = Path(__file__).parent / "contents_upstream.py"
PASSED = (None, "fx")
ERAS = ("handshake", "modern")
CHANGED = {kind: f"notifications/{kind}/list_changed" for kind in ("prompts", "resources")}
GREET = {"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": True}], "extra": [1]}
LISTED: dict[str, Any] = {
    "declares": {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
    },
    "tools": [{"name": "poke", "inputSchema": {"type": "object"}}],
    "prompts": [GREET, {"name": "odd name"}, {"name": "third", "_meta": {"a/b": 1}}],
    "resources": [
        {"uri": "test://one", "name": "one", "mimeType": "application/json", "size": 7},
        {"uri": "test://a b/%2F?q=1#f", "name": "two", "annotations": {"priority": 0.5}},
        {"uri": "test://missing/x", "name": "three"},
    ],
    "resourceTemplates": [{"uriTemplate": "test://t/{id}/data{?more}", "name": "t", "mimeType": "text/plain"}],
}
METHODS = {"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}


def server(mode: str, file: Path, **entry: Any) -> dict[str, Any]:
    """The configuration of a server that lists what is in `file`."""
    return {"command": sys.executable, "args": ["-S", str(UPSTREAM), mode, str(file)], **entry}


def write(file: Path, **changes: Any) -> None:
    part = file.with_suffix(".part")
    part.write_text(json.dumps(LISTED | changes))
    part.replace(file)


def directly(mode: str, file: Path, method: str, **params: Any) -> dict[str, Any]:
    """What the server answers without a gateway."""
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    command = [sys.executable, "-S", str(UPSTREAM), mode, str(file)]
    done = subprocess.run(command, input=asked, capture_output=True, timeout=LIMIT_S, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def bare(result: dict[str, Any]) -> dict[str, Any]:
    """A result without what an era adds to it."""
    own = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope", "_meta")}
    meta = {key: value for key, value in result.get("_meta", {}).items() if not key.startswith(META)}
    return own | ({"_meta": meta} if meta else {})


async def listed(agent: Agent, method: str, count: int = 0) -> list[dict[str, Any]]:
    """All pages of a list, asked for until it has at least `count` items."""
    with anyio.fail_after(LIMIT_S):
        while True:
            found: list[dict[str, Any]] = []
            cursor: dict[str, Any] = {}
            while True:
                result = (await agent.request(method, **cursor))["result"]
                found += result[METHODS[method]]
                if "nextCursor" not in result:
                    break
                cursor = {"cursor": result["nextCursor"]}
            if len(found) >= count:
                return found
            await anyio.sleep(PAUSE_S)


def shown(kind: str, item: dict[str, Any], passed: str | None) -> dict[str, Any]:
    """A definition as an agent is to see it."""
    if passed is not None:
        return item
    if kind == "prompts":
        return item | {"name": {"odd name": "fx__odd_name_4b22ca22"}.get(item["name"], f"fx__{item['name']}")}
    if kind == "resources":
        return item | {"uri": f"mcpproxy://fx/{quote(item['uri'], safe='')}"}
    return item | {"uriTemplate": "mcpproxy://fx/test%3A%2F%2Ft%2F{id}%2Fdata{?more}"}


SHOWN_OVER_STDIO = {(("stdio", "handshake"), "modern", None), (("stdio", "modern"), "handshake", "fx")}


def list_rows() -> list[Any]:
    """Every channel, with servers of every era, in both ways to show them.

    Over stdio each row starts a gateway of its own: but for two of them, in which eras cross, they are for `make soak`.
    """
    rows = [*itertools.product(CHANNELS, ERAS, PASSED)]
    soaked = {row for row in rows if row[0][0] == "stdio"} - SHOWN_OVER_STDIO
    return [
        pytest.param(
            *row, id="-".join((*row[0], row[1], row[2] or "whole")), marks=[pytest.mark.soak] * (row in soaked)
        )
        for row in rows
    ]


@pytest.mark.requirement("contents-lists")
@pytest.mark.requirement("contents-results")
@pytest.mark.parametrize(("channel", "mode", "passed"), list_rows())
@pytest.mark.long
async def test_what_an_agent_sees_is_the_servers_own(
    channel: tuple[str, Any], mode: str, passed: str | None, tmp_path: Path
) -> None:
    """Lists, prompts of every kind of content, resources, templates, completions and errors, compared with the server
    asked directly; only names and URIs say the server, and none of them do where it is passed through."""
    file = tmp_path / "listed"
    write(file)
    async with agent_at(channel, tmp_path / "data", {"fx": server(mode, file)}, passed) as agent:
        claimed = agent.greeting["result"]["capabilities"]
        assert claimed["prompts"] == {"listChanged": True}
        assert claimed["resources"] == {"subscribe": True, "listChanged": True}
        assert claimed["completions"] == {}
        for method, kind in METHODS.items():
            expected = [shown(kind, item, passed) for item in LISTED[kind]]
            assert await listed(agent, method, len(expected)) == expected

        one, two, missing = (shown("resources", item, passed)["uri"] for item in LISTED["resources"])
        greet = shown("prompts", GREET, passed)["name"]
        for uri, own in ((one, "test://one"), (two, "test://a b/%2F?q=1#f")):
            theirs = bare(directly(mode, file, "resources/read", uri=own)["result"])
            for part in theirs["contents"] if passed is None else ():
                part["uri"] = f"mcpproxy://fx/{quote(part['uri'], safe='')}"
            assert bare((await agent.request("resources/read", uri=uri))["result"]) == theirs
        filled = "test://t/a%20b/data?more=1"
        uri = filled if passed else "mcpproxy://fx/test%3A%2F%2Ft%2Fa%20b%2Fdata?more=1"
        read = (await agent.request("resources/read", uri=uri))["result"]["contents"][0]
        assert json.loads(read["text"]) == {"uri": filled}

        params = {"arguments": {"who": "ünï"}, "_meta": {"own/key": 1}}
        theirs = bare(directly(mode, file, "prompts/get", name="greet", **params)["result"])
        *_, inner, linked = (message["content"] for message in theirs["messages"])
        for holder in (inner["resource"], linked) if passed is None else ():
            holder["uri"] = f"mcpproxy://fx/{quote(holder['uri'], safe='')}"
        assert bare((await agent.request("prompts/get", name=greet, **params))["result"]) == theirs

        ask = {"argument": {"name": "who", "value": "pa"}, "context": {"arguments": {"x": "y"}}}
        own_ref = {"type": "ref/prompt", "name": "greet"}
        theirs = bare(directly(mode, file, "completion/complete", ref=own_ref, **ask)["result"])
        answer = await agent.request("completion/complete", ref=own_ref | {"name": greet}, **ask)
        assert bare(answer["result"]) == theirs

        odd = shown("prompts", {"name": "odd name"}, passed)["name"]
        for method, params in (("resources/read", {"uri": missing}), ("prompts/get", {"name": odd})):
            error = (await agent.request(method, **params))["error"]
            assert error == {"code": -32077, "message": "it is gone", "data": {"what": method}}
        unknown = (await agent.request("prompts/get", name="nobody"))["error"]
        assert (unknown["code"], "'nobody'" in unknown["message"]) == (-32602, True)
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            error = (await agent.request(method, cursor="made up"))["error"]
            assert (error["code"], "Leave it out" in error["message"]) == (-32602, True)
            assert "result" in await agent.request(method, cursor="")


COLD = [
    *(("stdio", era, method) for era, method in zip(itertools.cycle(ERAS), METHODS, strict=False)),
    *(("http", era, method) for era, method in zip(itertools.cycle(reversed(ERAS)), METHODS, strict=False)),
]
"""Each transport, era and method with each of the others: every cell starts a gateway of its own."""


@pytest.mark.requirement("contents-cold")
@pytest.mark.parametrize(("transport", "era", "method"), COLD)
@pytest.mark.long  # three whole starts
async def test_who_asks_once_right_after_the_first_start_gets_everything(
    transport: str, era: Any, method: str, tmp_path: Path
) -> None:
    """Nothing is stored, the servers are starting: the answer waits for them."""
    file, kind = tmp_path / "listed", METHODS[method]
    write(file)
    servers = {name: server("handshake", file) for name in ("fx", "gx")}
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            process = await stack.enter_async_context(spawned(tmp_path / "data", servers))
            agent: Agent = await stack.enter_async_context(on_stdio(process, era))
        else:
            gateway = await stack.enter_async_context(opened_gateway(tmp_path / "data", servers))
            base = await stack.enter_async_context(served(gateway))
            agent = await stack.enter_async_context(over_http(base, era))
        with anyio.fail_after(LIMIT_S):
            found = (await agent.request(method))["result"][kind]
    assert len(found) == 2 * len(LISTED[kind])


FIRST_REQUESTS = {
    "prompts/get": {"name": "fx__greet", "arguments": {"who": "me"}},
    "resources/read": {"uri": "mcpproxy://fx/test%3A%2F%2Fone"},
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "fx__greet"},
        "argument": {"name": "who", "value": "p"},
    },
    "completion/complete of a template": {
        "ref": {"type": "ref/resource", "uri": "mcpproxy://fx/test%3A%2F%2Ft%2F{id}%2Fdata{?more}"},
        "argument": {"name": "id", "value": "p"},
    },
}


@pytest.mark.requirement("contents-cold")
async def test_what_is_listed_while_it_is_asked_for_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look that finds nothing and the question whether its list is still to come."""
    write(tmp_path / "listed")
    wait_known = ListState.wait_known

    async def wait_late(lists: ListState, servers: Any, *kinds: Any) -> bool:
        while any(lists.is_expected(server, kind) for server in servers for kind in kinds):
            await lists.wait_changed()
        return await wait_known(lists, servers, *kinds)

    monkeypatch.setattr(ListState, "wait_known", wait_late)
    async with (
        opened_gateway(tmp_path / "data", {"fx": server("handshake", tmp_path / "listed")}) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        with anyio.fail_after(LIMIT_S):
            answer = await agent.request("prompts/get", **FIRST_REQUESTS["prompts/get"])
    assert "result" in answer, answer


WRONG_FIRST_REQUESTS = {
    "prompts/get": {"name": "known__greed"},
    "resources/read": {"uri": "mcpproxy://unknown/test%3A%2F%2Fone"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "known__g"}, "argument": {"name": "a", "value": ""}},
}


@pytest.mark.requirement("contents-cold")
@pytest.mark.parametrize("case", FIRST_REQUESTS)
async def test_what_is_asked_for_by_name_right_after_the_first_start_is_found(case: str, tmp_path: Path) -> None:
    """A client that knows the name needs no list: the answer waits for the server's."""
    file = tmp_path / "listed"
    write(file)
    async with (
        opened_gateway(tmp_path / "data", {"fx": server("handshake", file)}) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        with anyio.fail_after(LIMIT_S):
            answer = await agent.request(case.split(maxsplit=1)[0], **FIRST_REQUESTS[case])
    assert "result" in answer, answer


@pytest.mark.requirement("contents-cold")
@pytest.mark.parametrize("method", WRONG_FIRST_REQUESTS)
async def test_a_wrong_name_of_a_listed_server_is_refused_without_waiting_for_another_one(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name says whose it is: nobody else's list can make it right."""
    file = tmp_path / "listed"
    write(file)
    async with settled(tmp_path / "data", {"known": server("handshake", file)}):
        pass
    silent = {"command": sys.executable, "args": ["-S", "-c", "input()"]}
    async with (
        opened_gateway(tmp_path / "data", {"known": server("handshake", file), "silent": silent}) as gateway,
        in_memory(gateway, "modern") as agent,
    ):
        wait_known, waited = gateway.lists.content_lists.wait_known, list[bool]()

        async def noting(*args: Any) -> bool:
            waited.append(await wait_known(*args))
            return waited[-1]

        monkeypatch.setattr(gateway.lists.content_lists, "wait_known", noting)
        with anyio.fail_after(LIMIT_S):
            answer = await agent.request(method, **WRONG_FIRST_REQUESTS[method])
    error = answer.get("error")
    assert error is not None, answer
    assert error["data"]["code"] == "not_found"
    assert waited == [False]


@pytest.mark.requirement("contents-cold")
async def test_what_is_stored_is_listed_without_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not start, new or known, holds nobody up."""
    file = tmp_path / "listed"
    write(file)
    async with settled(tmp_path / "data", {"fx": server("handshake", file)}):
        pass
    silent = {"command": sys.executable, "args": ["-S", "-c", "input()"]}
    async with (
        opened_gateway(tmp_path / "data", {"fx": silent, "new": silent}) as gateway,
        in_memory(gateway, "modern") as agent,
    ):

        async def never(*args: Any) -> None:
            raise AssertionError("waited")

        monkeypatch.setattr(gateway.lists.content_lists, "wait_known", never)
        for method, kind in METHODS.items():
            assert len((await agent.request(method))["result"][kind]) == len(LISTED[kind])


REQUESTS = {
    "resources/read": {"uri": "mcpproxy://fx/test%3A%2F%2Ft%2FWORD%2Fdata"},
    "prompts/get": {"name": "fx__greet", "arguments": {"who": "WORD"}},
}


def asking_for(method: str, word: str) -> dict[str, Any]:
    """The params of a request that says this word."""
    params: dict[str, Any] = json.loads(json.dumps(REQUESTS[method]).replace("WORD", word))
    return params


@pytest.mark.requirement("contents-under-way")
@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("channel", [channel for channel in CHANNELS if channel[0] in ("memory", "http")], ids="-".join)
async def test_progress_and_cancellation_of_a_read_or_a_prompt_find_their_way(
    channel: tuple[str, Any], mode: str, method: str, tmp_path: Path
) -> None:
    """Progress comes under the agent's own token; a request that it gives up is given up at the server."""
    file = tmp_path / "listed"
    write(file)
    ledger = file.with_name(file.name + ".ledger")
    async with agent_at(channel, tmp_path / "data", {"fx": server(mode, file)}) as agent:
        with anyio.fail_after(LIMIT_S):
            exchange = await agent.begin(method, token=True, **asking_for(method, "now"))
            assert "result" in await exchange.answer
            told = (await exchange.heard.get())["params"]
            assert (told["progressToken"], told["message"]) == (exchange.id, method)
            exchange = await agent.begin(method, **asking_for(method, "wait"))
            await _written(ledger, f"began {method}")
            await agent.cancel(exchange)
            await _written(ledger, f"cancelled {method}")


async def _written(ledger: Path, line: str) -> None:
    """Returns when the server, another process, has written this line."""
    while not ledger.exists() or line not in ledger.read_text().splitlines():
        await asyncio.sleep(0.01)


@pytest.mark.requirement("contents-off")
@pytest.mark.parametrize("era", ERAS)
async def test_where_no_server_has_any_nothing_is_claimed_or_answered(era: Any, tmp_path: Path) -> None:
    """The methods are unknown there, as they are to a server that has tools alone."""
    async with opened_gateway(tmp_path / "data", {"old": odd_server("handshake")}) as gateway:
        gateway.start_upstreams()
        assert await gateway.wait_settled(LIMIT_S)
        async with in_memory(gateway, era) as agent:
            assert set(agent.greeting["result"]["capabilities"]) == {"tools"}
            for method in METHODS:
                assert (await agent.request(method))["error"]["code"] == -32601


@pytest.mark.requirement("contents-changes")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("channel", [channel for channel in CHANNELS if channel[0] != "stdio"], ids="-".join)
@pytest.mark.long
async def test_a_change_is_told_once(channel: tuple[str, Any], mode: str, tmp_path: Path) -> None:
    """A prompt that leaves is announced, and nothing is said of resources, which stayed; nor of what was stored."""
    file = tmp_path / "listed"
    write(file)
    servers = {"fx": server(mode, file)}
    async with agent_at(("memory", "modern"), tmp_path / "data", servers, "fx") as agent:
        for method, kind in METHODS.items():
            await listed(agent, method, len(LISTED[kind]))
    async with agent_at(channel, tmp_path / "data", servers, "fx") as agent:
        assert len(await listed(agent, "prompts/list")) == 3
        told = Announcements(agent)
        await told.subscribe({"promptsListChanged": True, "resourcesListChanged": True})
        write(file, prompts=LISTED["prompts"][:2])
        await agent.request("tools/call", name="poke", arguments={})
        await told.until(CHANGED["prompts"], 1)
        assert len(await listed(agent, "prompts/list")) == 2
        write(file, prompts=LISTED["prompts"][:1])
        await agent.request("tools/call", name="poke", arguments={})
        await told.until(CHANGED["prompts"], 2)
        assert len(await listed(agent, "prompts/list")) == 1
        assert (told.count(CHANGED["prompts"]), told.count(CHANGED["resources"])) == (2, 0)
        await told.close()


@asynccontextmanager
async def turning(directory: Path, **entry: Any) -> AsyncIterator[tuple[Gateway, Agent, Path]]:
    """A gateway whose server has been listed, an agent at it, and the file that says what the server lists."""
    file = directory / "listed"
    write(file)
    async with opened_gateway(directory / "data", {"fx": server("handshake", file, **entry)}) as gateway:
        gateway.start_upstreams()
        async with in_memory(gateway, "modern") as agent:
            for method, kind in METHODS.items():
                await listed(agent, method, len(LISTED[kind]))
            yield gateway, agent, file


async def turn(gateway: Gateway, agent: Agent, file: Path, **changes: Any) -> None:
    """The server lists something else now and says so; the gateway has heard it."""
    write(file, **changes)
    before = gateway.catalog.snapshot
    await agent.call("call_tool_write", name="fx:poke", args={})
    with anyio.fail_after(LIMIT_S):
        while gateway.catalog.snapshot is before:
            await asyncio.sleep(0.01)


POISON = "xyzzy"
TURNS: dict[str, tuple[dict[str, Any], str, str, dict[str, Any]]] = {
    "prompt": (
        {"prompts": [GREET | {"description": POISON}, *LISTED["prompts"][1:]]},
        "fx:prompts:greet",
        "prompts/get",
        {"name": "fx__greet"},
    ),
    "prompt's argument": (
        {"prompts": [GREET | {"arguments": [{"name": "who", "description": POISON}]}, *LISTED["prompts"][1:]]},
        "fx:prompts:greet",
        "prompts/get",
        {"name": "fx__greet"},
    ),
    "resource": (
        {"resources": [LISTED["resources"][0] | {"title": POISON}, *LISTED["resources"][1:]]},
        "fx:resources:test://one",
        "resources/read",
        {"uri": "mcpproxy://fx/test%3A%2F%2Fone"},
    ),
    "template": (
        {"resourceTemplates": [LISTED["resourceTemplates"][0] | {"description": POISON}]},
        "fx:templates:test://t/{id}/data{?more}",
        "resources/read",
        {"uri": "mcpproxy://fx/test%3A%2F%2Ft%2F7%2Fdata"},
    ),
}


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("contents-approval")
@pytest.mark.parametrize("case", TURNS.values(), ids=TURNS)
async def test_what_changed_is_gone_until_its_user_agrees(case: Any, tmp_path: Path) -> None:
    """Not listed, not got, not read, no word of it told; approved it is there, as it is now."""
    changes, name, method, params = case
    async with turning(tmp_path) as (gateway, agent, file):
        assert "result" in await agent.request(method, **params)
        await turn(gateway, agent, file, **changes)
        lists = [await listed(agent, each) for each in METHODS]
        assert POISON not in json.dumps(lists)
        refused = await agent.request(method, **params)
        assert refused["error"]["data"]["code"] == "quarantined", refused
        assert f"mcpproxy approve {shlex.quote(name)}" in refused["error"]["message"]
        assert POISON not in json.dumps(refused)
        (waiting,) = await gateway.admin.approvals.explain(gateway.admin.approvals.withheld())
        assert (str(waiting.withheld.record.key), waiting.withheld.state) == (name, "changed")
        assert any(POISON in repr(change) for change in waiting.changes)
        decided = await gateway.admin.approvals.approve({name: waiting.withheld.record.change_hash}, "tester")
        assert decided.approved == (name,)
        assert "result" in await agent.request(method, **params)
        assert POISON in json.dumps([await listed(agent, each) for each in METHODS])


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.requirement("contents-approval")
async def test_what_a_known_server_adds_waits_and_what_is_blocked_stays_away(tmp_path: Path) -> None:
    """A block holds for something that was approved before, until it is lifted."""
    async with turning(tmp_path) as (gateway, agent, file):
        await turn(gateway, agent, file, prompts=[*LISTED["prompts"], {"name": "new", "description": POISON}])
        assert len(await listed(agent, "prompts/list")) == 3
        await gateway.admin.approvals.block("fx:prompts:greet", "tester")
        assert [item["name"] for item in await listed(agent, "prompts/list")] == ["fx__odd_name_4b22ca22", "fx__third"]
        answer = await agent.request("prompts/get", name="fx__greet")
        assert answer["error"]["data"]["data"] == {"state": "blocked"}
        await gateway.admin.approvals.unblock("fx:prompts:greet", "tester")
        assert len(await listed(agent, "prompts/list")) == 3


@pytest.mark.requirement("contents-approval")
async def test_a_trusted_server_may_change_its_prompts(tmp_path: Path) -> None:
    """As it may change its tools."""
    async with turning(tmp_path, trust="trusted") as (gateway, agent, file):
        await turn(gateway, agent, file, prompts=[{"name": "new"}])
        assert [item["name"] for item in await listed(agent, "prompts/list")] == ["fx__new"]
        assert gateway.admin.approvals.withheld() == []


@pytest.mark.requirement("contents-principals")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.long  # much work for one test
async def test_two_principals_see_their_own_servers_alone(era: Any, tmp_path: Path) -> None:
    """Interleaved on one gateway: of the other's server nothing is listed, read, got or completed, and each answer goes
    to who asked."""
    for name in ("left", "right"):
        write(tmp_path / name)
    servers = {name: server("modern", tmp_path / name) for name in ("left", "right")}
    async with (
        opened_gateway(tmp_path / "data", servers) as gateway,
        served(gateway, token="own") as base,
        AsyncExitStack() as stack,
    ):
        agents: dict[str, Agent] = {}
        for name in servers:
            secret = (await gateway.admin.agent_tokens.create(name, Scope((name,), "read"))).secret
            headers = {"authorization": f"Bearer {secret}"}
            agents[name] = await stack.enter_async_context(over_http(base, era, headers))
        for agent in agents.values():
            for method, kind in METHODS.items():
                await listed(agent, method, len(LISTED[kind]))

        async def visit(name: str, number: int) -> None:
            agent, other = agents[name], "right" if name == "left" else "left"
            words = f"{name}-{number}"
            got = await agent.request("prompts/get", name=f"{name}__greet", arguments={"who": words})
            assert json.loads(got["result"]["messages"][0]["content"]["text"])["arguments"] == {"who": words}
            uri = f"mcpproxy://{name}/test%3A%2F%2Ft%2F{words}%2Fdata"
            assert (await agent.request("resources/read", uri=uri))["result"]["contents"][0]["uri"].startswith(
                f"mcpproxy://{name}/"
            )
            lists = json.dumps([await listed(agent, method) for method in METHODS])
            assert other not in lists
            ref = {"type": "ref/prompt", "name": f"{other}__greet"}
            refused = [
                await agent.request("prompts/get", name=f"{other}__greet"),
                await agent.request("resources/read", uri=f"mcpproxy://{other}/test%3A%2F%2Fone"),
                await agent.request("completion/complete", ref=ref, argument={"name": "who", "value": ""}),
            ]
            assert all("No " in answer["error"]["message"] for answer in refused), refused

        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                for number in range(5):
                    for name in agents:
                        group.start_soon(visit, name, number)
            records: list[Any] = []
            while len(records) < 2 * 5 * len(agents):
                page = await gateway.catalog.activity_page(ActivityFilter(), 200)
                records = [each.activity for each in page if each.activity.detail.get("method")]
        assert (
            len({(each.server, each.principal) for each in records}) == len({each.principal for each in records}) == 2
        )

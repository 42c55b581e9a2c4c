"""A client on stdio is answered before the gateway is loaded, and loses nothing when it is."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starts import (
    ENVELOPE,
    HELLO,
    SEARCH,
    WITHOUT_GREETER,
    Start,
    is_alive,
    line,
    prepared,
    recorded,
    rehearsed,
    started,
)

from smart_mcp_proxy.demo import demo_servers
from smart_mcp_proxy.greeting.record import default_answers

pytestmark = pytest.mark.anyio

FIRST = "cyclopts"
"""The first thing that is imported after the greeting."""
LOADED = "numpy"
"""Imported with the gateway, once the configuration is read."""
OWN = [
    "smart_mcp_proxy",
    "smart_mcp_proxy.cli",
    "smart_mcp_proxy.cli.app",
    "smart_mcp_proxy.cli.exit_codes",
    "smart_mcp_proxy.cli.support",
    "smart_mcp_proxy.cli.support.opening",
    "smart_mcp_proxy.cli.support.sharing",
    "smart_mcp_proxy.desktop",
    "smart_mcp_proxy.desktop.alone",
    "smart_mcp_proxy.desktop.places",
    "smart_mcp_proxy.greeting",
    "smart_mcp_proxy.greeting.answers",
    "smart_mcp_proxy.greeting.eras",
    "smart_mcp_proxy.greeting.greeter",
    "smart_mcp_proxy.greeting.instructions",
    "smart_mcp_proxy.greeting.record",
    "smart_mcp_proxy.greeting.seen_clients",
]
HEAVY = {
    "anyio", "asyncio", "cryptography", "dataclasses", "fastmcp", "httpx2", "importlib.metadata", "inspect", "logging",
    "mcp", "mcp_types", "msgspec", "numpy", "pydantic", "rich", "socket", "sqlalchemy", "ssl", "starlette",
    "subprocess", "threading", "uvicorn", "uvloop",
}  # fmt: skip


async def test_the_first_answers_need_none_of_the_programs_parts(tmp_path: Path) -> None:
    """Which modules are imported before them is fixed; each takes its time."""
    prepared(tmp_path)
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("initialize", 1, **HELLO)
        start.send("tools/list", 2)
        start.send("ping", 3)
        answers = await start.answers(1, 2, 3)
        assert answers[2]["result"]["tools"]
        modules = await start.held()
        assert sorted(name for name in modules if name.startswith("smart_mcp_proxy")) == OWN
        assert HEAVY.isdisjoint(modules)


ONE_SERVER = json.dumps({"mcpServers": {"todo": demo_servers()["todo"], '\u00fc "x"': {"command": "none"}}})


ASKED = {
    "handshake": line("initialize", 1, **HELLO) + line("tools/list", 2),
    "modern": line("server/discover", "d", _meta=ENVELOPE) + line("tools/list", "l", _meta=ENVELOPE),
}


async def early(folder: Path, held_at: str, config: str, **settings: str) -> list[list[bytes]]:
    """The bytes that are there before the gateway is loaded, in both eras."""
    found = []
    for asked in ASKED.values():
        async with started(folder, held_at=held_at, config=config, **settings) as start:
            start.stdin.write(asked)
            found.append([await start.reads(), await start.reads()])
            await start.held()
            assert is_alive(start.child())
    return found


async def late(folders: Sequence[Path], config: str, **settings: str) -> list[list[bytes]]:
    """The bytes of the SDK in gateways that nobody is greeted early for, in both eras, each on its folder."""
    found = []
    for folder, asked in zip(folders, ASKED.values(), strict=True):
        folder.mkdir(exist_ok=True)
        async with started(folder, *WITHOUT_GREETER, config=config, **settings) as start:
            start.stdin.write(asked)
            found.append([await start.reads(), await start.reads()])
    return found


@pytest.mark.long  # starts processes; what differs with servers is in every run
async def test_the_answers_without_servers_are_the_bytes_that_the_sdk_would_have_sent(tmp_path: Path) -> None:
    """Of both eras, at the first start ever; what a later one has recorded is the same, as a test below shows."""
    first = await early(tmp_path, LOADED, "{}")
    assert first == await late([tmp_path / era for era in ASKED], "{}")


@pytest.mark.long  # six processes; what is refused is quick in test_answers.py
async def test_where_searches_register_tools_the_modern_era_is_refused_in_the_same_bytes(tmp_path: Path) -> None:
    """At the first start ever, at a later one, and by the gateway itself."""
    settings = {"ROUTING_TYPE": "DYNAMIC"}
    first = await early(tmp_path, LOADED, ONE_SERVER, **settings)
    assert first == await late([tmp_path / era for era in ASKED], ONE_SERVER, **settings)
    assert [json.loads(said)["error"]["code"] for said in first[1]] == [-32601, -32022]
    await rehearsed(tmp_path, (), ONE_SERVER, **settings)
    later = await early(tmp_path, FIRST, ONE_SERVER, **settings)
    assert [each[1] for each in later] == [each[1] for each in first]


@pytest.mark.long  # eight processes; without servers stays quick
async def test_the_answers_with_servers_are_the_bytes_that_the_sdk_would_have_sent(tmp_path: Path) -> None:
    """At the first start ever, and at a later one that knows whether they have prompts."""
    first = await early(tmp_path, LOADED, ONE_SERVER)
    assert first == await late([tmp_path / era for era in ASKED], ONE_SERVER)
    await recorded(tmp_path, ONE_SERVER)
    assert await early(tmp_path, FIRST, ONE_SERVER) == await late([tmp_path, tmp_path], ONE_SERVER)


@pytest.mark.long  # a whole start; tests/interaction/test_agent_start.py is quick
async def test_what_needs_the_gateway_is_answered_when_it_is_there(tmp_path: Path) -> None:
    """In a session that the SDK knows of; nothing is answered twice.

    Of a line of a megabyte a part comes before the gateway is loaded and the rest after.
    """
    prepared(tmp_path)
    arguments = {"query": "x", "padding": "y" * 1_000_000}
    long = line("tools/call", 4, name="retrieve_tools", arguments=arguments)
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("initialize", 1, **HELLO)
        start.send("notifications/initialized")
        start.send("tools/call", 2, **SEARCH)
        start.send("ping", 3)
        start.stdin.write(long[:700_000])
        await start.answers(1, 3)
        await start.held()
        start.let_go()
        assert (await start.answers(2))[2]["result"]["structuredContent"]["total"] == 0
        start.stdin.write(long[700_000:])
        start.send("initialize", 5, **HELLO)
        answers = await start.answers(4, 5)
        assert "padding" in json.dumps(answers[4])
        assert "initialized already" in answers[5]["error"]["message"]
        start.stdin.close()
        assert await start.ended() == 0


@pytest.mark.long  # starts processes; the like of it above is in every run
async def test_a_modern_client_goes_on_as_such(tmp_path: Path) -> None:
    """The list that it was sent has told its era."""
    prepared(tmp_path)
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("server/discover", 1, _meta=ENVELOPE)
        start.send("tools/list", 2, _meta=ENVELOPE)
        start.send("tools/call", 3, _meta=ENVELOPE, **SEARCH)
        start.send("initialize", 4, **HELLO)
        await start.answers(1, 2)
        start.let_go()
        answers = await start.answers(3, 4)
        assert answers[3]["result"]["structuredContent"]["total"] == 0
        assert answers[4]["error"]["code"] == -32022


@pytest.mark.long  # starts processes; the like of it above is in every run
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_probe_leaves_the_handshake_possible(tmp_path: Path, when: str) -> None:
    """Whether the gateway is loaded before the client decides or after it; garbage between them changes nothing."""
    prepared(tmp_path)
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("server/discover", 1, _meta=ENVELOPE)
        await start.answers(1)
        start.stdin.write(b"\xff{ no json\n")
        if when == "after":
            start.let_go()
            assert json.loads(await start.reads())["error"]["code"] == -32700
        start.send("initialize", 2, **HELLO)
        assert (await start.answers(2))[2]["result"]["protocolVersion"] == "2025-11-25"
        if when == "before":
            start.let_go()
            assert json.loads(await start.reads())["error"]["code"] == -32700
        start.send("tools/call", 3, **SEARCH)
        assert (await start.answers(3))[3]["result"]["structuredContent"]["total"] == 0


@pytest.mark.long  # starts processes; the like of it above is in every run
@pytest.mark.parametrize("starts", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_a_client_may_send_everything_at_once_and_close_its_end(tmp_path: Path, starts: int) -> None:
    """As a script does; under one id for all, too. At the first start and at a later one."""
    for _ in range(starts):
        async with started(tmp_path) as start:
            start.stdin.write(line("initialize", 1, **HELLO) + line("notifications/initialized"))
            start.stdin.write(line("tools/list", 1) + line("ping", 2) + line("tools/call", 3, **SEARCH))
            start.stdin.close()
            messages = [json.loads(await start.reads()) for _ in range(4)]
            assert sorted(message["id"] for message in messages) == [1, 1, 2, 3]
            assert all("result" in message for message in messages)
            assert await start.ended() == 0


@pytest.mark.long  # starts processes; the like of it above is in every run
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)]
)
async def test_a_signal_while_it_loads_leaves_no_process(tmp_path: Path, number: int, status: int) -> None:
    """And a request that waits is answered with an error, not with silence."""
    prepared(tmp_path)
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("initialize", 1, **HELLO)
        start.send("tools/call", 2, **SEARCH)
        start.send("ping", 3)
        await start.answers(1, 3)
        await start.held()
        child = start.child()
        os.kill(child, signal.SIGTERM)  # a group of processes hears signals together
        os.kill(child, signal.SIGINT)
        start.process.send_signal(number)
        error = (await start.answers(2))[2]["error"]
        assert (error["code"], error["data"]) == (-32603, {"delivery": "not_sent"})
        assert "stopped" in error["message"]
        assert await start.ended() == status
        while is_alive(child):
            await asyncio.sleep(0.01)


@pytest.mark.long  # starts processes; the like of it above is in every run
async def test_the_end_of_the_input_while_it_loads_ends_it(tmp_path: Path) -> None:
    """After what was asked is answered, as ever."""
    prepared(tmp_path)
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("initialize", 1, **HELLO)
        start.send("tools/call", 2, **SEARCH)
        start.stdin.close()
        await start.held()
        child = start.child()
        start.let_go()
        await start.answers(1, 2)
        assert await start.ended() == 0
        assert not is_alive(child)


@pytest.mark.long  # starts processes; the like of it above is in every run
async def test_a_killed_child_loses_nothing(tmp_path: Path) -> None:
    """What it read and what it answered is known to the process that takes over."""
    prepared(tmp_path)
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("initialize", 1, **HELLO)
        start.send("tools/call", 2, **SEARCH)
        start.send("ping", 3)
        start.stdin.write(line("ping", 4)[:20])
        await start.answers(1, 3)
        await start.held()
        await start.child_waits()
        os.kill(start.child(), signal.SIGKILL)
        start.let_go()
        start.stdin.write(line("ping", 4)[20:])
        answers = await start.answers(2, 4)
        assert answers[2]["result"]["structuredContent"]["total"] == 0


@pytest.mark.long  # starts programs, a second of it
async def test_a_start_that_fails_says_so_to_who_waits(tmp_path: Path) -> None:
    """With the status and the message that it has without a client."""
    (tmp_path / "data").write_text("a file")
    async with started(tmp_path, held_at=LOADED) as start:
        start.send("initialize", 1, **HELLO)
        start.send("tools/call", 2, **SEARCH)
        await start.answers(1)
        start.let_go()
        error = (await start.answers(2))[2]["error"]
        assert error["message"].startswith("The gateway did not start: ")
        assert str(tmp_path / "data") in error["message"]
        assert await start.ended() == 2
    assert str(tmp_path / "data") in (tmp_path / "log").read_text()


@pytest.mark.long  # starts processes; the like of it above is in every run
@pytest.mark.parametrize(
    ("settings", "content"),
    [({"TOP_K": "banana"}, "{}"), ({"PROFIL": "x", "TOP_K": "0"}, "{}"), ({}, "{"), ({"CONFIG_PATH": "/none"}, "{}")],
)
async def test_what_must_stop_the_start_stops_it_before_any_answer(
    tmp_path: Path, settings: dict[str, str], content: str
) -> None:
    """A wrong setting or server file, also where a start with other ones has left its answers."""
    prepared(tmp_path)
    (tmp_path / "servers.json").write_text(content)
    async with started(tmp_path, **settings) as start:
        start.send("initialize", 1, **HELLO)
        assert await start.ended() == 2


@pytest.mark.long  # starts processes; that it waits is in every run
async def test_a_list_that_needs_the_catalog_comes_with_it(tmp_path: Path) -> None:
    """As a start has recorded it: only the greeting is given at once."""
    few = {"LIST_ALL_BELOW_TOKENS": "100"}
    await rehearsed(tmp_path, (), "{}", **few)
    async with started(tmp_path, held_at=FIRST, **few) as start:
        await assert_only_the_list_waits(start)
        start.let_go()
        assert "tools" in (await start.answers(2))[2]["result"]


async def assert_only_the_list_waits(start: Start) -> None:
    """What is asked after it is answered before it."""
    start.send("initialize", 1, **HELLO)
    start.send("tools/list", 2)
    start.send("ping", 3)
    await start.answers(1, 3)
    await start.held()


PINNED = '{"mcpServers": {"off": {"command": "none", "disabled": true, "pin": ["x"]}}}'


@pytest.mark.parametrize(
    ("words", "config"),
    [
        ((), PINNED),
        (("serve", "--profile", "p"), '{"mcpServers": {}, "profiles": {"p": {"servers": []}}}'),
        (("serve", "--passthrough", "off"), '{"mcpServers": {"off": {"command": "none", "disabled": true}}}'),
    ],
)
async def test_a_list_of_one_server_or_profile_or_with_pins_waits_for_the_catalog(
    tmp_path: Path, words: tuple[str, ...], config: str
) -> None:
    """It needs what is stored, which only the gateway reads."""
    assert (await rehearsed(tmp_path, words, config)).load() is not None
    async with started(tmp_path, *words, held_at=FIRST) as start:
        await assert_only_the_list_waits(start)


NEEDS_CATALOG = [
    (("serve", "--passthrough", "todo"), {}, {}),
    (("serve", "--profile", "p"), {}, {"profiles": {"p": {"servers": ["todo"], "pin": ["todo:add"]}}}),
    ((), {"LIST_ALL_BELOW_TOKENS": "100000"}, {}),
    ((), {}, {"pin": ["add"]}),
]
NEEDS_SETTINGS = [
    ((), {"MANAGE": "true"}, {}),
    ((), {"PROXY_TOOL": "gateway"}, {}),
    ((), {"CODE": "python"}, {}),
    ((), {"ALWAYS_LOAD": "false"}, {}),
    ((), {"INSTRUCTIONS": "Words of my own."}, {}),
]
"""Words, settings and what is in the server file with which a greeting or a list is another than the default's."""
STARTS = [
    pytest.param(*each, marks=() if each in (NEEDS_CATALOG[0], NEEDS_SETTINGS[0]) else pytest.mark.soak)
    for each in NEEDS_CATALOG + NEEDS_SETTINGS
]
"""One of each kind, and the others among the big numbers."""


def with_todo(more: dict[str, Any]) -> str:
    """A server file with one server, which is the one with pins if there are any."""
    server = demo_servers()["todo"] | {key: value for key, value in more.items() if key == "pin"}
    rest = {key: value for key, value in more.items() if key != "pin"}
    return json.dumps({"mcpServers": {"todo": server}, **rest})


@pytest.mark.parametrize(("words", "settings", "more"), STARTS)
@pytest.mark.long  # a process for each setting
async def test_only_a_default_start_is_answered_before_the_gateway_is_there(
    tmp_path: Path, words: tuple[str, ...], settings: dict[str, str], more: dict[str, Any]
) -> None:
    """At the first start ever: at the gate where `early` finds a process that answers, any other start has none."""
    async with started(tmp_path, *words, held_at=LOADED, config=with_todo(more), **settings) as start:
        await start.held()
        assert start.children() == []


def default_pair() -> list[Any]:
    """The greeting and the list of a default start."""
    known = default_answers(["todo"])[0]
    return [json.loads(known[method]["2025-11-25"]) for method in ("initialize", "tools/list")]


@pytest.mark.long  # starts processes; that nobody answers early for them is in every run
@pytest.mark.parametrize(("words", "settings", "more"), [each for each in STARTS if each.values in NEEDS_CATALOG])
async def test_a_start_that_needs_the_catalog_answers_otherwise_than_the_default(
    tmp_path: Path, words: tuple[str, ...], settings: dict[str, str], more: dict[str, Any]
) -> None:
    """So it has to wait for the gateway."""
    async with started(tmp_path, *words, config=with_todo(more), **settings) as start:
        start.stdin.write(ASKED["handshake"])
        said = await start.answers(1, 2)
    assert [said[1]["result"], said[2]["result"]] != default_pair()


@pytest.mark.parametrize(("words", "settings", "more"), NEEDS_SETTINGS)
async def test_a_start_with_other_settings_answers_otherwise_than_the_default(
    tmp_path: Path, words: tuple[str, ...], settings: dict[str, str], more: dict[str, Any]
) -> None:
    """In what the gateway itself says, loaded with them; what is the default's all the same would be answered early."""
    found = (await rehearsed(tmp_path, words, with_todo(more), **settings)).load()
    assert found is not None
    said = [json.loads(found[0][method]["2025-11-25"]) for method in ("initialize", "tools/list")]
    assert said != default_pair()


@pytest.mark.long  # two whole starts
async def test_a_client_is_told_where_the_list_has_changed_since_the_last_start(tmp_path: Path) -> None:
    """Of the list, and of prompts that were not there; the next start knows better."""
    file = prepared(tmp_path)
    stored = json.loads(file.read_text())
    known: dict[str, Any] = stored["known"]
    known["tools/list"]["2025-11-25"] = '{"tools":[]}'
    greeting = json.loads(known["initialize"]["2025-11-25"])
    greeting["capabilities"]["prompts"] = {"listChanged": True}
    known["initialize"]["2025-11-25"] = json.dumps(greeting)
    file.write_text(json.dumps(stored))
    async with started(tmp_path, held_at=FIRST) as start:
        start.send("initialize", 1, **HELLO)
        start.send("tools/list", 2)
        assert (await start.answers(1, 2))[2]["result"] == {"tools": []}
        start.let_go()
        told = {json.loads(await start.reads())["method"] for _ in range(2)}
        assert told == {"notifications/tools/list_changed", "notifications/prompts/list_changed"}
        start.stdin.close()
        assert await start.ended() == 0
    assert (json.loads(file.read_text())["known"], stored["name"]) == default_answers()


@pytest.mark.long  # starts processes; the like of it above is in every run
async def test_two_processes_start_on_one_data_directory_at_the_same_time(tmp_path: Path) -> None:
    """Each has a client of its own."""
    prepared(tmp_path)

    async def use(start: Start) -> None:
        start.send("initialize", 1, **HELLO)
        start.send("tools/call", 2, **SEARCH)
        await start.answers(1, 2)

    async with started(tmp_path) as one, started(tmp_path) as other:
        await asyncio.gather(use(one), use(other))


@pytest.mark.long  # starts processes; the like of it above is in every run
async def test_another_gateway_is_told_more_and_therefore_later(tmp_path: Path) -> None:
    """By its name: what the SDK's greeting says to it depends on this process."""
    prepared(tmp_path)
    hello = HELLO | {"clientInfo": {"name": default_answers()[1], "version": "1"}}
    async with started(tmp_path) as start:
        start.send("initialize", 1, **hello)
        assert (await start.answers(1))[1]["result"]["capabilities"]["experimental"]


@pytest.mark.long  # a whole start; over stdio it stays quick
async def test_over_http_a_connection_is_taken_before_the_gateway_is_loaded(tmp_path: Path) -> None:
    """Who connects waits until there is an answer, instead of being refused."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with started(tmp_path, "serve", "--http", "--port", str(port), held_at="fastmcp") as start:
        modules = await start.held()
        assert "smart_mcp_proxy.web.serve_http" not in modules
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        start.let_go()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.long  # starts processes; the like of it above is in every run
async def test_over_http_a_port_in_use_is_told_before_the_gateway_is_loaded(tmp_path: Path) -> None:
    """With the message that it has always had."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with started(tmp_path, "serve", "--http", "--port", port, held_at="fastmcp") as start:
            assert await start.ended() == 2
    assert f"Port {port} on 127.0.0.1 cannot be used" in (tmp_path / "log").read_text()

"""Clients that start `mcpproxy serve` on stdio share one gateway, where nothing that they want differs."""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from desks import ENVELOPE, Desk, gather_texts, read_environ, until

from smart_mcp_proxy.desktop.joining import Place

pytestmark = pytest.mark.anyio

OWN = "This client has a gateway of its own"


@pytest.mark.long  # starts a gateway, seconds of it
async def test_ten_clients_at_once_share_one_gateway(desk: Desk) -> None:
    """Ten clients that start in the same instant are served by one gateway and one process of the server."""
    clients = await asyncio.gather(*(desk.start() for _ in range(10)))
    try:
        await asyncio.gather(*(each.greet() for each in clients))
        texts = await gather_texts(clients)
        assert len(set(texts)) == 1
        assert len(desk.gateways()) == 1
        assert OWN not in desk.stderr
        for each in clients:
            assert await each.leave() == 0
    finally:
        await asyncio.gather(*(each.end() for each in clients))


@pytest.mark.long  # starts a gateway, seconds of it
async def test_what_may_differ_and_what_may_not(desk: Desk) -> None:
    """Era, profile and routing mode are the session's own; a client of another setting is alone, and told its name."""
    content = {"mcpServers": {"up": {**desk.entry(), "trust": "trusted"}}, "profiles": {"few": {"servers": ["up"]}}}
    desk.server_file.write_text(json.dumps(content))
    async with desk.client() as first:
        await first.greet()
        server = await first.text()
        gateway = await desk.gateway()

        async with desk.client() as modern:
            answer = await modern.answer(modern.ask("server/discover", {"_meta": ENVELOPE}))
            assert "2026-07-28" in answer["result"]["supportedVersions"]
            answer = await modern.answer(modern.call({}, **ENVELOPE))
            assert answer["result"]["content"][0]["text"] == server

        async with desk.client("--profile", "few") as profiled:
            await profiled.greet()
            assert await profiled.text() == server

        async with desk.client(MCPPROXY_ROUTING_TYPE="DYNAMIC", MCPPROXY_LOG_LEVEL="DEBUG") as dynamic:
            await dynamic.greet()
            names = []
            for each in (dynamic, first):
                assert not (await each.answer(each.search()))["result"].get("isError")
                shown = (await each.answer(each.ask("tools/list")))["result"]["tools"]
                names.append([tool["name"] for tool in shown if "work" in tool["name"]])
            assert len(names[0]) == 1
            assert not names[1]
        assert OWN not in desk.stderr
        assert desk.gateways() == [gateway]
        assert len(desk.servers()) == 1

        async with desk.client(MCPPROXY_TOP_K="7") as other:
            await other.greet()
            assert await other.text() != server
            assert await other.leave() == 0
        assert desk.stderr.count(OWN) == 1
        assert f"{OWN}: MCPPROXY_TOP_K differs from that of the gateway that runs.\n" in desk.stderr
        assert desk.gateways() == [gateway]


@pytest.mark.long
async def test_mistakes_are_told_as_without_a_gateway(desk: Desk) -> None:
    """A bad setting or an unknown profile ends the client's process with status 2 and the message of always."""
    told = []
    async with desk.client() as first:
        await first.greet()
        for words, variables in (((), {"MCPPROXY_TOP_K": "many"}), (("--profile", "none"), {})):
            before = len(desk.stderr)
            async with desk.client(*words, **variables) as mistaken:
                assert await mistaken.process.wait() == 2
            told.append(desk.stderr[before:])
        assert "MCPPROXY_TOP_K is 'many'" in told[0]
        assert "Profile 'none' is not configured." in told[1]
        assert OWN not in "".join(told)
        for (words, variables), said in zip(
            (((), {"MCPPROXY_TOP_K": "many"}), (("--profile", "none"), {})), told, strict=True
        ):
            status, _, errors = await desk.run("serve", "--alone", *words, **variables)
            assert (status, errors) == (2, said)


@pytest.mark.long  # starts a gateway, seconds of it
async def test_a_bad_setting_is_told_where_nothing_runs(desk: Desk) -> None:
    """Where no gateway runs a bad setting still ends the client's process with status 2, its message told once."""
    async with desk.client(MCPPROXY_TOP_K="many") as mistaken:
        assert await mistaken.process.wait() == 2
    assert desk.stderr.count("MCPPROXY_TOP_K is 'many'") == 1
    assert not desk.processes()


@pytest.mark.long  # starts a gateway, seconds of it
async def test_variables_that_the_server_file_names(desk: Desk) -> None:
    """A variable that only a second client has is taken over, and its server comes up; another value stays apart."""
    desk.write_servers(up=desk.entry(), needy=desk.entry(env={"KEY": "${DESK_KEY}"}))
    async with desk.client(DESK_KEY="$DESK_KEY") as first:  # what Gemini CLI passes on where it is not set
        await first.greet()
        await first.text()
        gateway = await desk.gateway()
        assert len(desk.servers()) == 1

        async with desk.client(DESK_KEY="one", DESK_SECRET="unnamed") as second:
            await second.greet()
            assert await second.text({"env": "KEY"}, "needy:work") == "one"
            assert await first.text({"env": "KEY"}, "needy:work") == "one"
            assert len(desk.servers()) == 2

        async with desk.client(DESK_KEY="two") as third:
            await third.greet()
            assert await third.text({"env": "KEY"}, "needy:work") == "two"
            why = "the variable DESK_KEY, which the server file names, has another value here"
            assert f"{OWN}: {why}.\n" in desk.stderr
            assert await third.leave() == 0
        assert desk.gateways() == [gateway]
        assert "DESK_KEY" not in read_environ(gateway)
        assert not any("DESK_SECRET" in read_environ(each) for each in [gateway, *desk.servers()])


@pytest.mark.long  # starts a gateway, seconds of it
async def test_another_service_of_embeddings(desk: Desk) -> None:
    """A client with a key of its own does not search by the gateway's; one that has none does."""
    desk.write_servers(up=desk.entry())
    wanted = {"MCPPROXY_EMBEDDER": "OPENAI", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    async with desk.client(**wanted, OPENAI_API_KEY="sk-one") as first:
        await first.greet()
        server = await first.text()
        gateway = await desk.gateway()
        for told in ({}, {"OPENAI_API_KEY": "sk-one"}):
            async with desk.client(MCPPROXY_EMBEDDER="OPENAI", **told) as same:
                await same.greet()
                assert await same.text() == server
        assert OWN not in desk.stderr
        async with desk.client(**wanted, OPENAI_API_KEY="sk-two") as other:
            await other.greet()
            await other.text()
            assert f"{OWN}: OPENAI_API_KEY differs from that of the gateway that runs.\n" in desk.stderr
            assert await other.leave() == 0
        assert desk.gateways() == [gateway]
        assert "sk-two" not in read_environ(gateway).values()


@pytest.mark.long  # starts a gateway, seconds of it
async def test_programs_of_any_client_are_found(desk: Desk, tmp_path: Path) -> None:
    """A client of the desktop has fewer folders of programs than one in a terminal; its own come first."""
    tools = tmp_path / "tools"
    tools.mkdir()
    entry = desk.entry()
    (tools / "my-tool").symlink_to(entry["command"])
    desk.write_servers(up=entry, mine=entry | {"command": "my-tool"})
    async with desk.client(PATH="/usr/bin:/bin") as first:
        await first.greet()
        await first.text()
        assert "command 'my-tool' not found on PATH" in str(await first.answer(first.call({}, "mine:work")))
        async with desk.client(PATH=f"{tools}:here:/bin") as second:
            await second.greet()
            assert (await second.text({"env": "PATH"}, "mine:work")).split(":") == ["/usr/bin", "/bin", str(tools)]
            assert OWN not in desk.stderr


@pytest.mark.long
@pytest.mark.parametrize("entry", [{"env": {"KEY": "${DESK_KEY:-}"}}, {"inherit": ["DESK_KEY"]}])
@pytest.mark.parametrize("keys", [("", "one", ""), ("one", "", "one")])
async def test_an_unset_variable_that_a_server_does_without_is_a_value(
    desk: Desk, entry: dict[str, Any], keys: tuple[str, ...]
) -> None:
    """The server that runs has started with or without it: who has it otherwise gets a gateway of its own."""
    desk.write_servers(up=desk.entry(**entry))
    name = "KEY" if "env" in entry else "DESK_KEY"
    async with AsyncExitStack() as stack:
        for key in keys:
            client = await stack.enter_async_context(desk.client(**({"DESK_KEY": key} if key else {})))
            await client.greet()
            assert await client.text({"env": name}) == key
    why = "the variable DESK_KEY, which the server file names, has another value here"
    assert f"{OWN}: {why}.\n" in desk.stderr and desk.stderr.count(OWN) == 1
    assert len(desk.gateways()) == 1


@pytest.mark.long
async def test_the_variables_of_the_first_client_hold_however_late_they_come(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine servers have begun by then, with their defaults: those are started anew."""
    desk.write_servers(up=desk.entry(env={"KEY": "${DESK_KEY:-none}"}))
    monkeypatch.chdir(desk.home)
    place = Place([], desk.environ(DESK_KEY="one"))
    with place.connect() as link, link.makefile("rb") as said:
        await until(desk.servers)
        link.sendall(place.hello())
        asked = json.loads(await asyncio.to_thread(said.readline))
        link.sendall(place.tell_variables(asked["variables"]))
        assert "joined" in json.loads(await asyncio.to_thread(said.readline))
        async with desk.client(DESK_KEY="one") as client:
            await client.greet()
            assert await client.text({"env": "KEY"}) == "one"
        assert OWN not in desk.stderr


@pytest.mark.long
async def test_a_working_directory_that_matters(desk: Desk, tmp_path: Path) -> None:
    """Where a server depends on it and is to be shared, a client of another one has a gateway of its own."""
    here = desk.entry(env={"FOLDER": "${workspaceFolder}"}) | {"connection": "shared"}
    desk.write_servers(up=desk.entry(), here=here)
    other = tmp_path / "other"
    other.mkdir()
    async with desk.client() as first, desk.client(cwd=other) as second, desk.client() as third:
        for each, folder in ((first, desk.home), (second, other), (third, desk.home)):
            await each.greet()
            assert await each.text({"env": "FOLDER"}, "here:work") == str(folder)
        assert f"{OWN}: server 'here' depends on the working directory, which is another one here.\n" in desk.stderr
        assert desk.stderr.count(OWN) == 1
        assert len(desk.gateways()) == 1


@pytest.mark.long
async def test_two_projects_stay_apart(desk: Desk, tmp_path: Path) -> None:
    """Two projects with a server file each have two gateways; no variable of one reaches a process of the other."""
    projects = [tmp_path / "red", tmp_path / "blue"]
    clients = []
    for each in projects:
        each.mkdir()
        env = {"KEY": f"${{{each.name.upper()}_KEY}}", "FOLDER": "${workspaceFolder}"}
        desk.write_servers(each / "mcp_config.json", up=desk.entry(each.name, env=env))
    try:
        for each in [*projects, *projects]:
            keys = {"RED_KEY": "secret-of-red"} if each.name == "red" else {"BLUE_KEY": "secret-of-blue"}
            client = await desk.start(cwd=each, **keys)
            clients.append(client)
            await client.greet()
            assert await client.text({"env": "KEY"}) == f"secret-of-{each.name}"
            assert await client.text({"env": "FOLDER"}) == str(each)
            assert await client.text({"folder": 1}) == str(each)
        assert len(desk.gateways()) == 2
        assert OWN not in desk.stderr
        for pid in [*desk.gateways(), *desk.servers()]:
            keys_there = {text for text in read_environ(pid).values() if text.startswith("secret-of-")}
            own = {"secret-of-red"} if "red" in (desk_words := _words(pid)) else {"secret-of-blue"}
            assert keys_there <= (own if pid in desk.servers() else set()), desk_words
    finally:
        for client in clients:
            await client.end()


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.mark.long
async def test_who_wants_a_gateway_of_its_own_has_one(desk: Desk) -> None:
    """`--alone` and MCPPROXY_SHARED=false start no gateway in the background and join none, without a word."""
    async with desk.client("--alone") as first, desk.client(MCPPROXY_SHARED="false") as second:
        for each in (first, second):
            await each.greet()
            await each.text()
        assert not desk.gateways()
        assert len(desk.servers()) == 2
        assert OWN not in desk.stderr
        assert (await desk.run("status"))[1].count(": ends with its client\n") == 2
        assert [await each.leave() for each in (first, second)] == [0, 0]

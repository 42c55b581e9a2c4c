"""Clients on stdio share one gateway, or say why not."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from homes import ENVELOPE, HELLO, LIMIT_S, PROGRAM, SERVER, Home, placed_server, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@pytest.mark.long  # a third of a second of processor time
def test_a_further_client_has_its_answers_at_once_in_both_eras(home: Home) -> None:
    """It imports nothing of the gateway."""
    first = home.client()
    first.greet()
    first.where("placed")
    modern = home.client()
    params = {"name": "retrieve_tools", "arguments": {"query": "where"}, "_meta": ENVELOPE}
    assert "placed:where" in json.dumps(modern.ask("tools/call", **params))
    maps = Path(f"/proc/{modern.process.pid}/maps").read_text()
    assert "pydantic_core" not in maps and "numpy" not in maps and "libssl" not in maps
    assert len(home.gateways()) == 1
    (status,) = json.loads(home.run("status", "--json").stdout)["gateways"]
    joined = {(each["name"], each["pid"], each["directory"]) for each in status["joined"]}
    named = (("raw", first), ("modern", modern))
    assert joined == {(name, client.process.pid, str(home.folder)) for name, client in named}


@pytest.mark.long  # starts a gateway, seconds of it
def test_the_log_says_which_client_searched_and_called(home: Home) -> None:
    """In both eras; what the command line asks of the same gateway is no client's."""
    named, modern = home.client(), home.client()
    named.ask("initialize", **{**HELLO, "clientInfo": {"name": "alpha", "version": "3"}})
    named.where("placed")
    named.search("for alpha")
    params = {"name": "retrieve_tools", "arguments": {"query": "for modern"}, "_meta": ENVELOPE}
    modern.ask("tools/call", **params)
    home.run("search", "for nobody")
    records = json.loads(home.run("activity", "list", "--json").stdout)
    found = {(each["kind"], each["subject"], each["detail"].get("client")) for each in records}
    assert {
        ("search", "for alpha", "alpha"),
        ("search", "for modern", "modern"),
        ("search", "for nobody", None),
    } < found
    assert {client for kind, _, client in found if kind == "call"} == {"alpha"}
    assert json.loads(home.run("activity", "verify", "--json").stdout)["problems"] == []


@pytest.mark.long  # starts a gateway, seconds of it
def test_what_differs_by_client_stays_apart(home: Home) -> None:
    """Servers that depend on the folder, and browsers: a process for each client, with its folder and variables."""
    home.serve(
        folder=placed_server("${workspaceFolder}", env={"TOKEN": "${WORD:-none}"}),
        browser=placed_server("@playwright/mcp@1.2.3"),
        placed=placed_server(),
    )
    folders = [home.folder / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    one, two = (home.client(cwd=folder, env=home.environment(WORD=folder.name)) for folder in folders)
    for client, folder in zip((one, two), folders, strict=True):
        client.greet()
        found = client.where("folder")
        assert (found["folder"], found["words"], found["token"]) == (str(folder), [str(folder)], folder.name)
    assert one.where("browser")["pid"] != two.where("browser")["pid"]
    assert one.where("placed")["pid"] == two.where("placed")["pid"]
    assert len(home.gateways()) == 1
    rows = {row.split()[0]: row for row in home.run("server", "list").stdout.splitlines() if row}
    assert "It drives a browser: each client has its own process" in rows["browser"]
    assert "It depends on the working directory: each" in rows["folder"] and "each" not in rows["placed"]
    before = len(home.servers())
    assert one.leave() == 0
    wait_for(lambda: len(home.servers()) == before - 2)


@pytest.mark.long  # starts a gateway, seconds of it
def test_a_variable_of_one_client_reaches_no_process_of_another(home: Home) -> None:
    """Who lacks it hears which it is, also where the gateway knows a value for its lists."""
    home.serve(folder=placed_server("${workspaceFolder}", env={"TOKEN": "${WORD}"}))
    having, lacking = home.client(env=home.environment(WORD="one")), home.client()
    having.greet()
    assert having.where("folder")["token"] == "one"
    lacking.greet()
    arguments = {"name": "folder:where", "args": {}}
    answer = lacking.ask("tools/call", name="call_tool_read", arguments=arguments)["result"]
    assert answer["isError"] and "needs the environment variable WORD" in json.dumps(answer)
    assert having.where("folder")["token"] == "one"


@pytest.mark.long  # starts two gateways, seconds of it
def test_who_upgrades_is_told_once_that_clients_share_now(home: Home) -> None:
    """By the first client that starts a gateway where there was a catalog; a new home has nothing to be told of."""
    alone = home.client("--alone")
    alone.greet()
    alone.where("placed")
    alone.leave()
    assert (home.data / "proxy.db").exists()
    said = "Clients now share one gateway in the background: mcpproxy status shows it"
    upgraded = [home.client() for _ in range(3)]
    for client in upgraded:
        client.greet()
        client.where("placed")
    assert sorted(client.said.count(said) for client in upgraded) == [0, 0, 1]
    (gateway,) = home.gateways()
    assert home.run("stop").stderr == f"Stopped process {gateway}.\n"
    later = home.client()
    later.greet()
    later.where("placed")
    assert later.said == "" and alone.said.count(said) == 0


@pytest.mark.long  # starts a gateway, seconds of it
def test_it_ends_some_time_after_its_last_client(home: Home) -> None:
    """However the client leaves; a new one meanwhile keeps it."""
    env = home.environment(MCPPROXY_KEEP_ALIVE="1")
    first = home.client(env=env)
    first.greet()
    gateway = home.gateways()
    first.kill()
    second = home.client(env=env)
    second.greet()
    assert home.gateways() == gateway
    assert second.leave() == 0
    wait_for(lambda: not home.gateways())
    assert list(home.data.glob("run/*.sock")) == []


@pytest.mark.long  # starts a gateway, seconds of it
def test_stop_answers_what_is_under_way_and_the_next_question_starts_another(home: Home) -> None:
    """The client's session goes on."""
    client = home.client()
    client.greet()
    client.where("placed")
    arguments = {"name": "placed:where", "args": {"wait_s": 0.5}}
    slow = client.begin("tools/call", name="call_tool_read", arguments=arguments)
    (before,) = home.gateways()
    done = home.run("stop", "--json")
    assert json.loads(done.stdout) == {"stopped": [before]}
    assert client.answer(slow)["result"].get("isError") is not True
    assert home.gateways() == []
    assert client.search()["result"].get("isError") is not True
    (after,) = home.gateways()
    assert after != before
    assert "No gateway" not in home.run("stop").stderr


@pytest.mark.long  # starts a gateway, seconds of it
def test_a_gateway_that_hangs_is_named_with_the_way_to_end_it(home: Home) -> None:
    """It still takes connections: it neither counts as absent nor as stopped."""
    client = home.client()
    client.greet()
    client.where("placed")
    (gateway,) = home.gateways()
    os.kill(gateway, signal.SIGSTOP)
    try:
        for word in ("status", "stop"):
            told = home.run(word)
            assert told.returncode == 1
            assert f"process {gateway} takes clients, and has not answered" in told.stderr
            assert f"kill -9 {gateway}" in told.stderr and "No gateway" not in told.stderr
    finally:
        os.kill(gateway, signal.SIGCONT)
    assert home.run("status").returncode == 0


@pytest.mark.long  # starts a gateway, seconds of it
def test_a_gateway_over_http_is_joined_and_goes_on(home: Home) -> None:
    """It does not end with its last client, and `stop` leaves it alone."""
    command = [*PROGRAM, "serve", "--http", "--port", "0", "--json"]
    with subprocess.Popen(command, env=home.environment(), cwd=home.folder, stdout=-1, stderr=-3) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            client = home.client(env=home.environment(MCPPROXY_KEEP_ALIVE="0"))
            client.greet()
            client.where("placed")
            assert home.gateways() == []
            assert f"Process {process.pid} serves HTTP" in home.run("stop").stderr
            assert client.leave() == 0
            assert process.poll() is None
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0


@pytest.mark.long  # starts gateways, seconds of it
def test_clients_come_over_to_a_gateway_over_http_that_starts_later(home: Home) -> None:
    """Their servers would run twice, and its page would not show them."""
    client = home.client()
    client.greet()
    client.where("placed")
    (background,) = home.gateways()
    arguments = {"name": "placed:where", "args": {"wait_s": 0.5}}
    slow = client.begin("tools/call", name="call_tool_read", arguments=arguments)
    command = [*PROGRAM, "serve", "--http", "--port", "0", "--json"]
    with subprocess.Popen(command, env=home.environment(), cwd=home.folder, stdout=-1, stderr=-3) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            assert client.answer(slow)["result"].get("isError") is not True
            wait_for(lambda: home.gateways() == [])
            client.where("placed")
            (status,) = json.loads(home.run("status", "--json").stdout)["gateways"]
            assert (status["pid"], len(status["joined"])) == (process.pid, 1)
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0
    client.where("placed")
    assert home.gateways() not in ([], [background])


@pytest.mark.long  # starts gateways, seconds of it
def test_clients_stay_where_a_gateway_over_http_has_other_settings(home: Home) -> None:
    """It would let none of them in."""
    client = home.client()
    client.greet()
    client.where("placed")
    before = home.gateways()
    env = home.environment(MCPPROXY_TOP_K="3")
    command = [*PROGRAM, "serve", "--http", "--port", "0", "--json"]
    with subprocess.Popen(command, env=env, cwd=home.folder, stdout=-1, stderr=-3) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            client.where("placed")
            assert home.gateways() == before
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGINT"])
@pytest.mark.long  # starts a gateway, seconds of it
def test_a_door_that_is_told_to_end_answers_first(home: Home, signal_name: str) -> None:
    """As a gateway of its own would."""
    client = home.client()
    client.greet()
    client.where("placed")
    arguments = {"name": "placed:where", "args": {"wait_s": 0.5}}
    slow = client.begin("tools/call", name="call_tool_read", arguments=arguments)
    assert client.ask("ping")["result"] == {}
    client.process.send_signal(getattr(signal, signal_name))
    assert "result" in client.answer(slow)
    assert client.process.wait(LIMIT_S) == (130 if signal_name == "SIGINT" else 0)


@pytest.mark.long  # starts a gateway, seconds of it
def test_clients_share_scripts_named_by_their_place_with_those_in_the_same_folder(home: Home) -> None:
    """Where an entry names a file relative to the working directory, a gateway elsewhere would not find it."""
    folders = [home.folder / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
        shutil.copy(SERVER, folder / "server.py")
    home.serve(placed={"command": sys.executable, "args": ["-S", "-E", "-I", "server.py"]})
    clients = [home.client(cwd=folder) for folder in (*folders, folders[0])]
    for client in clients:
        client.greet()
    found = [client.where("placed") for client in clients]
    assert [each["folder"] for each in found] == [str(folders[0]), str(folders[1]), str(folders[0])]
    assert found[0]["pid"] == found[2]["pid"] != found[1]["pid"]
    assert {client.said for client in clients} == {""}
    assert len(home.gateways()) == 2

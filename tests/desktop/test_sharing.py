"""Clients on stdio share one gateway, or say why not."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from homes import ENVELOPE, LIMIT_S, PROGRAM, Client, Home, placed_server, wait_for

from smart_mcp_proxy.desktop.places import sockets_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


def test_clients_that_start_at_once_share_one_gateway(home: Home) -> None:
    """One process of each server, too; `status` names each client, its process and its folder."""
    clients = [home.client() for _ in range(10)]
    for client in clients:
        assert client.greet()["result"]["serverInfo"]["name"] == "smart-mcp-proxy"
    assert len({client.where("placed")["pid"] for client in clients}) == 1
    assert len(home.gateways()) == 1
    (status,) = json.loads(home.run("status", "--json").stdout)["gateways"]
    assert [each["pid"] for each in status["joined"]] != []
    assert {each["pid"] for each in status["joined"]} == {client.process.pid for client in clients}
    assert {(each["name"], each["directory"]) for each in status["joined"]} == {("raw", str(home.folder))}
    assert {client.said for client in clients} == {""}


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


def test_settings_that_differ_give_a_gateway_of_its_own(home: Home) -> None:
    """Said once, with the setting's name; those of a session may differ."""
    home.client().greet()
    other = home.client(env=home.environment(MCPPROXY_TRUST="trusted"))
    assert other.greet()["result"]["capabilities"]["tools"]["listChanged"] is False
    other.search()
    assert other.said.count("MCPPROXY_TRUST") == 1 and "gateway of its own" in other.said
    growing = home.client(env=home.environment(MCPPROXY_ROUTING_TYPE="DYNAMIC"))
    assert growing.greet()["result"]["capabilities"]["tools"]["listChanged"] is True
    assert growing.said == ""
    assert len(home.gateways()) == 1
    assert other.leave() == growing.leave() == 0


@pytest.mark.parametrize(
    ("words", "setting", "said"),
    [((), "banana", "MCPPROXY_TOP_K is 'banana'"), (("--profile", "nope"), "5", "Profile 'nope' is not configured")],
)
def test_what_is_wrong_is_said_as_a_gateway_of_its_own_says_it(
    home: Home, words: tuple[str, ...], setting: str, said: str
) -> None:
    """With its exit status, whether a gateway runs or not."""
    for _ in range(2):
        wrong = home.client(*words, env=home.environment(MCPPROXY_TOP_K=setting))
        assert wrong.process.wait(LIMIT_S) == 2
        assert said in wrong.said
        home.client().greet()


@pytest.mark.parametrize(("words", "variables"), [(("--alone",), {}), ((), {"MCPPROXY_SHARED": "false"})])
def test_who_wants_a_gateway_alone_has_one(home: Home, words: tuple[str, ...], variables: dict[str, str]) -> None:
    """Without a word."""
    client = home.client(*words, env=home.environment(**variables))
    client.greet()
    client.where("placed")
    assert home.gateways() == []
    assert "gateway of its own" not in client.said
    assert client.leave() == 0


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_a_client_in_a_sandbox_says_so_and_stays_alone(home: Home) -> None:
    """A gateway outside of it would be a way out."""
    client = home.client(before=("setpriv", "--no-new-privs"))
    client.greet()
    assert "sandbox (no new privileges)" in client.said
    assert home.gateways() == []
    assert client.leave() == 0


def test_variables_of_shared_servers_have_one_value(home: Home) -> None:
    """One that the gateway lacks comes from the client that has it; another value is another gateway."""
    home.serve(placed=placed_server(env={"TOKEN": "${WORD}"}))
    without = home.client()
    without.greet()
    having = home.client(env=home.environment(WORD="one", SECRET="two"))
    having.greet()
    assert having.where("placed")["token"] == without.where("placed")["token"] == "one"
    assert "SECRET" not in having.where("placed")["environ"]
    other = home.client(env=home.environment(WORD="three"))
    other.greet()
    assert other.where("placed")["token"] == "three"
    assert "the variable WORD" in other.said
    (gateway,) = home.gateways()
    assert b"SECRET" not in Path(f"/proc/{gateway}/environ").read_bytes()
    assert other.leave() == 0


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
    before = len(home.servers())
    assert one.leave() == 0
    wait_for(lambda: len(home.servers()) == before - 2)


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


def test_projects_with_a_server_file_each_share_nothing(home: Home) -> None:
    """Neither a gateway nor a variable; each server runs in its project's folder."""
    found = []
    for name in ("a", "b"):
        folder = home.folder / name
        folder.mkdir()
        entry = placed_server("${workspaceFolder}", env={"TOKEN": f"${{WORD_{name}}}"})
        (folder / "mcp_config.json").write_text(json.dumps({"mcpServers": {"placed": entry}}))
        client = home.client(cwd=folder, env=home.environment(**{f"WORD_{name}": name}))
        client.greet()
        found.append(client.where("placed"))
        assert found[-1]["words"] == [str(folder)]
    assert [each["token"] for each in found] == ["a", "b"]
    assert [each["folder"] for each in found] == [str(home.folder / "a"), str(home.folder / "b")]
    assert len(home.gateways()) == 2


def test_the_gateway_takes_nothing_of_the_client_that_starts_it(home: Home) -> None:
    """Not its session, folder, files, umask, limits, ignored signals or variables."""
    project = home.folder / "project"
    project.mkdir()
    before = ("sh", "-c", "umask 077; trap '' HUP TERM; ulimit -S -n 200; exec 9</dev/null; exec \"$@\"", "sh")
    client = home.client(cwd=project, env=home.environment(SECRET="word"), before=before, close_fds=False)
    client.greet()
    client.where("placed")
    (gateway,) = home.gateways()
    place = Path(f"/proc/{gateway}")
    assert os.getsid(gateway) != os.getsid(client.process.pid)
    assert os.getpgid(gateway) != os.getpgid(client.process.pid)
    assert os.readlink(place / "cwd") == str(home.folder)
    assert b"SECRET" not in (place / "environ").read_bytes()
    status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
    assert int(status["Umask"], 8) == 0o022
    assert int(status["SigIgn"], 16) & 1 == 0  # SIGHUP
    files = {os.readlink(file) for file in (place / "fd").iterdir() if int(file.name) < 3}
    assert files == {"/dev/null", str(home.data / "run" / "background.log")} or "background.log" in "".join(files)
    limit = next(line for line in (place / "limits").read_text().splitlines() if "open files" in line).split()
    assert int(limit[3]) > 200
    client.kill()
    assert home.gateways() == [gateway]


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


@pytest.mark.parametrize("signal_name", ["SIGTERM", "SIGINT"])
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


def test_a_socket_left_behind_and_a_long_path_are_no_hindrance(tmp_path: Path) -> None:
    """A data directory whose path is too long for a socket has a short folder for it, of this user's alone."""
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    home = Home(folder)
    try:
        for _ in range(2):
            client = home.client()
            client.greet()
            client.where("placed")
            (gateway,) = home.gateways()
            assert home.run("status").returncode == 0
            client.kill()
            os.kill(gateway, 9)
            wait_for(lambda: not home.gateways())
    finally:
        home.close()


def test_a_server_file_that_cannot_be_read_is_told_by_each_client(home: Home) -> None:
    """No gateway stays in the background."""
    (home.data / "mcp_config.json").write_text("{")
    client: Client = home.client()
    assert client.process.wait(LIMIT_S) == 2
    assert "mcp_config.json" in client.said
    wait_for(lambda: not home.gateways())


def test_nonsense_at_the_socket_is_closed_and_harms_nobody(home: Home) -> None:
    """Garbage, half lines, endless ones, deep ones; and connections that say nothing."""
    client = home.client()
    client.greet()
    client.where("placed")
    (path,) = Path(sockets_folder(str(home.data))).glob("join-*.sock")
    wrong = {"version": 1, "pid": "x", "directory": 5, "source": None, "profile": [], "settings": {"A": 5}}
    nonsense = [
        b"garbage\n",
        b"{}\n",
        b'{"join": []}\n',
        b"\0\n",
        b"[1]\n",
        json.dumps({"join": wrong}).encode() + b"\n",
    ]
    silent = [socket.socket(socket.AF_UNIX) for _ in range(50)]
    for each in silent:
        each.connect(str(path))
    for said in [*nonsense, b'{"join": ' + b"[" * 100_000 + b"\n", b"x" * 2_000_000]:
        with socket.socket(socket.AF_UNIX) as link, suppress(BrokenPipeError, ConnectionResetError):
            link.settimeout(LIMIT_S)
            link.connect(str(path))
            link.sendall(said)
            assert link.recv(1_000) == b""
    assert client.search()["result"].get("isError") is not True
    for each in silent:
        each.close()
    assert "Traceback" not in (home.data / "run" / "background.log").read_text()

"""`init`: the servers of all clients in one table, and those that the user keeps in the server file."""

import json
import os
import time
from pathlib import Path

import pytest
from cli_runs import Run, run_process

from smart_mcp_proxy.errors import ConfigError

SECRET = "s3cret-value"


@pytest.fixture
def clients(home: Path) -> Path:
    """Cursor, VS Code and a project that is checked out, with six servers."""
    write(home / "home/.cursor/mcp.json", gh={"command": "gh", "env": {"TOKEN": SECRET}}, db={"command": "db"})
    inputs = [{"id": "key", "type": "promptString", "description": "Key of the service", "password": True}]
    servers = {
        "svc": {"type": "http", "url": "https://svc.example/mcp", "headers": {"X-Key": "${input:key}"}},
        "gh": {"command": "gh", "env": {"TOKEN": SECRET}},
        "db": {"command": "another-db"},
    }
    file = home / "home/.config/Code/User/mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"inputs": inputs, "servers": servers}))
    (file.parent / "vars.env").write_text(f"# secrets\nexport A='{SECRET}'\nB=two\n")
    write(home / ".mcp.json", stranger={"command": "sh", "args": ["-c", "x"], "envFile": "/etc/passwd"})
    return home


def write(file: Path, **servers: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"mcpServers": servers}))


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The keyring, in memory."""
    stored: dict[str, str] = {}
    monkeypatch.setattr("smart_mcp_proxy.secrets.keyring_edge.store_secret", stored.__setitem__)
    monkeypatch.setattr("smart_mcp_proxy.secrets.keyring_edge.read_keyring_secret", stored.get)
    return stored


def server_file(home: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((home / "data/mcp_config.json").read_text())["mcpServers"]
    return found


def test_everything_is_shown_and_nothing_done(run: Run, clients: Path) -> None:
    """One row a server, the same of two clients in one; no value of any entry."""
    for words in (["init", "--dry-run"], ["init", "--dry-run", "--json"], ["init", "--json"]):
        done = run(*words)
        assert done.status == 0
        assert SECRET not in done.out + done.err
        assert not (clients / "data/mcp_config.json").exists()
    standing = {(one["name"], *one["from"]): one["standing"] for one in done.json["servers"]}
    assert standing == {
        ("stranger", "Claude Code, this project"): "project",
        ("gh", "Cursor", "VS Code"): "new",
        ("db", "Cursor"): "new",
        ("svc", "VS Code"): "new",
        ("db", "VS Code"): "differs",
    }
    shown = run("init", "--dry-run")
    assert "a value: Key of the service" in shown.out and "not the same as that of Cursor" in shown.out
    assert "3 servers can be taken over, and 2 only by name or number." in shown.err


def test_what_is_known_of_a_server_is_remarked(home: Path, run: Run) -> None:
    """It may be why it never worked in its client."""
    write(
        home / "home/.cursor/mcp.json", brave={"command": "npx", "args": ["@modelcontextprotocol/server-brave-search"]}
    )
    (row,) = run("init", "--dry-run", "--json").json["servers"]
    assert row["remark"] == "It is known to need BRAVE_API_KEY in its environment."


def test_yes_takes_what_is_the_users_own(run: Run, clients: Path, keyring: dict[str, str]) -> None:
    """Not the project's; what has to be asked for is named; a second time there is nothing new."""
    done = run("init", "--yes")
    assert done.status == 0 and SECRET not in done.out + done.err
    assert list(server_file(clients)) == ["gh", "db", "svc"]
    assert server_file(clients)["svc"]["headers"] == {"X-Key": "${keyring:svc-key}"}
    assert "keyring set mcpproxy svc-key" in done.err
    again = run("init", "--yes", "--json")
    assert again.json["added"] == []
    assert {one["name"]: one["standing"] for one in again.json["servers"]}["gh"] == "present"
    assert keyring == {}


def test_a_choice_takes_the_project_into_quarantine(
    run: Run, clients: Path, keyring: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By number; what is asked for is stored in the keyring and shown nowhere; a stranger's envFile is not read."""
    monkeypatch.setattr("getpass.getpass", lambda prompt, stream: SECRET)
    done = run("init", stdin="1 4\n", at_terminal=True)
    assert done.status == 0 and SECRET not in done.out + done.err
    assert keyring == {"svc-key": SECRET}
    assert server_file(clients) == {
        "stranger": {"command": "sh", "args": ["-c", "x"], "quarantined": True, "allow": {}},
        "svc": {"url": "https://svc.example/mcp", "type": "http", "headers": {"X-Key": "${keyring:svc-key}"}},
    }
    assert "server approve" in done.err and "'envFile', which is not read here" in done.out


@pytest.mark.parametrize(
    ("answer", "names"), [("\n", ["gh", "db", "svc"]), ("all\n", ["gh", "db", "svc"]), ("2-3\n", ["gh", "db"])]
)
def test_answers(run: Run, clients: Path, keyring: dict[str, str], answer: str, names: list[str]) -> None:
    """Return alone takes all that are the user's own."""
    keyring["svc-key"] = "there already"
    assert run("init", stdin=answer, at_terminal=True).status == 0
    assert list(server_file(clients)) == names


@pytest.mark.parametrize(
    ("answer", "said"), [("none\n", "Nothing is changed"), ("", "Nothing is changed"), ("9\n", "1 to 5")]
)
def test_answers_that_take_nothing(run: Run, clients: Path, answer: str, said: str) -> None:
    """The end of the input is a no."""
    done = run("init", stdin=answer, at_terminal=True)
    assert done.status != 0 and said in done.err
    assert not (clients / "data/mcp_config.json").exists()


def test_without_a_terminal_it_asks_for_yes(run: Run, clients: Path) -> None:
    """Nothing is taken by accident."""
    done = run("init")
    assert done.status == 2 and done.next_command == "mcpproxy init --yes"


def test_a_file_of_variables_goes_into_the_keyring(run: Run, clients: Path, keyring: dict[str, str]) -> None:
    """The user's own only; its values are shown nowhere."""
    file = clients / "home/.config/Code/User/mcp.json"
    file.write_text(json.dumps({"servers": {"v": {"command": "v", "envFile": "vars.env"}}}))
    done = run("init", "--yes")
    assert SECRET not in done.out + done.err
    assert keyring == {"v-A": SECRET, "v-B": "two"}
    assert server_file(clients)["v"] == {"command": "v", "env": {"A": "${keyring:v-A}", "B": "${keyring:v-B}"}}


@pytest.fixture
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without a keyring."""

    def missing(*_: str) -> None:
        raise ConfigError("The keyring cannot be asked: NoKeyringError.", hint="Unlock it.")

    monkeypatch.setattr("smart_mcp_proxy.secrets.keyring_edge.read_keyring_secret", missing)
    monkeypatch.setattr("smart_mcp_proxy.secrets.keyring_edge.store_secret", missing)


@pytest.mark.usefixtures("no_keyring")
def test_without_a_keyring_nobody_is_asked_by_yes(run: Run, clients: Path) -> None:
    """What has no value becomes a variable, which is named; a value of a client's file goes into one of ours."""
    done = run("init", "--yes")
    assert done.status == 0 and "svc-key stays a variable" in done.err and "SVC_KEY" in done.err
    assert server_file(clients)["svc"]["headers"] == {"X-Key": "${SVC_KEY}"}
    write(clients / "home/.cursor/mcp.json", v={"command": "v", "envFile": "vars.env"})
    (clients / "home/.cursor/vars.env").write_text(f"A={SECRET}\n")
    assert run("init", "--yes").status == 0
    file = clients / "data/secrets/v-A"
    assert server_file(clients)["v"] == {"command": "v", "env": {"A": f"${{file:{file}}}"}}
    assert file.read_text() == SECRET
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]


@pytest.mark.usefixtures("no_keyring")
@pytest.mark.parametrize(
    ("answer", "typed", "reference"),
    [("y", SECRET, "${file:FOLDER/svc-key}"), ("n", SECRET, "${SVC_KEY}"), ("y", "", "${SVC_KEY}")],
    ids=["file", "variable", "not-now"],
)
def test_without_a_keyring_one_question_decides(
    run: Run, clients: Path, monkeypatch: pytest.MonkeyPatch, answer: str, typed: str, reference: str
) -> None:
    """A file of mode 0600, or a variable; the value is shown nowhere."""
    monkeypatch.setattr("getpass.getpass", lambda prompt, stream: typed)
    done = run("init", stdin=f"svc\n{answer}\n", at_terminal=True)
    assert done.status == 0 and SECRET not in done.out + done.err
    folder = clients / "data/secrets"
    assert server_file(clients)["svc"]["headers"] == {"X-Key": reference.replace("FOLDER", str(folder))}
    kept = [file.read_text() for file in folder.glob("*")] if folder.exists() else []
    assert kept == ([SECRET] if "file:" in reference else [])


@pytest.fixture
def scoped(home: Path, keyring: dict[str, str]) -> Path:
    """Servers of a folder and of the client's folder, and a twin that lacks its variable before one that has it."""
    files = {"command": "files", "args": ["${workspaceFolder}"]}
    write(home / "home/.cursor/mcp.json", files=files, gh={"command": "gh", "env": {"T": "${NOT_SET_HERE}"}})
    (home / "home/.claude.json").write_text(
        json.dumps({"projects": {"/work/shop": {"mcpServers": {"postgres": {"command": "pg"}}}}})
    )
    vscode = home / "home/.config/Code/User/mcp.json"
    vscode.parent.mkdir(parents=True)
    vscode.write_text(json.dumps({"servers": {"gh": {"command": "gh", "env": {"T": "set"}}}}))
    return home


@pytest.mark.parametrize("words", [["--yes"], []], ids=["yes", "return"])
def test_folders_and_projects_are_left_out_by_default(run: Run, scoped: Path, words: list[str]) -> None:
    """Each with the reason and the command that adds it; of twins the one that has its values is taken."""
    done = run("init", *words, stdin="\n", at_terminal=True)
    assert done.status == 0
    assert server_file(scoped) == {"gh": {"command": "gh", "env": {"T": "set"}}}
    left = [line for line in done.err.splitlines() if line.startswith("Left out: ")]
    assert [line.split()[2] for line in left] == ["postgres", "files", "gh"]
    assert "of a project" in left[0] and left[0].endswith("Add it: mcpproxy init postgres")
    assert "the folder that its client is in" in left[1] and left[1].endswith("Add it: mcpproxy init files")
    assert "not the same as that of VS Code" in left[2]
    assert left[2].endswith("Add it: mcpproxy server remove gh && mcpproxy init 'gh of Cursor'")
    assert run("init", "postgres").status == 0 and run("init", "files").status == 0
    assert server_file(scoped)["postgres"]["quarantined"] is True
    assert server_file(scoped)["files"]["args"] == ["${workspaceFolder}"]
    assert run("server", "remove", "gh").status == 0 and run("init", "gh of Cursor").status == 0
    assert server_file(scoped)["gh"]["env"] == {"T": "${NOT_SET_HERE}"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gh"], "2 of these servers have one name, 'gh': take 3 or 4."),
        (["nothing"], "No server that can be taken over is called 'nothing'."),
        (["files", "9"], "'9' is not one of the numbers 1 to 4."),
        (["--yes", "files"], "Servers are named, and --yes is given."),
    ],
)
def test_words_that_name_no_one_server(run: Run, scoped: Path, words: list[str], said: str) -> None:
    """Nothing is changed, and the numbers are one command away."""
    done = run("init", *words)
    assert done.status == 2 and said in done.err
    assert not (scoped / "data/mcp_config.json").exists()


def test_a_broken_file_hides_no_other(run: Run, clients: Path) -> None:
    """It is named, with the place, and none of its content."""
    (clients / "home/.codex").mkdir()
    (clients / "home/.codex/config.toml").write_text(f'a = "{SECRET}\n')
    done = run("init", "--dry-run")
    assert done.status == 0 and "Codex: " in done.err and "line 1" in done.err
    assert SECRET not in done.out + done.err and "svc" in done.out


def test_an_entry_that_is_no_server_is_named(run: Run, clients: Path) -> None:
    """With the file, and none of its content; what only switches a server of the client's own on is none to name."""
    write(clients / "home/.cursor/mcp.json", text=SECRET, odd={"command": {"x": SECRET}}, off={"enabled": False})
    done = run("init", "--dry-run")
    named = [
        line
        for line in done.err.splitlines()
        if "has no program and no address, so it is left out. Correct it." in line
    ]
    assert ["'text'" in named[0], "'odd'" in named[1], len(named)] == [True, True, 2]
    assert SECRET not in done.out + done.err


def test_nobody_to_ask_and_nothing_to_find(run: Run) -> None:
    """An empty home is no error."""
    done = run("init")
    assert done.status == 0 and "nothing new" in done.err


def test_the_overview_and_the_doctor_notice(run: Run, clients: Path) -> None:
    """Both name how many servers there are, and the file of the project."""
    overview = run(at_terminal=True).out
    assert "3 servers of your clients are not here (Cursor 2, VS Code 1)" in overview
    assert str(clients / ".mcp.json") in overview and "mcpproxy init" in overview
    checks = [one for one in run("doctor", "--json").json["checks"] if one["check"] == "clients"]
    assert [one["outcome"] for one in checks] == ["ok", "ok"]
    assert "3 servers" in checks[0]["message"] and "stranger" in checks[1]["message"]


STORY = (("init", "--yes"), ("connect", "--all", "--move", "--write"))


@pytest.mark.parametrize("is_timed", [False, pytest.param(True, marks=pytest.mark.long)], ids=["story", "timed"])
def test_three_clients_and_twelve_servers_take_two_commands(
    run: Run, home: Path, is_timed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file is edited by hand; each client keeps our entry alone, and gets its own back in the end.

    Timed, each command is a process of its own, and shown with the seconds that it took.
    """
    files = {
        home / "home/.cursor/mcp.json": "mcpServers",
        home / "home/.config/Code/User/mcp.json": "servers",
        home / "home/.claude.json": "mcpServers",
    }
    for number, (file, section) in enumerate(files.items()):
        file.parent.mkdir(parents=True, exist_ok=True)
        servers = {f"s{number}{each}": {"command": "run", "args": [str(each)]} for each in range(4)}
        file.write_text(json.dumps({section: servers}, indent=4))
    before = {file: file.read_bytes() for file in files}
    for words in STORY:
        begun_s = time.monotonic()
        done = run_process(*words, cwd=home, env=os.environ) if is_timed else run(*words)
        assert done.status == 0, done.err
        if is_timed:
            with capsys.disabled():
                print(f"\n{time.monotonic() - begun_s:5.2f} s  mcpproxy {' '.join(words)}")
    assert len(server_file(home)) == 12
    for file, section in files.items():
        assert list(json.loads(file.read_text())[section]) == ["mcpproxy"]
    assert run("disconnect", "--all").status == 0
    assert {file: file.read_bytes() for file in files} == before

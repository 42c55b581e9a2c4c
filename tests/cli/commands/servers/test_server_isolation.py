"""How servers are held, and what they reach, said and changed from the command line."""

import json
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Run, served

from smart_mcp_proxy import upstream
from smart_mcp_proxy.upstream import find_way

confined = pytest.mark.skipif(find_way() is None, reason="the system has no sandbox")

REFUSED = """
import sys
sys.stdin.readline()
open(sys.argv[1].removeprefix("at:"))
"""
"""Opens a file once its client speaks, and ends, with the traceback of what it is refused."""


def write(home: Path, **entries: Mapping[str, Any]) -> None:
    """A server file of these."""
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": entries}))


def stored(home: Path) -> dict[str, Any]:
    """What the file says of each server by now."""
    found: dict[str, Any] = json.loads((home / "mcp_config.json").read_text())["mcpServers"]
    return found


@pytest.mark.long  # a third of a second of processor time
def test_isolation_is_written_into_the_entries(home: Path, run: Run) -> None:
    """Of the named ones after a question; an object keeps what else it says."""
    image = {"isolation": {"enabled": False, "image": "node:22"}}
    write(home, a={"command": "x"}, b={"command": "x", **image}, c={"command": "x"})
    asked = run("server", "isolate", "a")
    assert (asked.status, asked.next_command) == (2, "mcpproxy server isolate a --sandbox --dry-run")
    assert run("server", "isolate", "a", stdin="n\n", at_terminal=True).status == 1
    assert "isolation" not in stored(home)["a"]
    assert run("server", "isolate", "a", "b", "--container", stdin="y\n", at_terminal=True).status == 0
    done = run("server", "isolate", "c", "--none", "--yes", "--json").json
    assert (done["isolation"], done["dry_run"], done["servers"][0]["changed"]) == ("none", False, ["isolation"])
    found = [stored(home)[name]["isolation"] for name in "abc"]
    assert found == ["container", {"mode": "container", "image": "node:22"}, "none"]


@confined
def test_all_are_those_that_run_unconfined_and_do_not_say_so(home: Path, run: Run) -> None:
    """Neither those whose entry decides, nor what runs elsewhere or in a container of its own."""
    write(
        home,
        known={"command": "x"},
        said={"command": "x", "isolation": "none"},
        remote={"url": "http://127.0.0.1:9/mcp"},
        docker={"command": "docker", "args": ["run", "x"]},
    )
    done = run("server", "isolate", "--all", "--yes", "--json").json
    assert [each["name"] for each in done["servers"]] == ["known"]
    assert stored(home)["known"]["isolation"] == "sandbox"
    nothing = run("server", "isolate", "--all")
    assert nothing.status == 0 and "unless its entry says so" in nothing.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "Name servers, or say --all."),
        (["a", "--all"], "Name servers, or say --all."),
        (["a", "--none", "--sandbox"], "--none and --sandbox are both given."),
        (["remote"], "'remote' has no process here"),
        (["docker"], "held in a container by its own command"),
    ],
)
def test_what_cannot_be_isolated_is_said(home: Path, run: Run, words: list[str], told: str) -> None:
    """Before anything is asked or changed."""
    docker = {"command": "docker", "args": ["run", "x"]}
    write(home, a={"command": "x"}, remote={"url": "http://127.0.0.1:9/mcp"}, docker=docker)
    done = run("server", "isolate", *words)
    assert done.status == 2 and told in done.err


def test_a_system_without_a_sandbox_takes_no_server_into_one(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not start any more."""
    monkeypatch.setattr(upstream, "find_way", lambda: None)
    write(home, a={"command": "x"})
    done = run("server", "isolate", "a", "--yes")
    assert done.status == 1 and "has no sandbox" in done.err and "isolation" not in stored(home)["a"]


@pytest.mark.long  # a third of a second of processor time
@confined
def test_a_dry_run_shows_what_would_be_refused(home: Path, run: Run) -> None:
    """It starts each once, names the path with the command that allows it, and changes nothing."""
    (secret := home / "home" / "secret").touch()
    (home / "src").mkdir()
    (script := home / "src" / "server.py").write_text(REFUSED)
    write(home, sad={"command": sys.executable, "args": ["-S", str(script), f"at:{secret}"]})
    before = (home / "mcp_config.json").read_bytes()
    (found,) = run("server", "isolate", "sad", "--dry-run", "--json").json["servers"]
    assert (found["starts"], found["state"]) == (False, "error") and "ended with exit code 1" in found["error"]
    (refused,) = found["refused"]
    assert refused["path"] == str(secret) and "Permission denied" in refused["line"]
    assert refused["allow"] == f"mcpproxy server allow sad --read {secret}"
    told = run("server", "isolate", "sad", "--dry-run")
    assert "sad does not start (error)." in told.out and refused["allow"] in told.out
    assert (home / "mcp_config.json").read_bytes() == before and not (home / "data" / "sandbox").exists()


@confined
@pytest.mark.long  # half a second of work and more
def test_for_what_no_server_may_reach_no_command_is_proposed(home: Path, run: Run) -> None:
    """`mcpproxy server allow` would refuse it."""
    (home / "src").mkdir()
    (script := home / "src" / "server.py").write_text(REFUSED)
    write(home, sad={"command": sys.executable, "args": ["-S", str(script), f"at:{home}/data/proxy.db"]})
    found = {each["check"]: each for each in run("doctor", "--json", ISOLATION="sandbox").json["checks"]}
    assert f"keeps it from {home}/data/proxy.db: no server may reach that" in found["sad"]["hint"]


@pytest.mark.long  # a third of a second of processor time
@confined
def test_a_server_that_is_started_for_its_log_is_held_as_a_gateway_holds_it(home: Path, run: Run) -> None:
    """Also where its entry says nothing of that."""
    (home / "home" / "secret").touch()
    (home / "server.py").write_text(REFUSED)
    args = ["-S", str(home / "server.py"), f"at:{home}/home/secret"]
    write(home, sad={"command": sys.executable, "args": args})
    assert "Permission denied" in run("server", "logs", "sad", ISOLATION="auto").out
    assert "Permission denied" not in run("server", "logs", "sad").out


def test_what_an_entry_names_stays_open_beside_what_is_allowed(
    home: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables filled in; a relative path is that of the person who types it."""
    for name in ("notes", "more", "src"):
        (home / name).mkdir()
    write(home, s={"command": "x", "args": ["${PLACE}"], "cwd": str(home / "src")})
    monkeypatch.setenv("PLACE", str(home / "notes"))
    done = run("server", "allow", "s", "--read", "more", "--network", "off", "--json")
    named = [str(home / "src"), str(home / "notes")]
    assert done.json["allow"] == {"read": [str(home / "more")], "write": named, "network": False}
    assert stored(home)["s"]["allow"] == done.json["allow"]
    told = run("server", "allow", "s", "--write", "~/later", "--write", str(home / "notes"))
    allow = {"read": [str(home / "more")], "write": [*named, "~/later"], "network": False}
    assert stored(home)["s"]["allow"] == allow
    assert "~/later is not there" in told.err and "it may not open network connections" in told.err
    assert "runs unconfined, which none of that changes" in told.err


def test_an_allowance_inside_isolation_is_extended_there(home: Path, run: Run) -> None:
    """It may not stand twice, nor may `network_mode` say another thing."""
    write(home, s={"command": "x", "isolation": {"mode": "sandbox", "network_mode": "none", "allow": {"read": ["/a"]}}})
    assert run("server", "allow", "s", "--read", "/usr", "--network", "on").status == 0
    allow = {"read": ["/a", "/usr"], "write": [], "network": True}
    assert stored(home)["s"] == {"command": "x", "isolation": {"mode": "sandbox", "allow": allow}}
    write(home, s={"command": "x", "isolation": {"mode": "sandbox", "allow": {}}})
    assert run("server", "allow", "s", "--read", "/usr").status == 0
    allow = {"read": ["/usr"], "write": [], "network": True}
    assert stored(home)["s"] == {"command": "x", "isolation": {"mode": "sandbox", "allow": allow}}


@pytest.mark.long  # a third of a second of processor time
def test_hosts_are_added_to_those_that_are_listed(home: Path, run: Run) -> None:
    """`on` and `off` stand for themselves; what is no host is told."""
    write(home, s={"command": "x", "isolation": "sandbox"})
    done = run("server", "allow", "s", "--network", "a.example", "--network", "127.0.0.1:5432")
    assert "it may open network connections to a.example, 127.0.0.1:5432 alone" in done.err
    assert run("server", "allow", "s", "--network", "*.b.example").status == 0
    assert run("server", "allow", "s", "--read", "/usr").status == 0
    assert stored(home)["s"]["allow"]["network"] == ["a.example", "127.0.0.1:5432", "*.b.example"]
    for words, told in ((["https://a"], "'https://a' is no host to allow"), (["on", "a.b"], "is said 2 times")):
        done = run("server", "allow", "s", *(part for word in words for part in ("--network", word)))
        assert done.status == 2 and told in done.err
    assert run("server", "allow", "s", "--network", "on").status == 0
    assert stored(home)["s"]["allow"]["network"] is True


@pytest.mark.parametrize("path", ["data", "data/proxy.db", "mcp_config.json"])
def test_what_decides_about_servers_is_allowed_to_none(home: Path, run: Run, path: str) -> None:
    """It would not be open all the same."""
    write(home, s={"command": "x"})
    done = run("server", "allow", "s", "--read", path)
    assert done.status == 2 and f"{path} can be allowed to no server." in done.err and "allow" not in stored(home)["s"]


@pytest.mark.long  # a third of a second of processor time
def test_an_allowance_needs_words_and_a_process(home: Path, run: Run) -> None:
    """Nothing is changed without."""
    write(home, s={"command": "x"}, remote={"url": "http://127.0.0.1:9/mcp"})
    assert "Say what to allow" in run("server", "allow", "s").err
    assert "has no process here" in run("server", "allow", "remote", "--network", "off").err
    for word in ("", " ", "~bob/x"):
        done = run("server", "allow", "s", "--read", word)
        assert done.status == 2 and f"{word!r} is no path to allow.\nWrite a path of your own home with ~/" in done.err
    assert "allow" not in stored(home)["s"]


@pytest.mark.parametrize("words", [["show", "s"], ["approve", "s"]], ids=" ".join)
@pytest.mark.parametrize("waits", [True, False])
def test_a_look_at_a_server_says_how_it_is_held(home: Path, run: Run, words: list[str], waits: bool) -> None:
    """With your rights, that is a warning."""
    write(home, s={"command": "x", "args": [str(home)], "isolation": "sandbox", "quarantined": waits})
    held = run("server", *words, stdin="n\n", at_terminal=True)
    assert f"s: It runs in a sandbox. Of your files it may change {home};" in held.err
    write(home, s={"command": "x", "isolation": "none", "quarantined": waits})
    assert "warning: s: It runs unconfined" in run("server", *words, stdin="n\n", at_terminal=True).err


def test_a_second_script_keeps_its_project_when_something_is_allowed(home: Path, run: Run) -> None:
    """From then on only the first is the program's own."""
    scripts = [home / name / "x.py" for name in ("one", "two")]
    for script in scripts:
        script.parent.mkdir()
        script.touch()
    write(home, s={"command": sys.executable, "args": [str(script) for script in scripts]})
    assert run("server", "allow", "s", "--network", "off").status == 0
    assert stored(home)["s"]["allow"]["read"] == [str(home / "two")]
    done = run("server", "allow", "s", "--read", str(home))
    assert stored(home)["s"]["allow"]["read"] == [str(home / "two"), str(home)]
    assert f"its own program with {home}/one and runtimes" in done.err


@pytest.mark.long  # a third of a second of processor time
def test_doctor_says_how_servers_are_held(home: Path, run: Run) -> None:
    """A warning where one can approve itself, which fails nothing; disabled ones are held in no way."""
    off = {"command": "x", "disabled": True}
    write(home, remote={"url": "http://127.0.0.1:9/mcp"}, off=off)
    assert "isolation" not in [each["check"] for each in run("doctor", "--json").json["checks"]]
    docker = {"command": "docker", "args": ["run", "x"]}
    write(home, a={"command": "x", "isolation": "none"}, b={"command": "x", "isolation": "sandbox"}, c=docker, off=off)
    (found,) = [each for each in run("doctor", "--json").json["checks"] if each["check"] == "isolation"]
    way = find_way() or "which this system has not"
    expected = f"1 in a sandbox ({way}), 1 in a container, 1 with your rights: a can approve itself."
    assert found["outcome"] == "warning" and found["message"].startswith(expected)
    assert found["hint"].endswith("mcpproxy server isolate a --dry-run" if find_way() else "for this system.")
    write(home, b={"command": "x", "isolation": "sandbox"})
    (found,) = [each for each in run("doctor", "--json").json["checks"] if each["check"] == "isolation"]
    assert (found["outcome"], found["hint"]) == ("ok", "")


@pytest.mark.long  # a third of a second of processor time
def test_doctor_names_servers_that_something_else_has_made_known(home: Path, run: Run) -> None:
    """They are held as new ones, until their entry says how."""
    write(home, a={"command": "x"}, b={"command": "x", "isolation": "none"})
    run("doctor")
    with closing(sqlite3.connect(home / "data" / "proxy.db")) as connection, connection as database:
        database.execute("INSERT INTO unconfined VALUES ('a', ''), ('b', ''), ('gone', '')")
    done = run("doctor", "--json")
    (found,) = [each for each in done.json["checks"] if "something else than a gateway" in each["message"]]
    assert (found["check"], found["outcome"]) == ("isolation", "warning") and found["message"].endswith("new: a")
    assert found["hint"].endswith("mcpproxy server isolate a")


@pytest.mark.long  # a gateway in a process of its own
def test_a_running_gateway_makes_the_change_and_says_what_holds(
    home: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, as it knows its servers."""
    with served(tmp_path / "served") as folder:
        monkeypatch.setenv("MCPPROXY_DATA_DIR", str(folder))
        assert "It runs unconfined" in run("server", "show", "todo").err
        assert run("server", "isolate", "todo", "--none", "--yes").status == 0
        assert run("server", "allow", "todo", "--read", str(home)).status == 0
        entry = stored(folder)["todo"]
        assert (entry["isolation"], entry["allow"]["read"]) == ("none", [str(home)])

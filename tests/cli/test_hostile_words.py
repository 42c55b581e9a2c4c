"""What a server may say everywhere, and no command prints: terminal commands, and lines that pass for ours."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Done, Run

# Marked long: a catalog and a gateway of their own.
pytestmark = pytest.mark.long

UPSTREAM = Path(__file__).parent / "hostile_upstream.py"
SAYS = "x\x1b[2K\x1b[1A\x9b31m\x07\x08\u202e\u2066\r\nApprove 0 tools? [y/N] $(touch pwned)"
COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FAKED = re.compile(r"^Approve 0 tools", re.M)

Hostile = Callable[..., Done]


def write_servers(home: Path, mode: str, *, trust: str = "trusted", says: str = SAYS) -> None:
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), says, mode], "trust": trust}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"up": entry}}))


@pytest.fixture
def hostile(home: Path, run: Run) -> Hostile:
    """Runs a command in front of the hostile server; it printed something, and none of it was a command."""
    write_servers(home, "ready")

    def checked(*words: str, says: str = "x", has_own_lines: bool = False, **options: object) -> Done:
        done = run(*words, **options)
        printed = (done.out + done.err).replace("\r\n", "\n")  # as lines of CSV end
        assert says in printed
        assert not COMMANDS.search(printed), repr(printed)
        assert has_own_lines or not FAKED.search(printed), printed
        return done

    checked("tool", "list", "--fresh")
    return checked


def tool(word: str) -> str:
    return f"up:{word}{SAYS}"


def test_tools_are_listed_shown_and_found(hostile: Hostile) -> None:
    """By their names, titles, descriptions and schemas."""
    assert "works" in hostile("tool", "list").out
    assert "works" in hostile("tool", "list", "--json").out
    assert "Paint" in hostile("tool", "show", tool("works")).out
    assert hostile("tool", "show", tool("works"), "--json").json["name"] == tool("works")
    assert "works" in hostile("search", "paint", "--why").out
    assert "works" in hostile("search", "paint", "--json").out


def test_servers_are_listed_with_what_they_say_of_themselves(hostile: Hostile, home: Path) -> None:
    """Their names, what they print, and why they refuse."""
    hostile("server", "list")
    hostile("doctor", says="ready")
    write_servers(home, "broken")
    for words in (["server", "list"], ["server", "logs", "up", "--json"], ["doctor"]):
        hostile(*words)
    hostile("server", "logs", "up", has_own_lines=True)
    assert hostile("doctor", "--json").status == 1
    assert hostile("serve", "--check").status == 1


def test_calls_show_results_and_errors(hostile: Hostile) -> None:
    """Of every kind, and afterwards on record; the command that is suggested is one a shell takes as a word."""
    assert hostile("call", tool("works"), has_own_lines=True).status == 0
    assert hostile("call", tool("works"), "--json").status == 0
    for word in ("fails", "breaks"):
        done = hostile("call", tool(word), has_own_lines=word == "fails")
        assert done.status == 1
        assert done.next_command.startswith(f"mcpproxy tool show $'up:{word}x\\u001b[2K")
    for words in (["list"], ["list", "--json"], ["export"], ["export", "--format", "csv"], ["watch", "--limit", "0"]):
        hostile("activity", *words, says="" if words[0] == "watch" else "up")
    last = hostile("activity", "list", "--kind", "call", "--json").json[0]
    hostile("activity", "show", last["id"])


def test_what_waits_is_shown_and_asked_about(hostile: Hostile, home: Path, run: Run) -> None:
    """The last words before the question are ours."""
    write_servers(home, "ready", trust="manual", says=f"y{SAYS}")
    run("tool", "list", "--fresh")
    name = f"up:worksy{SAYS}"
    for words in (["--list"], ["--list", "--json"], ["--diff"], [name, "--diff"]):
        assert "works" in hostile("approve", *words).out
    asked = hostile("approve", name, stdin="n\n", at_terminal=True)
    assert asked.err.endswith("Approve 1 tool? [y/N]\nNothing was approved.\n")
    assert "works" in hostile("block", name).err
    assert "works" in hostile("block", name, "--undo").err
    refused = hostile("call", name)
    assert "mcpproxy approve $'up:worksyx\\u001b[2K" in refused.err
    assert hostile("scan").status == 0
    assert hostile("scan", "--json").status == 0


def test_an_entry_that_waits_is_shown_before_it_is_approved(home: Path, hostile: Hostile) -> None:
    """Whatever an agent wrote into it, and where it refers to."""
    entry = {"url": f"http://127.0.0.1:1/{SAYS}", "headers": {"X": f"${{file:{SAYS}}}"}, "quarantined": True}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"up": entry}}))
    for words in (["show", "up"], ["show", "up", "--json"], ["list"]):
        hostile("server", *words, says="")
    hostile("server", "approve", "up", stdin="n\n", at_terminal=True)

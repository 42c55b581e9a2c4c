"""Typical mistakes: each is named in words, with the next command to type, and with nothing but that."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Done, Run, some_servers
from fixed_http import answering

COMMAND = re.compile(r"mcpproxy |journalctl |launchctl ")


def entry(**keys: Any) -> dict[str, Any]:
    """A server file with one entry, `s`."""
    return {"mcpServers": {"s": keys}}


def said(done: Done, words: str, status: int) -> None:
    """What every failure has: a status, words, no traceback, and a command on the last line."""
    assert (done.status, words in done.err) == (status, True), done.err
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("Next: ")
    assert COMMAND.match(done.next_command), done.err


WORDS = [
    # typed out of habit, or by guess
    (["list"], "Did you mean 'server list'?", "mcpproxy server list"),
    (["logs", "github"], "Did you mean 'server logs github'?", "mcpproxy server logs github"),
    (["add", "time"], "Did you mean", "mcpproxy server add time -- COMMAND"),
    (["remove", "time"], "Did you mean", "mcpproxy server remove time"),
    (["start"], "Did you mean", "mcpproxy serve --http"),
    (["serv"], "Did you mean 'serve'?", "mcpproxy serve"),
    (["version"], "Did you mean", "mcpproxy --version"),
    (["tools"], "Did you mean", "mcpproxy tool list"),
    (["ls"], "Did you mean 'server list'?", "mcpproxy server list"),
    (["shutdown"], "Did you mean 'stop'?", "mcpproxy stop"),
    (["upgrade"], "It is upgraded by what installed it: ", "mcpproxy --version"),
    (["frobnicate"], "Unknown command", "mcpproxy --help"),
    (["setup"], "Did you mean 'init'?", "mcpproxy init"),
    (["help", "connect"], "Did you mean", "mcpproxy connect --help"),
    (["-v"], "There is no command '-v'", "mcpproxy --version"),
    (["--config", "my file.json", "serve"], "Did you mean", "mcpproxy serve --config 'my file.json'"),
    (["server", "ls"], "Did you mean 'server list'?", "mcpproxy server list"),
    (["server", "delete", "my server"], "Did you mean", "mcpproxy server remove 'my server'"),
    (["token", "rm", "ci"], "Did you mean", "mcpproxy token revoke ci"),
    (["service", "start"], "Did you mean", "mcpproxy service install"),
    (["resources"], "Unknown command", "mcpproxy --help"),  # not `data restore`
    (["init", "cursor"], "No server that can be taken over is called 'cursor'.", "mcpproxy init --dry-run"),
    (["doctor", "cursor"], "cursor is more than this command takes", "mcpproxy doctor --help"),
    (["server", "add", "github"], "a command or an address", "mcpproxy server add --help"),
    (["connect", "claude"], "Did you mean claude-code?", "mcpproxy connect"),
    # of mcpproxy-go
    (["upstream", "list"], "Did you mean", "mcpproxy server list"),
    (["upstream", "inspect", "x y"], "Did you mean", "mcpproxy server show 'x y'"),
    (
        ["call", "tool-read", "--tool-name=todo:list_tasks", '--json_args={"state":"open"}'],
        "There is no command 'call tool-read'",
        """mcpproxy call todo:list_tasks --input-json '{"state":"open"}'""",
    ),
    (["auth", "login", "--server=notion"], "Did you mean", "mcpproxy login notion"),
    (["secrets", "list"], "Did you mean", "mcpproxy config show"),
    # options
    (["serve", "--prot", "9000"], "--port", "mcpproxy serve --help"),
    (["serve", "--port", "eighty"], '"eighty"', "mcpproxy serve --help"),
    (["server", "list", "--output", "json"], "--output", "mcpproxy server list --json"),
    (["server", "show", "my server", "--format=json"], "--format", "mcpproxy server show 'my server' --json"),
    (["tool", "list", "-o", "yaml"], "-o", "mcpproxy tool list --json"),
    (["doctor", "-ojson"], "-ojson", "mcpproxy doctor --json"),
    (["--output", "json", "server", "list"], "Did you mean", "mcpproxy server list --json"),
    (["tool", "list", "-o", "json", "--", "-o", "x"], "-o", "mcpproxy tool list --json -- -o x"),
    (["serve", "--verbose", "-o", "json"], "--verbose", "mcpproxy serve --help"),
    (["activity", "export", "--format", "json"], "jsonl", "mcpproxy activity export --help"),
    (["tool", "lst"], 'Did you mean "list"?', "mcpproxy tool --help"),
    (["search"], "QUERY", "mcpproxy search --help"),
    (["server", "add", "https://h.example/mcp"], "add NAME --url https://h.example/mcp", "mcpproxy server add --help"),
    (["--http", "--port", "0"], "Did you mean 'serve --http --port 0'?", "mcpproxy serve --http --port 0"),
    (["server", "add", "x", "https://h.example/mcp"], "is an address", "mcpproxy server add --help"),
    (["server", "add", "x", "--url", "https://h.example", "--header", "Bearer abc"], "is not a header", ""),
    (["server", "add", "x", "--output", "json", "--", "y"], "no option '--output'", "mcpproxy server add --help"),
    (["call", "todo:add_task", "Milk"], "is not an argument", "mcpproxy call --help"),
    (["completion", "tcsh"], '"tcsh"', "mcpproxy completion --help"),
]


def test_whatever_serve_takes_leads_to_it_without_the_command(run: Run) -> None:
    """All of its options but `--json`, which other commands have as well."""
    taken = set(re.findall(r"│ (--[a-z]+) ", run("serve", "--help").out)) - {"--json"}
    assert len(taken) >= 9
    assert {option: run(option).next_command for option in taken} == {each: f"mcpproxy serve {each}" for each in taken}


@pytest.mark.parametrize(("words", "expected", "helps"), WORDS, ids=lambda value: " ".join(value)[:40])
def test_words_that_are_none_of_ours(home: Path, run: Run, words: list[str], expected: str, helps: str) -> None:
    """Exit status 2, and the command that does it here."""
    done = run(*words)
    said(done, expected, 2)
    assert not helps or done.next_command == helps


FILES = [
    ("{'mcpServers': {}}", "line 1, column 2"),
    ('{"mcpServers": {"s": {"command": "x"}', "line 1"),
    ("mcpServers:\n  s: {}\n", "line 1"),
    ("", "mcp_config.json"),
    (json.dumps({"mcpServers": [1]}), "Entry 1 of the list"),
    (json.dumps(entry(command="x") | {"read_only_mode": True}), "MCPPROXY_READ_ONLY=true"),
]
ENTRIES = [
    (json.dumps(entry(cmd="uvx")), "neither 'command' nor 'url'"),
    (json.dumps(entry(command="x", url="https://h.example/mcp")), "both 'command' and 'url'"),
    (json.dumps(entry(command="x", args="-y pkg")), "'args' is text"),
    (json.dumps(entry(command="x", env=["A=1"])), "'env' is a list"),
    (json.dumps(entry(url="h.example/mcp")), "not an http or https address"),
    (json.dumps(entry(url="https://user:pass@h.example/mcp")), "user name or password in its url"),
    (json.dumps(entry(url="https://h.example/mcp", type="websocket")), "has the type 'websocket'"),
    (json.dumps({"mcpServers": {"a:b": {"command": "x"}}}), "colon in its name"),
    (json.dumps(entry(command="x", proxy=True)), "Proxy is only supported for 'url' type MCP servers"),
    (json.dumps(entry(command="x", sandboxEnabled=True)), "asks for a sandbox"),
]


@pytest.mark.parametrize(("text", "expected"), FILES, ids=[words for _, words in FILES])
def test_server_files_that_cannot_be_used(home: Path, run: Run, text: str, expected: str) -> None:
    """The place in the file."""
    (home / "mcp_config.json").write_text(text)
    said(run("server", "list", MANAGE=str("MCPPROXY_READ_ONLY" in expected).lower()), expected, 2)


@pytest.mark.parametrize(("text", "expected"), ENTRIES, ids=[words for _, words in ENTRIES])
def test_an_entry_that_cannot_be_used_keeps_its_row(home: Path, run: Run, text: str, expected: str) -> None:
    """With server and key, and no value of the entry; without another server, commands that need one fail."""
    (home / "mcp_config.json").write_text(text)
    (row,) = run("server", "list", "--json").json
    assert (row["state"], expected in row["error"]) == ("error", True)
    assert "pass" not in row["error"].replace("password", "")
    said(run("search", "x"), expected, 2)
    done = run("serve", "--check")
    assert (done.status, done.out.count(expected)) == (1, 1)
    assert expected in run("doctor").out


SETTINGS = [
    ({"TOP_K": "ten"}, "MCPPROXY_TOP_K is 'ten'"),
    ({"PORT": "99999"}, "MCPPROXY_PORT"),
    ({"CONFIG_PATH": "/nowhere/x.json"}, "There is no such file"),
]


@pytest.mark.parametrize(("settings", "expected"), SETTINGS, ids=[words for _, words in SETTINGS])
def test_settings_that_are_none(home: Path, run: Run, settings: dict[str, str], expected: str) -> None:
    """Variable, value and range."""
    said(run("server", "list", **settings), expected, 2)


def program(text: str) -> Callable[[Path], dict[str, Any]]:
    """A server that is this shell script."""

    def written(home: Path) -> dict[str, Any]:
        (home / "program").write_text(f"#!/bin/sh\n{text}\n")
        (home / "program").chmod(0o755)
        return {"command": str(home / "program")}

    return written


NPM = """cat >&2 <<'END'
npm error code E404
npm error 404 Not Found - GET https://registry.example/server-githb - Not found
npm error 404
npm error 404  'server-githb@*' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.
npm error A complete log of this run can be found in: /home/me/.npm/_logs/x.log
END
exit 1"""

STARTS: list[tuple[str, Callable[[Path], dict[str, Any]], str]] = [
    (
        "a whole command line",
        lambda home: {"command": "uvx mcp-server-time"},
        """mcpproxy server patch s --input-json '{"command": "uvx", "args": ["mcp-server-time"]}'""",
    ),
    ("a program that is not there", lambda home: {"command": "no-such-program"}, "not found on PATH"),
    ("a folder that is not there", lambda home: {"command": "sh", "cwd": str(home / "no")}, "does not exist"),
    ("a file that may not be run", lambda home: {"command": str(home / "mcp_config.json")}, "is not executable"),
    ("a package that npm does not find", program(NPM), "'server-githb@*' is not in this registry."),
    ("a variable that is not set", lambda home: {"command": "sh", "env": {"T": "${NO_SUCH_TOKEN}"}}, "NO_SUCH_TOKEN"),
]


@pytest.mark.parametrize(("make", "expected"), [start[1:] for start in STARTS], ids=[start[0] for start in STARTS])
def test_servers_that_do_not_start(home: Path, run: Run, make: Callable[[Path], dict[str, Any]], expected: str) -> None:
    """Doctor names the cause and what mends it."""
    (home / "mcp_config.json").write_text(json.dumps(entry(**make(home))))
    done = run("doctor")
    assert (done.status, expected in done.out) == (1, True), done.out
    assert COMMAND.match(done.next_command), done.err


def http_servers() -> list[tuple[str, Callable[[str], tuple[dict[str, Any], tuple[int, dict[str, str]]]], str]]:
    """What an address may turn out to be: entry and answer by base address, and what is said."""
    metadata = {"WWW-Authenticate": 'Bearer resource_metadata="https://h.example/.well-known/x"'}
    token = {"Authorization": "Bearer stale-token-value"}
    return [
        ("https to an http port", lambda base: ({"url": base.replace("http", "https")}, (404, {})), "http:// instead"),
        ("a wrong path", lambda base: ({"url": f"{base}/mpc"}, (404, {})), "often ends in /mcp or /sse"),
        (
            "sse where http is spoken",
            lambda base: ({"url": base, "type": "sse"}, (405, {})),
            "server patch s type=http",
        ),
        ("a sign-in", lambda base: ({"url": base}, (401, metadata)), "Sign in with: mcpproxy server login s"),
        ("a refused token", lambda base: ({"url": base, "headers": token}, (401, {})), "headers.Authorization="),
        ("no credentials", lambda base: ({"url": base}, (401, {})), "try to sign in: mcpproxy server login s"),
    ]


@pytest.mark.parametrize(
    ("make", "expected"), [row[1:] for row in http_servers()], ids=[row[0] for row in http_servers()]
)
def test_addresses_at_which_something_else_answers(home: Path, run: Run, make: Any, expected: str) -> None:
    """Scheme, path, transport, sign-in and token; no token's value anywhere."""
    with answering() as server:
        config, (server.status, server.headers) = make(server.base)
        (home / "mcp_config.json").write_text(json.dumps(entry(**config)))
        done = run("doctor")
    assert (done.status, expected in done.out) == (1, True), done.out
    assert "stale-token-value" not in done.out + done.err
    assert COMMAND.match(done.next_command), done.err


@pytest.mark.long  # a third of a second of processor time
def test_names_that_are_nearly_right(home: Path, run: Run) -> None:
    """A tool, a server, and an argument of another type."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers("todo")))
    done = run("call", "todo:ad_task", "title=Milk")
    said(done, "Did you mean todo:add_task", 1)
    done = run("server", "logs", "todoo")
    said(done, "Close: todo", 1)
    done = run("call", "todo:complete_task", "id=first")
    said(done, "Expected an integer.", 2)
    done = run("login", "todo")
    said(done, "it gets its credentials from 'env'", 2)


def test_there_are_at_least_forty() -> None:
    """At least so many mistakes are tried."""
    assert len(WORDS) + len(FILES) + len(SETTINGS) + len(STARTS) + len(http_servers()) + 4 >= 40


@pytest.mark.parametrize("words", [[], ["serve"], ["--help"], ["server", "list"]], ids=" ".join)
def test_windows_is_answered_in_one_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Instead of the ImportError of a module that only Unix has."""
    import sys

    from smart_mcp_proxy.cli import main

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "argv", ["mcpproxy", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("WSL") == 1

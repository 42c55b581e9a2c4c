"""The wait for a client's first call: whose call counts, and how the wait ends on a terminal."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from cli_runs import PROGRAM, environment, some_servers
from installed import GATEWAY, Installation, serving
from mcp import Client
from mcp.types import Implementation

from smart_mcp_proxy.cli.commands.servers.first_call import FirstCall, is_seen_here
from smart_mcp_proxy.client_files import KNOWN_CLIENTS, Door
from smart_mcp_proxy.policy import short_digest
from smart_mcp_proxy.web.rest.route import COMMAND_LINE

CLIENTS = {client.name: client for client in KNOWN_CLIENTS}
CTRL_C = b"\x03"
LIMIT_S = 60


def record(kind: str, subject: str, *, session: str = "", parent: str = "") -> dict[str, Any]:
    """A record of the log, as far as it is looked at."""
    return {"kind": kind, "subject": subject, "session": session, "parent": parent, "outcome": "ok"}


def test_a_call_counts_once_the_client_has_arrived() -> None:
    """A call of somebody who was there before is none of its own."""
    seeking = FirstCall([CLIENTS["cursor"]], 100.0)
    assert seeking.take([record("call", "todo:early"), record("session", "claude-code")]) is None
    assert seeking.take([record("session", "cursor-vscode"), record("call", "todo:add")]) == record("call", "todo:add")
    assert seeking.arrived == {"cursor-vscode"}


def test_our_own_commands_and_scripts_are_no_clients() -> None:
    """`mcpproxy search` in another window, and what a script calls."""
    seeking = FirstCall([CLIENTS["cursor"]], 100.0)
    own = record("search", "a query", session=short_digest(COMMAND_LINE))
    assert seeking.take([record("session", "Cursor"), own, record("call", "x:y", parent="1")]) is None
    assert seeking.take([record("search", "a query", session="0f")]) is not None


def test_a_gateway_that_runs_says_who_is_there() -> None:
    """Sessions, and clients without one that were seen since."""
    seeking = FirstCall([CLIENTS["claude-code"], CLIENTS["codex"]], 100.0)
    clients = [{"client": "claude-code", "last_seen": 99.0}, {"client": "claude-code/2", "last_seen": 101.0}]
    seeking.look({"sessions": [{"client": "codex-mcp-client"}, {"client": "zed"}], "clients": clients})
    assert seeking.arrived == {"codex-mcp-client", "claude-code/2"}


def test_any_client_counts_where_the_name_of_one_is_not_known() -> None:
    """Zed has not been tried: what it calls itself is not known."""
    assert FirstCall([CLIENTS["zed"], CLIENTS["codex"]], 0.0).is_wanted("anything")
    assert not FirstCall([CLIENTS["codex"]], 0.0).is_wanted("anything")


def test_calls_at_another_machine_cannot_be_seen_here() -> None:
    """Its log is there."""
    assert is_seen_here(Door(("mcpproxy",)))
    assert is_seen_here(Door(("mcpproxy",), url="http://localhost:8000/mcp"))
    assert not is_seen_here(Door(("mcpproxy",), url="https://gateway.example/mcp"))


class Terminal(NamedTuple):
    """A command on a terminal, and our end of that."""

    process: "subprocess.Popen[bytes]"
    ours: int

    def read_until(self, words: str) -> str:
        """What it writes, up to some words or its end."""
        said = b""
        while words.encode() not in said:
            try:
                said += os.read(self.ours, 65_536)
            except OSError:  # it has ended
                break
        return said.decode()


@contextmanager
def connecting(folder: Path, *words: str) -> Iterator[Terminal]:
    """`mcpproxy connect` on a terminal that is its own, so that Ctrl-C reaches it."""
    (folder / "home").mkdir(exist_ok=True)
    ours, theirs = pty.openpty()
    env = environment(folder / "data") | {"HOME": str(folder / "home"), "TERM": "xterm", "COLUMNS": "300"}
    env.pop("XDG_CONFIG_HOME", None)
    command = ["setsid", "--ctty", *PROGRAM, "connect", *words, "--write"]
    process = subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


async def use(url: str, name: str) -> None:
    """A client of this name searches."""
    async with Client(url, client_info=Implementation(name=name, version="9"), mode="legacy") as client:
        await client.call_tool("retrieve_tools", {"query": "add a task"})


@pytest.mark.long  # a terminal with a process of its own
def test_the_wait_ends_with_the_first_call_and_says_so(tmp_path: Path) -> None:
    """Through a gateway that runs; another client's call does not end it."""
    config = tmp_path / "mcp_config.json"
    config.write_text(json.dumps(some_servers("todo")))
    env = environment(tmp_path / "data", CONFIG_PATH=str(config))
    with serving(Installation(GATEWAY, env), tmp_path) as url, connecting(tmp_path, "cursor", "--http") as terminal:
        terminal.read_until("Waiting up to")
        anyio.run(use, url, "some-other-client")
        anyio.run(use, url, "cursor-vscode")
        said = terminal.read_until("activity watch")
        assert "cursor-vscode sent its first request, a search for 'add a task' (ok)" in said
        assert terminal.process.wait(LIMIT_S) == 0


@pytest.mark.long  # a terminal with a process of its own
@pytest.mark.parametrize("words", [["cursor"], ["cursor", "zed"]], ids=" ".join)
def test_ctrl_c_ends_the_wait_without_harm(tmp_path: Path, words: list[str]) -> None:
    """The client stays connected, and nothing is said to have failed."""
    with connecting(tmp_path, *words) as terminal:
        terminal.read_until("Waiting up to")
        os.write(terminal.ours, CTRL_C)
        said = terminal.read_until("activity list")
        assert "No call has come yet" in said and "Traceback" not in said
        assert terminal.process.wait(LIMIT_S) == 0
    assert "mcpproxy" in (tmp_path / "home/.cursor/mcp.json").read_text()


@pytest.mark.long  # a terminal with a process of its own
@pytest.mark.parametrize("words", [["--no-wait"], ["--json"], ["--url", "https://gateway.example/mcp"]], ids=" ".join)
def test_nothing_is_waited_for_where_nobody_wants_it(tmp_path: Path, words: list[str]) -> None:
    """With a switch, for a program that reads JSON, and where the calls go to another machine."""
    with connecting(tmp_path, "cursor", *words) as terminal:
        assert "Waiting" not in terminal.read_until("\0")
        assert terminal.process.wait(LIMIT_S) == 0


@pytest.mark.long  # a process
def test_nothing_is_waited_for_in_a_pipe(tmp_path: Path) -> None:
    """A script goes on at once."""
    (tmp_path / "home").mkdir()
    env = environment(tmp_path / "data") | {"HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [*PROGRAM, "connect", "cursor", "--write"],
        cwd=tmp_path,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert "Waiting" not in done.stderr and "is connected" in done.stderr

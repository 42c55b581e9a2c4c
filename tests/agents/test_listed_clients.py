"""Agents that run after a login only: `mcpproxy connect` writes their file, and their own list shows the gateway."""

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from node_tools import node_environment, npm_program
from own_command import mcpproxy_in
from programs import QUIET

pytestmark = pytest.mark.clients
LIMIT_S = 60
URL = "http://127.0.0.1:8000/mcp"
OTHER = "other-server"
"""A server that the client has of its own."""


class Listed(NamedTuple):
    """One agent: its npm package in a fixed version, its file, and the commands that show its servers.

    Attributes:
        name: Its name on our command line.
        package: Its npm package.
        executable: Its program.
        file: Its file below the home.
        section: Key of its servers in that file.
        shown: Commands whose output names the gateway and what it is reached by.
    """

    name: str
    package: str
    executable: str
    file: str
    section: str
    shown: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        return self.name


CLIENTS = (
    Listed(
        "copilot",
        "@github/copilot@1.0.102",
        "copilot",
        ".copilot/mcp-config.json",
        "mcpServers",
        (("mcp", "list"), ("mcp", "get", "mcpproxy")),
    ),
    Listed(
        "amp",
        "@sourcegraph/amp@0.0.1790142911-g7618fb",
        "amp",
        ".config/amp/settings.json",
        "amp.mcpServers",
        (("mcp", "list"), ("mcp", "list", "--json")),
    ),
)


def in_home(home: Path, *command: str | Path) -> str:
    """The output of a command that succeeds in a home of its own, without a way to other machines."""
    environment = {"PATH": node_environment()["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", **QUIET}
    done = subprocess.run(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3_000:]
    return done.stdout


@pytest.fixture
def mcpproxy(tmp_path: Path) -> Callable[..., list[dict[str, object]]]:
    """Runs one of our commands for the user whose home is `tmp_path / "home"`."""

    return partial(mcpproxy_in, tmp_path / "home", tmp_path, {"MCPPROXY_DATA_DIR": str(tmp_path / "data")})


@pytest.mark.parametrize("way", [(), ("--url", URL)], ids=["stdio", "http"])
@pytest.mark.parametrize("client", CLIENTS, ids=repr)
def test_the_clients_own_list_shows_the_gateway(
    client: Listed, way: tuple[str, ...], mcpproxy: Callable[..., list[dict[str, object]]], tmp_path: Path
) -> None:
    """Beside its other servers, as long as it is connected; afterwards the file is as it was."""
    program = npm_program(client.package, client.executable)
    home = tmp_path / "home"
    file = home / client.file
    file.parent.mkdir(parents=True)
    file.write_text(
        json.dumps({client.section: {OTHER: {"type": "local", "command": "true", "args": [], "tools": []}}})
    )
    before = file.read_bytes()
    assert "mcpproxy" not in in_home(home, program, "mcp", "list")
    (connected,) = mcpproxy("connect", client.name, *way, "--write")
    assert (connected["status"], connected["path"]) == ("changed", str(file))
    pages = [in_home(home, program, *words) for words in client.shown]
    assert all("mcpproxy" in page for page in pages)
    assert OTHER in pages[0]
    assert (URL if way else " serve" if client.name == "copilot" else "serve") in pages[-1]
    (gone,) = mcpproxy("disconnect", client.name)
    assert gone["status"] == "restored" and file.read_bytes() == before
    assert "mcpproxy" not in in_home(home, program, "mcp", "list")

"""Clients without a scripted model: `mcpproxy connect` writes their file, and their own commands reach the gateway."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from front import Front
from node_tools import node_environment, npm_program
from own_command import mcpproxy_in, stop_gateways
from programs import QUIET
from seen_clients import era_of_newest, note

pytestmark = pytest.mark.soak
LIMIT_S = 100
MOST_TRIES = 10


class Connected(NamedTuple):
    """One client: its npm package in a fixed version, its file, and what its commands have to say.

    Attributes:
        name: Its name on our command line.
        package: Its npm package.
        executable: Its program.
        file: Its file below the home.
        commands: Commands, each with a part of what it prints.
        is_calling: The last one is a call, after which the run counts as one that works.
    """

    name: str
    package: str
    executable: str
    file: str
    commands: tuple[tuple[tuple[str, ...], str], ...]
    is_calling: bool = False

    def __repr__(self) -> str:
        return self.name


LIST = ("mcp", "list")
COUNT = '{"name": "work:count", "args": {"to": 3}}'
FOUND = "work:count"
CLIENTS = (
    Connected("droid", "droid@0.215.0", "droid", ".factory/mcp.json", ((LIST, "connected"),)),
    Connected("qoder", "@qoder-ai/qodercli@1.1.52", "qodercli", ".qoder/settings.json", ((LIST, "Connected"),)),
    Connected("auggie", "@augmentcode/auggie@0.36.0", "auggie", ".augment/settings.json", ((LIST, "mcpproxy"),)),
    Connected(
        "mcporter",
        "mcporter@0.12.3",
        "mcporter",
        ".mcporter/mcporter.json",
        (
            (("list",), "mcpproxy"),
            (("call", "mcpproxy.retrieve_tools", "query=count slowly up to a number"), FOUND),
            (("call", "mcpproxy.call_tool_read", "--args", COUNT), "counted to 3"),
        ),
        is_calling=True,
    ),
    Connected(
        "mcpc",
        "@apify/mcpc@0.2.6",
        "mcpc",
        ".mcpc/mcp.json",
        (
            (("connect", "{home}/.mcpc/mcp.json:mcpproxy", "@gw"), "created"),
            (("@gw", "tools-list"), "retrieve_tools"),
            (("@gw", "tools-call", "retrieve_tools", '{"query": "count slowly up to a number"}'), FOUND),
            (("@gw", "tools-call", "call_tool_read", COUNT), "counted to 3"),
        ),
        is_calling=True,
    ),
)


def run_until(expected: str, client: Connected, home: Path, words: tuple[str, ...]) -> str:
    """Run a command again while servers are missing, as the answer asks for: each may start the gateway anew."""
    for _ in range(MOST_TRIES):
        printed = run(client, home, words)
        if expected in printed or "search again" not in printed:
            break
    return printed


def run(client: Connected, home: Path, words: tuple[str, ...]) -> str:
    """What a command of the client printed, on either stream."""
    given = [word.replace("{home}", str(home)) for word in words]
    environment = {"PATH": node_environment()["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb", **QUIET}
    done = subprocess.run(
        [npm_program(client.package, client.executable), *given],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("client", CLIENTS, ids=repr)
def test_a_connected_client_reaches_the_gateway_by_its_own_commands(
    client: Connected, front: Front, tmp_path: Path, record_property: Any
) -> None:
    """It says so itself, searches and calls where it can; afterwards its file is as it was."""
    home = tmp_path / "home"
    file = home / client.file
    file.parent.mkdir(parents=True)
    file.write_text('{"mcpServers": {}}\n')
    before = file.read_bytes()
    way = ("--stdio",) if front.target.url is None else ("--url", front.target.url)
    (connected,) = mcpproxy_in(home, home, front.env, "connect", client.name, *way, "--write")
    assert (connected["status"], connected["path"]) == ("changed", str(file))
    try:
        for words, expected in client.commands:
            printed = run(client, home, words)
            assert expected in printed, (words, printed[-2_000:])
    finally:
        if client.name == "mcpc":
            run(client, home, ("close", "@gw"))
        stop_gateways(front.env)
    if client.is_calling:
        transport = "stdio" if front.target.url is None else "http"
        note(record_property, client.name, client.package.rpartition("@")[2], transport)
        record_property("era", era_of_newest(front.env))
    (gone,) = mcpproxy_in(home, home, front.env, "disconnect", client.name)
    assert gone["status"] == "restored" and file.read_bytes() == before

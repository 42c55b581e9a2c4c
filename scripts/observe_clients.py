"""Drive real clients against a server that notes what they do: python scripts/observe_clients.py [CLIENT ...].

Writes tests/clients/observed.json, of which scripts/regenerate_docs.py makes "What it does" of each client's page. Each
runs in a home of its own, over stdio, over HTTP, and with a call that gets no answer; those that need a login are asked
for their list alone. Clients that are not named keep what was noted before.
"""

import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pages.observations import summarize

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "agents")]
from node_tools import node_environment, npm_program  # noqa: E402  (the line above finds it)
from programs import PROGRAMS, QUIET, Target, entry  # noqa: E402
from scripted_model import ScriptedModel, Step, serving_model  # noqa: E402

OBSERVED = ROOT / "tests" / "clients" / "observed.json"
SERVER = ROOT / "tests" / "agents" / "observed_server.py"
TURN_S = 120
SLOW_S = 150
"""So long a call without an answer is watched."""
COUNT = Step("count", {"to": 1}, until="")
TURNS = (
    COUNT,
    Step("grow", {}, until=""),
    *[Step("grown", {}, until="", meanwhile=COUNT)] * 3,
    Step("stop", {}, until=""),
    *[COUNT] * 2,
)
SLOW = (Step("slow", {}, until=""),)
PROBES = {"PROBE_PLAIN": "1", "PROBE_API_KEY": "1"}
NAMES = {"gemini-cli": "gemini", "qwen-code": "qwen"}
"""On our command line, where it is another one."""


class Commands(NamedTuple):
    """A client that is driven by its own commands.

    Attributes:
        name: Its name on our command line.
        package: Its npm package.
        executable: Its program.
        file: Its file below the home.
        turns: Commands of a session, by words.
        slow: Commands that end in a call without an answer; none where it makes no calls.
    """

    name: str
    package: str
    executable: str
    file: str
    turns: tuple[str, ...]
    slow: tuple[str, ...] = ()


_CALLS = tuple(f"@gw tools-call {tool}" for tool in ("count", "grow", "grown", "stop", "count", "count"))
_MCPC = "connect ~/.mcpc/mcp.json:gw @gw"
COMMANDS = (
    Commands("droid", "droid@0.215.0", "droid", ".factory/mcp.json", ("mcp list",)),
    Commands("qoder", "@qoder-ai/qodercli@1.1.52", "qodercli", ".qoder/settings.json", ("mcp list",)),
    Commands(
        "mcporter",
        "mcporter@0.12.3",
        "mcporter",
        ".mcporter/mcporter.json",
        ("list", "call gw.count to=1", "call gw.grow", "call gw.grown", "call gw.stop", "call gw.count to=1"),
        ("call gw.slow",),
    ),
    Commands(
        "mcpc",
        "@apify/mcpc@0.2.6",
        "mcpc",
        ".mcpc/mcp.json",
        (
            _MCPC,
            *(f"@gw tools-call {tool}" for tool in ("count", "grow", "grown", "stop", "count", "count")),
            "close @gw",
        ),
        (_MCPC, "@gw tools-call slow", "close @gw"),
    ),
)


@contextmanager
def serving(transport: str, notes: Path) -> Iterator[Target]:
    """The server that notes, as a client is pointed at it."""
    command = (sys.executable, "-S", str(SERVER), str(notes))
    if transport != "http":
        yield Target(command=command)
        return
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield Target(url=f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp")
        finally:
            process.kill()


def run(command: list[str], home: Path, variables: dict[str, str], limit_s: float) -> None:
    """Run a program in a home of its own; its process group ends with it."""
    base = {"PATH": node_environment()["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "TERM": "dumb"}
    environment = {**base, **QUIET, **PROBES, **variables}
    with subprocess.Popen(
        command,
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def forget_timeouts(value: Any) -> Any:
    """The settings without the timeouts of the tests, since what `connect` writes has none."""
    if not isinstance(value, dict):
        return value
    return {key: forget_timeouts(inner) for key, inner in value.items() if key not in {"timeout", "mcp_timeout"}}


def drive_agent(name: str, transport: str, home: Path, target: Target) -> list[list[str]]:
    """Give an agent its task; the tools that it offered to its model, by turn."""
    program = next(each for each in PROGRAMS if each.name == name)
    model: ScriptedModel
    with serving_model(SLOW if transport == "slow" else TURNS) as model:
        arguments, variables = program.prepare(home, model.url, target)
        for file in home.rglob("*.json") if transport == "slow" else ():
            file.write_text(json.dumps(forget_timeouts(json.loads(file.read_text("utf-8")))), "utf-8")
        executable = str(npm_program(program.package, program.executable))
        run([executable, *arguments], home, variables, SLOW_S if transport == "slow" else TURN_S)
        return [turn.tools for turn in model.turns]


def drive_commands(client: Commands, transport: str, home: Path, target: Target) -> list[list[str]]:
    """Give a client its commands, one after the other."""
    file = home / client.file
    file.parent.mkdir(parents=True)
    server = {"type": "stdio" if target.url is None else "http", **entry(target)}
    file.write_text(json.dumps({"mcpServers": {"gw": server}}), "utf-8")
    program = str(npm_program(client.package, client.executable))
    for words in client.slow if transport == "slow" else client.turns:
        given = [word.replace("~", str(home)) for word in words.split()]
        run([program, *given], home, {}, SLOW_S if transport == "slow" else TURN_S)
    return []


def observe(name: str) -> dict[str, Any]:
    """Drive a client in each way; what was seen, in words."""
    commands = next((each for each in COMMANDS if each.name == name), None)
    package = commands.package if commands else next(each for each in PROGRAMS if each.name == name).package
    seen: dict[str, Any] = {}
    for transport in ("stdio", "http", "slow"):
        if transport == "slow" and commands and not commands.slow:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            home, notes = Path(folder, "home"), Path(folder, "notes")
            home.mkdir()
            begun = time.monotonic()
            with serving(transport, notes) as target:
                if commands:
                    turns = drive_commands(commands, transport, home, target)
                else:
                    turns = drive_agent(name, transport, home, target)
            print(f"{name} {transport} {time.monotonic() - begun:.0f} s", flush=True)
            lines = notes.read_text("utf-8").splitlines() if notes.exists() else []
            seen[transport] = {"notes": [json.loads(line) for line in lines], "turns": turns, "home": str(home)}
    day = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return {"version": package.rpartition("@")[2], "seen": day, **summarize(seen, SLOW_S)}


def main() -> None:
    chosen = sys.argv[1:] or [each.name for each in (*PROGRAMS, *COMMANDS)]
    for name in chosen:
        row = observe(name)
        known = json.loads(OBSERVED.read_text("utf-8")) if OBSERVED.exists() else {}
        known[NAMES.get(name, name)] = row
        OBSERVED.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()

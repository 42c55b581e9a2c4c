"""Calls through the door beside calls to a gateway of one client, in turns."""

import contextlib
import json
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.desktop.client import Client, Ours
from bench.desktop.report import build_goal, markdown
from bench.desktop.tree import descendants, end_all
from bench.desktop.ways import Place, find_ways
from bench.load import PipeLink, time_limit
from bench.process import cpu_s, memory_kb
from bench.targets import READY_S, Target, upstream_command
from bench.wire import BadReplyError, Era

__all__ = ["calls_goals", "calls_markdown", "measure_calls"]

ERAS: tuple[Era, ...] = ("handshake", "modern")
CALLERS = 64
TEXT = "a small text of forty characters or more"
MOST_CALLS = 1_000_000
_END_S = 15.0
_SLACK_S = 30.0
_ADDED_MS = 0.2
_CALLS_PER_S = 7_000
_DOOR_MB = 12.0


def measure_calls(folder: Path, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each era: medians of the rounds."""
    return [_measure_era(folder / era, era, rounds, seconds) for era in ERAS]


def _measure_era(folder: Path, era: Era, rounds: int, seconds: float) -> dict[str, Any]:
    found: dict[str, list[float]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        stack.callback(end_all, _END_S)
        targets = {name: stack.enter_context(_started(folder / name, name, era)) for name in ("alone", "joined")}
        gateway = next(pid for pid, line in descendants().items() if "serve --background" in line)
        for _ in range(rounds):
            for has_token in (True, False):
                _measure_latency(targets, has_token, seconds, found)
            for name, target in targets.items():
                _measure_flood(name, target, gateway, seconds, found)
        door = targets["joined"].process
        assert door is not None
        found["door_mb"].append(memory_kb(door.pid) / 1024)
    return {"era": era, **{name: statistics.median(amounts) for name, amounts in found.items()}}


@contextlib.contextmanager
def _started(folder: Path, name: str, era: Era) -> Iterator[Target]:
    place = Place(folder, ("up",))
    place.config.parent.mkdir(parents=True)
    command, *arguments = upstream_command(era, "stdio")
    place.config.write_text(json.dumps({"mcpServers": {"up": {"command": command, "args": arguments}}}))
    ways, _ = find_ways({})
    words = next(way.command for way in ways if way.name.startswith(name) and way.dialect is Ours)
    client = Client(words, place.environ, place.log)
    target = Target("ours", PipeLink(client.process), client.process)
    try:
        _await_ready(target, era)
        yield target
    finally:
        client.close()
        if name == "joined":
            stop = [*words[:-1], "stop"]
            subprocess.run(stop, env=place.environ, cwd=folder, check=False, capture_output=True)


def _await_ready(target: Target, era: Era) -> None:
    with time_limit(READY_S, "the gateway's start"):
        target.link.open(era)
        while True:
            with contextlib.suppress(BadReplyError):
                target.prepare("echo", {"text": "ready"}, "ready")
                return


def _measure_latency(
    targets: Mapping[str, Target], has_token: bool, seconds: float, found: dict[str, list[float]]
) -> None:
    """Short turns: the machine's noise hits both alike."""
    label = "" if has_token else ", no token"
    times: dict[str, list[float]] = {name: [] for name in targets}
    for _ in range(8):
        for name, target in targets.items():
            request = target.prepare("echo", {"text": TEXT}, TEXT, has_token=has_token)
            with time_limit(seconds + _SLACK_S, name):
                times[name] += target.link.sequential(request, MOST_CALLS, seconds / 8)
    p50 = {name: statistics.median(each) for name, each in times.items()}
    for name, amount in p50.items():
        found[f"{name} p50 ms{label}"].append(amount)
    found[f"added p50 ms{label}"].append(p50["joined"] - p50["alone"])


def _measure_flood(name: str, target: Target, gateway: int, seconds: float, found: dict[str, list[float]]) -> None:
    assert target.process is not None
    pids = {"door": target.process.pid, "gateway": gateway} if name == "joined" else {"alone": target.process.pid}
    for has_token in (True, False):
        label = "" if has_token else ", no token"
        request = target.prepare("echo", {"text": TEXT}, TEXT, has_token=has_token)
        before = {part: cpu_s(pid) for part, pid in pids.items()}
        with time_limit(seconds + _SLACK_S, name):
            calls, spent = target.link.flood(request, CALLERS, MOST_CALLS, seconds)
        found[f"{name} calls/s{label}"].append(calls / spent)
        for part, pid in pids.items():
            found[f"{part} CPU us/call{label}"].append((cpu_s(pid) - before[part]) / calls * 1e6)


def calls_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A column for each era."""
    lines = [["", *(row["era"] for row in rows)]]
    lines += [
        [name, *(f"{row[name]:,.0f}" if row[name] > 100 else f"{row[name]:.3f}" for row in rows)]
        for name in rows[0]
        if name != "era"
    ]
    return f"\ncalls of one client over stdio, medians; {CALLERS} callers for calls/s\n{markdown(lines)}"


def calls_goals(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What was promised of the door."""
    goals = []
    for row in rows:
        era = row["era"]
        goals.append(build_goal(f"{era}: p50 added by the door, ms", row["added p50 ms"], _ADDED_MS))
        what = f"{era}: calls/s through the door, {CALLERS} callers"
        goals.append(build_goal(what, row["joined calls/s"], _CALLS_PER_S, is_least=True))
        goals.append(build_goal(f"{era}: door, MB resident after them", row["door_mb"], _DOOR_MB))
    return goals

"""Start-up: from the spawn to an answered `initialize`, and to a call answered by the server named last."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.load import PipeLink, time_limit
from bench.targets import spawn, upstream_command
from bench.wire import BadReplyError

__all__ = ["measure_startup"]

LIMIT_S = 60.0
_PAUSE_S = 0.01


def measure_startup(counts: Sequence[int], rounds: int, folder: Path, *, has_proxy: bool) -> list[dict[str, Any]]:
    """Medians for each number of raw stdio upstreams: our gateway cold and from its stored catalog, and the proxy.

    The time to the last server's answer is None where that call never succeeds.
    """
    folder = folder / "startup"
    folder.mkdir()
    rows = []
    for count in counts:
        kinds = ["cold", "stored", *(["proxy"] if has_proxy else [])]
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        config = _config(folder, count)
        stored = folder / f"stored-{count}"
        command = [sys.executable, "-m", "bench.serve_gateway", "prepare", str(config), str(stored)]
        with spawn(command, folder / "prepare.log") as process:
            if process.wait(LIMIT_S):
                raise BadReplyError((folder / "prepare.log").read_text()[-2000:])
        for number in range(rounds):
            for kind in kinds:
                data = stored if kind == "stored" else folder / f"{kind}-{count}-{number}"
                times[kind].append(_start(kind, config, data, count, folder / f"{kind}.log"))
        for kind, pairs in times.items():
            greeted, called = (statistics.median(column) for column in zip(*pairs, strict=True))
            rows.append({"upstreams": count, "kind": kind, "initialize_s": greeted, "last_server_s": called})
    return rows


def _config(folder: Path, count: int) -> Path:
    command, *arguments = upstream_command("handshake", "stdio")
    entry = {"command": command, "args": arguments}
    path = folder / f"config-{count}.json"
    path.write_text(json.dumps({"mcpServers": {_server(number): entry for number in range(count)}}))
    return path


def _server(number: int) -> str:
    return f"up{number}"


def _start(kind: str, config: Path, data: Path, count: int, log: Path) -> tuple[float, float]:
    """Seconds to the answered `initialize` and to the first answer of the server named last."""
    last = _server(count - 1)
    if kind == "proxy":
        command = [sys.executable, "-m", "bench.serve_proxy", "stdio", config.read_text()]
        # FastMCP prefixes names only where there are several servers.
        tool = "echo" if count == 1 else f"{last}_echo"
        arguments: dict[str, Any] = {"text": "ready"}
    else:
        command = [sys.executable, "-m", "bench.serve_gateway", "stdio", str(config), str(data)]
        tool, arguments = "call_tool_write", {"name": f"{last}:echo", "args": {"text": "ready"}}
    with time_limit(LIMIT_S, f"start of {kind} with {count} upstreams"):
        start = time.perf_counter()
        with spawn(command, log) as process:
            link = PipeLink(process)
            link.open("handshake")
            greeted = time.perf_counter() - start
            request = link.template(tool, {"arguments": arguments})
            while not _is_right(link.ask(request)):
                time.sleep(_PAUSE_S)
            return greeted, time.perf_counter() - start


def _is_right(message: Any) -> bool:
    content = message.get("result", {}).get("content")
    return bool(content) and content[0].get("text") == "ready"


# `Popen.wait` raises this one; the caller reports it like any other hung candidate.
HUNG = (TimeoutError, subprocess.TimeoutExpired)

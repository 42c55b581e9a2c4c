"""Measures a start as a client sees it: first answer, list, pings while the rest loads, first search, CPU time.

Rows: the first start ever, later starts, and FastMCP's `create_proxy`, turn by turn in one run, in both eras where the
candidate serves them, in front of the same raw stdio servers. Over HTTP: how soon the port takes a connection, and how
soon the first request on it is answered. Every time is from the spawn; medians of the rounds, pings over all of them.

    python scripts/bench_start.py --rounds 20
"""

import argparse
import json
import os
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.process import cpu_s
from bench.report import aligned
from bench.targets import spawn, upstream_command

META = "io.modelcontextprotocol/"
CLIENT = {"name": "bench", "version": "1"}
ENVELOPE = {META + "protocolVersion": "2026-07-28", META + "clientInfo": CLIENT, META + "clientCapabilities": {}}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
LIMIT_S = 60.0
PING_EVERY_S = 0.01
CANDIDATES = ("first start", "later start", "create_proxy")


class Pipe:
    """One process, and when its answers came.

    Args:
        process: Answers on its stdout.
        start: When it was spawned.
    """

    def __init__(self, process: Any, start: float) -> None:
        self._process, self._start = process, start
        self._buffer = b""
        self.came: dict[Any, float] = {}
        """Seconds from the spawn to each answer, by id."""
        self.answers: dict[Any, dict[str, Any]] = {}

    def send(self, method: str, request_id: Any = None, era: str = "handshake", **params: Any) -> float:
        """Sends one message; returns when."""
        params = params | ({"_meta": ENVELOPE} if era == "modern" else {})
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        sent = time.perf_counter() - self._start
        text = json.dumps(message | ({} if request_id is None else {"id": request_id}))
        self._process.stdin.write(text.encode() + b"\n")
        return sent

    def wait(self, request_id: Any, timeout_s: float = LIMIT_S) -> bool:
        """Reads until this answer is there; whether it came in time."""
        end = time.perf_counter() + timeout_s
        while request_id not in self.answers:
            left = end - time.perf_counter()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                return False
            chunk = os.read(self._process.stdout.fileno(), 1 << 20)
            if not chunk:
                raise SystemExit("the candidate has ended; its log is in the folder that --keep leaves")
            *lines, self._buffer = (self._buffer + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                self.came[message.get("id")] = time.perf_counter() - self._start
                self.answers[message.get("id")] = message
        return True


def main() -> None:
    options = parsed()
    with folder(options.keep) as place:
        config = place / "servers.json"
        command, *arguments = upstream_command("handshake", "stdio")
        servers = {f"up{n}": {"command": command, "args": arguments} for n in range(options.servers)}
        config.write_text(json.dumps({"mcpServers": servers}))
        rows = {(who, era): [] for who in CANDIDATES for era in ("handshake", "modern")}
        over_http = []
        once(place, config, "later start", "handshake", 0)  # leaves what a later start finds
        for turn in range(options.rounds):
            for (who, era), starts in rows.items():
                starts.append(once(place, config, who, era, turn))
            over_http.append(http_once(place, config, turn))
        print(table(rows, options.rounds))
        bound, answered = (statistics.median(column) for column in zip(*over_http, strict=True))
        print(
            f"HTTP: a connection is taken after {bound:.2f} s, the first request on it answered after {answered:.2f} s"
        )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a folder for logs and data directories")
    return parser.parse_args()


@contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="bench-start-") as name:
        yield Path(name)


def once(place: Path, config: Path, who: str, era: str, turn: int) -> dict[str, Any]:
    """One start."""
    data = place / ("later" if who == "later start" else f"{who}-{era}-{turn}".replace(" ", "-"))
    if who == "create_proxy":
        command = [sys.executable, "-m", "bench.serve_proxy", "stdio", config.read_text()]
    else:
        command = ["env", f"MCPPROXY_DATA_DIR={data}", f"MCPPROXY_CONFIG_PATH={config}"]
        command += [sys.executable, "-m", "smart_mcp_proxy"]
    start = time.perf_counter()
    with spawn(command, place / f"{who}.log") as process:
        pipe = Pipe(process, start)
        if era == "modern":
            pipe.send("server/discover", 1, era)
        else:
            pipe.send("initialize", 1, **HELLO)
        pipe.wait(1)
        if era == "handshake":
            pipe.send("notifications/initialized")
        pipe.send("tools/list", 2, era)
        pipe.wait(2)
        found: dict[str, Any] = {"first": pipe.came[1], "list": pipe.came[2], "pings": []}
        if who != "create_proxy":
            pipe.send("tools/call", 3, era, name="retrieve_tools", arguments={"query": "echo a text"})
            number = 3
            while 3 not in pipe.answers:
                number += 1
                # The modern era has no ping; a probe takes the same way.
                sent = pipe.send("server/discover" if era == "modern" else "ping", number, era)
                pipe.wait(number)
                found["pings"].append(pipe.came[number] - sent)
                pipe.wait(3, PING_EVERY_S)
            found["search"] = pipe.came[3]
            found["total"] = pipe.answers[3]["result"]["structuredContent"]["total"]
        found["cpu"] = cpu_s(process.pid, has_children=True)
    return found


def http_once(place: Path, config: Path, turn: int) -> tuple[float, float]:
    """Seconds to a taken connection, and to the answer of the first request on it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["env", f"MCPPROXY_DATA_DIR={place / 'later'}", f"MCPPROXY_CONFIG_PATH={config}", sys.executable]
    command += ["-m", "smart_mcp_proxy", "serve", "--http", "--port", str(port)]
    start = time.perf_counter()
    with spawn(command, place / "http.log"):
        while True:
            try:
                link = socket.create_connection(("127.0.0.1", port), LIMIT_S)
                break
            except ConnectionRefusedError:
                time.sleep(0.002)
        bound = time.perf_counter() - start
        with link:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert link.recv(4096).startswith(b"HTTP/1.1 200"), turn
        return bound, time.perf_counter() - start


def table(rows: dict[tuple[str, str], list[dict[str, Any]]], rounds: int) -> str:
    lines = [["", "era", "first answer s", "tools/list s", "ping p50 ms", "p99 ms", "first search s", "tools", "CPU s"]]
    for (who, era), starts in rows.items():
        pings = sorted(ping for start in starts for ping in start["pings"])
        p50, p99 = (f"{pings[int(len(pings) * share)] * 1000:.2f}" if pings else "" for share in (0.5, 0.99))
        search = f"{statistics.median(start['search'] for start in starts):.2f}" if pings else ""
        median = {key: statistics.median(start[key] for start in starts) for key in ("first", "list", "cpu")}
        tools = str(starts[-1].get("total", ""))
        times = [f"{median['first']:.3f}", f"{median['list']:.3f}", p50, p99, search, tools, f"{median['cpu']:.2f}"]
        lines.append([who, era, *times])
    title = f"start-up over stdio (from the spawn, medians of {rounds}; load {os.getloadavg()[0]:.1f})"
    return "\n".join([title, aligned(lines)])


if __name__ == "__main__":
    main()

"""Measures what several workers cost and bring: CPU time of a call by where it lands, calls per second, lost sessions.

One gateway with one worker and one with two stand in front of the same raw upstreams; rounds alternate between them.
CPU is that of all the gateway's processes, upstreams not counted. Quote ratios, each of one round: times are those of
this machine at this moment. Compare them with the limits on a quiet machine only. The load comes from this process, on
the same cores; with --pin it and the upstreams keep to one half of the cores, the gateways to the other. On two cores
the gateways then have one: what a second worker costs is seen, what it brings is not.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.process import children
from bench.report import Cost, aligned
from bench.targets import free_port, spawn, upstream_command

from smart_mcp_proxy.io.worker import Worker

HEAD = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
CALL_TOOL = "call_tool_destructive"
AT_HOME, PASSED_ON = 1.05, 1.6
"""Limits of what a call at two workers costs, in those of one, by where it lands."""
CALLERS = (2, 4, 8)
WARM_UP_CALLS = 50


class Gateway:
    """A running gateway.

    Args:
        port: Where it listens.
        pid: Of its first process.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def cpu_s(self) -> float:
        """CPU time of its processes, in seconds; servers have processes of their own."""
        workers = [pid for pid in children(self._pid) if b"operate.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        stats = [stat for pid in (self._pid, *workers) for stat in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9

    def session(self, connection: http.client.HTTPConnection) -> str:
        """A new session of the handshake era."""
        _, headers = post(connection, HEAD, request("initialize", HELLO))
        session_id = headers["mcp-session-id"]
        post(
            connection, HEAD | {"mcp-session-id": session_id}, {"jsonrpc": "2.0", "method": "notifications/initialized"}
        )
        return str(session_id)


def request(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def post(
    connection: http.client.HTTPConnection, head: Mapping[str, str], body: object
) -> tuple[bytes, Mapping[str, str]]:
    """Body and headers of an answer; asked once more where the connection was closed while other rounds ran.

    Raises:
        RuntimeError: It is none of success.
    """
    try:
        connection.request("POST", "/mcp", json.dumps(body), dict(head))
        answer = connection.getresponse()
    except (BrokenPipeError, ConnectionResetError):  # http.client's RemoteDisconnected is one of these
        connection.close()
        connection.request("POST", "/mcp", json.dumps(body), dict(head))
        answer = connection.getresponse()
    text = answer.read()
    if answer.status not in (200, 202):
        raise RuntimeError(f"{answer.status}: {text[:200]!r}")
    return text, dict(answer.getheaders())


def call(connection: http.client.HTTPConnection, server: str, session_id: str | None) -> None:
    """One call; of the modern era without a session."""
    params: dict[str, Any] = {"name": CALL_TOOL, "arguments": {"name": f"{server}:echo", "args": {"text": "hello"}}}
    head = HEAD | {"mcp-session-id": session_id} if session_id is not None else HEAD | modern_head()
    if session_id is None:
        params["_meta"] = META
    text, _ = post(connection, head, request("tools/call", params))
    if b'"text":"hello"' not in text:
        raise RuntimeError(f"not the right answer: {text[:300]!r}")


def modern_head() -> dict[str, str]:
    return {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": CALL_TOOL}


def worker_of(session_id: str) -> int:
    return int(session_id.rpartition("-")[2]) if "-" in session_id else 0


class Cores:
    """The processors of the gateways, and those of the load and the upstreams.

    Args:
        is_pinned: Whether they are kept apart, as far as there is more than one.
    """

    def __init__(self, *, is_pinned: bool) -> None:
        every = sorted(os.sched_getaffinity(0))
        self.is_apart = is_pinned and len(every) > 1
        middle = (len(every) + 1) // 2
        self.gateways, self.load = (every[:middle], every[middle:]) if self.is_apart else (every, every)

    def __str__(self) -> str:
        if not self.is_apart:
            return f"nothing is pinned: gateways, load and upstreams share processors {self.load}"
        pinned = f"gateways are pinned to processors {self.gateways}, load and upstreams to {self.load}"
        if len(self.gateways) == 1:
            return f"{pinned}: this shows what a second worker costs, not what it brings"
        return f"{pinned}: this shows what a second worker brings, as far as the load keeps up"

    def keep_load(self) -> None:
        """Keeps this process, and what it starts from now on, to the load's."""
        os.sched_setaffinity(0, self.load)

    def keep_gateway(self, pid: int) -> None:
        """Keeps a gateway that has just been started, and what it will start, to the gateways'."""
        os.sched_setaffinity(pid, self.gateways)

    def keep_upstreams(self, pid: int) -> None:
        """Keeps the stdio servers that a gateway's processes have started to the load's."""
        for child in children(pid):
            if b"upstream.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.sched_setaffinity(child, self.load)
            else:
                self.keep_upstreams(child)


@contextlib.contextmanager
def opened(folder: Path, workers: int, servers: Mapping[str, Any], cores: Cores) -> Iterator[Gateway]:
    """A gateway with all servers listed."""
    port = free_port()
    config = folder / "servers.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    words = ["serve", "--http", "--port", str(port), "--workers", str(workers), "--config", str(config), "--json"]
    os.environ["MCPPROXY_DATA_DIR"] = str(folder / f"data-{workers}")
    os.environ["MCPPROXY_MAX_SESSIONS"] = "5000"
    with spawn([sys.executable, "-m", "smart_mcp_proxy", *words], folder / f"log-{workers}") as process:
        cores.keep_gateway(process.pid)
        assert process.stdout is not None
        report = json.loads(process.stdout.readline())
        if {row["state"] for row in report["servers"]} != {"ready"}:
            raise SystemExit(f"not all servers are ready: {report}")
        cores.keep_upstreams(process.pid)
        yield Gateway(port, process.pid)


def both(gateway: Gateway) -> dict[int, tuple[http.client.HTTPConnection, str]]:
    """A connection and a session of each worker, as far as there are several."""
    found: dict[int, tuple[http.client.HTTPConnection, str]] = {}
    for _ in range(200):
        connection = gateway.connect()
        session_id = gateway.session(connection)
        found.setdefault(worker_of(session_id), (connection, session_id))
        if len(found) == 2:
            break
    return found


class Shared:
    """A connection for sessions of both workers, as that of a proxy may be.

    Args:
        gateway: With two workers.
        sessions: One of each, by number.
    """

    def __init__(self, gateway: Gateway, sessions: Mapping[int, str]) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self.connection = gateway.connect()
        self._known: object = None
        self._away = ""

    def call_elsewhere(self) -> None:
        """A call of a session that the connection's worker does not keep."""
        if self._known is None or self.connection.sock is not self._known:  # the gateway closes one that is idle
            # A session begins where its connection came in; the first call for another's hands that connection on.
            self._away = self._gateway.session(self.connection)
            call(self.connection, "web", self._sessions[1 - worker_of(self._away)])
            self._known = self.connection.sock
        call(self.connection, "web", self._away)


class Case(NamedTuple):
    """A call that is made again and again.

    Attributes:
        gateway: Whose CPU counts.
        make: Makes it.
        limit: Of its ratio to the last case without one; None for those and where nothing was promised.
        is_base: Whether the cases after it are compared with it.
    """

    gateway: Gateway
    make: Callable[[], None]
    limit: float | None = None
    is_base: bool = False


def cases(one: Gateway, two: Gateway, stdio: Mapping[int, str]) -> dict[str, Case]:
    """What is called, by name."""
    (first, first_id), (_, (own, own_id)) = both(one)[0], next(iter(both(two).items()))
    pair = both(two)
    turn = cycle([session_id for _, session_id in pair.values()])
    modern_one, modern_two = one.connect(), two.connect()
    shared = Shared(two, {number: session_id for number, (_, session_id) in pair.items()})
    home, home_id = pair[0]
    return {
        "modern, 1 worker": Case(one, lambda: call(modern_one, "web", None), is_base=True),
        "modern, 2 workers": Case(two, lambda: call(modern_two, "web", None), AT_HOME),
        "handshake, 1 worker": Case(one, lambda: call(first, "web", first_id), is_base=True),
        "handshake, 2 workers, at home": Case(two, lambda: call(own, "web", own_id), AT_HOME),
        "handshake, 2 workers, each call passed on": Case(two, shared.call_elsewhere, PASSED_ON),
        "handshake, 2 workers, in turn": Case(two, lambda: call(shared.connection, "web", next(turn)), PASSED_ON),
        "stdio server, 1 worker": Case(one, lambda: call(first, stdio[0], first_id), is_base=True),
        "stdio server, 2 workers, in this one": Case(two, lambda: call(home, stdio[0], home_id), AT_HOME),
        "stdio server, 2 workers, in the other": Case(two, lambda: call(home, stdio[1], home_id)),
    }


def cpu_rows(every: Mapping[str, Case], calls: int, rounds: int) -> Iterator[list[str]]:
    """CPU a call, median of the rounds, and its ratio to the same with one worker."""
    spent: dict[str, list[float]] = {name: [] for name in every}
    for case in every.values():
        for _ in range(WARM_UP_CALLS):
            case.make()
    for _ in range(rounds):
        for name, case in every.items():
            began = case.gateway.cpu_s()
            for _ in range(calls):
                case.make()
            spent[name].append((case.gateway.cpu_s() - began) / calls * 1e6)
    base: list[float] = []
    for name, case in every.items():
        base = spent[name] if case.is_base else base
        ratios = [own / other for own, other in zip(spent[name], base, strict=True)]
        yield row(f"{median(spent[name]):.0f} us", Cost(name, [1.0] if case.is_base else ratios, "x", case.limit))


def row(amount: str, ratio: Cost) -> list[str]:
    """A line of the table: what was measured before its ratio."""
    what, *cells = ratio.cells()
    return [what, amount, *cells]


LOAD = """
import sys
sys.path.insert(0, sys.argv[1])
import time
import bench_workers as b
gateway = b.Gateway(int(sys.argv[2]), 0)
connection = gateway.connect()
until = time.monotonic() + float(sys.argv[3])
calls = 0
while time.monotonic() < until:
    b.call(connection, "web", None)
    calls += 1
print(calls)
"""


def calls_per_s(gateway: Gateway, callers: int, seconds: float) -> float:
    """Of the modern era, from so many processes."""
    command = [sys.executable, "-c", LOAD, str(Path(__file__).parent), str(gateway.port), str(seconds)]
    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        done = pool.map(lambda _: subprocess.run(command, capture_output=True, text=True, check=True), range(callers))
        return sum(int(each.stdout) for each in done) / seconds


def rate_rows(one: Gateway, two: Gateway, seconds: float) -> Iterator[list[str]]:
    """Calls per second, median of three, and the ratio to those with one worker."""
    for callers in CALLERS:
        rates = [[calls_per_s(gateway, callers, seconds) for gateway in (one, two)] for _ in range(3)]
        single, double = (median(each) for each in zip(*rates, strict=True))
        yield row(f"{single:.0f}/s", Cost(f"{callers} callers, 1 worker", [1.0], "x"))
        yield row(f"{double:.0f}/s", Cost(f"{callers} callers, 2 workers", [double / single], "x"))


def session_row(gateway: Gateway, sessions: int) -> list[str]:
    """How many of many sessions are not found by one of two requests, each on a new connection."""
    opened_ids = []
    for _ in range(sessions):
        connection = gateway.connect()
        opened_ids.append(gateway.session(connection))
        connection.close()
    lost = set()
    for session_id in opened_ids * 2:
        connection = gateway.connect()
        try:
            post(connection, HEAD | {"mcp-session-id": session_id}, request("ping", {}))
        except RuntimeError as exc:
            print(exc, file=sys.stderr)
            lost.add(session_id)
        connection.close()
    held = Counter(map(worker_of, opened_ids))
    by_worker = " + ".join(str(held[number]) for number in range(2))
    return row(by_worker, Cost("sessions of each worker, and those of both not found", [len(lost)], "", 0))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200, help="a round (default 200)")
    parser.add_argument("--rounds", type=int, default=35)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each count of calls per second (default 2)")
    parser.add_argument("--sessions", type=int, default=2_000)
    parser.add_argument("--pin", action="store_true", help="keep gateways and load to processors of their own")
    return parser.parse_args()


def main() -> None:
    """Prints everything."""
    options = parsed()
    cores = Cores(is_pinned=options.pin)
    print(f"load {os.getloadavg()[0]:.1f}; {cores}", flush=True)
    cores.keep_load()
    names = [f"s{number}" for number in range(20)]
    two_workers = Worker(0, [None, None], None)  # type: ignore[list-item]  # nothing is sent
    stdio = {
        number: next(name for name in names if two_workers.find_keeper_worker(name) == number) for number in (0, 1)
    }
    table = [["", "median", "ratio", "", "limit", "", "lowest .. highest"]]
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder, port = Path(temporary), free_port()
        stack.enter_context(spawn(upstream_command("handshake", "http", str(port)), folder / "upstream"))
        command = upstream_command("handshake", "stdio")
        entry = {"command": command[0], "args": command[1:]}
        servers = {"web": {"url": f"http://127.0.0.1:{port}/mcp"}} | dict.fromkeys(stdio.values(), entry)
        one = stack.enter_context(opened(folder, 1, servers, cores))
        two = stack.enter_context(opened(folder, 2, servers, cores))
        table.extend(cpu_rows(cases(one, two, stdio), options.calls, options.rounds))
        table.extend(rate_rows(one, two, options.seconds))
        table.append(session_row(two, options.sessions))
    print(aligned(table))


if __name__ == "__main__":
    main()

"""Measures what the gateway's own process pays for a server, a session and a tool, and when a first search is answered.

  servers   processor time for each stdio server that starts: a start with 1 and one with 41 of them, the difference by
            40; on a new data directory (lists are stored and approved) and on the one that this has left
  sessions  processor time and memory for each session of the handshake era that is opened and stays open, on a
            connection of its own: alone, and with tools/list and one search, and for the latter in the modern era,
            which has no sessions
  search    seconds from the spawn to the first answer that covers all of 1,000 stored tools, the client connecting
            from the first moment on
  memory    KB for each tool: a settled gateway with 10,000 stored tools and one without any
  isolation what a sandbox adds to each of 100 stdio servers: to a restart until its first call is answered and to a
            call, with every second server of one gateway in a sandbox, both kinds in turn, each first in every other
            pair; and to memory (PSS), the gateway's and all that it started together, with all servers of a gateway
            in sandboxes and with none. With --bubblewrap, these are made by that

Processor time is that of the gateway's process alone, in the kernel's ticks; memory, where nothing else is said, is
what no file backs (RssAnon), after freed memory has been given back, in KiB. All run on loopback, one after the other.
Medians; compare them with the limits on a quiet machine only.

    python scripts/bench_costs.py --only sessions memory
"""

import argparse
import http.client
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from subprocess import Popen

from bench.load import HttpLink, PipeLink, time_limit
from bench.process import cpu_s, descendants, memory_kb, pss_kb
from bench.report import Cost, aligned
from bench.search_data import grow, read_rows
from bench.sized_start import Catalog
from bench.targets import TargetError, free_port, spawn, upstream_command
from bench.wire import BadReplyError, Era

TOOLS = Path(__file__).parent.parent / "tests" / "golden_search" / "tools.jsonl"
ROUNDS = 5
READY_S = 60.0
SESSION_S = 0.2
IDLE_S = 4.0
"""Freed memory is given back once nothing was done for 2 s."""
PAUSE_S = 0.002
WARM_UP_SESSIONS = 100
NONE, SANDBOX = {"isolation": "none"}, {"isolation": "sandbox"}
BUBBLEWRAP = {"isolation": "sandbox", "allow": {"write": ["/dev/shm"]}}
"""Memory of its own is what Landlock cannot give: where bubblewrap is installed, it is chosen."""
CALLS, CALLS_S = 40, 1.0
QUERY = {"arguments": {"query": "send a message to a channel"}}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=tuple(COSTS), default=tuple(COSTS), help="default: all")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of servers, memory and, twice, search; default 5")
    parser.add_argument("--servers", type=int, default=40, help="that start beside the first; default 40")
    parser.add_argument("--isolated", type=int, default=100, help="servers with and without a sandbox; default 100")
    parser.add_argument("--bubblewrap", action="store_true", help="have bubblewrap make the sandboxes")
    parser.add_argument("--sessions", type=int, default=2_000, help="at most 49,900; default 2,000")
    parser.add_argument("--stored", type=int, default=1_000, help="tools that the first search covers; default 1,000")
    parser.add_argument("--definitions", type=Path, default=TOOLS, help="JSON lines of tools that are grown to so many")
    parser.add_argument("--tools", type=int, default=10_000, help="whose memory is measured; default 10,000")
    return parser.parse_args()


@contextmanager
def serving(
    folder: Path, servers: int, data: Path, *settings: str, parts: Sequence[Mapping[str, object]] = (NONE,)
) -> Iterator[tuple["Popen[bytes]", int]]:
    """A gateway over HTTP that has listed so many stdio servers, with these parts in turn, and its port."""
    command, *arguments = upstream_command("handshake", "stdio")
    config, log, port = folder / f"{servers}-servers.json", folder / "gateway.log", free_port()
    entry = {"command": command, "args": arguments}
    entries = {f"up{number}": {**entry, **parts[number % len(parts)]} for number in range(servers)}
    config.write_text(json.dumps({"mcpServers": entries}))
    gateway = ["env", f"MCPPROXY_DATA_DIR={data}", *settings, sys.executable, "-m", "smart_mcp_proxy", "serve"]
    with spawn([*gateway, "--http", "--port", str(port), "--config", str(config), "--json"], log) as process:
        assert process.stdout is not None
        with time_limit(READY_S, "the start of the gateway"):
            told = process.stdout.readline()  # once every server is listed or has failed
        if {row["state"] for row in json.loads(told or b"{}").get("servers", ())} != {"ready"}:
            raise TargetError(f"not all servers are ready: {told!r}\n{log.read_text(errors='replace')[-2000:]}")
        yield process, port


def servers(folder: Path, options: argparse.Namespace) -> Iterator[Cost]:
    """What each stdio server beside the first costs that is new, and that is known."""
    spent: dict[str, list[float]] = {"new": [], "known": []}
    for number in range(options.rounds):
        for each in spent.values():
            cost_s = []
            for count in (1, 1 + options.servers):
                with serving(folder, count, folder / f"data-{count}-{number}") as (process, _):
                    time.sleep(IDLE_S)  # what is put off counts, too
                    cost_s.append(cpu_s(process.pid))
            each.append((cost_s[1] - cost_s[0]) / options.servers * 1000)
    for kind, each in spent.items():
        yield Cost(f"a {kind} stdio server that starts, CPU", each, "ms", 25)


def visit(port: int, era: Era, *, is_silent: bool = False) -> None:
    """A client that connects, lists and searches, or does neither, and leaves its session behind."""
    link = HttpLink(port)
    link.open(era)
    if not is_silent:
        link.request("tools/list")
        if not link.ask(link.template("retrieve_tools", QUERY))["result"]["structuredContent"]["total"]:
            raise TargetError("a search covered nothing")
    link.close()


def sessions(folder: Path, options: argparse.Namespace) -> Iterator[Cost]:
    """What each session costs; those before the first measured one leave all code warm."""
    room = f"MCPPROXY_MAX_SESSIONS={2 * (options.sessions + WARM_UP_SESSIONS)}"
    kinds: tuple[tuple[str, Era, bool], ...] = (
        ("a session that is only opened", "handshake", True),
        ("a session that stays open", "handshake", False),
        ("the same requests, modern era", "modern", False),
    )
    with serving(folder, 1, folder / "data", room) as (process, port):
        for label, era, is_silent in kinds:
            used = []
            for count in (WARM_UP_SESSIONS, options.sessions):
                with time_limit(READY_S + SESSION_S * count, f"{count} sessions"):
                    for _ in range(count):
                        visit(port, era, is_silent=is_silent)
                time.sleep(IDLE_S)
                used.append((cpu_s(process.pid), memory_kb(process.pid, "RssAnon")))
            (before_s, before_kb), (after_s, after_kb) = used
            is_limited = era == "handshake"
            yield Cost(
                f"{label}, CPU", [(after_s - before_s) / options.sessions * 1000], "ms", 1.5 if is_limited else None
            )
            yield Cost(
                f"{label}, memory", [(after_kb - before_kb) / options.sessions], "KB", 60 if is_limited else None
            )


def stored(folder: Path, size: int, definitions: Path) -> Catalog:
    """A catalog of so many tools, which a first start has stored."""
    folder.mkdir()
    catalog = Catalog(grow(list(read_rows(definitions)), size), folder)
    catalog.start()
    return catalog


def searched_s(catalog: Catalog, transport: str, size: int, log: Path) -> float:
    """Seconds from the spawn to the first answer that covers so many tools."""
    port = free_port()
    words = ("--http", "--port", str(port)) if transport == "http" else ()
    began = time.perf_counter()
    with spawn(catalog.command(*words), log) as process, time_limit(READY_S, f"a first search over {transport}"):
        link = HttpLink(port) if transport == "http" else PipeLink(process)
        while True:
            try:
                link.open("handshake")
                break
            except ConnectionRefusedError:
                time.sleep(PAUSE_S)
        request = link.template("retrieve_tools", QUERY)
        while link.ask(request)["result"]["structuredContent"]["total"] < size:
            time.sleep(PAUSE_S)
        taken_s = time.perf_counter() - began
        link.close()
        return taken_s


def search(folder: Path, options: argparse.Namespace) -> Iterator[Cost]:
    """When a first search is answered, over both transports in turn."""
    catalog, size = stored(folder / "stored", options.stored, options.definitions), options.stored
    taken: dict[str, list[float]] = {"http": [], "stdio": []}
    for number in range(1 + 2 * options.rounds):
        for transport, each in taken.items():
            taken_s = searched_s(catalog, transport, size, folder / f"{transport}.log")
            if number:  # the first start over stdio leaves its greeting for the next
                each.append(taken_s)
    for transport, each in taken.items():
        yield Cost(f"first search over {transport}, {size:,} stored tools", each, "s", 1.2)


def memory(folder: Path, options: argparse.Namespace) -> Iterator[Cost]:
    """What each tool takes, and a gateway without tools."""
    none, many = [
        stored(folder / name, size, options.definitions) for name, size in (("none", 0), ("many", options.tools))
    ]
    starts = [(none.start(), many.start()) for _ in range(options.rounds)]
    for key, label in (("settled_own_mb", "memory"), ("settled_mb", "memory with what files back")):
        each = [(full[key] - empty[key]) * 1024 / options.tools for empty, full in starts]
        yield Cost(f"a tool of {options.tools:,}, {label}", each, "KB", 3.7)
    yield Cost("a gateway without tools, memory", [empty["settled_own_mb"] for empty, _ in starts], "MB")


def isolation(folder: Path, options: argparse.Namespace) -> Iterator[Cost]:
    """What a sandbox adds to a server's start, calls and memory."""
    count, data, kinds = options.isolated, folder / "mixed", (NONE, BUBBLEWRAP if options.bubblewrap else SANDBOX)
    added: dict[str, list[float]] = {"start": [], "call": []}
    turns = itertools.product(range(options.rounds), range(0, count - 1, 2))
    with serving(folder, count, data, parts=kinds) as (_, port):
        head = {"authorization": f"Bearer {(data / 'operator.token').read_text().strip()}"}
        link = HttpLink(port)
        link.open("modern")
        # Whatever the first of a pair pays for being first, each kind pays in every second pair.
        pairs = [(number, (0, 1) if (number // 2 + turn) % 2 else (1, 0)) for turn, number in turns]
        for number, order in pairs:
            taken = {kind: restarted_ms(link, port, head, f"up{number + kind}") for kind in order}
            added["start"].append(taken[1] - taken[0])
        for number, order in pairs:
            requests = {kind: link.template("call_tool_write", echo(f"up{number + kind}")) for kind in order}
            times = {kind: median(link.sequential(request, CALLS, CALLS_S)) for kind, request in requests.items()}
            added["call"].append(times[1] - times[0])
        link.close()
    yield Cost("a server's sandbox, restart to first call", added["start"], "ms", 15)
    yield Cost("a server's sandbox, each call", added["call"], "ms", 0)
    used: list[float] = []
    for kind in kinds:
        with serving(folder, count, folder / f"all-{len(used)}", parts=(kind,)) as (process, _):
            time.sleep(IDLE_S)
            used.append(sum(map(pss_kb, (process.pid, *descendants(process.pid)))))
    yield Cost("a server's sandbox, memory (PSS)", [(used[1] - used[0]) / count], "KB", 1024)


def echo(server: str) -> dict[str, object]:
    """Parameters of a call of this server's tool."""
    return {"arguments": {"name": f"{server}:echo", "args": {"text": "x"}}}


def restarted_ms(link: HttpLink, port: int, head: dict[str, str], server: str) -> float:
    """Milliseconds from the request to restart a server until a call, which waits for it, is answered."""
    request = link.template("call_tool_write", echo(server))
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", f"/api/v1/servers/{server}/restart", headers=head)
    answer = connection.getresponse()
    connection.close()
    if answer.status != 200:
        raise TargetError(f"{server} was not restarted: {answer.status}")
    link.sequential(request, 1, 0)
    return (time.perf_counter() - began) * 1000


COSTS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Cost]]] = {
    "servers": servers,
    "sessions": sessions,
    "search": search,
    "memory": memory,
    "isolation": isolation,
}


def main() -> int:
    options = parsed()
    table = [["", "median", "", "limit", "", "lowest .. highest"]]
    status = 0
    try:
        with tempfile.TemporaryDirectory(prefix="bench-costs-", ignore_cleanup_errors=True) as name:
            for kind in dict.fromkeys(options.only):
                print(f"measuring {kind} ...", file=sys.stderr, flush=True)
                (folder := Path(name) / kind).mkdir()
                table.extend(cost.cells() for cost in COSTS[kind](folder, options))
    except (TargetError, BadReplyError, OSError) as exc:
        print(f"The measurement ended early: {exc}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print("Stopped, and all that was started with it.", file=sys.stderr)
        status = 130
    if len(table) > 1:
        print(f"costs ({len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f} at the end)")
        print(aligned(table))
    return status


if __name__ == "__main__":
    sys.exit(main())

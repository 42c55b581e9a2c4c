"""Measures what metrics and traces cost a call: gateways with and without them, in rounds that alternate.

Each round makes the same calls through every gateway, one after the other, each time beginning with another one.
Rounds are short: other work on the machine then meets all alike. What is compared is the gateway's processor time for
a call, all its threads, the exporter's included. All gateways are started anew a few times: two equal processes differ
by some per cent for as long as they live, by where their memory happens to lie. The second gateway without anything
shows how far two equal ones still differ. The busy poll is off: it would fill the time in between.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.measure import TEXT
from bench.targets import Bench, Target, TargetError, Transport
from bench.wire import BadReplyError

TRANSPORTS: tuple[Transport, ...] = ("stdio", "http")
WARM_UP_CALLS = 2_000
LONGEST_ROUND_S = 60.0
LIMITS = {"metrics": 1.02, "traces, 1 %": 1.05}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="of each gateway; default 200")
    parser.add_argument("--starts", type=int, default=5, help="of each gateway, among which the rounds are divided")
    parser.add_argument("--calls", type=int, default=200, help="in a round; default 200")
    parser.add_argument("--all", action="store_true", help="also with every call traced")
    parser.add_argument("--transport", choices=TRANSPORTS, help="only this one; default both")
    return parser.parse_args()


@contextlib.contextmanager
def collector() -> Iterator[str]:
    """Address of something that takes spans and throws them away."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def cpu_ns(target: Target) -> int:
    """Processor time of a process's threads in nanoseconds: the ticks of its `stat` are too coarse."""
    assert target.process is not None
    tasks = Path(f"/proc/{target.process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def round_us(target: Target, calls: int) -> float:
    """Processor time of a call in microseconds."""
    request = target.prepare("echo", {"text": TEXT}, TEXT)
    before = cpu_ns(target)
    times = target.link.sequential(request, calls, LONGEST_ROUND_S)
    return (cpu_ns(target) - before) / len(times) / 1_000


def least(times: list[float]) -> float:
    """Mean of the best tenth: what a call costs where nothing else gets in its way."""
    return statistics.mean(sorted(times)[: max(1, len(times) // 10)])


def compare(transport: Transport, kinds: Mapping[str, list[str]], options: argparse.Namespace, folder: Path) -> bool:
    """Print a line for each gateway; whether all are within their limits."""
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    for start in range(options.starts):
        with contextlib.ExitStack() as stack:
            targets: dict[str, Target] = {}
            for number, (kind, words) in enumerate(kinds.items()):
                place = folder / str(start) / str(number)
                place.mkdir(parents=True)
                bench = Bench(transport, "modern", place, ["ours"], options=["--no-poll", *words])
                [targets[kind]] = stack.enter_context(bench)
                round_us(targets[kind], WARM_UP_CALLS)
            order = list(kinds)
            for _ in range(max(1, options.rounds // options.starts)):
                for kind in order:
                    found[kind].append(round_us(targets[kind], options.calls))
                order.append(order.pop(0))
    is_within = True
    for kind, times in found.items():
        ratios = [one / base for one, base in zip(times, found["off"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        best = least(times) / least(found["off"])
        limit = LIMITS.get(kind)
        verdict = "" if limit is None else f"  {'<=' if middle <= limit else 'OVER'} {limit:.2f}"
        is_within = is_within and (limit is None or middle <= limit)
        figures = f"{statistics.median(times):7.1f}  {middle:6.3f}  {low:.3f}..{high:.3f}  {best:.3f}"
        print(f"{transport:6} {kind:14} {figures}{verdict}", flush=True)
    return is_within


def main() -> int:
    options = parse_options()
    print(f"processors {len(os.sched_getaffinity(0))}, load {os.getloadavg()[0]:.1f}")
    print("                  CPU us a call  ratio to off: median and quartiles of the rounds, best tenth")
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, collector() as address:
        kinds = {
            "off": [],
            "off again": [],
            "metrics": ["--metrics"],
            "traces, 1 %": ["--traces", "0.01", "--collector", address],
        }
        if options.all:
            kinds["traces, all"] = ["--traces", "1", "--collector", address]
        is_within = True
        try:
            for transport in TRANSPORTS if options.transport is None else (options.transport,):
                is_within = compare(transport, kinds, options, Path(folder) / transport) and is_within
        except (TargetError, BadReplyError, OSError) as exc:
            print(f"The comparison ended early: {exc}")
            return 1
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    return 0 if is_within else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())

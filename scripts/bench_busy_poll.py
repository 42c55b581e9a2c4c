"""Compares the gateway with and without its busy poll: rounds that alternate, on idle and on loaded processors.

Each round calls one after another, first one gateway, then the other. What a call added is that of the machine at this
moment; the processor time of a call says what the poll costs. Run it on a quiet machine; `--busy` gives it other work.
"""

import argparse
import contextlib
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import TEXT
from bench.targets import Bench, Target, TargetError, Transport
from bench.wire import BadReplyError

TRANSPORTS: tuple[Transport, ...] = ("stdio", "http")
WARM_UP_CALLS = 500


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="of each gateway; default 12")
    parser.add_argument("--calls", type=int, default=3_000, help="in a round; default 3,000")
    parser.add_argument("--round-s", type=float, default=3.0, help="longest time of a round; default 3")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a processor busy; default 0")
    return parser.parse_args()


def spin() -> None:
    """Keeps one processor busy."""
    while True:
        pass


@contextlib.contextmanager
def other_work(count: int) -> Iterator[None]:
    """Processes that keep processors busy while open."""
    busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def measured(target: Target, calls: int, seconds: float) -> tuple[float, float]:
    """The median time of a call and the gateway's processor time for one, both in milliseconds."""
    request = target.prepare("echo", {"text": TEXT}, TEXT)
    cpu_s = target.cpu_s()
    times = target.link.sequential(request, calls, seconds)
    return 1000 * (target.cpu_s() - cpu_s) / len(times), statistics.median(times)


def compare(transport: Transport, options: argparse.Namespace, folder: Path) -> str:
    """One line of the table."""
    with (
        Bench(transport, "modern", folder / "with", ["ours"]) as [polling],
        Bench(transport, "modern", folder / "without", ["ours"], options=["--no-poll"]) as [sleeping],
    ):
        for target in (polling, sleeping):
            measured(target, WARM_UP_CALLS, options.round_s)
        rounds = [
            [measured(target, options.calls, options.round_s) for target in (polling, sleeping)]
            for _ in range(options.rounds)
        ]
    cells = []
    for place in (0, 1):
        with_ms, without_ms = (statistics.median(one[which][place] for one in rounds) for which in (0, 1))
        ratio = statistics.median(one[0][place] / one[1][place] for one in rounds if one[1][place])
        cells.append(f"{with_ms:8.3f} {without_ms:8.3f} {ratio:7.2f}")
    return f"{transport:6} {cells[1]}   {cells[0]}"


def main() -> int:
    options = parse_options()
    print(f"processors {len(os.sched_getaffinity(0))}, load {os.getloadavg()[0]:.1f}, {options.busy} busy processes")
    print("       p50 ms: with, without, ratio  CPU ms a call: with, without, ratio")
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder, other_work(options.busy):
        for transport in TRANSPORTS:
            own = Path(folder) / transport
            for name in ("with", "without"):
                (own / name).mkdir(parents=True)
            try:
                print(compare(transport, options, own), flush=True)
            except (TargetError, BadReplyError, OSError) as exc:
                print(f"The comparison ended early: {exc}")
                return 1
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())

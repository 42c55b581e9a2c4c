"""The benchmark of workers itself: a figure that cannot be measured any more is noticed before it is missed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_workers.py"
LIMIT_S = 240
SMALL = ("--calls", "5", "--rounds", "1", "--seconds", "0.2", "--sessions", "20")


@pytest.mark.soak  # starts eight gateways
def test_the_benchmark_measures_calls_by_where_they_land_and_loses_no_session() -> None:
    """A few calls are enough to see every figure and its verdict; how large they are is not judged."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *SMALL], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    line = r"^ +(\S.*?)  +(\S.*?) +(\d+\.\d\d)(?: +x)?(?: +([\d.]+) +(kept|missed))?(?: +[\d.]+ \.\. [\d.]+)? *$"
    rows = re.findall(line, done.stdout, re.MULTILINE)
    assert [(what, limit) for what, _, _, limit, _ in rows] == [
        ("modern, 1 worker", ""),
        ("modern, 2 workers", "1.05"),
        ("handshake, 1 worker", ""),
        ("handshake, 2 workers, at home", "1.05"),
        ("handshake, 2 workers, each call passed on", "1.6"),
        ("handshake, 2 workers, in turn", "1.6"),
        ("stdio server, 1 worker", ""),
        ("stdio server, 2 workers, in this one", "1.05"),
        ("stdio server, 2 workers, in the other", ""),
        ("2 callers, 1 worker", ""),
        ("2 callers, 2 workers", ""),
        ("4 callers, 1 worker", ""),
        ("4 callers, 2 workers", ""),
        ("8 callers, 1 worker", ""),
        ("8 callers, 2 workers", ""),
        ("sessions of each worker, and those of both not found", "0"),
    ]
    assert all((verdict == "kept") == (float(ratio) <= float(limit)) for _, _, ratio, limit, verdict in rows if limit)
    assert all(float(ratio) > 0 for _, _, ratio, *_ in rows[:-1])
    _, held, lost, _, verdict = rows[-1]
    assert (sum(map(int, held.split(" + "))), lost, verdict) == (20, "0.00", "kept")

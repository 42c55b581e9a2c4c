"""The benchmark of changing lists itself: a figure that cannot be measured any more is noticed before it is missed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 240
SCRIPT = [sys.executable, ROOT / "scripts" / "bench_lists.py", "--searches", "4", "--rounds", "1", "--only"]


def measured(part: str) -> str:
    """The figures of a part; how large they are on a machine at work is not judged."""
    done = subprocess.run([*SCRIPT, part], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.long
def test_the_benchmark_measures_delays_of_changing_lists() -> None:
    """A few searches are enough to see the figure of each way."""
    ways = re.findall(r"(\w+) +p50 +[\d.]+ +p95 +[\d.]+", measured("delays"))
    assert ways == ["stdio", "http", "sse", "toolset"]


@pytest.mark.soak  # four gateways, started as those above
def test_the_benchmark_measures_costs_of_changing_lists() -> None:
    """Before and after ten searches, by routing and client."""
    found = re.findall(r"(\S+) +(\S+) +(\d+) +(\d+)\n", measured("costs"))
    costs = {row[:2]: (int(row[2]), int(row[3])) for row in found}
    assert costs["CALL_TOOL", "any"][0] == costs["CALL_TOOL", "any"][1]
    assert costs["CALL_TOOL", "any"][0] < costs["DYNAMIC", "any"][0] < costs["DYNAMIC", "any"][1]  # it knows toolsets
    assert costs["AUTO", "claude-code"] == costs["DYNAMIC", "any"]
    assert costs["AUTO", "cursor"] == (costs["DYNAMIC", "any"][0],) * 2

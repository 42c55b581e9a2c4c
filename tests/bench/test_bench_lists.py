"""The benchmark of changing lists itself: a figure that cannot be measured any more is noticed before it is missed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 240


@pytest.mark.long
def test_the_benchmark_measures_delay_and_cost_of_changing_lists() -> None:
    """A few searches are enough to see both figures; how large they are on a machine at work is not judged."""
    command = [sys.executable, ROOT / "scripts" / "bench_lists.py", "--searches", "4", "--rounds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert not done.stderr, done.stderr
    ways = re.findall(r"(\w+) +p50 +[\d.]+ +p95 +[\d.]+", done.stdout)
    assert ways == ["stdio", "http", "sse", "toolset"]
    costs = {row[:2]: (int(row[2]), int(row[3])) for row in re.findall(r"(\S+) +(\S+) +(\d+) +(\d+)\n", done.stdout)}
    assert costs["CALL_TOOL", "any"][0] == costs["CALL_TOOL", "any"][1]
    assert costs["CALL_TOOL", "any"][0] < costs["DYNAMIC", "any"][0] < costs["DYNAMIC", "any"][1]  # it knows toolsets
    assert costs["AUTO", "claude-code"] == costs["DYNAMIC", "any"]
    assert costs["AUTO", "cursor"] == (costs["DYNAMIC", "any"][0],) * 2

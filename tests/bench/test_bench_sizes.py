"""The benchmark of catalog sizes itself: a figure that cannot be measured any more is noticed before it is missed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 300


@pytest.mark.parametrize(
    "part", [pytest.param("queries", marks=pytest.mark.long), pytest.param("all", marks=pytest.mark.soak)]
)
def test_the_benchmark_measures_starts_memory_and_kinds_of_queries(part: str) -> None:
    """A small catalog has every figure, and beside itself a search takes about as long, which is not judged.

    The queries alone start no gateway.
    """
    command = [sys.executable, ROOT / "scripts" / "bench_sizes.py", "--sizes", "500", "--rounds", "1", "--count", "5"]
    more = ["--queries-only"] if part == "queries" else ["--beside", ROOT]
    done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    if part == "all":
        (start,) = re.findall(r"^ +500 +([\d.]+) +([\d.]+) +(\d+) +(\d+) +(\d+) +(\d+)$", done.stdout, re.MULTILINE)
        assert all(float(figure) > 0 for figure in start)
    kinds = re.search(r"ranked by +(labelled +long +spelt +part +nearly +misspelt +unknown) +bytes a tool", done.stdout)
    assert kinds is not None
    rows = re.findall(r"^ +500 (words beside|words|AUTO without Faiss|AUTO) +(.*)$", done.stdout, re.MULTILINE)
    beside = ["words beside"] if part == "all" else []
    assert [name for name, _ in rows] == ["words", "AUTO", "AUTO without Faiss", *beside]
    assert all(len(re.findall(r"[\d.]+ / [\d.]+", figures)) == len(kinds[1].split()) for _, figures in rows)

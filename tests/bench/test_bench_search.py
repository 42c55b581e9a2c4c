"""The search benchmark itself: a figure that cannot be measured any more is noticed before it is missed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 60


@pytest.mark.parametrize(
    "part", [pytest.param("quality", marks=pytest.mark.long), pytest.param("growth", marks=pytest.mark.soak)]
)
def test_the_benchmark_measures_quality_and_cost(part: str, tmp_path: Path) -> None:
    """A smoke run over the golden set ends well, and its file has the figures of the product path."""
    output = tmp_path / "bench.json"
    command = [sys.executable, ROOT / "scripts" / "bench_search.py", "--quick", "--only", part, "--output", output]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(output.read_text())
    if part == "quality":
        assert report["quality"]["ours, product path"]["recall"] > 0.5
    else:
        assert report["growth"]["1000"]["ours, product path"]["p50_ms"] > 0

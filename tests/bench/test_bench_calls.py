"""The benchmark itself: a figure that cannot be measured any more is noticed before it is missed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 60


@pytest.mark.long
def test_the_benchmark_measures_the_gateway_beside_direct_calls(tmp_path: Path) -> None:
    """One short round over stdio ends well, and its file has the figures of both."""
    output = tmp_path / "bench.json"
    arguments = ["--only", "stdio", "--era", "handshake", "--quick", "--skip-proxy", "--output", str(output)]
    command = [sys.executable, ROOT / "scripts" / "bench_calls.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(output.read_text())["calls"]["stdio, handshake era"]
    assert {"direct", "ours"} <= set(rows)
    ours = rows["ours"]  # with a progress token, and without one beside it
    for speed in (ours, ours["without_token"]):
        assert speed["calls_per_s"]["64"] > 0 and "added_p50_ms" in speed
    assert "no token: added" in done.stdout

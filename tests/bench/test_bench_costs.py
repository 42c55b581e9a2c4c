"""The benchmark of costs itself: a figure that cannot be measured any more is noticed before it is missed."""

import itertools
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_costs.py"
LIMIT_S = 300
LOOKS = 6_000
SMALL = ("--rounds", "1", "--servers", "2", "--sessions", "20", "--stored", "60", "--tools", "300", "--isolated", "2")


ROWS = {
    "servers": [
        ("a new stdio server that starts, CPU", "ms", "25"),
        ("a known stdio server that starts, CPU", "ms", "25"),
    ],
    "sessions": [
        ("a session that is only opened, CPU", "ms", "1.5"),
        ("a session that is only opened, memory", "KB", "60"),
        ("a session that stays open, CPU", "ms", "1.5"),
        ("a session that stays open, memory", "KB", "60"),
        ("the same requests, modern era, CPU", "ms", ""),
        ("the same requests, modern era, memory", "KB", ""),
    ],
    "search": [
        ("first search over http, 60 stored tools", "s", "1.2"),
        ("first search over stdio, 60 stored tools", "s", "1.2"),
    ],
    "memory": [
        ("a tool of 300, memory", "KB", "3.7"),
        ("a tool of 300, memory with what files back", "KB", "3.7"),
        ("a gateway without tools, memory", "MB", ""),
    ],
    "isolation": [
        ("a server's sandbox, restart to first call", "ms", "15"),
        ("a server's sandbox, each call", "ms", "0"),
        ("a server's sandbox, memory (PSS)", "KB", "1024"),
    ],
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long if kind == "sessions" else pytest.mark.soak) for kind in ROWS]
)
def test_the_benchmark_measures_each_cost(kind: str) -> None:
    """Few of each are enough to see every figure; how large they are is not judged.

    The kinds share how a gateway is started, measured and told of; what each starts besides is for `make soak`.
    """
    command = [sys.executable, SCRIPT, *SMALL, "--only", kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^ +(\S.*?) +(-?\d+\.\d\d) +(ms|s|KB|MB)\b(?: +([\d.]+) +(kept|missed))?", done.stdout, re.M)
    assert [(what, unit, limit) for what, _, unit, limit, _ in rows] == ROWS[kind]
    assert all(float(amount) > 0 for what, amount, unit, *_ in rows if unit in ("s", "MB"))
    assert all((verdict == "kept") == (float(amount) <= float(limit)) for _, amount, _, limit, verdict in rows if limit)


@pytest.mark.long
def test_an_interrupt_ends_what_the_benchmark_has_started(tmp_path: Path) -> None:
    """Neither a process nor a file is left, and the exit status is that of an interrupt."""
    command = [sys.executable, SCRIPT, "--only", "sessions", "--sessions", "49000"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    # In the background of a script, where the tests may run, an interrupt is ignored by what is started.
    takes_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command,
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=takes_interrupts,  # noqa: PLW1509  (one system call, no lock)
    ) as process:
        try:
            looks = itertools.count()
            while not list(tmp_path.glob("*/sessions/data/operator.token")):
                assert next(looks) < LOOKS, "the gateway does not start"
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(LIMIT_S / LOOKS)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()

    assert process.returncode == 130, said
    assert children and not any(Path("/proc", child).exists() for child in children)
    assert not list(tmp_path.iterdir())
    assert "Traceback" not in said

"""`make run` ends quietly on Ctrl-C, and what it runs is never left behind."""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_for_make.py"
UNTIL_CTRL_C = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # one that came before the wait would not end it
print("ready", flush=True)
signal.sigwait({signal.SIGINT})
sys.exit(130)
"""


@contextmanager
def started(*words: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process group of its own whose command is under way."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # What a shell starts in the background ignores Ctrl-C, and so would all that is started from there.
    options["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(words, start_new_session=True, **pipes, **options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(("status", "told"), [(0, 0), (130, 0), (2, 2), (1, 1)])
def test_only_the_status_of_an_interruption_becomes_0(status: int, told: int) -> None:
    """What went wrong stays an error of make."""
    words = [sys.executable, str(SCRIPT), sys.executable, "-c", f"raise SystemExit({status})"]
    assert subprocess.run(words, check=False, timeout=20).returncode == told


def test_what_ends_the_script_ends_its_command() -> None:
    """SIGTERM goes to make's child alone; the command must not go on without it."""
    with started(sys.executable, str(SCRIPT), sys.executable, "-c", UNTIL_CTRL_C) as process:
        process.terminate()
        assert process.wait(20) == 128 + signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_says_nothing_on_ctrl_c(tmp_path: Path) -> None:
    """A terminal sends the signal to make, to the script and to its command alike.

    GNU make 4.3 itself misses its child now and then, where that ends while make handles the signal.
    """
    (tmp_path / "command.py").write_text(UNTIL_CTRL_C)
    (tmp_path / "Makefile").write_text(f"run:\n\t@exec {sys.executable} {SCRIPT} {sys.executable} command.py\n")
    outside = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    with started("make", "run", cwd=tmp_path, env=outside) as process:
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=20)[1].splitlines()
    assert [line for line in said if "No child processes" not in line and "Waiting for unfinished" not in line] == []


def checked_port(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`scripts/check_port.py WORDS`."""
    script = Path(__file__).parents[2] / "scripts" / "check_port.py"
    env = {name: value for name, value in os.environ.items() if not name.startswith("MCPPROXY_")} | variables
    command = [sys.executable, str(script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20, env=env)


def test_a_port_in_use_is_seen_before_anything_is_installed() -> None:
    """From the environment and from the options alike; the message names the way out."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for done in (checked_port(MCPPROXY_PORT=port), checked_port("--port", port), checked_port(f"--port={port}")):
            assert (done.returncode, "MCPPROXY_PORT=0 make run" in done.stderr) == (2, True)
    assert checked_port(MCPPROXY_PORT=port).returncode == 0
    assert checked_port("--port", "0").returncode == 0


@pytest.mark.long  # a third of a second of processor time
def test_an_installation_says_how_far_it_is(tmp_path: Path) -> None:
    """What pip says is kept for a failure, which has pip's own status."""
    script = Path(__file__).parents[2] / "scripts" / "install_shown.py"
    (tmp_path / "pyproject.toml").write_text("broken")
    words = [sys.executable, str(script), "60", "--no-index", "--no-deps", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode and "TOMLDecodeError" in done.stderr
    spec = importlib.util.spec_from_file_location("install_shown", script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.describe_step("Collecting httpx2<3,>=2", 4, "") == (5, "packages found: 5")
    assert module.describe_step("Installing collected packages: a, b, c", 5, "") == (5, "installing 3 of them")
    assert module.describe_step("  Downloading a.whl (3 kB)", 5, "as before") == (5, "as before")


def test_the_page_of_nothing_leads_to_make_run(tmp_path: Path) -> None:
    """`make ui` before `make run` installs nothing, and says what comes first."""
    words = ["make", "--no-print-directory", "ui", f"VENV={tmp_path}"]
    done = subprocess.run(words, cwd=SCRIPT.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("Nothing is installed here yet. Next: make run\n")

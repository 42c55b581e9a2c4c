"""Python packages for the tests that drive the gateway with them, each set in an environment of its own in a cache."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from node_tools import CACHE

INSTALL_S = 900


@cache
def python_with(*requirements: str) -> Path:
    """The interpreter of an environment that holds these packages; skips the test where they cannot be had."""
    name = re.sub(r"[^a-z0-9.-]+", "-", f"{requirements[0]}-py{sys.version_info.major}.{sys.version_info.minor}")
    folder = CACHE / "python" / name
    python, installed = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(requirements)
    if installed.is_file() and installed.read_text("utf-8") == wanted:
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", *requirements],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            pytest.skip(f"{wanted} cannot be installed: {done.stderr.strip()[-300:]}")
    installed.write_text(wanted, "utf-8")
    return python

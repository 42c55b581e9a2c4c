"""Python packages for the tests that drive the gateway with them, each set in an environment of its own in a cache."""

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from node_tools import CACHE

INSTALL_S = 900


@cache
def interpreter(at_least: tuple[int, int]) -> tuple[Path, str]:
    """This Python, or another one on the path or of pyenv that is new enough, and its version; skips without one."""
    candidates = [Path(sys.executable)]
    candidates += [Path(found) for minor in range(at_least[1], 20) if (found := shutil.which(f"python3.{minor}"))]
    candidates += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    for candidate in candidates:
        program = "import sys; print(*sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", program], capture_output=True, text=True, check=False)
        version = tuple(int(part) for part in done.stdout.split()) if done.returncode == 0 else ()
        if version >= at_least:
            return candidate, ".".join(map(str, version))
    pytest.skip(f"no Python {'.'.join(map(str, at_least))} or newer")


@cache
def python_with(*requirements: str, at_least: tuple[int, int] = (3, 0)) -> Path:
    """The interpreter of an environment that holds these packages; skips the test where they cannot be had."""
    base, version = interpreter(at_least)
    name = re.sub(r"[^a-z0-9.-]+", "-", f"{requirements[0]}-py{version}")
    folder = CACHE / "python" / name
    python, installed = folder / "bin" / "python", folder / "installed"
    wanted = "\n".join(requirements)
    if installed.is_file() and installed.read_text("utf-8") == wanted:
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    for command in (
        [str(base), "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", *requirements],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            pytest.skip(f"{wanted} cannot be installed: {done.stderr.strip()[-300:]}")
    installed.write_text(wanted, "utf-8")
    return python

"""Our own commands, as the user of a home directory of the tests runs them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["mcpproxy_in"]


def mcpproxy_in(home: Path, cwd: Path, settings: Mapping[str, str], *words: str) -> list[dict[str, object]]:
    """The JSON that a command prints, which has to succeed.

    Args:
        home: Where the clients' files are.
        cwd: The working directory.
        settings: Variables beside the environment's.
        words: The command.
    """
    done = subprocess.run(
        [sys.executable, "-m", "smart_mcp_proxy", *words, "--json"],
        env={**os.environ, **settings, "HOME": str(home), "XDG_CONFIG_HOME": ""},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found

"""Our own commands, as the user of a home directory of the tests runs them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forked_programs import run_forked

__all__ = ["mcpproxy_in", "stop_gateways"]


def mcpproxy_in(home: Path, cwd: Path, settings: Mapping[str, str], *words: str) -> Any:
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
    return json.loads(done.stdout)


def stop_gateways(settings: Mapping[str, str]) -> list[int]:
    """Ends the gateways in the background on the data directory of these settings; their process ids."""
    done = run_forked("stop", "--json", cwd=Path.cwd(), env={**os.environ, **settings})
    assert done.status == 0, done.err
    stopped: list[int] = json.loads(done.out)["stopped"]
    return stopped

"""The gateway as a client starts it, and as it finds it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

GATEWAY = (sys.executable, "-m", "smart_mcp_proxy", "serve")
STOP_S = 15


@dataclass(frozen=True)
class Installation:
    """What a user has set up: the command that a client starts, and its variables."""

    command: tuple[str, ...]
    env: dict[str, str] = field(repr=False)


@contextmanager
def serving(installation: Installation, folder: Path) -> Iterator[str]:
    """The address of a gateway process that serves HTTP and has listed every server; its files are in `folder`."""
    log_file = folder / "stderr"
    command = [*installation.command, "--http", "--port", "0", "--json"]
    environment = installation.env | {"MCPPROXY_DATA_DIR": str(folder / "data")}
    with (
        log_file.open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment) as process,
    ):
        assert process.stdout is not None
        report = process.stdout.readline()
        try:
            assert report, log_file.read_text("utf-8")
            yield json.loads(report)["url"]
        finally:
            process.terminate()
            assert process.wait(STOP_S) == 0

"""The gateway as a client starts it, and as it finds it."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forked_programs import fork_program

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
    words = [*installation.command[len(GATEWAY) - 1 :], "--http", "--port", "0", "--json"]
    environment = installation.env | {"MCPPROXY_DATA_DIR": str(folder / "data")}
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as said,
        log_file.open("wb") as log,
        os.fdopen(writing, "wb") as stdout,
        fork_program(*words, stdout=stdout, stderr=log, cwd=Path.cwd(), env=environment) as program,
    ):
        stdout.close()
        report = said.readline()
        assert report, log_file.read_text("utf-8")
        try:
            yield json.loads(report)["url"]
        finally:
            os.kill(program.pid, signal.SIGTERM)
            assert program.wait(STOP_S) == 0

"""Commands in processes of their own, forks of one in which all that they need is imported already.

A line of JSON on stdin begins one command: its words, folder, environment, and the files of its three streams. A line
on stdout is the number of its process, the next one how that ended: an exit status, negative for a signal.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from smart_mcp_proxy.cli import main as run_command
from smart_mcp_proxy.cli.app import COMMANDS

__all__ = ["ForkedCommands", "forked_commands"]

LIMIT_S = 60
LOADED_LATE = ("gateway", "catalog", "policy.scanner", "upstream", "web.rest")
"""What commands import when they are run."""


class Ended(NamedTuple):
    """A command that has ended.

    Attributes:
        status: Its exit status.
        out: What it wrote to stdout.
        err: What it wrote to stderr.
    """

    status: int
    out: bytes
    err: bytes


class ForkedCommands:
    """The process that forks.

    Args:
        process: It, with pipes.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None and process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    def run(self, *words: str, cwd: Path, env: Mapping[str, str]) -> Ended:
        """Runs `mcpproxy WORDS` with nothing on its stdin; one at a time."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = (Path(folder, name) for name in ("out", "err"))
            job = {"words": words, "cwd": str(cwd), "env": {**env}, "streams": [os.devnull, str(out), str(err)]}
            self._stdin.write(json.dumps(job) + "\n")
            self._stdin.flush()
            limit = threading.Timer(LIMIT_S, os.kill, (int(self._stdout.readline()), signal.SIGKILL))
            limit.start()
            try:
                status = int(self._stdout.readline())
            finally:
                limit.cancel()
            return Ended(status, out.read_bytes(), err.read_bytes())


@contextmanager
def forked_commands() -> Iterator[ForkedCommands]:
    """Starts the process; the first command waits until all is imported."""
    pipe = subprocess.PIPE
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # a process that forks has one thread
    with subprocess.Popen([sys.executable, __file__], env=env, stdin=pipe, stdout=pipe, text=True) as process:
        yield ForkedCommands(process)


def become(job: dict[str, Any]) -> NoReturn:
    """Turns this process into the command."""
    for number, path in enumerate(job["streams"]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    # Those of the parent hold what it has read already.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, "w" if number else "r", buffering=1, closefd=False) for number in range(3)
    )
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"])
    sys.argv = ["mcpproxy", *job["words"]]
    status: Any = 1
    try:
        run_command()
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Begins what is asked for, one command after the other."""
    for name in LOADED_LATE:
        import_module(f"smart_mcp_proxy.{name}")
    for module, _ in COMMANDS.values():
        import_module(f"smart_mcp_proxy.cli.commands.{module}")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            become(json.loads(line))
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()

"""The command line as a person or a program meets it: words in, exit status and two streams out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from smart_mcp_proxy.demo import demo_servers

PROGRAM = (sys.executable, "-m", "smart_mcp_proxy")
TIMEOUT_S = 30


class Done(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on stdout."""
        return json.loads(self.out)

    @property
    def next_command(self) -> str:
        """The command that the last line on stderr names."""
        return self.err.splitlines()[-1].removeprefix("Next: ")


Run = Callable[..., Done]


def some_servers(*names: str) -> dict[str, Any]:
    """A server file's content with these demo servers."""
    return {"mcpServers": {name: demo_servers()[name] for name in names}}


def environment(data_dir: Path, **settings: str) -> dict[str, str]:
    """Variables for a process: none of this shell's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCPPROXY_")}
    kept |= {
        "MCPPROXY_SHARED": "false",
        "MCPPROXY_ISOLATION": "none",
        "MCPPROXY_EMBEDDER": "BM25",
    }  # they have tests of their own
    return kept | {"MCPPROXY_DATA_DIR": str(data_dir)} | {f"MCPPROXY_{name}": text for name, text in settings.items()}


def run_process(*words: str, cwd: Path, env: Mapping[str, str], stdin: str = "") -> Done:
    """Runs `mcpproxy WORDS` as a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *words],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=dict(env),
        timeout=TIMEOUT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def served(folder: Path, **settings: str) -> Iterator[Path]:
    """The data directory of a gateway over HTTP in a process of its own, in front of the to-do server."""
    folder.mkdir()
    (folder / "mcp_config.json").write_text(json.dumps(some_servers("todo")))
    with subprocess.Popen(
        [*PROGRAM, "serve", "--http", "--port", "0", "--json"],
        cwd=folder,
        env=environment(folder, LOG_LEVEL="ERROR", **settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["tools"] == 7
        yield folder
        process.terminate()
        assert process.wait(10) == 0

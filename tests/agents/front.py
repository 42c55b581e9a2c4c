"""The gateway as the tests of coding agents see it."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from installed import GATEWAY, Installation, serving
from programs import Target

UPSTREAM = Path(__file__).parent / "counting_upstream.py"


class Front(NamedTuple):
    """The gateway for an agent, the file in which the server behind it notes what it was sent, and its variables."""

    target: Target
    notes: Path
    env: dict[str, str]


@contextmanager
def fronted(transport: str, folder: Path, **settings: str) -> Iterator[Front]:
    """A fresh installation with these settings, over one transport."""
    notes, config = folder / "notes", folder / "mcp_config.json"
    notes.touch()  # a path that is there is open to the server that it is named to
    server = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(notes)]}
    config.write_text(json.dumps({"mcpServers": {"work": server}}), "utf-8")
    named = {"CONFIG_PATH": str(config), "DATA_DIR": str(folder / "data"), "KEEP_ALIVE": "0", **settings}
    variables = {f"MCPPROXY_{name}": value for name, value in named.items()}
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **variables}
    if transport == "stdio":
        yield Front(Target(command=GATEWAY, env=environment), notes, environment)
        return
    with serving(Installation(GATEWAY, environment), folder) as url:
        yield Front(Target(url=url), notes, environment)

"""First starts of a gateway, each of which kills itself at a step. Usage: first_starts.py UPSTREAM_WORLD

A line on stdin, `DATA_DIR STEP`, begins one: a fork of this process, in which everything is imported already. A step is
a statement of SQL, a commit, or whatever else is done to names in the data directory. The process ends by SIGKILL right
before step number STEP, or else once it has answered a call of a tool that nobody but the first trust agreed to. A line
on stdout says how it ended: its exit status, negative for a signal.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from sqlite_steps import stepping_connect
from worlds import ENVIRON, UPSTREAM

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.models import CallRequest
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

WORLD = Path(sys.argv[1])
FILE_EVENTS = frozenset({"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.truncate", "sqlite3.connect"})


class Steps:
    """Counts what is done to a data directory, and ends the process right before one of the steps.

    Args:
        data_dir: Which.
        last: The number of that step; beyond the end for none.
    """

    def __init__(self, data_dir: str, last: int) -> None:
        self._data_dir = data_dir
        self._left = last

    def take(self) -> None:
        """A step is about to be done."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook."""
        if event in FILE_EVENTS and self._data_dir in str(args[0]):
            self.take()

    def watch(self) -> None:
        """Sees all steps from now on."""
        sys.addaudithook(self.hear)
        sqlite3.dbapi2.connect = stepping_connect(self.take)


async def live(data_dir: Path) -> None:
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(WORLD)]}
    servers = load_servers(json.dumps({"mcpServers": {"up": entry}})).servers
    settings = Settings(data_dir=data_dir, embedder="BM25")
    async with open_gateway(settings, servers, environ=ENVIRON) as gateway, asyncio.timeout(20):
        gateway.start_upstreams()
        while True:
            try:
                raw = await gateway.calls.call(CallRequest("up:echo", {"text": "a"}, "write"))
            except ProxyError as error:
                assert error.error_code == "tool_not_found", error  # not heard of yet; never withheld
                await gateway.base.changes.wait()
            else:
                break
        assert b"said a" in raw.text, raw
        assert not gateway.catalog.is_closed
        os._exit(0)


def main() -> None:
    for line in sys.stdin:
        data_dir, step = line.split()
        pid = os.fork()
        if not pid:
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            steps = Steps(data_dir, int(step))
            steps.watch()
            asyncio.run(live(Path(data_dir)))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()

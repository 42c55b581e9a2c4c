"""Lives of a gateway, each begun by a line on stdin and ended by kill -9. Usage: life.py DATA_DIR WORLD JOURNAL

In each life the server's tools change again and again, and searches and calls go on. What the gateway has
acknowledged is written into the journal, on disk before the next step. Everything is imported once: a life is a fork
of this process, and its id is printed. The server and its child ignore SIGTERM and the end of their input.
"""

import asyncio
import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

from worlds import ENVIRON, UPSTREAM

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.models import CallRequest, Intent
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

DATA_DIR, WORLD, JOURNAL = map(Path, sys.argv[1:4])
TOOLS = 8


def names_of(version: int) -> list[str]:
    """The tools of the server in one of its versions: half of them stay, half of them are new."""
    return ["echo", *(f"tool_{version + number}" for number in range(TOOLS))]


def change_tools(version: int) -> None:
    staged = WORLD / "tools.new"
    staged.write_text(" ".join(names_of(version)))
    staged.replace(WORLD / "tools")


def acknowledge(**fact: Any) -> None:
    with JOURNAL.open("a") as journal:
        journal.write(json.dumps(fact) + "\n")
        journal.flush()
        os.fsync(journal.fileno())


def last_version() -> int:
    facts = map(json.loads, JOURNAL.read_text().splitlines()) if JOURNAL.exists() else ()
    return max((fact["version"] for fact in facts if "version" in fact), default=0)


async def live() -> None:
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(WORLD), "obstinate"], "trust": "trusted"}
    servers = load_servers(json.dumps({"mcpServers": {"up": entry}})).servers
    async with open_gateway(Settings(data_dir=DATA_DIR), servers, environ=ENVIRON) as gateway:
        gateway.start_upstreams()
        # The version after the last acknowledged one may have been stored as well: it is skipped.
        for version in count(last_version() + 2):
            change_tools(version)
            nonce = f"nonce {os.getpid()} {version}"
            await gateway.retrieval.retrieve(Question(query=nonce, limit=5))
            acknowledge(search=nonce)
            request = CallRequest("up:echo", {"text": str(version)}, "write", Intent(reason=nonce))
            try:
                raw = await gateway.calls.call(request)
                assert f"said {version}".encode() in raw.text, raw
            except ProxyError as error:  # that its list has not arrived yet is an answer as well
                assert error.error_code == "tool_not_found", error
            acknowledge(call=nonce)
            while {record.key.tool for record in gateway.catalog.snapshot.by_id.values()} != set(names_of(version)):
                await gateway.base.changes.wait()
            acknowledge(version=version)


def main() -> None:
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            os.close(0)
            os.open(os.devnull, os.O_RDONLY)
            asyncio.run(live())
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

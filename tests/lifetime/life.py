"""Lives of a gateway, each begun by a line on stdin and ended by kill -9. Usage: life.py DATA_DIR WORLD JOURNAL

In each life the server's tools change again and again, and searches and calls go on. What the gateway has
acknowledged is written into the journal, on disk before the next step. Everything is imported once: a life is a fork
of this process, and its id is printed.
"""

import asyncio
import json
import os
import sys
from itertools import count
from pathlib import Path
from typing import Any

from worlds import ENVIRON, UPSTREAM

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.retrieval import Question
from smart_mcp_proxy.gateway.tools import Caller
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
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(WORLD)]}
    servers = load_servers(json.dumps({"mcpServers": {"up": entry}})).servers
    async with Gateway(Settings(data_dir=DATA_DIR), servers, environ=ENVIRON) as gateway:
        gateway.start_upstreams()
        stored: set[str] = set()
        # The version after the last acknowledged one may have been stored as well: it is skipped.
        for version in count(last_version() + 2):
            change_tools(version)
            await gateway.retrieval.retrieve(Question(query=f"nonce {os.getpid()} {version}", limit=5))
            call = {"name": "up:echo", "args": {"text": str(version)}}
            raw = await gateway.agent.answer(
                gateway.agent.offer_at("", "local"), "call_tool_write", call, Caller("local", {}, None), "handshake"
            )
            assert f"said {version}".encode() in raw or b"isError" in raw, raw
            while {record.key.tool for record in gateway.catalog.snapshot.by_id.values()} != set(names_of(version)):
                await gateway.indexer.wait_changed()
            acknowledge(version=version)
            for line in await gateway.catalog.recent_activity(50):
                if line.kind == "search" and line.subject not in stored:
                    stored.add(line.subject)
                    acknowledge(search=line.subject)


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

"""A raw MCP server on stdin and stdout whose tools are what a file says, and which tells of every change of it.

Usage: following_upstream.py WORLD

`WORLD/tools` holds the list as JSON. `WORLD/told-PID` holds what the gateway process PID was told last, and every call
adds a line to `WORLD/ledger`: the definition of the tool as it was told last on this very connection.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from raw_server import TOOLS_CHANGED, send, serve

WORLD = Path(sys.argv[1])
POLL_S = 0.01
told = {}
latest = [(WORLD / "tools").read_text()]
"""The list that was announced or told last: one that a poll missed may have been told."""


def follow():
    while True:
        time.sleep(POLL_S)
        if (now := (WORLD / "tools").read_text()) != latest[0]:
            latest[0] = now
            send(method=TOOLS_CHANGED)


def tell():
    latest[0] = text = (WORLD / "tools").read_text()
    told.clear()
    told.update({tool["name"]: tool for tool in json.loads(text)})
    part = WORLD / f"part-{os.getpid()}"
    part.write_text(text)
    part.replace(WORLD / f"told-{os.getppid()}")
    return [*told.values()]


def call(name):
    with (WORLD / "ledger").open("a") as ledger:
        ledger.write(json.dumps(told.get(name, {"name": name})) + "\n")
    return {"content": [], "structuredContent": {}}


serve("following", tell, call, on_greeting=threading.Thread(target=follow, daemon=True).start)

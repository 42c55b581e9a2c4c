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

WORLD = Path(sys.argv[1])
POLL_S = 0.01
written = threading.Lock()
told = {}


def send(**message):
    with written:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def follow():
    seen = (WORLD / "tools").read_text()
    while True:
        time.sleep(POLL_S)
        if (now := (WORLD / "tools").read_text()) != seen:
            seen = now
            send(method="notifications/tools/list_changed")


for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "following", "version": "1"},
            }
            threading.Thread(target=follow, daemon=True).start()
        case "tools/list":
            text = (WORLD / "tools").read_text()
            told = {tool["name"]: tool for tool in json.loads(text)}
            part = WORLD / f"part-{os.getpid()}"
            part.write_text(text)
            part.replace(WORLD / f"told-{os.getppid()}")
            result = {"tools": [*told.values()]}
        case "tools/call":
            name = message["params"]["name"]
            with (WORLD / "ledger").open("a") as ledger:
                ledger.write(json.dumps(told.get(name, {"name": name})) + "\n")
            result = {"content": [], "structuredContent": {}}
        case _ if "id" in message:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})
            continue
        case _:
            continue
    send(id=message["id"], result=result)

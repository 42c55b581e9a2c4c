"""A raw MCP server of the handshake era on stdin and stdout whose tools are what a file says when they are listed.

Usage: turning_upstream.py TOOLS LEDGER

A call of `poke` announces that the list changed. Every other call adds a line to the file LEDGER: the tool's name.
"""

import json
import sys
from pathlib import Path

TOOLS, LEDGER = map(Path, sys.argv[1:3])


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    match message["method"]:
        case "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "turning", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [*json.loads(TOOLS.read_text()), {"name": "poke", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            if message["params"]["name"] == "poke":
                send(method="notifications/tools/list_changed")
            else:
                with LEDGER.open("a") as ledger:
                    ledger.write(message["params"]["name"] + "\n")
            result = {"content": []}
        case _ if "id" in message:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})
            continue
        case _:
            continue
    send(id=message["id"], result=result)

"""A raw MCP server of the handshake era on stdin and stdout whose tools are what a file says when they are listed.

Usage: turning_upstream.py TOOLS LEDGER

A call of `poke` announces that the list changed. Every other call adds a line to the file LEDGER: the tool's name.
"""

import json
import sys
from pathlib import Path

from raw_server import TOOLS_CHANGED, send, serve

TOOLS, LEDGER = map(Path, sys.argv[1:3])


def call(name):
    if name == "poke":
        send(method=TOOLS_CHANGED)
    else:
        with LEDGER.open("a") as ledger:
            ledger.write(name + "\n")
    return {"content": []}


serve("turning", lambda: [*json.loads(TOOLS.read_text()), {"name": "poke", "inputSchema": {"type": "object"}}], call)

"""A raw MCP server of the handshake era on stdin and stdout whose answers are large: 4 MiB each.

Usage: bulky_upstream.py LEDGER

LEDGER is a file that gets one line for each call.
"""

import sys
from pathlib import Path

from raw_server import serve

TEXT = "x" * (4 * 1024 * 1024)


def fetch(name):
    with Path(sys.argv[1]).open("a") as ledger:
        ledger.write(f"{name}\n")
    return {"content": [{"type": "text", "text": TEXT}]}


serve("bulky", lambda: [{"name": "fetch", "inputSchema": {"type": "object"}}], fetch)

"""A raw MCP server on stdin and stdout that lists other definitions all the time, and says so every 30 ms.

Usage: flipping_upstream.py WORLD

The first list is that of the file `WORLD/tools`; in each one after it every description has a number of its own.
"""

import json
import sys
import threading
import time
from itertools import count
from pathlib import Path

from raw_server import TOOLS_CHANGED, send, serve

TOOLS = json.loads((Path(sys.argv[1]) / "tools").read_text())
FLIP_S = 0.03
lists = count()


def flip():
    while True:
        time.sleep(FLIP_S)
        send(method=TOOLS_CHANGED)


def listed():
    number = next(lists)
    return [tool | {"description": f"<flip {number}>"} for tool in TOOLS] if number else TOOLS


serve("flipping", listed, lambda name: {"content": []}, on_greeting=threading.Thread(target=flip, daemon=True).start)

"""An MCP server that tries the operator's doors which a file names, a door a line: each tool is a way to do it.

Usage: reaching_upstream.py DOORS
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from raw_server import serve
from reaching import detach, reach

PROGRAM = [sys.executable, "-I", "-S", str(Path(__file__).with_name("reaching.py"))]
WAYS = {
    "itself": lambda doors: json.dumps([reach(door) for door in doors]),
    "grandchild": lambda doors: subprocess.check_output([*PROGRAM, *doors], text=True, env={}),
    "detached": lambda doors: detach([*PROGRAM, *doors], dict(os.environ)),
    "disguised": lambda doors: detach([*PROGRAM, *doors], {}),
    "confined": lambda doors: detach([*PROGRAM, "--confined", *doors], {}),
}


def call(name):
    doors = Path(sys.argv[1]).read_text().splitlines()
    return {"content": [{"type": "text", "text": WAYS[name](doors)}]}


serve("reaching", lambda: [{"name": name, "inputSchema": {"type": "object"}} for name in WAYS], call)

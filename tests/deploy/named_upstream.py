"""An MCP server that says which gateway started it. Usage: named_upstream.py NAME FOLDER

`whoami` answers with NAME and the length of its argument; `step` tells of progress where asked to, and ends
when FOLDER/go exists; `FOLDER/steps` gets a line for each call of `step`, `FOLDER/cancelled` for each request that is
cancelled.
Standard library only: `python -S` starts it in no time.
"""

import json
import sys
import threading
import time
from pathlib import Path

NAME, FOLDER = sys.argv[1], Path(sys.argv[2])
POLL_S = 0.01
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": name, "description": f"Does {name}.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
    for name in ("whoami", "step")
]
written = threading.Lock()


def send(message: dict[str, object]) -> None:
    with written:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def call(params: dict[str, dict[str, str]]) -> str:
    """The text that a call answers with."""
    if params["name"] == "step":
        with (FOLDER / "steps").open("a") as file:
            file.write(f"{NAME}\n")
        if "progressToken" in (meta := params.get("_meta", {})):
            told = {"progressToken": meta["progressToken"], "progress": 1, "message": NAME}
            send({"method": "notifications/progress", "params": told})
        while not (FOLDER / "go").exists():
            time.sleep(POLL_S)
    return f"{NAME} {len(params.get('arguments', {}).get('text', ''))}"


def reply(message: dict[str, object]) -> None:
    params = message.get("params")
    result: dict[str, object] = {}
    if message["method"] == "initialize":
        info = {"name": "named", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": TOOLS}
    elif message["method"] == "tools/call" and isinstance(params, dict):
        result = {"content": [{"type": "text", "text": call(params)}]}
    send({"id": message["id"], "result": result})


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("method") == "notifications/cancelled":
            with (FOLDER / "cancelled").open("a") as file:
                file.write(f"{NAME}\n")
        if asked.get("id") is not None and "method" in asked:
            threading.Thread(target=reply, args=(asked,), daemon=True).start()

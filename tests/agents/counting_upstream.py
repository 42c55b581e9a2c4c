"""A raw MCP server with one tool, `count`, that reports its progress and notes in a file (argument 1) what it got.

Argument 2, if there is one, is the name of a parameter that the tool has besides.
"""

import json
import sys
from pathlib import Path
from typing import Any

COUNT = {
    "name": "count",
    "description": "Count slowly up to a number, one step after the other.",
    "inputSchema": {
        "type": "object",
        "properties": {"to": {"type": "integer"}, **{name: {"type": "string"} for name in sys.argv[2:]}},
        "required": ["to"],
    },
    "annotations": {"readOnlyHint": True},
}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def count(params: dict[str, Any]) -> dict[str, Any]:
    """The result of a call, after a progress notification for each step if the caller asked for them."""
    token = params.get("_meta", {}).get("progressToken")
    to = params["arguments"]["to"]
    for step in range(1, to + 1):
        if token is not None:
            report = {"progressToken": token, "progress": step, "total": to, "message": f"at {step}"}
            send({"method": "notifications/progress", "params": report})
    with Path(sys.argv[1]).open("a") as notes:
        notes.write(json.dumps({"to": to, "has_token": token is not None}) + "\n")
    return {"content": [{"type": "text", "text": f"counted to {to}"}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": "counting", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [COUNT]}
        case "tools/call":
            return count(params)
        case "ping":
            return {}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params", {}))
        if result is None:
            send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
        else:
            send({"id": request["id"], "result": result})

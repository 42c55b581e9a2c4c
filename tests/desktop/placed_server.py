"""A raw MCP server with one tool, `where`, that tells where it runs; `wait_s` makes it take so long."""

import json
import os
import sys
import time
from typing import Any

SCHEMA = {"type": "object", "properties": {"wait_s": {"type": "number"}, "size": {"type": "integer"}}}
TOOL = {
    "name": "where",
    "description": "Tell where this server runs.",
    "inputSchema": SCHEMA,
    "annotations": {"readOnlyHint": True},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": "placed", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            time.sleep(params["arguments"].get("wait_s", 0))
            facts = {"pid": os.getpid(), "folder": os.getcwd(), "words": sys.argv[1:], "token": os.environ.get("TOKEN")}
            text = json.dumps(facts | {"environ": sorted(os.environ)}) + " " * params["arguments"].get("size", 0)
            return {"content": [{"type": "text", "text": text}]}
        case "ping":
            return {}
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        result = answer(request["method"], request.get("params", {}))
        said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)

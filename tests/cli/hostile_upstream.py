"""A raw MCP server of the handshake era on stdin and stdout that says `SAYS` wherever it may say anything.

Usage: hostile_upstream.py SAYS [ready | broken]

`broken` refuses the handshake. A call of the first tool fails with a result, one of the second with an error.
"""

import json
import sys

SAYS, MODE = sys.argv[1:3]
SCHEMA = {"type": "object", "title": SAYS, "properties": {SAYS: {"type": "string", "description": SAYS}}}
TOOLS = [
    {"name": f"{name}{SAYS}", "title": SAYS, "description": f"Paint {SAYS}", "inputSchema": SCHEMA}
    for name in ("fails", "breaks", "works")
]


def answer(method, params):
    if method == "initialize" and MODE == "broken":
        return {"error": {"code": -32000, "message": SAYS, "data": SAYS}}
    if method == "initialize":
        info = {"name": SAYS, "title": SAYS, "version": SAYS}
        return {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": {"tools": TOOLS}}
    if method != "tools/call" or params["name"].startswith("breaks"):
        return {"error": {"code": -32000, "message": SAYS, "data": SAYS}}
    structured = {SAYS: SAYS} if params["name"].startswith("works") else None
    content = [{"type": "text", "text": SAYS}, {"type": "resource_link", "uri": f"x:{SAYS}", "name": SAYS}]
    result = {"content": content, "isError": structured is None}
    return {"result": result | ({} if structured is None else {"structuredContent": structured})}


sys.stderr.write(f"{SAYS}\n")
sys.stderr.flush()
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"], **answer(message["method"], message.get("params"))}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()

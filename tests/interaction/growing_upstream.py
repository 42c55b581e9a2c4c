"""A raw MCP server of the handshake era on stdin and stdout whose list of tools grows: each call of `grow` adds one.

It announces the change twice, as busy servers do.
"""

import json
import sys

names = ["grow"]


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
                "serverInfo": {"name": "growing", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        case "tools/call":
            names.append(f"grown_{len(names)}")
            send(method="notifications/tools/list_changed")
            send(method="notifications/tools/list_changed")
            result = {"content": []}
        case _ if "id" in message:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})
            continue
        case _:
            continue
    send(id=message["id"], result=result)

"""A raw MCP server of the handshake era on stdin and stdout that answers with whatever JSON text a call brings."""

import json
import sys

from raw_server import send

GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "literal", "version": "1"},
}
TOOLS = [{"name": "say", "inputSchema": {"type": "object", "properties": {"member": {"type": "string"}}}}]

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "tools/call":
        given = message["params"]["arguments"]
        member, text = given.get("member", "result"), given["text"]
        sys.stdout.write(f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"{member}":{text}}}\n')
        sys.stdout.flush()
    else:
        send(id=message["id"], result=GREETING if message["method"] == "initialize" else {"tools": TOOLS})

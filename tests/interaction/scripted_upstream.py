"""A raw MCP server of the handshake era that answers what a file says: `scripted_upstream.py FILE`.

The file is a JSON object: `lists` are the answers to `tools/list`, the last one again and again, and `results` those of
calls by tool; each is a `result`, or has a member `error`.
"""

import json
import sys
from pathlib import Path

script = json.loads(Path(sys.argv[1]).read_text())
lists = iter(script["lists"])
listed = None
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if (method := message["method"]) == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        answer = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
        answer["serverInfo"] = {"name": "scripted", "version": "1"}
    elif method == "tools/list":
        answer = listed = next(lists, listed)
    elif method == "tools/call":
        answer = script["results"][message["params"]["name"]]
    else:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    outcome = answer if isinstance(answer, dict) and "error" in answer else {"result": answer}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")
    sys.stdout.flush()

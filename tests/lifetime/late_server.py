"""A server that answers late. Usage: late_server.py FILE SECONDS, where FILE gets a line at each start."""

import json
import sys
import time

with open(sys.argv[1], "a") as starts:
    starts.write("boot\n")
print("fetching", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[2]))
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "late", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "work", "description": "Does the work.", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in RESULTS:
        answer["result"] = RESULTS[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)

"""A raw MCP server on stdin and stdout of the handshake era that says, while a tool is called, what it is told to say.

Usage: telling_upstream.py LEDGER, a file that gets a line for each cancellation that arrives.

In the lines of `tell`, $ID stands for the id of the call and $TOKEN for its progress token. `storm` reports progress
so many times before it answers.
"""

import json
import os
import sys

LEDGER = sys.argv[1]
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("tell", "storm")]


def put(*lines):
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def answer(request_id, result):
    put(json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}))


def call(request_id, name, arguments, token):
    if name == "tell":
        for line in arguments["lines"]:
            if line == "die":
                os._exit(3)
            put(line.replace("$ID", json.dumps(request_id)).replace("$TOKEN", json.dumps(token)))
        return
    told = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}'
    put(*(told % (json.dumps(token), step) for step in range(arguments["count"])))
    answer(request_id, {"content": [{"type": "text", "text": "over"}]})


for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        answer(message["id"], greeting | {"serverInfo": {"name": "teller", "version": "1"}})
    elif method == "tools/list":
        answer(message["id"], {"tools": TOOLS})
    elif method == "tools/call":
        call(message["id"], params["name"], params["arguments"], params.get("_meta", {}).get("progressToken"))
    elif method == "notifications/cancelled":
        with open(LEDGER, "a", encoding="utf-8") as ledger:
            ledger.write("cancelled\n")
    elif "id" in message:
        put(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "No"}}))

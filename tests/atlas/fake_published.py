"""A published server as they are found: one that behaves, or one (`odd`) that does what few do."""

import itertools
import json
import os
import subprocess
import sys

ODD = "odd" in sys.argv
CALLS = itertools.count()
SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {}}


def answer(method: str) -> dict[str, object]:
    if method == "initialize":
        info = {"name": "fake", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        # Some have their working folder or the time in a text.
        text = f"Look at the shop's stock, as process {os.getpid()}" if ODD else "Look at the shop's stock"
        tool = {"name": "look", "description": text, "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
        return {"tools": [tool | {"execution": {"taskSupport": "forbidden"}}]}
    number = next(CALLS) if ODD else 3
    return {"content": [{"type": "text", "text": f"{number} apples, 1 pear"}]}


if "KEY" not in os.environ:
    sys.exit("KEY is not set")
if ODD:
    print("Shop 1.0 starts", flush=True)
    subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        known = message["method"] in {"initialize", "tools/list", "tools/call"}
        body = {"result": answer(message["method"])} if known else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | body), flush=True)

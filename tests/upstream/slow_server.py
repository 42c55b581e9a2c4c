"""A raw MCP server on stdio that takes its time until its test lets it go on.

Usage: slow_server.py FOLDER ERA [WORDS...]: notes its start in FOLDER/starts, writes WORDS to stderr, and reads nothing
until somebody has opened FOLDER/go, a named pipe, for writing. `work` answers when `finish` is called; `step` reports
progress of it.
"""

import json
import sys
from pathlib import Path

FOLDER, ERA, WORDS = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
META = "io.modelcontextprotocol/"
working = []


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(request_id, words):
    send(id=request_id, result={"content": [{"type": "text", "text": words}], "resultType": "complete"})


def call(request_id, params):
    token = params.get("_meta", {}).get("progressToken")
    match params["name"]:
        case "work":
            working.append((request_id, token))
        case "step":
            for _, waiting in working:
                # A value that does not grow is still a sign of life.
                send(method="notifications/progress", params={"progressToken": waiting, "progress": 1})
            text(request_id, "stepped")
        case "finish":
            for waiting_id, waiting in working:
                text(waiting_id, "asked" if waiting is not None else "not asked")
            text(request_id, "finished")


with (FOLDER / "starts").open("a") as starts:
    starts.write("started\n")
for word in WORDS:
    print(word, file=sys.stderr, flush=True)
if (FOLDER / "go").exists():
    (FOLDER / "go").read_bytes()
for line in sys.stdin:
    message = json.loads(line)
    method, request_id = message["method"], message.get("id")
    if method == "tools/call":
        call(request_id, message["params"])
    elif method == "initialize" and ERA == "handshake":
        info = {"name": "slow", "version": "1"}
        send(id=request_id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "server/discover" and ERA == "modern":
        facts = {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "ttlMs": 0,
            "cacheScope": "private",
        }
        send(id=request_id, result={"resultType": "complete", **facts})
    elif request_id is not None:
        send(id=request_id, error={"code": -32601, "message": "Method not found"})

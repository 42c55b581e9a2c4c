"""A raw MCP server on stdin and stdout for the tests of the agent's entrance: each tool is one thing a server may do.

Usage: odd_upstream.py MODE LEDGER GATE COUNT

MODE is handshake, modern or never (answers nothing at all). LEDGER is a file that gets one line for each call of
`hang` that starts and each cancellation that arrives. It says nothing before the file GATE exists, and lists COUNT
more tools.
"""
# ruff: noqa: C901  (a flat list of behaviours reads best)

import json
import os
import sys
import time
from pathlib import Path

from odd_content import CONTENT, LONG_TEXT

MODE, LEDGER, GATE, COUNT = sys.argv[1:5]
META = "io.modelcontextprotocol/"
hanging: dict[object, str] = {}
stepping: dict[str, tuple[object, object]] = {}


def schema(required=(), **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT = {"type": "string", "description": "Any text"}
COLOUR = {"type": "string", "enum": ["red", "white"]}
LABEL = {"type": "string", "description": "Names this call"}

ENV = {name: value for name, value in os.environ.items() if name != "RUN_CANARY"}
"""What one tool answers with: a server's own answers may hold what they like, so the secret of the run is left out."""
TOOLS = [
    {"name": "echo", "description": "Say the arguments back.", "inputSchema": {"type": "object"}},
    {
        "name": "look",
        "title": "Look it up",
        "description": "Look up one entry of the lighthouse register.",
        "inputSchema": schema(["entry"], entry={"type": "integer", "description": "Number of the entry"}),
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": "erase",
        "description": "Erase one entry of the lighthouse register for good.",
        "inputSchema": schema(["entry"], entry={"type": "integer"}),
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    },
    {
        "name": "paint",
        "description": "Paint the lighthouse in another colour.",
        "inputSchema": schema(["colour"], colour=COLOUR, coats={"type": "integer"}),
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    },
    {"name": "steps", "description": "Work in two steps.", "inputSchema": schema(label=LABEL)},
    {"name": "go", "description": "Let a call of steps go on.", "inputSchema": schema(label=LABEL)},
    {"name": "hang", "description": "Never answer.", "inputSchema": schema(label=LABEL)},
    {"name": "kinds", "description": "Answer with every kind of content.", "inputSchema": schema()},
    {"name": "structured", "description": "Answer with this structured content.", "inputSchema": schema(value={})},
    {"name": "fails", "description": "Fail by itself.", "inputSchema": schema()},
    {"name": "meta", "description": "Answer with metadata.", "inputSchema": schema()},
    {"name": "unknown_kind", "description": "Answer with content of the future.", "inputSchema": schema()},
    {"name": "rpc_error", "description": "Answer with a JSON-RPC error.", "inputSchema": schema()},
    {"name": "big", "description": "Answer with two megabytes of text.", "inputSchema": schema()},
    {"name": "records", "description": "Answer with a JSON array.", "inputSchema": schema(count={"type": "integer"})},
    {"name": "lines", "description": "Answer with long plain text.", "inputSchema": schema(count={"type": "integer"})},
    {"name": "seen", "description": "Show environment and metadata of this call.", "inputSchema": schema()},
    {"name": "die", "description": "End this server.", "inputSchema": schema()},
    {
        "name": "odd_definition",
        "description": "A definition with everything in it.",
        "inputSchema": {**schema(a={"$ref": "#/$defs/x"}), "$defs": {"x": {"type": "string"}}},
        "outputSchema": {"type": "array", "items": {"type": "integer"}},
        "_meta": {"example.org/kept": [1, 2.5, None]},
        "futureKey": {"kept": True},
    },
]  # fmt: skip


def raw(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def send(message):
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def note(line):
    with open(LEDGER, "a", encoding="utf-8") as ledger:
        ledger.write(line + "\n")


def result(request_id, value):
    send({"id": request_id, "result": {"resultType": "complete", **value} if MODE == "modern" else value})


def text(request_id, value):
    result(request_id, {"content": [{"type": "text", "text": value}]})


def progress(token, step, total, message):
    if token is not None:
        params = {"progressToken": token, "progress": step, "total": total, "message": message}
        send({"method": "notifications/progress", "params": params})


def call(request_id, name, params):
    arguments, meta = params.get("arguments") or {}, params.get("_meta") or {}
    label = arguments.get("label", "")
    match name:
        case "echo" if "spell" in arguments:
            text(request_id, json.dumps([ord(character) for character in arguments["spell"]]))
        case "echo" | "look" | "erase" | "paint":
            text(request_id, json.dumps(arguments))
        case "steps":
            stepping[label] = (request_id, meta.get("progressToken"))
            progress(meta.get("progressToken"), 1, 2, "half")
        case "go":
            waiting, token = stepping.pop(label)
            progress(token, 2, 2, "whole")
            text(waiting, "two steps")
            text(request_id, "gone on")
        case "hang":
            hanging[request_id] = label
            note(f"started {label}")
        case "kinds":
            result(request_id, {"content": CONTENT})
        case "structured":
            value = arguments["value"]
            result(request_id, {"content": [{"type": "text", "text": "see the value"}], "structuredContent": value})
        case "fails":
            content = [{"type": "text", "text": "the register is under water"}]
            result(request_id, {"content": content, "structuredContent": {"depth_m": 2}, "isError": True})
        case "meta":
            kept = {"example.org/trace": {"span": 7, "parts": [1, None]}, "plain": True}
            result(request_id, {"content": [], "_meta": {**kept, META + "serverInfo": {"name": "x", "version": "1"}}})
        case "unknown_kind":
            hologram = {"type": "hologram", "voxels": [[1, 2], [3]], "n": 1.5}
            result(request_id, {"content": [hologram, {"type": "text", "text": "after it"}], "futureKey": [1]})
        case "rpc_error":
            send({"id": request_id, "error": {"code": -32055, "message": "the lamp is out", "data": {"lamp": 3}}})
        case "big":
            text(request_id, LONG_TEXT)
        case "records":
            text(request_id, json.dumps([{"row": row, "pad": "x" * 20} for row in range(arguments["count"])]))
        case "lines":
            text(request_id, "\n".join(f"line {number} é" for number in range(arguments["count"])))
        case "seen":
            text(request_id, json.dumps({"env": ENV, "meta": meta}))
        case "die":
            os._exit(7)
        case _:
            send({"id": request_id, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})


def handle(message):
    method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "initialize" and MODE == "handshake":
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result(request_id, {**answer, "serverInfo": {"name": "odd", "version": "1"}})
    elif method == "server/discover" and MODE == "modern":
        result(request_id, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}})
    elif method == "notifications/cancelled":
        note(f"cancelled {hanging.pop(params['requestId'], '?')}")
    elif method == "tools/list":
        more = [{"name": f"more_{number}", "inputSchema": schema(a=TEXT)} for number in range(int(COUNT))]
        result(request_id, {"tools": TOOLS + more})
    elif method == "tools/call":
        call(request_id, params["name"], params)
    elif request_id is not None:
        send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})


while not Path(GATE).exists():
    time.sleep(0.01)
for line in sys.stdin.buffer:
    if MODE != "never":
        handle(json.loads(line))

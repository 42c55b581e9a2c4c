"""A raw MCP server on stdin and stdout that misbehaves on request: each tool name is one behaviour.

Usage: fake_server.py MODE, where MODE is handshake, modern, silent, strict, mute, dead, loop, banner or cut-ids.
"""
# ruff: noqa: C901, PLW0603  (a flat list of behaviours reads best, and a script may have a state)

import json
import os
import subprocess
import sys

MODE = sys.argv[1]
META = "io.modelcontextprotocol/"
OUT = sys.stdout.buffer
cancelled = []
hanging = []
heard = []
methods = []
ids = []
listen_id = None


def raw(data):
    OUT.write(data)
    OUT.flush()


def send(message):
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def result(request_id, value):
    send({"id": request_id, "result": value})


def text(request_id, value):
    result(request_id, {"content": [{"type": "text", "text": value}]})


def call(request_id, name, params):
    match name:
        case "echo":
            text(request_id, json.dumps(params.get("arguments")))
        case "verbatim":
            raw(b'{ "jsonrpc":"2.0","id":%d , "result": {"content":[],  "n":1.50, "u":"\\u00e9"}}\r\n' % request_id)
        case "meta":
            text(request_id, json.dumps(params.get("_meta")))
        case "env":
            text(request_id, json.dumps(dict(os.environ)))
        case "pid":
            text(request_id, str(os.getpid()))
        case "hang":
            hanging.append(request_id)
        case "methods":
            text(request_id, json.dumps(methods))
        case "ids":
            text(request_id, json.dumps(ids))
        case "cancelled":
            text(request_id, json.dumps(cancelled))
        case "late":
            for other in hanging:
                text(other, "late")
            text(request_id, "on time")
        case "progress":
            token = params["_meta"]["progressToken"]
            for step in [1, 2, 2, 1, *range(3, 500)]:
                send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
            text(request_id, "done")
        case "error":
            send({"id": request_id, "error": {"code": -32602, "message": "no such thing", "data": {"a": 1}}})
        case "word-error":
            send({"id": request_id, "error": "boom"})
        case "null-result":
            send({"id": request_id, "result": None})
        case "garbled":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}}\n' % request_id)
        case "garbled-id":
            raw(b'{"jsonrpc":"2.0","id":nonsense,"result":{}}\n')
        case "nan":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"n":NaN}}\n' % request_id)
        case "deep":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"n":%s}}\n' % (request_id, b"[" * 100_000 + b"]" * 100_000))
        case "null-id":
            send({"id": None, "result": {}})
        case "float-id":
            send({"id": request_id + 0.5, "result": {}})
        case "twice":
            text(request_id, "first")
            text(request_id, "second")
        case "quoted-id":
            text(str(request_id), "quoted")
        case "other-id":
            for other in [request_id + 1, request_id - 1, 0, "x", [], True]:
                send({"id": other, "result": {"stolen": True}})
            text(request_id, "mine")
        case "bad-utf8":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"t":"a\xffb"}}\n' % request_id)
        case "surrogate":
            raw(b'{"jsonrpc":"2.0","id":%d,"result":{"t":"a\\ud800b \\ud83d\\ude00 \\\\ud800"}}\n' % request_id)
        case "bom":
            raw(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":%d,"result":{}}\r\n' % request_id)
        case "big":
            text(request_id, "x" * params["arguments"]["size"])
        case "big-id-last":
            raw(b'{"result":{"t":"%s"},"jsonrpc":"2.0","id":%d}\n' % (b"x" * params["arguments"]["size"], request_id))
        case "noise":
            raw(b'Listening on port 3000\n\n{"level":"info","id":%d}\n{not json\n' % request_id)
            text(request_id, "after the noise")
        case "stderr":
            sys.stderr.write("line of stderr\n" * 20_000 + "the last line\n")
            sys.stderr.flush()
            text(request_id, "written")
        case "die":
            os._exit(7)
        case "die-mid-line":
            raw(b'{"jsonrpc":"2.0","id":%d,"resu' % request_id)
            os._exit(7)
        case "close-stdout":
            os.close(1)
        case "grandchild":
            code = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
            child = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.DEVNULL)
            text(request_id, str(child.pid))
        case "ask":
            heard.clear()
            send({"id": "q1", "method": "ping"})
            send({"id": 2, "method": "sampling/createMessage", "params": {}})
            send({"id": "q3", "method": "roots/list"})
            hanging.append(("ask", request_id))
        case "change":
            meta = {"_meta": {META + "subscriptionId": listen_id}} if MODE == "modern" else {}
            send({"method": "notifications/tools/list_changed", "params": meta})
            text(request_id, str(listen_id))
        case _:
            send({"id": request_id, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})


def listing(request_id, params):
    if MODE == "loop":
        result(request_id, {"tools": [{"name": "a", "inputSchema": {}}], "nextCursor": "again"})
    elif "cursor" not in params:
        tools = [{"name": "echo", "inputSchema": {"type": "object"}}, {"name": "bad", "inputSchema": None}]
        result(request_id, {"tools": tools, "nextCursor": "2"})
    else:
        result(request_id, {"tools": [{"name": "second", "inputSchema": {"type": "object"}}]})


def handle(message):
    global listen_id
    method, request_id, params = message.get("method"), message.get("id"), message.get("params") or {}
    if isinstance(method, str):
        methods.append(method)
    if method is not None and request_id is not None:
        ids.append(request_id)
    if method is None:
        heard.append(message)
        if len(heard) == 3:
            _, waiting = hanging.pop()
            text(waiting, json.dumps(heard))
    elif method == "initialize":
        if MODE == "modern":
            send({"id": request_id, "error": {"code": -32601, "message": "modern only"}})
        else:
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "fake", "version": "1"}
            result(request_id, {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info})
    elif method == "server/discover":
        if MODE == "modern":
            answer = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
            answer["_meta"] = {META + "serverInfo": {"name": "fake", "version": "2"}}
            result(request_id, {"resultType": "complete", **answer})
        elif MODE != "silent":
            send({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
    elif method == "subscriptions/listen":
        listen_id = request_id
        ack = {"notifications": params["notifications"], "_meta": {META + "subscriptionId": request_id}}
        send({"method": "notifications/subscriptions/acknowledged", "params": ack})
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
    elif method == "tools/list":
        listing(request_id, params)
    elif method == "tools/call":
        call(request_id, params["name"], params)


def main():
    if MODE == "dead":
        sys.stderr.write("cannot start: no licence\n")
        sys.exit(3)
    if MODE == "banner":
        raw(b"Welcome to the fake server!\n\x1b[1mready\x1b[0m\n")
    for number, line in enumerate(sys.stdin.buffer):
        message = json.loads(line)
        if MODE == "cut-ids" and "id" in message:
            message["id"] &= 0xFFFFFFFF
            if (meta := message.get("params", {}).get("_meta")) and "progressToken" in meta:
                meta["progressToken"] = message["id"]
        if MODE == "strict" and number == 0 and message.get("method") != "initialize":
            sys.exit(1)
        if MODE != "mute":
            handle(message)


main()

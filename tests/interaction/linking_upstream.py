"""A raw MCP server on stdin and stdout whose tools make resources and name them in results, in either era.

    python linking_upstream.py MODE

MODE is `handshake` or `modern`. The tool `answer` answers with the very result that its arguments hold, after it has
added `adds` to the resources that the server lists, and said so. Every resource can be read, listed or not, but for
those with `missing` in their URI: its text is the URI that the server was asked for. `card`, a tool, has an interface.
"""

import json
import sys

mode = sys.argv[1]
META = "io.modelcontextprotocol/"
CHANGED = "notifications/resources/list_changed"
CARD = {"ui": {"resourceUri": "ui://card", "visibility": ["model"]}, "kept": 1}
LISTED = {
    "tools": [
        {"name": "answer", "inputSchema": {"type": "object"}},
        {"name": "card", "inputSchema": {"type": "object"}, "_meta": CARD},
    ],
    "resources": [
        {"uri": "ui://card", "name": "card", "mimeType": "text/html;profile=mcp-app"},
        {"uri": "https://docs.example/page", "name": "page"},
        {"uri": "note://first", "name": "first"},
    ],
    "resourceTemplates": [
        {"uriTemplate": "note://by/{name}", "name": "by"},
        {"uriTemplate": "disk://{+path}", "name": "disk"},
        {"uriTemplate": "ui://cards/{id}", "name": "cards"},
        {"uriTemplate": "https://docs.example/pages/{id}", "name": "pages"},
    ],
    "prompts": [{"name": "review"}],
}
KINDS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "tools/list": "tools",
}
CAPABILITIES = {"tools": {}, "prompts": {}, "resources": {"listChanged": True}}
subscription = None


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(params):
    arguments = params.get("arguments", {})
    adds = arguments.get("adds", [])
    LISTED["resources"] += [{"uri": uri, "name": "made"} for uri in adds]
    if adds and mode == "handshake":
        send(method=CHANGED)
    elif adds and subscription is not None:
        send(method=CHANGED, params={"_meta": {META + "subscriptionId": subscription}})
    return arguments.get("result", {"content": []})


def prompt():
    link = {"type": "resource_link", "uri": "note://first", "name": "first"}
    inner = {"type": "resource", "resource": {"uri": "note://first", "text": "note://first"}}
    contents = [link, inner, {"type": "text", "text": "note://first"}]
    return {"messages": [{"role": "user", "content": each} for each in contents]}


def answer(method, params):
    if method == "initialize":
        info = {"name": "linking", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
    if method in KINDS:
        return {KINDS[method]: LISTED[KINDS[method]], "ttlMs": 0, "cacheScope": "public"}
    if method == "tools/call":
        return call(params)
    if method == "prompts/get":
        return prompt()
    return {"contents": [{"uri": params["uri"], "text": params["uri"]}]}


for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params") or {}
    if "id" not in message:
        continue
    known = {"handshake": ["initialize"], "modern": ["server/discover", "subscriptions/listen"]}[mode]
    if method not in (*known, *KINDS, "tools/call", "prompts/get", "resources/read"):
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})
    elif method == "subscriptions/listen":
        subscription = message["id"]
        meta = {META + "subscriptionId": subscription}
        acknowledged = {"notifications": params["notifications"], "_meta": meta}
        send(method="notifications/subscriptions/acknowledged", params=acknowledged)
    elif method == "resources/read" and "missing" in params["uri"]:
        send(id=message["id"], error={"code": -32002, "message": "not found"})
    else:
        complete = {"resultType": "complete"} if mode == "modern" else {}
        send(id=message["id"], result={**answer(method, params), **complete})

"""A raw MCP server on stdin and stdout with prompts, resources, templates and completions, in either era.

    python contents_upstream.py MODE FILE

MODE is `handshake` or `modern`. FILE holds what it lists, as JSON: the definitions by `prompts`, `resources`,
`resourceTemplates` and `tools`, and `declares`, its capabilities. It is read anew for each list. The tool `poke` says
that every list has changed. What a prompt or resource answers holds the very request that came; who asks for progress
hears of one step. A request that says `wait` is not answered: FILE.ledger gets a line when it comes and another when it
is cancelled.
"""

import json
import sys

mode, path = sys.argv[1], sys.argv[2]
META = "io.modelcontextprotocol/"
KINDS = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "tools/list": "tools",
}
CHANGES = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]
PAGE = 2
subscription = None
waiting = {}


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def declared():
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def own(params):
    """The request without what belongs to a connection."""
    meta = {key: value for key, value in params.get("_meta", {}).items() if not key.startswith(META)}
    return {key: value for key, value in params.items() if key != "_meta"} | ({"_meta": meta} if meta else {})


def listing(method, params):
    items = declared().get(KINDS[method], [])
    start = int(params.get("cursor", 0))
    more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(items) else {}
    return {KINDS[method]: items[start : start + PAGE], **more, "ttlMs": 0, "cacheScope": "public"}


def read(params):
    uri = params["uri"]
    if uri.startswith("test://missing"):
        return None
    text = {"uri": uri, "mimeType": "application/json", "text": json.dumps(own(params)), "_meta": {"kept": True}}
    blob = {"uri": uri + "#part", "mimeType": "application/octet-stream", "blob": "AAEC"}
    return {"contents": [text, blob], "odd": {"é": [1, 2.5, None]}, "ttlMs": 5, "cacheScope": "public"}


def get(params):
    if params["name"] == "odd name":
        return None
    words = [
        {"type": "text", "text": json.dumps(own(params))},
        {"type": "image", "data": "AAEC", "mimeType": "image/png"},
        {"type": "audio", "data": "AAEC", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "test://inner", "text": "embedded"}},
        {"type": "resource_link", "uri": "test://linked", "name": "linked"},
    ]
    messages = [{"role": "user", "content": each, "extra": 1} for each in words]
    return {"description": "A prompt", "messages": messages}


def complete(params):
    value = params["argument"]["value"]
    found = [json.dumps(own(params)), *(word for word in ("paris", "park") if word.startswith(value))]
    return {"completion": {"values": found, "total": len(found), "hasMore": False}}


ANSWERS = {"resources/read": read, "prompts/get": get, "completion/complete": complete}


def answer(method, params):
    if method == "initialize":
        info = {"name": "contents", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": declared()["declares"], "serverInfo": info}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": declared()["declares"]}
    if method in KINDS:
        return listing(method, params)
    if method == "tools/call":
        for change in CHANGES:
            if mode == "handshake":
                send(method=change)
            elif subscription is not None:
                send(method=change, params={"_meta": {META + "subscriptionId": subscription}})
        return {"content": []}
    return ANSWERS[method](params)


def note(*words):
    with open(path + ".ledger", "a", encoding="utf-8") as ledger:
        ledger.write(" ".join(words) + "\n")


for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params") or {}
    if method == "notifications/cancelled" and params["requestId"] in waiting:
        note("cancelled", waiting.pop(params["requestId"]))
    if "id" not in message:
        continue
    if (token := params.get("_meta", {}).get("progressToken")) is not None and method in ANSWERS:
        send(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": method})
    if method in ANSWERS and "wait" in json.dumps(own(params)):
        waiting[message["id"]] = method
        note("began", method)
        continue
    known = {"handshake": ["initialize"], "modern": ["server/discover", "subscriptions/listen"]}[mode]
    if method not in (*known, *KINDS, *ANSWERS, "tools/call"):
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})
    elif method == "subscriptions/listen":
        subscription = message["id"]
        meta = {META + "subscriptionId": subscription}
        acknowledged = {"notifications": params["notifications"], "_meta": meta}
        send(method="notifications/subscriptions/acknowledged", params=acknowledged)
    elif (result := answer(method, params)) is None:
        send(id=message["id"], error={"code": -32077, "message": "it is gone", "data": {"what": method}})
    else:
        complete_ = {"resultType": "complete"} if mode == "modern" else {}
        send(id=message["id"], result={**result, **complete_})

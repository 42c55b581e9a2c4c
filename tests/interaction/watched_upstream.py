"""A raw MCP server on stdin and stdout whose resources can be subscribed to, in either era.

    python watched_upstream.py MODE FILE

MODE is `handshake`, `modern`, or `deaf`: the handshake era without subscriptions. FILE holds what it lists, as JSON:
`resources` and `resourceTemplates`; without the file it ends at once. What it is asked of subscriptions is written to
FILE.ledger, a line each; while FILE.refusing exists, it refuses every subscription. Tools: `touch` says that the
resources `uris` have changed, or their part `part`, to whom that was subscribed to; `poke` says that its list has
changed; `end` ends its streams; `die` ends it.
"""

import json
import os
import sys

mode, path = sys.argv[1], sys.argv[2]
META = "io.modelcontextprotocol/"
REFUSED = "memo://refused"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("touch", "poke", "end", "die")]
subscribed = set()


def is_refused(uri):
    if is_for_now := os.path.exists(path + ".refusing"):
        note("refused", uri)
    return is_for_now or uri == REFUSED


streams = {}


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(*words):
    with open(path + ".ledger", "a", encoding="utf-8") as ledger:
        ledger.write(" ".join(words) + "\n")


def stored():
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def greeting():
    resources = {"listChanged": True} | ({} if mode == "deaf" else {"subscribe": True})
    capabilities = {"tools": {}, "resources": resources}
    if mode == "modern":
        return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    info = {"name": "watched", "version": "1"}
    return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}


def listen(request_id, wanted):
    uris = [uri for uri in wanted.get("resourceSubscriptions", []) if not is_refused(uri)]
    if uris:
        note("listen", *uris)
    streams[request_id] = wanted | ({"resourceSubscriptions": uris} if uris else {})
    agreed = {key: value for key, value in streams[request_id].items() if value}
    if not uris:
        agreed.pop("resourceSubscriptions", None)
    params = {"notifications": agreed, "_meta": {META + "subscriptionId": request_id}}
    send(method="notifications/subscriptions/acknowledged", params=params)


def touch(uris, part=""):
    for uri in uris:
        if uri in subscribed:
            send(method="notifications/resources/updated", params={"uri": uri + part})
        for request_id, wanted in streams.items():
            if uri in wanted.get("resourceSubscriptions", []):
                meta = {META + "subscriptionId": request_id}
                send(method="notifications/resources/updated", params={"uri": uri + part, "_meta": meta})


def poke():
    change = "notifications/resources/list_changed"
    if mode != "modern":
        send(method=change)
    for request_id, wanted in streams.items():
        if wanted.get("resourcesListChanged"):
            send(method=change, params={"_meta": {META + "subscriptionId": request_id}})


def end():
    for request_id in [each for each, wanted in streams.items() if wanted.get("resourceSubscriptions")]:
        del streams[request_id]
        send(id=request_id, result={"resultType": "complete", "_meta": {META + "subscriptionId": request_id}})


def call(name, arguments):
    if name == "die":
        os._exit(3)
    {"touch": lambda: touch(**arguments), "poke": poke, "end": end}[name]()
    return {"content": []}


def subscribe(method, uri):
    note(method.partition("/")[2], uri)
    if method == "resources/subscribe" and is_refused(uri):
        return None
    (subscribed.add if method == "resources/subscribe" else subscribed.discard)(uri)
    return {}


def answer(method, params):
    if method in ("initialize", "server/discover"):
        return greeting()
    if method == "tools/list":
        return {"tools": TOOLS, "ttlMs": 0, "cacheScope": "public"}
    if method in ("resources/list", "resources/templates/list"):
        kind = "resources" if method == "resources/list" else "resourceTemplates"
        return {kind: stored().get(kind, []), "ttlMs": 0, "cacheScope": "public"}
    if method == "tools/call":
        return call(params["name"], params.get("arguments") or {})
    if method in ("resources/subscribe", "resources/unsubscribe"):
        return subscribe(method, params["uri"])
    return {"contents": [{"uri": params["uri"], "text": "text"}], "ttlMs": 0, "cacheScope": "public"}


UNKNOWN = {
    "handshake": {"server/discover", "subscriptions/listen"},
    "deaf": {"server/discover", "subscriptions/listen", "resources/subscribe", "resources/unsubscribe"},
    "modern": {"initialize", "resources/subscribe", "resources/unsubscribe"},
}
if not os.path.exists(path):
    sys.exit(4)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message["method"], message.get("params") or {}
    if method == "notifications/cancelled" and streams.pop(params["requestId"], {}).get("resourceSubscriptions"):
        note("cancelled")
    if "id" not in message:
        continue
    if method in UNKNOWN[mode] or method == "prompts/list":
        send(id=message["id"], error={"code": -32601, "message": "Method not found"})
    elif method == "subscriptions/listen":
        listen(message["id"], params["notifications"])
    elif (result := answer(method, params)) is None:
        send(id=message["id"], error={"code": -32077, "message": "no such thing", "data": {"what": method}})
    else:
        send(id=message["id"], result={**result, **({"resultType": "complete"} if mode == "modern" else {})})

"""A raw MCP server of the modern era on stdin and stdout that wants to know more before it answers.

Usage: asking_upstream.py LEDGER

`ask`, the prompt `brief` and every resource answer with the questions that `kind` names (a form where nothing does),
`rounds` times, and give the client the state `LABEL/ROUND`. Then they answer with what they know: their label, the
capabilities and the answers they were sent. Who asks for progress hears its own label. LEDGER gets a line for each of
these requests: its params.
"""

import json
import sys

META = "io.modelcontextprotocol/"
FIELDS = {"name": {"type": "string"}}


def form(message, fields):
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def questions(kind, label, round):
    if kind == "model":
        said = {"role": "user", "content": {"type": "text", "text": f"A word for {label}"}}
        return {"word": {"method": "sampling/createMessage", "params": {"messages": [said], "maxTokens": 5}}}
    if kind == "roots":
        return {"roots": {"method": "roots/list"}}
    if kind == "secret":
        return {"it": form("Who are you?", {"password": {"type": "string"}})}
    if kind == "all":
        return {key: each for one in ("form", "model", "roots") for key, each in questions(one, label, round).items()}
    return {"name": form(f"Who is {label}, round {round}?", FIELDS)}


def schema(**properties):
    return {"type": "object", "properties": properties}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    {
        "name": name,
        "description": "Ask who it is for a lighthouse.",
        "inputSchema": schema(label=TEXT, kind=TEXT, rounds=NUMBER),
    }
    for name in ("ask", "ask_again", "ask_handshake", "ask_modern")
]
LISTS = {
    "tools/list": {"tools": TOOLS},
    "prompts/list": {"prompts": [{"name": "brief", "arguments": [{"name": "label"}]}]},
    "resources/list": {"resources": [{"uri": "test://page", "name": "page"}]},
    "resources/templates/list": {"resourceTemplates": []},
}


def asking(params, arguments):
    """The questions, or None when there are answers enough."""
    label = arguments.get("label", "nobody")
    round = int(params.get("requestState", f"{label}/0").rpartition("/")[2]) + 1
    if round > arguments.get("rounds", 1):
        return None
    asked = questions(arguments.get("kind"), label, round)
    return {"resultType": "input_required", "inputRequests": asked, "requestState": f"{label}/{round}"}


def told(params, arguments):
    return json.dumps(
        {
            "label": arguments.get("label"),
            "able": params["_meta"][META + "clientCapabilities"],
            "state": params.get("requestState"),
            "answers": params.get("inputResponses"),
        }
    )


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(method, params):
    if method == "server/discover":
        able = {"tools": {}, "prompts": {}, "resources": {}}
        return {"supportedVersions": ["2026-07-28"], "capabilities": able, "ttlMs": 0, "cacheScope": "public"}
    if method in LISTS:
        return {**LISTS[method], "ttlMs": 0, "cacheScope": "public"}
    with open(sys.argv[1], "a", encoding="utf-8") as ledger:
        ledger.write(json.dumps(params) + "\n")
    arguments = params.get("arguments", {})
    if (token := params.get("_meta", {}).get("progressToken")) is not None:
        report = {"progressToken": token, "progress": 1, "message": arguments.get("label")}
        send(method="notifications/progress", params=report)
    if (asked := asking(params, arguments)) is not None:
        return asked
    text = told(params, arguments)
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
    if method == "resources/read":
        return {"contents": [{"uri": params["uri"], "text": text}], "ttlMs": 0, "cacheScope": "public"}
    return {"content": [{"type": "text", "text": text}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"resultType": "complete", **answer(message["method"], message["params"])}
        send(id=message["id"], result=result)

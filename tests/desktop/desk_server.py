"""A small server of the handshake era that notes what becomes of its calls. Usage: desk_server.py WORLD [WORDS]

`work` answers with the pid; it waits for the file `go-WAIT`, answers with `size` letters, tells the value of the
variable `env`, its folder, asks its client for roots or with a form. WORLD/began and WORLD/done get the `mark` of each
call.
`boards` are its resources. Standard library only: `python -S` starts it in no time.
"""

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

WORLD = Path(sys.argv[1])
POLL_S = 0.01
written = threading.Lock()
asked = {}
answered = threading.Condition()
TOOL = {
    "name": "work",
    "description": "Work at the desk.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}
BOARD = {"uri": "board://a", "name": "a"}


def note(name, text):
    with (WORLD / name).open("a") as file:
        file.write(text + "\n")


def send(message):
    with written, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def ask(method, params):
    key = f"q{time.monotonic_ns()}"
    send({"id": key, "method": method, "params": params})
    with answered:
        answered.wait_for(lambda: key in asked)
        return asked[key]


def work(arguments):
    if mark := arguments.get("mark"):
        note("began", str(mark))
    if text := arguments.get("wait"):
        note("waiting", text)
        while not (WORLD / f"go-{text}").exists():
            time.sleep(POLL_S)
    said = str(os.getpid())
    if "size" in arguments:
        said = "x" * arguments["size"]
    elif "env" in arguments:
        said = os.environ.get(arguments["env"], "")
    elif "folder" in arguments:
        said = os.getcwd()
    elif arguments.get("ask") == "roots":
        said = json.dumps(ask("roots/list", {}))
    elif arguments.get("ask") == "form":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        said = json.dumps(ask("elicitation/create", {"message": "Who?", "requestedSchema": schema}))
    if mark:
        note("done", str(mark))
    return {"content": [{"type": "text", "text": said}]}


def answer(method, params):
    match method:
        case "initialize":
            offers = {"tools": {}, "resources": {"subscribe": True}, "logging": {}}
            info = {"name": "desk", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "resources/list":
            return {"resources": [BOARD]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "board"}]}
        case "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel":
            note("told", f"{method}:{params.get('uri') or params.get('level')}")
            return {}
        case "tools/call":
            return work(params.get("arguments") or {})
        case "ping":
            return {}
    return None


def reply(message):
    result = answer(message["method"], message.get("params") or {})
    outcome = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
    send({"id": message["id"], **outcome})


note("pids", str(os.getpid()))
for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message:
        with answered:
            asked[message["id"]] = message.get("result") or message.get("error")
            answered.notify_all()
    elif message.get("id") is not None:
        threading.Thread(target=reply, args=(message,), daemon=True).start()
os._exit(0)

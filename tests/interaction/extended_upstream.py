"""A raw MCP server with interfaces, skills and tasks, in either era, on stdin and stdout or as an ASGI app.

    python extended_upstream.py MODE STATE LEDGER

MODE is `handshake` or `modern`. STATE is a JSON file, read anew for each request: `tools`, `resources`, `pages` (the
parts of a resource by URI), `skills`, `files` (text, or a part, by URI), `directories` (children by URI), `extensions`,
`tasks` (known from the start), `shy` (gives resources to hosts alone).
LEDGER gets a line for each request: its method, its params and the capabilities that they declare.

The tool `work` makes a task of itself where its caller declares tasks: its argument `states` says what each look at the
task finds, the last one for ever; `asks` finds another question each time, `broken` an error,
`deep` a value of that depth. With `demands` it refuses any other caller. `answer` answers with its argument
`result`.
"""

import json
import sys
from pathlib import Path

META = "io.modelcontextprotocol/"
APPS = META + "ui"
TASKS = META + "tasks"
STARTED = "2026-11-25T10:30:00Z"
WORK = {"name": "work", "inputSchema": {"type": "object"}}
ANSWER = {"name": "answer", "inputSchema": {"type": "object"}}


class RpcError(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": data} if data is not None else {})


class Extended:
    """What the server knows and answers."""

    def __init__(self, mode, state, ledger):
        self.mode = mode
        self.state = Path(state)
        self.ledger = Path(ledger)
        self.tasks = dict(self.known().get("tasks", {})) if self.state.exists() else {}
        self.questions = 0

    def known(self):
        return json.loads(self.state.read_text("utf-8"))

    def reply(self, message):
        """The reply to one message; None for a notification."""
        if "id" not in message:
            return None
        params = message.get("params") or {}
        declared = (params.get("_meta") or {}).get(META + "clientCapabilities", params.get("capabilities"))
        with self.ledger.open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps([message["method"], params, declared]) + "\n")
        try:
            result = self.answer(message["method"], params, declared or {})
            complete = {"resultType": "complete"} if self.mode == "modern" else {}
            return {"jsonrpc": "2.0", "id": message["id"], "result": complete | result}
        except RpcError as error:
            return {"jsonrpc": "2.0", "id": message["id"], "error": error.error}

    def answer(self, method, params, declared):
        known = self.known()
        extensions = known.get("extensions", {})
        capabilities = {"tools": {}, "resources": {}} | ({"extensions": extensions} if extensions else {})
        if method == "initialize" and self.mode == "handshake":
            info = {"name": "extended", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        if method == "server/discover" and self.mode == "modern":
            return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        kept = {"ttlMs": 0, "cacheScope": "public"}
        if method in ("tools/list", "resources/list", "skills/list"):
            member = method.partition("/")[0]
            more = [WORK, ANSWER] if member == "tools" else []
            return {member: [*known.get(member, []), *more], **kept}
        if method == "skills/get":
            found = [each for each in known.get("skills", []) if each["uri"] == params["uri"]]
            if not found:
                raise RpcError(-32602, "No such skill")
            return {"skill": found[0], **kept}
        if method == "resources/read":
            return {"contents": [self.part(known, params["uri"], declared)], **kept}
        if method == "resources/directory/read":
            return {"resources": known["directories"][params["uri"]]}
        if method == "tools/call":
            return self.call(params["name"], params.get("arguments") or {}, declared)
        if method.startswith("tasks/"):
            return self.of_task(method, params)
        raise RpcError(-32601, "Method not found")

    def part(self, known, uri, declared):
        if known.get("shy") and APPS not in (declared.get("extensions") or {}):
            raise RpcError(-32602, "for hosts that show interfaces")
        part = known.get("pages", {}).get(uri) or known.get("files", {}).get(uri)
        if part is None:
            raise RpcError(-32002 if self.mode == "handshake" else -32602, "not found")
        return {"uri": uri, **(part if isinstance(part, dict) else {"text": part})}

    def call(self, name, arguments, declared):
        if name == "answer":
            return arguments["result"]
        if name != "work":
            return {"content": [{"type": "text", "text": f"{self.state.stem} {name}"}]}
        if TASKS not in (declared.get("extensions") or {}):
            if arguments.get("demands"):
                needs = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
                raise RpcError(-32021, "Missing required client capability", needs)
            return {"content": [{"type": "text", "text": "worked"}]}
        own = arguments.get("id", f"task-{len(self.tasks)}")
        self.tasks[own] = list(arguments["states"])
        return {**self.shown(own), "resultType": "task"}

    def shown(self, own):
        state = self.tasks[own][0]
        if depth := state.get("deep"):
            state = {"status": "working", "more": json.loads("[" * depth + "]" * depth)}
        if state.get("broken"):
            raise RpcError(-32603, "cannot look")
        if state.get("asks"):
            self.questions += 1
            asked = {"mode": "form", "message": "More?", "requestedSchema": {"type": "object", "properties": {}}}
            question = {"method": "elicitation/create", "params": asked}
            state = {"status": "input_required", "inputRequests": {f"q{self.questions}": question}}
        times = {"createdAt": STARTED, "lastUpdatedAt": STARTED, "ttlMs": 60000, "pollIntervalMs": 60}
        return {"taskId": own, **times, **state}

    def of_task(self, method, params):
        own = params["taskId"]
        if own not in self.tasks:
            raise RpcError(-32602, f"Failed to retrieve task: {own} not found")
        if method == "tasks/get":
            if len(self.tasks[own]) > 1:
                self.tasks[own].pop(0)
            return self.shown(own)
        if method == "tasks/cancel":
            self.tasks[own] = [{"status": "cancelled"}]
        elif self.tasks[own][0].get("picky") or self.tasks[own][-1].get("picky"):
            raise RpcError(-32602, "not such answers")
        elif not self.tasks[own][0].get("asks"):
            text = json.dumps(params["inputResponses"])
            result = {"content": [{"type": "text", "text": text}]}
            self.tasks[own] = [{"status": "working"}, {"status": "completed", "result": result}]
        return {}


def asgi(server):
    """The same as an app over HTTP, of the modern era; it wants the header that names a task."""

    async def app(scope, receive, send):
        body = b""
        while True:
            event = await receive()
            if event["type"] != "http.request":
                return
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        message = json.loads(body)
        headers = dict(scope["headers"])
        task = (message.get("params") or {}).get("taskId")
        if task is not None and headers.get(b"mcp-name", b"").decode() != task:
            reply = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32020, "message": "header mismatch"}}
        else:
            reply = server.reply(message)
        status = 202 if reply is None else 200
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": b"" if reply is None else json.dumps(reply).encode()})

    return app


def main():
    server = Extended(*sys.argv[1:])
    for line in sys.stdin:
        if (reply := server.reply(json.loads(line))) is not None:
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

"""A raw MCP server with interfaces, skills and tasks, in either era, on stdin and stdout or as an ASGI app.

    python extended_upstream.py MODE STATE LEDGER

MODE is `handshake` or `modern`. STATE is a JSON file, read anew for each request: `tools`, `resources`, `pages` (the
parts of a resource by URI), `skills`, `files` (text, or a part, by URI), `directories` (children by URI), `extensions`,
`tasks` (known from the start), `shy` (gives resources to hosts alone), `mark` (of plain results, in the place of its
name), `shown_tools` (in the place of `tools`, for clients that declare interfaces), `speaks` (can be subscribed to, and
has the tools `touch`, which says that its `uris` or its `lists` have changed, and `push`, which tells the `states` of a
`task`, to all streams with `everywhere`).
LEDGER gets a line for each request: its method, its params and the capabilities that they declare.

The tool `work` makes a task of itself where its caller declares tasks: its argument `states` says what each look at the
task finds, the last one for ever; `asks` finds another question each time, `broken` an error,
`deep` a value of that depth. With `demands` it refuses any other caller. `answer` answers with its argument
`result`.
"""

import asyncio
import json
import sys
from pathlib import Path

META = "io.modelcontextprotocol/"
APPS = META + "ui"
TASKS = META + "tasks"
STARTED = "2026-11-25T10:30:00Z"
WORK = {"name": "work", "inputSchema": {"type": "object"}}
ANSWER = {"name": "answer", "inputSchema": {"type": "object"}}
SPEAKING = [{"name": name, "inputSchema": {"type": "object"}} for name in ("touch", "push")]


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
        self.greeted = {}
        self.subscribed = set()
        self.streams = {}
        self.emit = lambda stream, message: None
        """Sends a message on a stream; of the handshake era on the only one, None."""

    def known(self):
        return json.loads(self.state.read_text("utf-8"))

    def reply(self, message):
        """The reply to one message; None for a notification."""
        if "id" not in message:
            if message["method"] == "notifications/cancelled":
                self.streams.pop(message["params"]["requestId"], None)
            return None
        params = message.get("params") or {}
        declared = (params.get("_meta") or {}).get(META + "clientCapabilities", params.get("capabilities"))
        with self.ledger.open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps([message["method"], params, declared]) + "\n")
        if message["method"] == "subscriptions/listen" and self.mode == "modern":
            self.listen(message["id"], params["notifications"])
            return None
        try:
            result = self.answer(message["method"], params, declared or {})
            complete = {"resultType": "complete"} if self.mode == "modern" else {}
            return {"jsonrpc": "2.0", "id": message["id"], "result": complete | result}
        except RpcError as error:
            return {"jsonrpc": "2.0", "id": message["id"], "error": error.error}

    def answer(self, method, params, declared):
        known = self.known()
        if method in ("initialize", "server/discover"):
            return self.greeting(method, known, declared)
        kept = {"ttlMs": 0, "cacheScope": "public"}
        if method in ("tools/list", "resources/list", "skills/list"):
            member = method.partition("/")[0]
            return {member: self.listed(known, member, declared), **kept}
        if method in ("resources/subscribe", "resources/unsubscribe") and self.mode == "handshake":
            (self.subscribed.add if method == "resources/subscribe" else self.subscribed.discard)(params["uri"])
            return {}
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

    def greeting(self, method, known, declared):
        tells = {"subscribe": True, "listChanged": True} if known.get("speaks") else {}
        capabilities = {"tools": {}, "resources": tells}
        if extensions := known.get("extensions", {}):
            capabilities["extensions"] = extensions
        if method == "initialize" and self.mode == "handshake":
            self.greeted = declared
            info = {"name": "extended", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        if method == "server/discover" and self.mode == "modern":
            return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        raise RpcError(-32601, "Method not found")

    def listed(self, known, member, declared):
        if member != "tools":
            return known.get(member, [])
        shows = APPS in ((declared or self.greeted).get("extensions") or {})
        listed = known["shown_tools"] if shows and "shown_tools" in known else known.get("tools", [])
        return [*listed, WORK, ANSWER, *(SPEAKING if known.get("speaks") else ())]

    def listen(self, stream, wanted):
        speaks = self.known().get("speaks")
        agreed = {key: value for key, value in wanted.items() if value is True}
        if speaks and wanted.get("resourceSubscriptions"):
            agreed["resourceSubscriptions"] = wanted["resourceSubscriptions"]
        if speaks and (tasks := [each for each in wanted.get("taskIds", []) if each in self.tasks]):
            agreed["taskIds"] = tasks
        self.streams[stream] = agreed
        self.tell("subscriptions/acknowledged", {"notifications": agreed}, [stream])

    def tell(self, what, params, streams):
        for stream in streams:
            meta = {} if stream is None else {"_meta": {META + "subscriptionId": stream}}
            message = {"jsonrpc": "2.0", "method": f"notifications/{what}", "params": {**params, **meta}}
            self.emit(stream, message)

    def hearing(self, key, wanted):
        if self.mode == "handshake":
            return [None] if key != "resourceSubscriptions" or wanted in self.subscribed else []
        agreed = self.streams.items()
        return [stream for stream, each in agreed if each.get(key) is True or wanted in (each.get(key) or ())]

    def speak(self, name, arguments):
        if name == "touch":
            for uri in arguments.get("uris", []):
                self.tell("resources/updated", {"uri": uri}, self.hearing("resourceSubscriptions", uri))
            for kind in arguments.get("lists", []):
                self.tell(f"{kind}/list_changed", {}, self.hearing(f"{kind}ListChanged", True))
            return
        task = arguments["task"]
        for state in arguments["states"]:
            self.tasks[task] = [state]
            streams = list(self.streams) if arguments.get("everywhere") else self.hearing("taskIds", task)
            self.tell("tasks", self.shown(task), streams)

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
        if name in ("touch", "push"):
            self.speak(name, arguments)
            return {"content": []}
        if name != "work":
            mark = self.known().get("mark", self.state.stem)
            return {"content": [{"type": "text", "text": f"{mark} {name}"}]}
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
    queues = {}
    server.emit = lambda stream, message: queues[stream].put_nowait(message) if stream in queues else None

    async def stream(request_id, receive, send, message):
        queue = queues[request_id] = asyncio.Queue()
        server.reply(message)
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        gone = asyncio.ensure_future(receive())
        try:
            while True:
                told = asyncio.ensure_future(queue.get())
                await asyncio.wait({gone, told}, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    told.cancel()
                    return
                text = b"data: %b\n\n" % json.dumps(told.result()).encode()
                await send({"type": "http.response.body", "body": text, "more_body": True})
        finally:
            gone.cancel()
            del queues[request_id], server.streams[request_id]

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
        if message["method"] == "subscriptions/listen":
            await stream(message["id"], receive, send, message)
            return
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

    def put(message):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    server.emit = lambda stream, message: put(message)
    for line in sys.stdin:
        if (reply := server.reply(json.loads(line))) is not None:
            put(reply)


if __name__ == "__main__":
    main()

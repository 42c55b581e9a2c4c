"""A server over HTTP that answers in every way a broker has to cope with, and writes down what reached it."""

import asyncio
import json
from typing import Any

from run_wire import configured_with

TOOLS = [
    {"name": name, "description": f"Answers by {name}.", "inputSchema": {"type": "object"}}
    for name in (
        *("echo", "stream", "lines", "pretty", "hang", "silent", "cut", "html", "redirect", "locked", "refuse", "raw"),
        *("busy", "many", "failing"),
    )
]

CAPABILITIES: dict[str, Any] = {name: {} for name in ("tools", "resources", "prompts", "completions", "logging")}


class BrokerUpstream:
    """A server of the handshake era as an ASGI app.

    Attributes:
        requests: Headers and message of every POST.
        has_left: Set when a caller closes the stream of `hang` or `silent`.
        waiting: Set when `hang` or `silent` have begun.
        go: `stream` sends its second half when this is set.
        tools: What `tools/list` answers.
        resources: What `resources/list` answers.
        may_list: `tools/list` is answered when this is set.
        is_locked: Every request is refused with 401.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.has_left = asyncio.Event()
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.may_list = asyncio.Event()
        self.may_list.set()
        self.is_locked = False
        self.open_streams = 0
        self.resources: list[dict[str, Any]] = [{"uri": "memo://1", "name": "one"}]
        self.tools: list[dict[str, Any]] = list(TOOLS)

    def heard(self, method: str) -> list[dict[str, Any]]:
        """The messages with this method, in order."""
        return [message for _, message in self.requests if message.get("method") == method]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serves one request."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        if scope["type"] != "http":
            return
        if scope["method"] != "POST":
            await _plain(send, b"", 405)
            return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        asked = json.loads(body)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.requests.append((headers, asked))
        if self.is_locked:
            await _plain(send, b"", 401)
            return
        await self._answer(asked, receive, send)

    async def _answer(self, asked: dict[str, Any], receive: Any, send: Any) -> None:
        method, params = asked["method"], asked.get("params", {})
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": {"name": "b"}},
            "tools/list": {"tools": self.tools},
            "resources/list": {"resources": self.resources},
            "resources/read": {"contents": [{**params, "text": "mine"}]},
            "prompts/list": {"prompts": [{"name": "greet"}]},
            "prompts/get": {"messages": [params]},
            "completion/complete": {"completion": {"values": ["you"]}},
            "ping": {},
        }
        if method == "tools/list":
            await self.may_list.wait()
        if method == "tools/call":
            await getattr(self, params["name"])(asked, params.get("arguments", {}), receive, send)
        elif method in results:
            await _plain(send, _reply(asked, results[method]), headers={"mcp-session-id": "s1"})
        elif "id" not in asked:
            await _plain(send, b"", 202)
        else:
            error = {"code": -32601, "message": "Method not found", "data": {"here": True}}
            await _plain(send, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode())

    async def echo(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """One JSON body."""
        await _plain(send, _reply(asked, _text(json.dumps(arguments))))

    async def pretty(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """A JSON body over many lines, in pieces."""
        body = json.dumps(json.loads(_reply(asked, _text("pretty"))), indent=2).encode()
        await _start(send, "application/json")
        for at in range(0, len(body), 7):
            await _chunk(send, body[at : at + 7])
        await _chunk(send, b"", is_last=True)

    async def stream(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """Events: progress, a log message, announcements of no use; when let go more progress and the reply."""
        await _start(send, "text/event-stream")
        await _event(send, _progress(asked, 1))
        await _event(send, {"method": "notifications/message", "params": {"level": "info", "data": "half\x1b[1m way"}})
        await _event(send, {"method": "notifications/tools/list_changed"})
        await _event(send, {"method": "notifications/message", "params": [1]})
        await self.go.wait()
        await _event(send, _progress(asked, 2))
        await _event(send, json.loads(_reply(asked, _text("streamed"))))
        await _chunk(send, b"", is_last=True)

    async def many(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """More events than any buffer holds, and the reply."""
        await _start(send, "text/event-stream")
        for step in range(arguments["count"]):
            await _event(send, _progress(asked, step, "x" * arguments["size"]))
        await _event(send, json.loads(_reply(asked, _text("all"))))
        await _chunk(send, b"", is_last=True)

    async def lines(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """The same as lines of JSON."""
        await _start(send, "application/json")
        for step in (1, 2):
            await _chunk(send, json.dumps({"jsonrpc": "2.0", **_progress(asked, step)}).encode() + b"\n")
            await self.go.wait()
        await _chunk(send, _reply(asked, _text("lined")) + b"\n", is_last=True)

    async def hang(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """One event, and then nothing until the caller leaves."""
        await _start(send, "text/event-stream")
        await _event(send, _progress(asked, 1))
        await self._wait_left(receive)

    async def silent(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """Nothing at all until the caller leaves."""
        await self._wait_left(receive)

    async def busy(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """Too many requests."""
        await _plain(send, b"", 429, headers={"retry-after": "7"})

    async def failing(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """A status of HTTP with some JSON."""
        await _plain(send, json.dumps(arguments["body"]).encode(), arguments["status"])

    async def cut(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """A stream that breaks."""
        await _start(send, "text/event-stream")
        await _event(send, _progress(asked, 1))
        raise ConnectionResetError  # the server closes the connection

    async def html(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """A page for people."""
        await _plain(send, b"<html>Bad things happened: sk-upstream-secret</html>", kind="text/html")

    async def redirect(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """To somebody else."""
        await _plain(send, b"", 307, headers={"location": arguments["to"]})

    async def locked(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """A wish for other credentials."""
        await _plain(send, b"", 401)

    async def refuse(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """A JSON-RPC error."""
        error = {"code": -32050, "message": "not today", "data": {"until": "tomorrow"}}
        await _plain(send, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode())

    async def raw(self, asked: Any, arguments: Any, receive: Any, send: Any) -> None:
        """A reply with headers that concern nobody else."""
        configured_with({"cookie": "upstream=1"})  # it is the server's own, and comes back to it
        headers = {"set-cookie": "upstream=1", "access-control-allow-origin": "*", "x-secret": "1"}
        await _plain(send, _reply(asked, _text("raw")), headers=headers)

    async def _wait_left(self, receive: Any) -> None:
        self.open_streams += 1
        self.waiting.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.open_streams -= 1
        self.has_left.set()


def _reply(asked: dict[str, Any], result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _progress(asked: dict[str, Any], step: int, words: str = "") -> dict[str, Any]:
    token = asked["params"].get("_meta", {}).get("progressToken", "none")
    params = {"progressToken": token, "progress": step, "message": words or f"step\x1b[0m {step}"}
    return {"method": "notifications/progress", "params": params}


async def _start(send: Any, kind: str, status: int = 200, headers: dict[str, str] | None = None) -> None:
    fields = {"content-type": kind, **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _chunk(send: Any, body: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def _event(send: Any, message: dict[str, Any]) -> None:
    text = json.dumps({"jsonrpc": "2.0", **message})
    await _chunk(send, f"event: message\ndata: {text}\n\n".encode())


async def _plain(
    send: Any, body: bytes, status: int = 200, *, kind: str = "application/json", headers: dict[str, str] | None = None
) -> None:
    await _start(send, kind, status, headers)
    await _chunk(send, body, is_last=True)

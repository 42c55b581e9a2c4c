"""A raw MCP server that notes all that a client does: python observed_server.py NOTES [PORT].

Over stdio without a port, else over streamable HTTP. Each line of NOTES is a JSON object with its time and kind. Its
tools make the client show itself: a second page, names at the limits, a tool that comes later, a server that ends, and
an answer that never comes.
"""

import json
import os
import queue
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

NOTES = Path(sys.argv[1])
LONG_NAMES = tuple(f"{length}_long_".ljust(length, "x") for length in (40, 64, 128))
DOTTED_NAME = "dotted.name"
FIRST_PAGE = ("count", "grow", "stop", "slow", DOTTED_NAME, *LONG_NAMES)
COUNT_S = 0.4
"""A client takes up a new list beside its model's turns."""
_lock = Lock()


def note(kind: str, **facts: Any) -> None:
    with _lock, NOTES.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"at": round(time.time(), 2), "kind": kind, "pid": os.getpid(), **facts}) + "\n")


def define(name: str) -> dict[str, Any]:
    """A tool without parameters that Claude Code shows from the first turn on."""
    schema = {"type": "object", "properties": {"to": {"type": "integer"}}}
    about = {"name": name, "description": f"The tool {name}.", "inputSchema": schema}
    return {**about, "annotations": {"readOnlyHint": True}, "_meta": {"anthropic/alwaysLoad": True}}


class ObservedServer:
    """State of the server since its start."""

    def __init__(self) -> None:
        self.is_grown = False
        self.has_to_stop = False
        self.to_send: list[dict[str, Any]] = []

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Answer a message; None where it gets none."""
        note("message", message=message)
        if "method" not in message or "id" not in message:
            if message.get("method") == "notifications/initialized":
                self.to_send.append({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"})
            return None
        result = self._result(message["method"], message.get("params") or {})
        if result is None:
            return None
        return {"jsonrpc": "2.0", "id": message["id"], **result}

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        if method == "initialize":
            info = {"name": "observed", "version": "1"}
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": info, "instructions": "Observed."}
            return {"result": {"protocolVersion": params["protocolVersion"], **about}}
        if method == "tools/list":
            grown = ["grown"] if self.is_grown else []
            if params.get("cursor"):
                return {"result": {"tools": [define("second_page")]}}
            return {"result": {"tools": [define(name) for name in (*FIRST_PAGE, *grown)], "nextCursor": "2"}}
        if method == "tools/call":
            return self._call(params["name"])
        if method == "ping":
            return {"result": {}}
        return {"error": {"code": -32601, "message": "Method not found"}}

    def _call(self, name: str) -> dict[str, Any] | None:
        if name == "slow":
            return None
        if name == "count":
            time.sleep(COUNT_S)
        if name == "grow":
            self.is_grown = True
            self.to_send.append({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        self.has_to_stop = name == "stop"
        return {"result": {"content": [{"type": "text", "text": f"{name} was called"}]}}


def serve_stdio() -> None:
    server = ObservedServer()
    for line in sys.stdin:
        answer = server.answer(json.loads(line))
        for message in [*([answer] if answer else []), *server.to_send]:
            print(json.dumps(message), flush=True)
        server.to_send.clear()
        if server.has_to_stop:
            os._exit(1)
    note("end")


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP with sessions; each answer is JSON, what the server says of itself goes over GET."""

    protocol_version = "HTTP/1.1"
    sessions: ClassVar[dict[str, tuple[ObservedServer, "queue.Queue[dict[str, Any]]"]]] = {}
    ended: ClassVar[list[str]] = []

    def log_message(self, *_: Any) -> None:
        """Keep the output quiet."""

    def _note(self) -> str:
        session = self.headers.get("mcp-session-id", "")
        version = self.headers.get("mcp-protocol-version", "")
        agent = self.headers.get("user-agent", "")
        note("http", method=self.command, path=self.path, session=session, version=version, agent=agent)
        return session

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        session = self._note()
        if self.path != "/mcp":
            return self._send(404)
        more = {}
        if body.get("method") == "initialize":
            session = more["mcp_session_id"] = f"s{len(self.sessions) + len(self.ended)}"
            self.sessions[session] = (ObservedServer(), queue.Queue())
        elif session not in self.sessions:
            note("refused", message=body)
            error = {"jsonrpc": "2.0", "id": body.get("id"), "error": {"code": -32001, "message": "Session not found"}}
            return self._send(404 if session else 400, json.dumps(error).encode())
        server, waiting = self.sessions[session]
        answer = server.answer(body)
        for message in server.to_send:
            waiting.put(message)
        server.to_send.clear()
        while answer is None and "method" in body and "id" in body:
            time.sleep(1)
        if server.has_to_stop:
            self.ended.append(session)
            del self.sessions[session]
        return self._send(200 if answer else 202, json.dumps(answer).encode() if answer else b"", **more)

    def do_GET(self) -> None:
        session = self._note()
        if self.path != "/mcp" or session not in self.sessions:
            return self._send(404)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        waiting = self.sessions[session][1]
        while session in self.sessions:
            try:
                self.wfile.write(b"data: %s\n\n" % json.dumps(waiting.get(timeout=0.5)).encode())
            except queue.Empty:
                self.wfile.write(b": alive\n\n")
            except OSError:
                return None
        return None

    def do_DELETE(self) -> None:
        self._note()
        self._send(200)


def main() -> None:
    variables = sorted(name for name in os.environ if name.startswith("PROBE_"))
    note("start", cwd=os.getcwd(), variables=variables, count=len(os.environ))
    if len(sys.argv) > 2:
        with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler) as server:
            print(server.server_port, flush=True)
            server.serve_forever()
    serve_stdio()


if __name__ == "__main__":
    main()

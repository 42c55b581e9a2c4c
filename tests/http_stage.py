"""Stage for `attach`: a scripted gateway over HTTP, and a client that speaks through the command."""

import json
import os
import queue
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LIMIT_S = 30
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Exchange(BaseHTTPRequestHandler):
    """Request to a scripted gateway, and the ways to answer it."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    stage: "Stage"
    message: dict[str, Any]

    def setup(self) -> None:
        super().setup()
        self.stage.connections.append(self.connection)

    def do_POST(self) -> None:
        if int(self.headers["content-length"]) > self.stage.most_bytes:  # what a balancer does with such a body
            self.stage.refused += 1
            self.reply(413)
            self.close_connection = True
            return
        self.message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.stage.answer(self)

    def do_GET(self) -> None:
        self.message = {"method": "GET"}
        self.stage.answer(self)

    def do_DELETE(self) -> None:
        self.message = {"method": "DELETE"}
        self.stage.answer(self)

    def reply(self, status: int, text: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(text)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text.encode())

    def result(self, **result: Any) -> str:
        return json.dumps({"jsonrpc": "2.0", "id": self.message.get("id"), "result": result}, separators=(",", ":"))

    def open_stream(self) -> None:
        """Begins a reply of events in chunks."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def send_event(self, text: str, piece_bytes: int = 1_000_000) -> None:
        data = f"event: message\r\nid: {len(self.stage.seen)}\r\ndata: {text}\r\n\r\n".encode()
        for start in range(0, len(data), piece_bytes):
            piece = data[start : start + piece_bytes]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def wait_for_end(self) -> None:
        """Waits until the other side has closed the connection."""
        with suppress(OSError):
            self.connection.recv(1)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """Server of many connections at a time."""

    request_queue_size = 128
    daemon_threads = True


class Stage:
    """Gateway whose answers a test writes by method; it has sessions, and can be started anew on its port.

    Args:
        tls: Its side of TLS.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.connections: list[socket.socket] = []
        self.answers: dict[str, Callable[[Exchange], None]] = {}
        self.heard: queue.Queue[str] = queue.Queue()
        self.most_bytes = 100_000_000
        self.refused = 0
        self._tls = tls
        self._sessions: set[str] = set()
        self._count = 0
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/mcp"

    @property
    def methods(self) -> list[str]:
        """Of all that was asked, without the streams that a session listens on."""
        return [method for method, _, _ in self.seen if method != "GET"]

    def start(self) -> None:
        handler = type("Bound", (Exchange,), {"stage": self})
        self._server = Server(("127.0.0.1", self.port), handler)
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Ends as a process does that is killed: its connections and sessions are gone."""
        self._server.shutdown()
        self._server.server_close()
        for each in self.connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.connections.clear()
        self.forget_sessions()

    def forget_sessions(self) -> None:
        self._sessions.clear()

    def answer(self, asked: Exchange) -> None:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        method = asked.message.get("method", "answer")
        self.seen.append((method, headers, asked.message))
        session = headers.get("mcp-session-id")
        if session is not None and session not in self._sessions:
            asked.reply(404, '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}')
        elif method in self.answers:
            self.answers[method](asked)
        elif method == "initialize":
            self._count += 1
            self._sessions.add(f"s{self._count}")
            text = asked.result(protocolVersion="2025-11-25", capabilities={"tools": {"listChanged": True}})
            asked.reply(200, text, mcp_session_id=f"s{self._count}")
        elif method == "GET":
            asked.reply(405)
        else:
            asked.reply(
                200 if "id" in asked.message else 202, asked.result(method=method) if "id" in asked.message else ""
            )
        self.heard.put(method)

    def wait_for(self, method: str) -> None:
        """Returns when a request of this method has been dealt with."""
        while self.heard.get(timeout=LIMIT_S) != method:
            pass


class Client:
    """Client of `mcpproxy attach`.

    Args:
        url: Of the gateway.
        flags: For the interpreter.
        variables: Of its environment.
    """

    def __init__(self, url: str, *flags: str, **variables: str) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith("MCPPROXY_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # to compile itself anew takes memory
        command = [sys.executable, *flags, "-m", "smart_mcp_proxy", "attach", url]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=kept | variables
        )
        self._said: queue.Queue[bytes] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line)

    def send(self, method: str, number: int | None = None, **params: Any) -> None:
        numbered = {} if number is None else {"id": number}
        self.send_message({"jsonrpc": "2.0", **numbered, "method": method, "params": params})

    def send_message(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive_line(self) -> bytes:
        return self._said.get(timeout=LIMIT_S)

    def receive(self) -> dict[str, Any]:
        said = json.loads(self.receive_line())
        assert isinstance(said, dict)
        return said

    def has_said_nothing_more(self) -> bool:
        """After its end, which it is brought to."""
        self.close()
        return self._said.empty()

    def open_session(self) -> None:
        info = {"name": "t", "version": "1"}
        self.send("initialize", 0, protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        assert "result" in self.receive()
        self.send("notifications/initialized")

    def close(self) -> str:
        """Closes its end; returns what the command has written for people."""
        assert self.process.stdin is not None and self.process.stdout is not None and self.process.stderr is not None
        self.process.stdin.close()
        written = self.process.stderr.read().decode() if not self.process.stderr.closed else ""
        self.process.wait(LIMIT_S)
        self._listener.join(LIMIT_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return written


class Proxy:
    """HTTP proxy that takes one connection, and leads it to a stage whatever it is asked for.

    Args:
        stage: Where it leads.
    """

    def __init__(self, stage: Stage) -> None:
        self.head = b""
        self._stage = stage
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://me:secret@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as near:
            while b"\r\n\r\n" not in self.head:
                self.head += near.recv(1)
            with socket.create_connection(("127.0.0.1", self._stage.port)) as far:
                near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_carry, args=(far, near), daemon=True)
                back.start()
                _carry(near, far)
                back.join(LIMIT_S)


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

"""A small MCP server whose calls end when a file appears. Usage: upstream.py WORLD [obstinate | PORT]

`WORLD/pids` gets a line for each process; `WORLD/tools` holds the names of its tools (`echo` and `wait` if absent), and
behind an equals sign the edition of a definition, if it has one.
`obstinate` ignores SIGTERM and the end of its input, and starts a child that does the same. With a port it serves
streamable HTTP on loopback. Standard library only: `python -S` starts it in no time.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import run_wire

WORLD = Path(sys.argv[1])
MODE = sys.argv[2] if len(sys.argv) > 2 else ""
POLL_S = 0.01
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
written = threading.Lock()


def note(name: str, text: str) -> None:
    with (WORLD / name).open("a") as file:
        file.write(text + "\n")


def tools() -> list[dict[str, object]]:
    try:
        words = (WORLD / "tools").read_text().split()
    except FileNotFoundError:
        words = ["echo", "wait"]
    schema = {"type": "object", "properties": {"text": {"type": "string"}, "times": {"type": "integer"}}}
    return [{"name": word.partition("=")[0], "description": f"Does {word}.", "inputSchema": schema} for word in words]


def call(params: dict[str, object]) -> str:
    """The text that a call answers with."""
    arguments = params.get("arguments")
    text, times = "", 1
    if isinstance(arguments, dict):
        text, times = str(arguments.get("text", "")), int(arguments.get("times", 1))
    if params["name"] == "wait":
        note("waiting", text)
        while not (WORLD / f"go-{text}").exists():
            time.sleep(POLL_S)
    return f"said {text * times}"


def answer(message: dict[str, object]) -> dict[str, object]:
    """`result` or `error` of a request of the handshake era."""
    params = message.get("params")
    match message["method"]:
        case "initialize":
            offers = {"tools": {"listChanged": True}}
            info = {"name": "lifetime", "version": "1"}
            return {"result": {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}}
        case "tools/list":
            return {"result": {"tools": tools()}}
        case "tools/call" if isinstance(params, dict):
            return {"result": {"content": [{"type": "text", "text": call(params)}]}}
        case "ping":
            return {"result": {}}
    return {"error": {"code": -32601, "message": f"Method not found: {message['method']}"}}


def send(message: dict[str, object]) -> None:
    with written:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def reply(message: dict[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):
        send({"id": message["id"], **answer(message)})


def follow_tools() -> None:
    """Tells of every change of the file."""
    seen = tools()
    while True:
        time.sleep(POLL_S)
        if (now := tools()) != seen:
            seen = now
            send({"method": "notifications/tools/list_changed"})


def serve_stdio() -> None:
    if MODE == "obstinate":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note("pids", str(subprocess.Popen([sys.executable, "-S", "-c", STUBBORN]).pid))
    threading.Thread(target=follow_tools, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") is not None and "method" in message:
            threading.Thread(target=reply, args=(message,), daemon=True).start()
    while MODE == "obstinate":
        time.sleep(600)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        if strays := run_wire.strays_in({name.lower(): value for name, value in self.headers.items()}):
            run_wire.note(self.headers)
            self.send_error(400, f"headers that are nothing to this server: {strays}")
            return
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_request = message.get("id") is not None and "method" in message
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}).encode() if is_request else b""
        self.send_response(200 if is_request else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def do_DELETE(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    # What a test does to the gateway's disk is not meant for the world.
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    note("pids", str(os.getpid()))
    sys.stderr.write(f"{WORLD.name} is here\n")
    sys.stderr.flush()
    if MODE.isdigit():
        with Server(("127.0.0.1", int(MODE)), Handler) as server:
            (WORLD / "port.new").write_text(str(server.server_address[1]))
            (WORLD / "port.new").replace(WORLD / "port")
            server.serve_forever()
    serve_stdio()

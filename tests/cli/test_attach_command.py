"""`attach`: a client that only starts programs, on a gateway that runs over HTTP."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cli_runs import PROGRAM, Run, environment, run_process
from http_stage import MODERN, Client

# Marked long: each starts the command as a process.
pytestmark = pytest.mark.long


class Gateway(BaseHTTPRequestHandler):
    """Answers as one does: by its sessions, in JSON and in event streams; remembers the requests."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, dict[str, str], dict[str, Any]]]] = []

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append(("POST", {name.lower(): value for name, value in self.headers.items()}, message))
        method = message.get("method")
        answer = {"jsonrpc": "2.0", "id": message.get("id"), "result": {"method": method, "big": 2**60 + 1}}
        if method == "initialize":
            answer["result"] = {"protocolVersion": "2025-11-25"}
            self.reply(200, json.dumps(answer), session="abc")
        elif "id" not in message:
            self.reply(202, "")
        elif method == "slow":
            progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
            events = "".join(f"event: message\ndata: {json.dumps(each)}\n\n" for each in (progress, answer))
            self.reply(200, events, kind="text/event-stream")
        elif method == "denied":
            self.reply(401, '{"error": "x"}')
        else:
            self.reply(200, json.dumps(answer, indent=1))

    def do_GET(self) -> None:
        self.reply(405, "")

    def do_DELETE(self) -> None:
        self.seen.append(("DELETE", {name.lower(): value for name, value in self.headers.items()}, {}))
        self.reply(200, "")

    def reply(self, status: int, text: str, *, kind: str = "application/json", session: str = "") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def gateway() -> Iterator[str]:
    """Its address."""
    Gateway.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    server.server_close()
    thread.join()


def attach(
    home: Path, url: str, *messages: dict[str, Any] | str, words: tuple[str, ...] = (), **settings: str
) -> list[Any]:
    """What a client reads that sends these messages and closes its end."""
    lines = [message if isinstance(message, str) else json.dumps(message) for message in messages]
    env = environment(home / "data", **settings)
    done = run_process("attach", url, *words, cwd=home, env=env, stdin="".join(f"{line}\n" for line in lines))
    assert done.status == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_a_session_is_kept_and_ended(home: Path, gateway: str) -> None:
    """What `initialize` gave goes with every further request; the end of the input ends the session."""
    said = attach(
        home,
        gateway,
        request(1, "initialize"),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request(2, "tools/list"),
    )
    assert [one["id"] for one in said] == [1, 2]
    assert said[1]["result"]["big"] == 2**60 + 1
    first, *rest = Gateway.seen
    assert "mcp-session-id" not in first[1]
    assert {(headers["mcp-session-id"], headers["mcp-protocol-version"]) for _, headers, _ in rest} == {
        ("abc", "2025-11-25")
    }
    assert rest[-1][0] == "DELETE"


def test_modern_requests_carry_their_headers(home: Path, gateway: str) -> None:
    """Version, method and name, also one that is not ASCII; there is no session to end."""
    attach(
        home,
        gateway,
        request(1, "tools/call", name="a", _meta=MODERN),
        request(2, "tools/call", name="ä", _meta=MODERN),
    )
    by_id = {message["id"]: headers for _, headers, message in Gateway.seen}
    assert by_id[1]["mcp-protocol-version"] == "2026-07-28"
    assert (by_id[1]["mcp-method"], by_id[1]["mcp-name"]) == ("tools/call", "a")
    assert by_id[2]["mcp-name"].startswith("=?base64?")
    assert [kind for kind, _, _ in Gateway.seen] == ["POST", "POST"]


def test_streams_are_passed_on_message_by_message(home: Path, gateway: str) -> None:
    """One line each, in their order."""
    said = attach(home, gateway, request(1, "slow"))
    assert [one.get("method", one.get("id")) for one in said] == ["notifications/progress", 1]


def test_what_goes_wrong_is_an_answer(home: Path, gateway: str) -> None:
    """A refusal, text that is no message, and nobody at the address."""
    denied, broken = sorted(attach(home, gateway, request(1, "denied"), "{"), key=lambda one: one["id"] is None)
    assert "asks for a token (401)" in denied["error"]["message"]
    assert broken == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": -32700, "message": "The message is not a JSON object."},
    }
    (nobody,) = attach(home, "http://127.0.0.1:1/mcp?key=s3cret", request(7, "ping"))
    assert nobody["id"] == 7 and "mcpproxy serve --http" in nobody["error"]["message"]
    assert "s3cret" not in nobody["error"]["message"]


def test_the_token_is_sent_with_every_request(home: Path, gateway: str) -> None:
    """That of the settings, or a header of one's own instead of it."""
    attach(home, gateway, request(1, "ping"), AUTH_TOKEN="t" * 32)
    attach(home, gateway, request(2, "ping"), words=("--header", "Authorization: Bearer mine"), AUTH_TOKEN="t" * 32)
    assert [headers["authorization"] for _, headers, _ in Gateway.seen] == [f"Bearer {'t' * 32}", "Bearer mine"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ftp://x"], "is not an address"),
        (["http://[h/mcp"], "is not an address"),
        (["h.example/mcp?key=s3cret"], "is not an address"),
        (["http://me:s3cret@h/mcp"], "password"),
        (["http://h/mcp", "--header", "Bearer s3cret"], "is not a header"),
        (["http://h/mcp"], "terminal"),
    ],
)
def test_mistakes_of_the_command_line(run: Run, words: list[str], said: str) -> None:
    """Exit status 2, before anything is sent."""
    done = run("attach", *words, at_terminal=said == "terminal")
    assert done.status == 2 and said in done.err
    assert "s3cret" not in done.err


@pytest.mark.long  # starts a gateway
def test_both_eras_reach_a_real_gateway(home: Path) -> None:
    """The tools are listed over a session and without one."""
    (home / "mcp_config.json").write_text('{"mcpServers": {}}')
    env = environment(home / "data")
    with subprocess.Popen(
        [*PROGRAM, "serve", "--http", "--port", "0", "--json"], cwd=home, env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        _, old = attach(home, url, request(1, "initialize", **hello), request(2, "tools/list"))
        (new,) = attach(home, url, request(3, "tools/list", _meta=MODERN))
        process.terminate()
    assert len(old["result"]["tools"]) == len(new["result"]["tools"]) == 6


SLOW = """\
import asyncio, os, pathlib
from fastmcp import FastMCP

server = FastMCP("slow")

@server.tool
async def wait() -> str:
    pathlib.Path(os.environ["BEGUN"]).touch()
    await asyncio.sleep(600)

@server.tool
async def echo(text: str) -> str:
    return text

server.run(show_banner=False)
"""


def serve(home: Path, port: int) -> tuple["subprocess.Popen[str]", str]:
    """A gateway over HTTP, and its address."""
    words = (*PROGRAM, "serve", "--http", "--port", str(port), "--json")
    process = subprocess.Popen(words, cwd=home, env=environment(home / "data"), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


@pytest.mark.long  # starts gateways
def test_a_gateway_is_killed_and_started_anew_on_its_port(home: Path) -> None:
    """In both eras a call under way is answered as lost, later requests as if nothing had been."""
    (home / "slow.py").write_text(SLOW)
    slow = {"command": sys.executable, "args": [str(home / "slow.py")], "env": {"BEGUN": str(home / "begun")}}
    (home / "mcp_config.json").write_text(json.dumps({"mcpServers": {"slow": slow}}))
    process, url = serve(home, 0)
    clients = [(Client(url), dict[str, Any]()), (Client(url), {"_meta": MODERN})]
    clients[0][0].open_session()
    for client, meta in clients:
        (home / "begun").unlink(missing_ok=True)
        client.send("tools/call", 1, name="call_tool_write", arguments={"name": "slow:wait"}, **meta)
        wait_until((home / "begun").exists)
    process.kill()
    process.communicate()
    for client, meta in clients:
        echo = {"name": "slow:echo", "args": {"text": "later"}}
        client.send("tools/call", 2, name="call_tool_write", arguments=echo, **meta)
        client.send("tools/list", 3, **meta)
    process, _ = serve(home, int(url.split(":")[2].partition("/")[0]))
    for client, _ in clients:
        answers = {answer["id"]: answer for answer in (client.receive() for _ in range(3))}
        assert answers[1]["error"]["data"] == {"delivery": "unknown"}
        assert answers[2]["result"]["content"][0]["text"] == "later"
        assert len(answers[3]["result"]["tools"]) == 6
        assert client.has_said_nothing_more()
    process.terminate()
    process.communicate()


def wait_until(is_so: Callable[[], bool], limit_s: float = 30) -> None:
    ends_at = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < ends_at
        time.sleep(0.02)

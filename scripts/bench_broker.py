"""Measures the HTTP broker: one call against the same call by MCP, how long an event is under way through it, and how
soon a server knows that the caller has left.

Rounds alternate between the ways, on one kept connection each, one request at a time. The upstream writes the time into
its events, so what is measured is from its write to our read. Quote ratios: absolute times are this machine's.
"""

import argparse
import asyncio
import http.client
import json
import os
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.targets import SERVER, free_port, spawn, upstream_command

ROUNDS = 5
CALLS = 400
STREAMS = 60
LEAVINGS = 40
NOTICED_S = 10.0
READY_S = 40.0
VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
ENVELOPE = {f"{META}protocolVersion": VERSION, f"{META}clientInfo": {"name": "bench", "version": "1"}}
ENVELOPE[f"{META}clientCapabilities"] = {}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("stream", "hang")]
TARGETS = {"ratio": 1.3, "first_ms": 5.0, "left_ms": 1_000.0}
"""What the broker is to keep: of one call against the same call by MCP, of a first event, of a caller that leaves."""
left_ns: queue.SimpleQueue[int] = queue.SimpleQueue()
"""When the server saw that the connection of `hang` was closed."""


class Caller:
    """One kept connection to the gateway."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def post(self, path: str, body: Any, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """The beginning of an answer."""
        text = json.dumps(body)
        self._connection.request("POST", path, text, {"content-type": "application/json", **headers})
        return self._connection.getresponse()

    def close(self) -> None:
        """Starts anew with the next request."""
        self._connection.close()

    def broker(self, server: str, params: Mapping[str, Any]) -> http.client.HTTPResponse:
        """A call through the broker."""
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return self.post(f"/api/mcp/{server}/proxy", body, {"accept": "application/json, text/event-stream"})

    def mcp(self, text: str) -> http.client.HTTPResponse:
        """The same call as an agent makes it."""
        arguments = {"name": f"{SERVER}:echo", "args": {"text": text}}
        params = {"name": "call_tool_write", "arguments": arguments, "_meta": ENVELOPE}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": VERSION,
            "mcp-method": "tools/call",
            "mcp-name": "call_tool_write",
        }
        return self.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)


async def stream_events(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serves one connection: three events with the time in them, 20 ms apart, then the reply."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            sizes = [line.split(b":")[1] for line in head.lower().splitlines() if line.startswith(b"content-length")]
            asked = json.loads(await reader.readexactly(int(sizes[0]))) if sizes else {}
            await answer(asked, writer)
            if asked.get("params", {}).get("name") == "hang":
                await reader.read(1)  # ends when the caller leaves
                left_ns.put(time.monotonic_ns())
                writer.close()
                return
    except asyncio.IncompleteReadError:
        writer.close()


async def answer(asked: Mapping[str, Any], writer: asyncio.StreamWriter) -> None:
    results: dict[str, Any] = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}},
        "tools/list": {"tools": TOOLS},
    }
    reply: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.get("id")}
    method = asked.get("method")
    if method == "tools/call":
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        is_hanging = asked["params"]["name"] == "hang"
        for _ in range(1 if is_hanging else 3):
            params = {"level": "info", "data": time.monotonic_ns()}
            write_event(writer, {"jsonrpc": "2.0", "method": "notifications/message", "params": params})
            await writer.drain()
            await asyncio.sleep(0.02)
        if is_hanging:
            return
        write_event(writer, reply | {"result": {"content": []}})
        writer.write(b"0\r\n\r\n")
        return
    if "id" not in asked:
        status = b"202 Accepted" if asked else b"405 Method Not Allowed"
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")
        return
    body = json.dumps(
        reply | ({"result": results[method]} if method in results else {"error": {"code": -32601, "message": "no"}})
    ).encode()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def write_event(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    text = b"data: " + json.dumps(message).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(text), text))


def serve_events(port: int) -> None:
    """Serves them for ever, in a thread of its own."""

    async def serve() -> None:
        async with await asyncio.start_server(stream_events, "127.0.0.1", port) as server:
            await server.serve_forever()

    asyncio.run(serve())


def measure_calls(caller: Caller) -> dict[str, list[float]]:
    """Milliseconds of each way's calls, round by round."""
    ways = {"broker": lambda: caller.broker(SERVER, {"name": "echo", "arguments": {"text": "hello"}})}
    ways["mcp"] = lambda: caller.mcp("hello")
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, ask in ways.items():
            taken = []
            for _ in range(CALLS):
                started = time.perf_counter()
                text = ask().read()
                taken.append((time.perf_counter() - started) * 1000)
                if b"hello" not in text:
                    raise SystemExit(f"{name} answers {text[:300]!r}")
            found[name].append(statistics.median(taken))
    return found


def measure_events(caller: Caller) -> tuple[list[float], list[float]]:
    """Milliseconds from the upstream's write of an event to our read of it: of all, and of the first of each stream."""
    taken, firsts = [], []
    for _ in range(STREAMS):
        reply = caller.broker("events", {"name": "stream"})
        begun = len(taken)
        while line := reply.readline():
            if line.startswith(b"data:") and b"notifications/message" in line:
                sent_ns = json.loads(line[5:])["params"]["data"]
                taken.append((time.monotonic_ns() - sent_ns) / 1e6)
        firsts.append(taken[begun])
    return sorted(taken), sorted(firsts)


def measure_leaving(port: int) -> list[float]:
    """Milliseconds from our closing of a stream's connection until the upstream sees its own closed."""
    taken = []
    for _ in range(LEAVINGS):
        caller = Caller(port)
        reply = caller.broker("events", {"name": "hang"})
        reply.readline()
        gone_ns = time.monotonic_ns()
        reply.close()
        caller.close()
        taken.append((left_ns.get(timeout=NOTICED_S) - gone_ns) / 1e6)
    return sorted(taken)


def await_ready(caller: Caller) -> None:
    """Returns when both servers answer through the broker."""
    until = time.monotonic() + READY_S
    for server, params in ((SERVER, {"name": "echo", "arguments": {"text": "x"}}), ("events", {"name": "stream"})):
        while True:
            try:
                reply = caller.broker(server, params)
                text = reply.read()
                if reply.status == 200:
                    break
            except ConnectionError:
                caller.close()
                text = b"nobody there"
            if time.monotonic() > until:
                raise SystemExit(f"{server} does not answer: {text[:300]!r}")
            time.sleep(0.1)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    ports = [free_port() for _ in range(3)]
    threading.Thread(target=serve_events, args=(ports[1],), daemon=True).start()
    urls = {SERVER: ports[0], "events": ports[1]}
    servers = {name: {"url": f"http://127.0.0.1:{port}/mcp", "proxy": True} for name, port in urls.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "mcp_config.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        upstream = upstream_command("modern", "http", str(ports[0]))
        gateway = [sys.executable, "-m", "bench.serve_gateway", "http", str(config), str(folder / "data")]
        gateway += ["--port", str(ports[2])]
        with spawn(upstream, folder / "upstream.log"), spawn(gateway, folder / "gateway.log"):
            caller = Caller(ports[2])
            await_ready(caller)
            calls, (events, firsts) = measure_calls(caller), measure_events(caller)
            leaving = measure_leaving(ports[2])
    best = {way: min(medians) for way, medians in calls.items()}
    print(f"load {os.getloadavg()[0]:.1f}, best of {ROUNDS} medians of {CALLS} calls:")
    print(f"  broker {best['broker']:.2f} ms, mcp {best['mcp']:.2f} ms, ratio {best['broker'] / best['mcp']:.2f}")
    for words, times in (
        ("an event is under way", events),
        ("the first of a stream", firsts),
        ("the server knows that its caller left after", leaving),
    ):
        print(
            f"  {words} {statistics.median(times):.2f} ms (p95 {p95(times):.2f}, worst {times[-1]:.2f}, n {len(times)})"
        )
    found = {"ratio": best["broker"] / best["mcp"], "first_ms": p95(firsts), "left_ms": leaving[-1]}
    missed = [f"{name} {found[name]:.2f} > {most:g}" for name, most in TARGETS.items() if found[name] > most]
    print(f"  missed: {', '.join(missed)}" if missed else "  within its targets")
    return 1 if missed else 0


def p95(times: list[float]) -> float:
    """The 95th percentile of sorted times."""
    return times[int(len(times) * 0.95)]


if __name__ == "__main__":
    sys.exit(main())

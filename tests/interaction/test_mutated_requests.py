"""Requests that are none, from clients that do not wait: the gateway goes on, and its log stays small."""

import asyncio
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from transports import odd_servers, opened_gateway, over_http, served

from smart_mcp_proxy.telemetry import configure_logging

# Marked long: thousands of requests.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

CALLERS = 16
PATIENCE_S = 0.2
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}


def request(verb: str, path: str, body: Any = None, **headers: str) -> bytes:
    """A good request as it goes over the wire."""
    data = b"" if body is None else json.dumps(body).encode()
    fields = {"Host": "127.0.0.1", "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Length": str(len(data))}
    lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def modern(method: str, *, meta: Mapping[str, Any] = META, **params: Any) -> bytes:
    """A good request of the modern era."""
    headers = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method}
    if "name" in params:
        headers["Mcp_Name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": meta}}
    return request("POST", "/mcp", body, **headers)


GOOD = [
    request("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING}),
    modern("server/discover"),
    modern("tools/list"),
    modern("tools/call", name="call_tool_write", arguments={"name": "old:echo", "args": {}}),
    modern("tools/call", name="retrieve_tools", arguments={"query": "echo"}),
    modern("subscriptions/listen", notifications={"toolsListChanged": True}),
    *(request("GET", path) for path in ("/mcp", "/sse", "/api/v1/status", "/api/v1/search?q=x", "/readyz")),
    request("POST", "/messages/?session_id=1", {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    request("POST", "/api/v1/call", {"name": "old:echo", "arguments": {}}),
    request("POST", "/api/mcp/old/proxy", {"method": "tools/list"}),
]


def variants(good: bytes) -> Iterator[bytes]:
    """The same request for the other ways in which a body may arrive, or not."""
    head, _, body = good.partition(b"\r\n\r\n")
    closing = head + b"\r\nConnection: close\r\n\r\n"
    yield good
    yield head.replace(b"HTTP/1.1", b"HTTP/1.0", 1) + b"\r\n\r\n" + body
    yield closing + body[: len(body) // 2]
    yield head + b"\r\nExpect: 100-continue\r\n\r\n" + body
    chunked = closing.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    yield chunked + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def mutated(rng: random.Random) -> bytes:
    """A request with none to four faults."""
    text = bytearray(rng.choice(list(variants(rng.choice(GOOD)))))
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        at = rng.randrange(len(text) or 1)
        match rng.randrange(5):
            case 0:
                text[at : at + 1] = rng.randbytes(1)
            case 1:
                del text[at : at + rng.randrange(1, 30)]
            case 2:
                text[at:at] = rng.randbytes(rng.randrange(1, 10))
            case 3:
                text[at:at] = text[max(0, at - 40) : at]
            case _:
                del text[at:]
    return bytes(text)


async def send(port: int, text: bytes, rng: random.Random) -> None:
    """Sends it, and leaves at once or after a moment, politely or not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(OSError, TimeoutError):
        writer.write(text)
        way = rng.randrange(3)
        if way == 1:
            writer.write_eof()
        if way:
            await asyncio.wait_for(reader.read(65_536), PATIENCE_S)
    if rng.random() < 0.5:
        writer.transport.abort()
    writer.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What the gateway and its libraries log meanwhile."""
    configure_logging("INFO", file=tmp_path / "log")
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("count", "limit_bytes"), [(300, 6_000), pytest.param(50_000, 100_000, marks=pytest.mark.soak)]
)
async def test_mutated_requests_leave_a_small_log_without_a_traceback(
    tmp_path: Path, log: Path, count: int, limit_bytes: int
) -> None:
    """And a gateway that still answers."""
    rng = random.Random(7)
    async with opened_gateway(tmp_path / "data", odd_servers(tmp_path / "ledger")) as gateway, served(gateway) as base:
        assert await gateway.wait_settled(20)
        port, numbers = int(base.rpartition(":")[2]), iter(range(count))

        async def keep_sending() -> None:
            for _ in numbers:
                await send(port, mutated(rng), rng)

        with anyio.fail_after(60 + count / 50):
            await asyncio.gather(*(keep_sending() for _ in range(CALLERS)))
        async with over_http(base, "modern") as agent:
            assert (await agent.call("retrieve_tools", query="echo"))["structuredContent"]["total"]
    said = log.read_text("utf-8", "replace")
    assert "Traceback" not in said
    assert len(said) <= limit_bytes


HALF_CLOSED = [
    modern("tools/list"),
    modern("tools/call", name="call_tool_write", arguments={"name": "old:echo", "args": {}}),
    modern("tools/call", name="call_tool_write", arguments={"name": "old:echo"}, meta=META | {"progressToken": 7}),
    modern("tools/call", name="retrieve_tools", arguments={"query": "echo"}),
]


@pytest.mark.parametrize("text", HALF_CLOSED, ids=["list", "call", "progress", "search"])
async def test_a_client_that_sends_nothing_more_gets_its_answer(tmp_path: Path, text: bytes) -> None:
    """`nc -N` and many a script close their half of the connection after the request; so do the next two."""
    async with opened_gateway(tmp_path, odd_servers(tmp_path / "ledger")) as gateway, served(gateway) as base:
        assert await gateway.wait_settled(20)
        for _ in ("for the SDK, as the tool is new", "a head that was not read before", "a head that was"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
            writer.write(text)
            writer.write_eof()
            with anyio.fail_after(10):
                answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 200")
            assert answer.endswith(b"}")

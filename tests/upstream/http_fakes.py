"""Servers to talk to over HTTP: a good one in both eras, and a raw one that answers with whatever bytes it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

import mcp_types
from fastmcp import Context, FastMCP
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.server.subscriptions import ToolsListChanged as ToolsListChangedEvent
from run_wire import look_at


class Target:
    """A FastMCP server with what the tests want to see of it."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.started = asyncio.Event()
        self.headers: list[dict[str, str]] = []
        self.mcp = FastMCP("target", version="3")
        self.bus = InMemorySubscriptionBus()
        self.mcp._mcp_server.add_request_handler(  # what FastMCP itself does not serve yet
            "subscriptions/listen", mcp_types.SubscriptionsListenRequestParams, ListenHandler(self.bus)
        )
        for tool in (self.echo, self.count, self.hang, self.big, self.fail, self.change):
            self.mcp.tool(tool)

    async def echo(self, text: str) -> str:
        return text

    async def count(self, context: Context) -> str:
        for step in range(3):
            await context.report_progress(step, 2, f"step {step}")
        return "counted"

    async def hang(self) -> str:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return "never"

    async def big(self, size: int) -> str:
        return "x" * size

    async def fail(self) -> str:
        raise ValueError("the tool's own failure")

    async def change(self, context: Context) -> str:
        await self.bus.publish(ToolsListChangedEvent())
        await context.send_notification(mcp_types.ToolListChangedNotification())
        return "changed"

    async def app(self, scope: Any, receive: Any, send: Any, inner: Any) -> None:
        if scope["type"] == "http":
            self.headers.append({key.decode(): value.decode() for key, value in scope["headers"]})
        await inner(scope, receive, send)


META = "io.modelcontextprotocol/"


@dataclass
class RawRequest:
    """One request as it came."""

    verb: str
    headers: dict[str, str]
    message: Any

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def tool(self) -> str:
        return self.message["params"]["name"]


class RawAnswer:
    """The way back to the client: whole answers, streams of events, or any bytes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    def plain(self, body: bytes = b"", *, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        lines = [f"HTTP/1.1 {status} Some Reason", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def message(self, request_id: Any, *, status: int = 200, **members: Any) -> None:
        self.plain(json.dumps({"jsonrpc": "2.0", "id": request_id, **members}).encode(), status=status)

    def text(self, request_id: Any, text: str) -> None:
        self.message(request_id, result={"content": [{"type": "text", "text": text}]})

    def open_stream(self) -> None:
        self.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, *, head: str = "", **members: Any) -> None:
        self.chunk(f"{head}data: {json.dumps({'jsonrpc': '2.0', **members})}\n\n".encode())

    def end_stream(self) -> None:
        self.chunk(b"")

    @property
    def is_gone(self) -> bool:
        return self._writer.is_closing()

    def hang_up(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        self._writer.transport.abort()


Script = Callable[[RawRequest, RawAnswer], Awaitable[None]]


@dataclass
class RawServer:
    """A server whose tools are HTTP faults.

    Attributes:
        era: What it speaks.
        tool: Answers `tools/call`.
        other: Answers what this class does not; None refuses it.
        requests: All that came.
        connections: How many connections were made.
    """

    era: str
    tool: Script
    other: Script | None = None
    capabilities: dict[str, Any] = field(default_factory=lambda: {"tools": {}})
    requests: list[RawRequest] = field(default_factory=list)
    connections: int = 0
    url: str = ""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def heard(self, method: str) -> list[RawRequest]:
        """The requests with this verb or JSON-RPC method, in order."""
        return [r for r in self.requests if method in (r.verb, (r.message or {}).get("method"))]

    async def until(self, count: int, method: str) -> list[RawRequest]:
        """Waits for that many of them."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.heard(method)) >= count)
        return self.heard(method)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers: dict[str, str] = {}
                for name, _, value in (line.partition(": ") for line in head[1:-2]):
                    key = name.lower()
                    headers[key] = f"{headers[key]}, {value}" if key in headers else value
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = RawRequest(head[0].split()[0], headers, json.loads(body) if body else None)
                look_at(headers)
                self.requests.append(request)
                async with self.changed:
                    self.changed.notify_all()
                await self.answer(request, RawAnswer(writer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, request: RawRequest, answer: RawAnswer) -> None:
        method = (request.message or {}).get("method")
        if method == "tools/call":
            await self.tool(request, answer)
        elif method == "server/discover" and self.era == "modern":
            result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0}
            answer.message(request.id, result={**result, "cacheScope": "private", "capabilities": self.capabilities})
        elif method == "initialize" and self.era == "handshake":
            result = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "serverInfo": {}}
            reply = {"jsonrpc": "2.0", "id": request.id, "result": result}
            answer.plain(json.dumps(reply).encode(), Mcp_Session_Id="s1")
        elif self.other is not None:
            await self.other(request, answer)
        elif request.verb == "POST" and "id" not in (request.message or {}):
            answer.plain(status=202)
        else:
            answer.plain(status=405)


@asynccontextmanager
async def raw_served(server: RawServer) -> AsyncIterator[RawServer]:
    """The server on a free port of loopback."""
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    with closing(listener):  # and no wait for its connections: those of the session are closed after it
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
        yield server

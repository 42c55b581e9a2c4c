"""Raw connections with the gateway: bytes of any kind go in, and what comes back is told without being understood."""

import asyncio
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from agents import CLIENT, HANDSHAKE_VERSION, META, MODERN_VERSION, Era
from plain_http import plain_client

DEADLINE_S = 60.0
LINE_LIMIT_BYTES = 5 * 1024 * 1024
"""Of a message that the gateways on pipes take."""
BOTH = "application/json, text/event-stream"
ENVELOPE = {META + "protocolVersion": MODERN_VERSION, META + "clientInfo": CLIENT, META + "clientCapabilities": {}}
SILENCE = None
Answer = dict[str, Any] | None
Headers = Mapping[str, str | None]


def opening(era: Era) -> dict[str, Any]:
    """The request with which a client of this era begins."""
    if era == "modern":
        return {"method": "server/discover", "params": {"_meta": ENVELOPE}}
    params = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": CLIENT}
    return {"method": "initialize", "params": params}


def call_text(era: Era, request_id: Any, tool: str, arguments: Any) -> bytes:
    """A good call of one of the upstream's tools, as compact JSON."""
    params = {"name": "call_tool_write", "arguments": {"name": tool, "args": arguments}}
    meta = {"_meta": ENVELOPE} if era == "modern" else {}
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params | meta}
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


class Wire(ABC):
    """One connection.

    Args:
        era: Which generation of the protocol it speaks.

    Attributes:
        statuses: HTTP status of each answer, empty elsewhere.
    """

    def __init__(self, era: Era) -> None:
        self.era = era
        self.statuses: list[int] = []
        self._ids = itertools.count(1_000)

    def next_id(self) -> int:
        """An id that was not used before."""
        return next(self._ids)

    async def greet(self) -> None:
        """Opens the session and makes one good call, after which the fast path is open."""
        await self.tell(json.dumps({"jsonrpc": "2.0", "id": 0, **opening(self.era)}).encode())
        if self.era == "handshake":
            await self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        async with asyncio.timeout(DEADLINE_S):
            call = call_text(self.era, 1, "old:echo", {"text": "light"})
            while "tool_not_found" in json.dumps(await self.tell(call)):
                await asyncio.sleep(0.02)
        await self.assert_well()

    async def assert_well(self) -> None:
        """Makes two good calls: one that the fast path can answer and one for the SDK."""
        for member in (b"{", b'{"unknown":1,'):
            request_id = self.next_id()
            call = member + call_text(self.era, request_id, "old:echo", {"text": "light"})[1:]
            answer = await self.tell(call)
            assert answer is not None
            assert answer["id"] == request_id
            assert answer["result"]["content"][0]["text"] == '{"text": "light"}', answer

    @abstractmethod
    async def send(self, message: bytes) -> None:
        """Sends a message that is not answered."""

    @abstractmethod
    async def tell(self, message: bytes, headers: Headers | None = None) -> Answer:
        """Sends a message and returns the next answer that comes; None as a header's value leaves the header out."""

    @abstractmethod
    async def hear(self, message: bytes) -> Answer:
        """Sends a message and returns its answer, `SILENCE` if a later one is answered before."""


class StdioWire(Wire):
    """The pipes of a gateway process.

    Args:
        era: See `Wire`.
        process: The gateway.
    """

    def __init__(self, era: Era, process: asyncio.subprocess.Process) -> None:
        super().__init__(era)
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    async def send(self, message: bytes) -> None:
        await self.write(message + b"\n")

    async def write(self, piece: bytes) -> None:
        """Sends a part of a message, or several."""
        self._stdin.write(piece)
        await self._stdin.drain()

    async def read(self) -> dict[str, Any]:
        """The next message of the gateway."""
        line = await asyncio.wait_for(self._stdout.readline(), DEADLINE_S)
        assert line, "the gateway closed the connection"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def tell(self, message: bytes, headers: Headers | None = None) -> Answer:
        await self.send(message)
        return await self.read()

    async def hear(self, message: bytes) -> Answer:
        probe = self.next_id()
        await self.send(message)
        await self.send(b'{"unknown":1,' + call_text(self.era, probe, "old:echo", {})[1:])
        answer = await self.read()
        if answer.get("id") == probe:
            return SILENCE
        await self.read()
        return answer


class HttpWire(Wire):
    """Streamable HTTP: every message is a POST.

    Args:
        era: See `Wire`.
        url: The gateway's `/mcp`.
        client: Sends.
    """

    def __init__(self, era: Era, url: str, client: httpx2.AsyncClient) -> None:
        super().__init__(era)
        self._url = url
        self._client = client
        self.session: str | None = None

    def headers(self, message: bytes) -> dict[str, str]:
        """What a good client sends with `message`."""
        headers = {"accept": BOTH, "content-type": "application/json"}
        if self.era == "handshake":
            return headers | ({"mcp-session-id": self.session} if self.session else {})
        headers |= {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/call"}
        try:
            value = json.loads(message)
            headers["mcp-name"] = value["params"]["name"]
            headers["mcp-method"] = value["method"]
            "".join(headers.values()).encode("ascii")
        except (ValueError, LookupError, TypeError, RecursionError):
            headers |= {"mcp-method": "tools/call", "mcp-name": "call_tool_write"}
        return headers

    async def send(self, message: bytes) -> None:
        assert await self.tell(message) is SILENCE

    async def tell(self, message: bytes, headers: Headers | None = None) -> Answer:
        given = {**self.headers(message), **(headers or {})}
        left = {name: value for name, value in given.items() if value is not None}
        reply = await self._client.post(self._url, content=message, headers=left)
        self.statuses.append(reply.status_code)
        if reply.is_success:
            self.session = reply.headers.get("mcp-session-id", self.session)
        text = reply.text
        if reply.headers.get("content-type", "").startswith("text/event-stream"):
            text = next(line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip())
        if not text:
            return SILENCE
        answer: Answer = json.loads(text) if text.lstrip().startswith("{") else {"text": text}
        return answer

    async def hear(self, message: bytes) -> Answer:
        return await self.tell(message)


@asynccontextmanager
async def http_wire(base: str, era: Era) -> AsyncIterator[HttpWire]:
    """A connection over HTTP that has been greeted."""
    async with plain_client(timeout=DEADLINE_S) as client:
        wire = HttpWire(era, f"{base}/mcp", client)
        await wire.greet()
        yield wire

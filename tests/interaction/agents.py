"""Agents that speak raw JSON-RPC with the gateway: what goes over the wire is what a test sees, both eras.

An agent knows nothing of the gateway but its transport: a pair of pipes, or an address.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2
import run_canary

Era = Literal["handshake", "modern"]
HANDSHAKE_VERSION = "2025-11-25"
MODERN_VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
CLIENT = {"name": "raw-agent", "version": "1"}
DEADLINE_S = 60.0
PAUSE_S = 0.02
"""Between two looks at a gateway that is starting: without a pause its answers would hold it up."""


@dataclass
class Exchange:
    """One request on its way: its notifications as they come, then its answer.

    Attributes:
        id: Of the JSON-RPC request.
        heard: Progress notifications that belong to it.
        answer: The JSON-RPC response.
        content_type: Of the HTTP reply, empty elsewhere.
    """

    id: int
    heard: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    answer: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    content_type: str = ""


class Agent(ABC):
    """One client of the gateway.

    Args:
        era: Which generation of the protocol it speaks.
    """

    def __init__(self, era: Era) -> None:
        self.era = era
        self.greeting: dict[str, Any] = {}
        self.capabilities: dict[str, Any] = {}
        """Declared in the greeting, and in the modern era with each request."""
        self._last_id = 0

    async def greet(self) -> None:
        """The first words of a session: a handshake, or a look at what the server can do."""
        if self.era == "modern":
            self.greeting = await self.request("server/discover")
            return
        hello = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": self.capabilities, "clientInfo": CLIENT}
        self.greeting = await self.request("initialize", **hello)
        await self.notify("notifications/initialized")

    async def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The whole JSON-RPC response."""
        exchange = await self.begin(method, **params)
        return await asyncio.wait_for(exchange.answer, DEADLINE_S)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of one of the gateway's tools."""
        answer = await self.request("tools/call", name=tool, arguments=arguments)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def begin(self, method: str, /, token: bool = False, **params: Any) -> Exchange:
        """Sends a request and does not wait for its answer; with `token` it asks for progress."""
        self._last_id += 1
        exchange = Exchange(self._last_id)
        meta = self._meta(params.pop("_meta", {}))
        if token:
            meta["progressToken"] = exchange.id
        if meta:
            params["_meta"] = meta
        await self._send_request(exchange, {"method": method, "params": params})
        return exchange

    def _meta(self, own: dict[str, Any]) -> dict[str, Any]:
        if self.era == "handshake":
            return {**own}
        envelope = {"protocolVersion": MODERN_VERSION, "clientInfo": CLIENT, "clientCapabilities": self.capabilities}
        return {**own, **{META + key: value for key, value in envelope.items()}}

    @abstractmethod
    async def notify(self, method: str, **params: Any) -> None:
        """Sends a notification."""

    @abstractmethod
    async def cancel(self, exchange: Exchange) -> None:
        """Gives a request up, in the way of the era and the transport."""

    @abstractmethod
    async def _send_request(self, exchange: Exchange, message: dict[str, Any]) -> None: ...


class StreamAgent(Agent):
    """An agent on one connection that carries all messages of both sides.

    Args:
        era: See `Agent`.
        inbound: Messages from the gateway.
        send: Sends one message to the gateway.
    """

    def __init__(self, era: Era, inbound: AsyncIterator[bytes], send: Any) -> None:
        super().__init__(era)
        self._inbound = inbound
        self._send = send
        self._open: dict[int, Exchange] = {}
        self.strays: list[dict[str, Any]] = []
        """Messages that belong to no request."""

    async def listen(self) -> None:
        """Hands what arrives to the requests that wait for it, until the gateway is gone."""
        async for line in self._inbound:
            run_canary.look("a message to an agent", line)
            message = json.loads(line)
            if "method" not in message and message.get("id") in self._open:
                self._open.pop(message["id"]).answer.set_result(message)
                continue
            exchange = self._open.get((message.get("params") or {}).get("progressToken", 0))
            if exchange is None:
                self.strays.append(message)
            else:
                exchange.heard.put_nowait(message)
        for exchange in self._open.values():
            if not exchange.answer.done():  # else nobody waits any more
                exchange.answer.set_exception(ConnectionError("the gateway closed the connection"))
                # Marks it as seen, for whom nobody awaits: else it fails the test that runs when it is collected.
                exchange.answer.exception()

    async def notify(self, method: str, **params: Any) -> None:
        await self._put({"method": method, "params": params})

    async def cancel(self, exchange: Exchange) -> None:
        await self.notify("notifications/cancelled", requestId=exchange.id, reason="no longer needed")

    async def _send_request(self, exchange: Exchange, message: dict[str, Any]) -> None:
        self._open[exchange.id] = exchange
        await self._put({"id": exchange.id, **message})

    async def _put(self, message: dict[str, Any]) -> None:
        await self._send(json.dumps({"jsonrpc": "2.0", **message}).encode())


class HttpAgent(Agent):
    """An agent over streamable HTTP: every request is a POST of its own.

    Args:
        era: See `Agent`.
        url: The gateway's `/mcp`.
        client: Sends the requests.
    """

    def __init__(self, era: Era, url: str, client: httpx2.AsyncClient) -> None:
        super().__init__(era)
        self._url = url
        self.http = client
        self.session_id: str | None = None
        self._posts: dict[int, asyncio.Task[None]] = {}

    async def hear(self) -> AsyncIterator[dict[str, Any]]:
        """What the gateway says to this session by itself."""
        headers = self._headers({}) | {"accept": "text/event-stream"}
        async with self.http.stream("GET", self._url, headers=headers, timeout=None) as reply:
            async for _, data in events_of(reply):
                if data:
                    yield json.loads(data)

    async def notify(self, method: str, **params: Any) -> None:
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        reply = await self.http.post(self._url, json=body, headers=self._headers(body))
        assert reply.status_code == 202, reply.text

    async def cancel(self, exchange: Exchange) -> None:
        if self.era == "handshake":
            await self.notify("notifications/cancelled", requestId=exchange.id, reason="no longer needed")
        else:
            self._posts[exchange.id].cancel()

    def _headers(self, body: dict[str, Any]) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream"}
        if self.session_id is not None:
            headers |= {"mcp-session-id": self.session_id, "mcp-protocol-version": HANDSHAKE_VERSION}
        if self.era == "modern":
            headers |= {"mcp-protocol-version": MODERN_VERSION, "mcp-method": body["method"]}
            named = (body["params"].get(each) for each in ("name", "uri", "taskId"))
            if (name := next((each for each in named if each is not None), None)) is not None:
                headers["mcp-name"] = name
        return headers

    async def _send_request(self, exchange: Exchange, message: dict[str, Any]) -> None:
        body = {"jsonrpc": "2.0", "id": exchange.id, **message}
        self._posts[exchange.id] = asyncio.create_task(self._post(exchange, body))

    async def _post(self, exchange: Exchange, body: dict[str, Any]) -> None:
        try:
            async with self.http.stream("POST", self._url, json=body, headers=self._headers(body)) as reply:
                exchange.content_type = reply.headers.get("content-type", "").partition(";")[0]
                self.session_id = reply.headers.get("mcp-session-id", self.session_id)
                if exchange.content_type == "text/event-stream":
                    async for _, data in events_of(reply):
                        self._take(exchange, data)
                else:
                    self._take(exchange, (await reply.aread()).decode())
        except Exception as exc:
            if not exchange.answer.done():
                exchange.answer.set_exception(exc)
                exchange.answer.exception()  # seen: nobody waits for the end of a stream that its agent leaves

    def _take(self, exchange: Exchange, data: str) -> None:
        run_canary.look("an answer to an agent", data)
        message = json.loads(data) if data else {}
        if "method" in message:
            exchange.heard.put_nowait(message)
        elif message and not exchange.answer.done():
            exchange.answer.set_result(message)


async def events_of(reply: httpx2.Response) -> AsyncIterator[tuple[str, str]]:
    """The server-sent events of a reply, as pairs of event name and data."""
    name = "message"
    data: list[str] = []
    async for line in reply.aiter_lines():
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = "message", []
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


async def wait_covered(agent: Agent) -> None:
    """Returns when the gateway has listed every server, as `retrieve_tools` tells it."""
    async with asyncio.timeout(60):
        while True:
            found = (await agent.call("retrieve_tools", query="lighthouse"))["structuredContent"]
            if not found["not_covered"] and found["tools"] and not any(tool["stale"] for tool in found["tools"]):
                return
            await asyncio.sleep(PAUSE_S)

"""Agents that let themselves be asked: what they declare, what they were asked and what they answer."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2
from agents import (
    CLIENT,
    HANDSHAKE_VERSION,
    META,
    MODERN_VERSION,
    Agent,
    Era,
    Exchange,
    HttpAgent,
    StreamAgent,
    events_of,
)
from plain_http import plain_client

from smart_mcp_proxy.fastmcp_compat.eras import serve_streams
from smart_mcp_proxy.fastmcp_compat.server import dump_message, message_streams, parse_message
from smart_mcp_proxy.gateway import Gateway

ALL = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
Reply = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def reply_as(name: str) -> Reply:
    """Answers every question in this name; the members are those of a JSON-RPC response."""

    def reply(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        answers: dict[str, dict[str, Any]] = {
            "elicitation/create": {"action": "accept", "content": {"name": name}},
            "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": name}, "model": "m"},
            "roots/list": {"roots": [{"uri": f"file:///{name}"}]},
        }
        return {"result": answers[method]}

    return reply


class Askable(Agent):
    """One client that can be asked.

    Attributes:
        able: What it declares.
        reply: Answers a question.
        asked: Every question it got, in order.
        on_question: Called in the place of an answer; None where it answers.
        on_cancelled: Called when a question is taken back.
    """

    able: Mapping[str, Any]
    reply: Reply
    asked: list[dict[str, Any]]
    on_question: Callable[[], None] | None = None
    on_cancelled: Callable[[], None] | None = None

    def be_asked(self, able: Mapping[str, Any], reply: Reply) -> None:
        self.able, self.reply, self.asked = able, reply, []

    async def greet(self) -> None:
        if self.era == "modern":
            self.greeting = await self.request("server/discover")
            return
        hello = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": self.able, "clientInfo": CLIENT}
        self.greeting = await self.request("initialize", **hello)
        await self.notify("notifications/initialized")

    def _meta(self, own: dict[str, Any]) -> dict[str, Any]:
        if self.era == "handshake":
            return {**own}
        envelope = {"protocolVersion": MODERN_VERSION, "clientInfo": CLIENT, "clientCapabilities": self.able}
        return {**own, **{META + key: value for key, value in envelope.items()}}

    def _response(self, question: dict[str, Any]) -> dict[str, Any] | None:
        self.asked.append(question)
        if self.on_question is not None:
            self.on_question()
            return None
        return {"id": question["id"], **self.reply(question["method"], question.get("params", {}))}

    def _is_taken_back(self, message: dict[str, Any]) -> bool:
        is_taken_back = message.get("method") == "notifications/cancelled"
        if is_taken_back and self.on_cancelled is not None:
            self.on_cancelled()
        return is_taken_back

    async def answered(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The last answer to a request, after a modern client's own rounds; the JSON-RPC response."""
        answer = await self.request(method, **params)
        while (result := answer.get("result", {})).get("resultType") == "input_required":
            assert self.era == "modern"
            questions = result.get("inputRequests", {})
            self.asked += questions.values()
            replies = {key: self.reply(each["method"], each.get("params", {})) for key, each in questions.items()}
            more: dict[str, Any] = {"inputResponses": {key: each["result"] for key, each in replies.items()}}
            more |= {"requestState": result["requestState"]} if "requestState" in result else {}
            answer = await self.request(method, **params, **more)
        return answer


class AskableStream(Askable, StreamAgent):
    """On one connection for both directions."""

    def __init__(self, era: Era, inbound: AsyncIterator[bytes], send: Any) -> None:
        super().__init__(era, self._without_questions(inbound), send)

    async def _without_questions(self, inbound: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in inbound:
            message = json.loads(line)
            if "method" in message and "id" in message:
                if (response := self._response(message)) is not None:
                    await self._put(response)
            elif not self._is_taken_back(message):
                yield line


class AskableHttp(Askable, HttpAgent):
    """Over streamable HTTP, where a question comes on the stream of the call it belongs to."""

    def _take(self, exchange: Exchange, data: str) -> None:
        message = json.loads(data) if data else {}
        if "method" in message and "id" in message:
            exchange.heard.put_nowait(message)
            if (response := self._response(message)) is not None:
                self._answering = asyncio.create_task(self._answer(response))
        elif not self._is_taken_back(message):
            super()._take(exchange, data)

    async def _answer(self, response: dict[str, Any]) -> None:
        body = {"jsonrpc": "2.0", **response}
        reply = await self.http.post(self._url, json=body, headers=self._headers(body))
        assert reply.status_code == 202, reply.text


@asynccontextmanager
async def _listening(agent: StreamAgent) -> AsyncIterator[None]:
    task = asyncio.create_task(agent.listen())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def greeted(agent: Askable, able: Mapping[str, Any], reply: Reply) -> AsyncIterator[Askable]:
    """The agent after its first words."""
    agent.be_asked(able, reply)
    async with AsyncExitStack() as stack:
        if isinstance(agent, AskableStream):
            await stack.enter_async_context(_listening(agent))
        await agent.greet()
        yield agent


@asynccontextmanager
async def askable_at(
    transport: str, era: Era, gateway: Gateway, base: str, able: Mapping[str, Any], reply: Reply, **headers: str
) -> AsyncIterator[Askable]:
    """A client that can be asked, on one transport of a gateway in this process."""
    async with AsyncExitStack() as stack:
        agent: Askable
        if transport == "http":
            client = plain_client(timeout=30, headers=headers)
            agent = AskableHttp(era, f"{base}/mcp", await stack.enter_async_context(client))
        elif transport == "sse":
            agent = await _over_sse(stack, base)
        else:
            agent = await _in_memory(stack, gateway, era)
        yield await stack.enter_async_context(greeted(agent, able, reply))


def on_pipes(process: asyncio.subprocess.Process, era: Era) -> AskableStream:
    """A client that can be asked, on the pipes of a gateway process."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    async def send(line: bytes) -> None:
        stdin.write(line + b"\n")
        await stdin.drain()

    return AskableStream(era, stdout, send)


async def _in_memory(stack: AsyncExitStack, gateway: Gateway, era: Era) -> AskableStream:
    to_gateway, gateway_reads = message_streams()
    gateway_writes, from_gateway = message_streams()
    for stream in (to_gateway, gateway_reads, gateway_writes, from_gateway):
        await stack.enter_async_context(stream)
    serving = asyncio.create_task(serve_streams(gateway.agent_server(), gateway_reads, gateway_writes))

    async def stop() -> None:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    stack.push_async_callback(stop)

    async def inbound() -> AsyncIterator[bytes]:
        async for message in from_gateway:
            yield dump_message(message)

    async def send(line: bytes) -> None:
        await to_gateway.send(parse_message(line))

    return AskableStream(era, inbound(), send)


async def _over_sse(stack: AsyncExitStack, base: str) -> AskableStream:
    client = await stack.enter_async_context(plain_client(base_url=base, timeout=30))
    events = events_of(await stack.enter_async_context(client.stream("GET", "/sse")))
    _, path = await anext(events)

    async def inbound() -> AsyncIterator[bytes]:
        with suppress(httpx2.RemoteProtocolError):
            async for _, data in events:
                yield data.encode()

    async def send(line: bytes) -> None:
        reply = await client.post(path, content=line, headers={"content-type": "application/json"})
        assert reply.status_code == 202, reply.text

    return AskableStream("handshake", inbound(), send)

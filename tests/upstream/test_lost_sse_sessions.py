"""Servers over HTTP+SSE that forget a session whose stream still stands: it is opened anew."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from upstream_fakes import served

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.policy.breaker import CallEnd, classify_end
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Connector, LostSessionError, Upstream

pytestmark = pytest.mark.anyio

JSON = "application/json"


class ForgetfulStream:
    """A server of the older transport.

    Attributes:
        refusal: Status, body and type of its answer to what is posted to a session that it does not know.
        opened: How many sessions it ever opened.
        executed: Names of the calls that it carried out.
        refused: Names of those that it refuses in any session.
    """

    def __init__(self, status: int, body: str, kind: str) -> None:
        self.refusal = status, body, kind
        self.opened = 0
        self.executed: list[str] = []
        self.refused: set[str] = set()
        self._sessions: dict[str, asyncio.Queue[str]] = {}
        self.app = Starlette(routes=[Route("/sse", self._stream), Route("/messages", self._take, methods=["POST"])])

    def forget(self) -> None:
        """Knows no session any more; their streams stay open."""
        self._sessions.clear()

    async def _stream(self, request: Request) -> Response:
        self.opened += 1
        number, events = str(self.opened), asyncio.Queue[str]()
        self._sessions[number] = events

        async def written() -> AsyncIterator[str]:
            yield f"event: endpoint\ndata: /messages?session_id={number}\n\n"
            while True:
                yield f"event: message\ndata: {await events.get()}\n\n"

        return StreamingResponse(written(), media_type="text/event-stream")

    async def _take(self, request: Request) -> Response:
        message = await request.json()
        events = self._sessions.get(request.query_params["session_id"])
        if events is None or (message.get("params") or {}).get("name") in self.refused:
            status, body, kind = self.refusal
            return Response(body, status, media_type=kind)
        if "id" in message:
            events.put_nowait(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": self._result(message)}))
        return Response('{"status": "ok, session"}', 200 if "id" in message else 202, media_type=JSON)

    def _result(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["method"] == "initialize":
            return {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {}}
        if message["method"] == "ping":
            return {}
        name = message["params"]["name"]
        self.executed.append(name)
        return {"content": [{"type": "text", "text": name}]}


@asynccontextmanager
async def kept(server: ForgetfulStream) -> AsyncIterator[Upstream]:
    """The server, kept connected; everything within twenty seconds."""
    async with served(server.app) as address, Connector() as connector:
        upstream = Upstream(
            ServerConfig("web", "sse", url=f"{address}/sse"),
            environ=dict(os.environ),
            on_change=lambda _: None,
            on_tools_changed=lambda _: None,
            open_session=connector,
            start_gate=asyncio.Semaphore(4),
            rng=random.Random(1),
        )
        await upstream.start()
        try:
            with anyio.fail_after(20):
                yield upstream
        finally:
            await upstream.stop()


async def call(upstream: Upstream, name: str) -> str:
    """The text that a tool answers with."""
    raw = await upstream.request("tools/call", {"name": name, "arguments": {}}, timeout_s=20)
    said: str = json.loads(raw.text)["content"][0]["text"]
    return said


CERTAIN = {
    "the Python SDK": (404, "Could not find session", "text/plain"),
    "the TypeScript SDK's examples": (400, "No transport found for sessionId", "text/html"),
    "the Java SDK": (400, '{"code": -32603, "message": "Session ID missing in message endpoint"}', JSON),
    "mcp-go": (400, '{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"Invalid session ID"}}', JSON),
    "an interface": (401, '{"error": "unknown session"}', JSON),
    "an exception": (500, '{"detail": "session not found"}', JSON),
    "a good status": (200, '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Session expired"}}', JSON),
}


@pytest.mark.parametrize("refusal", CERTAIN.values(), ids=CERTAIN)
async def test_a_request_refused_for_its_session_is_sent_again_on_a_new_one(refusal: tuple[int, str, str]) -> None:
    """Nothing is carried out twice, and calls at the same time share the new session."""
    server = ForgetfulStream(*refusal)
    async with kept(server) as upstream:
        assert await call(upstream, "first") == "first"
        server.forget()
        names = [f"work {number}" for number in range(20)]
        assert await asyncio.gather(*(call(upstream, name) for name in names)) == names
        assert server.opened == 2
        assert sorted(server.executed) == sorted(["first", *names])


@pytest.mark.parametrize(
    "refusal",
    [(410, "", "text/plain"), (404, '{"detail": "customer 17 not found"}', JSON), (404, "no such row", "text/plain")],
)
async def test_a_request_that_may_have_been_carried_out_is_not_sent_again(refusal: tuple[int, str, str]) -> None:
    """The next one works."""
    server = ForgetfulStream(*refusal)
    async with kept(server) as upstream:
        assert await call(upstream, "first") == "first"
        server.forget()
        with pytest.raises(LostSessionError) as caught:
            await call(upstream, "second")
        assert (caught.value.delivery, classify_end(caught.value)) == ("unknown", CallEnd.UNCLEAR)
        assert await call(upstream, "third") == "third"
        assert (server.opened, server.executed) == (2, ["first", "third"])


@pytest.mark.parametrize(
    ("status", "words"), [(404, "customer 17 not found"), (410, "gone"), (500, "browser session expired")]
)
async def test_a_session_outlives_the_refusal_of_one_call(status: int, words: str) -> None:
    """The server takes a ping: it is the tool that found nothing."""
    server = ForgetfulStream(status, json.dumps({"detail": words}), JSON)
    server.refused.add("find")
    async with kept(server) as upstream:
        with pytest.raises(UpstreamError, match=words) as caught:
            await call(upstream, "find")
        assert not isinstance(caught.value, LostSessionError)
        assert caught.value.delivery == "unknown"
        assert await call(upstream, "next") == "next"
        assert server.opened == 1


@pytest.mark.parametrize("refusal", [(400, "Bad argument", "text/plain"), (500, '{"error": "no"}', JSON)])
async def test_a_refusal_that_is_not_about_our_session_opens_none(refusal: tuple[int, str, str]) -> None:
    """The session goes on."""
    server = ForgetfulStream(*refusal)
    async with kept(server) as upstream:
        assert await call(upstream, "first") == "first"
        known = dict(server._sessions)
        server.forget()
        with pytest.raises(UpstreamError, match="answered with HTTP"):
            await call(upstream, "second")
        server._sessions.update(known)
        assert await call(upstream, "third") == "third"
        assert server.opened == 1

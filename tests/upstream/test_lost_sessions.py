"""Servers over HTTP that forget our session: it is opened anew, and nothing is carried out twice or lost in silence."""

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from http_fakes import RawAnswer, RawRequest, RawServer, raw_served

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.policy.breaker import CallEnd, classify_end
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Connector, LostSessionError, Upstream
from smart_mcp_proxy.upstream.http import raw_http

pytestmark = pytest.mark.anyio

Refusal = Callable[[RawRequest, RawAnswer], None]


def rpc(status: int, message: str, *, own_id: bool = False, **members: Any) -> Refusal:
    """A JSON-RPC error, without the request's id as a rule."""

    def refuse(request: RawRequest, answer: RawAnswer) -> None:
        error = {"code": -32000, "message": message, **members}
        body = {"jsonrpc": "2.0", "error": error, "id": request.message.get("id") if own_id else None}
        answer.plain(json.dumps(body).encode(), status=status)

    return refuse


def text(status: int, body: str = "", kind: str = "text/plain; charset=utf-8") -> Refusal:
    """Whatever is no JSON-RPC."""

    def refuse(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(body.encode(), status=status, kind=kind)

    return refuse


def streamed(message: str) -> Refusal:
    """A JSON-RPC error on a stream."""

    def refuse(request: RawRequest, answer: RawAnswer) -> None:
        answer.open_stream()
        answer.event(id=request.id, error={"code": -32600, "message": message})
        answer.end_stream()

    return refuse


CERTAIN: dict[str, Refusal] = {
    "the protocol": text(404),
    "the Python SDK": rpc(404, "Session not found"),
    "the TypeScript SDK's examples": rpc(400, "Bad Request: No valid session ID provided"),
    "the TypeScript SDK": rpc(400, "Bad Request: Mcp-Session-Id header is required"),
    "the TypeScript SDK, not greeted": rpc(400, "Bad Request: Server not initialized"),
    "express": text(400, "Invalid or missing session ID", "text/html; charset=utf-8"),
    "the Go SDK": text(404, "session not found\n"),
    "mcp-go": text(400, "Invalid session ID\n"),
    "Spring AI": text(400, '{"message":"Session ID required in mcp-session-id header"}', "application/json"),
    "Spring AI, by name": rpc(404, "Session not found: 3f2b8a52-7d0f-4a6e-9d6a-1f7f6a3f2b11"),
    "the C# SDK": rpc(400, "Bad Request: Include a valid Mcp-Session-Id header for non-initialize requests."),
    "the Rust SDK": text(401, "Unauthorized: Session not found"),
    "the Rust SDK, newer": text(422, "Unexpected message, expect initialize request"),
    "gone": rpc(410, "The session has expired"),
    "an exception": rpc(500, "KeyError: unknown session 'abc'"),
    "unavailable": text(503, '{"error": "unknown mcp-session-id"}', "application/json"),
    "a good status, without the id": rpc(200, "invalid session"),
    "a good status, the cause in data": rpc(200, "Server error", data="Session does not exist"),
    "an SDK's end": rpc(404, "Not Found: Session has been terminated"),
    "an interface's 404": text(404, '{"detail": "session not found"}', "application/json"),
}
UNSURE: dict[str, Refusal] = {
    "400 without a word": text(400),
    "410 without a word": text(410),
    "400 of an interface": text(400, '{"error": "bad request"}', "application/json"),
    "a page": text(400, "<html><h1>Your session</h1></html>", "text/html"),
    "a session that broke": rpc(500, "session closed while it worked", own_id=True),
    "an answer": rpc(200, "Session expired", own_id=True),
    "an answer, the cause in data": rpc(200, "Server error", own_id=True, data="Session does not exist"),
    "an answer with 400": rpc(400, "Invalid session", own_id=True),
    "an answer with 404": rpc(404, "Session not found", own_id=True),
    "an answer with 404 and other words": rpc(404, "Not found", own_id=True),
    "an answer on a stream": streamed("Session not initialized"),
    "404 with other words": text(404, '{"detail": "customer 17 not found"}', "application/json"),
    "404 with a page": text(404, "<html><h1>Not Found</h1></html>", "text/html"),
}


@dataclass
class Forgetful(RawServer):
    """A server of the handshake era that can be made to forget its sessions.

    Attributes:
        refuse: How it answers to a session that it does not know.
        sessions: Those that it knows.
        greeted: How many it ever opened.
        executed: Arguments of the calls that it carried out.
        has_ids: Whether it gives its sessions ids at all.
        may_stream: Whether it opens a stream for announcements.
    """

    refuse: Refusal = field(default=text(404))
    sessions: set[str] = field(default_factory=set)
    greeted: int = 0
    executed: list[str] = field(default_factory=list)
    has_ids: bool = True
    may_stream: bool = False

    async def answer(self, request: RawRequest, answer: RawAnswer) -> None:
        method = (request.message or {}).get("method")
        if method == "initialize":
            self.greeted += 1
            result = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "serverInfo": {}}
            reply = json.dumps({"jsonrpc": "2.0", "id": request.id, "result": result}).encode()
            self.sessions.add(session := f"s{self.greeted}" if self.has_ids else "")
            answer.plain(reply, **({"Mcp_Session_Id": session} if session else {}))
        elif method == "server/discover":
            answer.message(request.id, error={"code": -32601, "message": "Method not found"})
        elif request.verb == "POST" and "id" not in request.message:
            answer.plain(status=202)
        elif request.verb == "DELETE" or (request.verb == "GET" and not self.may_stream):
            answer.plain(status=405)
        elif request.headers.get("mcp-session-id", "") not in self.sessions:
            self.refuse(request, answer)
        elif request.verb == "GET":
            answer.open_stream()
        elif method == "tools/list":
            answer.message(request.id, result={"tools": []})
        else:
            await self.tool(request, answer)


async def work(request: RawRequest, answer: RawAnswer) -> None:
    raise AssertionError("replaced by `forgetful`")


@asynccontextmanager
async def forgetful(refuse: Refusal, **changes: Any) -> AsyncIterator[Forgetful]:
    """One of these servers; its tool says what it is given."""
    server = Forgetful("handshake", changes.pop("tool", work), refuse=refuse, **changes)

    async def execute(request: RawRequest, answer: RawAnswer) -> None:
        server.executed.append(request.tool)
        answer.text(request.id, request.tool)

    if server.tool is work:
        server.tool = execute
    async with raw_served(server):
        yield server


@dataclass
class Kept:
    """A supervisor and the states that it reported."""

    upstream: Upstream
    states: list[ServerState]
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, name: str) -> str:
        raw = await self.upstream.request("tools/call", {"name": name, "arguments": {}}, timeout_s=20)
        said: str = json.loads(raw.text)["content"][0]["text"]
        return said

    async def failed(self, name: str) -> UpstreamError:
        with pytest.raises(UpstreamError) as caught:
            await self.call(name)
        return caught.value


@asynccontextmanager
async def kept(url: str, **changes: Any) -> AsyncIterator[Kept]:
    """The server kept connected, and everything within twenty seconds."""
    states: list[ServerState] = []

    def changed(status: ServerStatus) -> None:
        states.append(status.state)

    async with Connector() as connector:
        upstream = Upstream(
            ServerConfig("web", "http", url=url, **changes),
            environ=dict(os.environ),
            on_change=changed,
            on_tools_changed=lambda _: None,
            open_session=connector,
            start_gate=asyncio.Semaphore(4),
            rng=random.Random(1),
        )
        await upstream.start()
        try:
            with anyio.fail_after(20):
                assert await upstream.ready(20)
                yield Kept(upstream, states)
        finally:
            await upstream.stop()


READY, CONNECTING = ServerState.READY, ServerState.CONNECTING


@pytest.mark.parametrize("refuse", CERTAIN.values(), ids=CERTAIN)
async def test_a_request_refused_for_its_session_is_sent_again_on_a_new_one(refuse: Refusal) -> None:
    """It was certainly not carried out; the server stays in use, and it can happen again and again."""
    async with forgetful(refuse) as server, kept(server.url) as web:
        for number in range(1, 5):
            assert await web.call(f"work {number}") == f"work {number}"
            assert (server.greeted, server.executed) == (number, [f"work {n}" for n in range(1, number + 1)])
            server.sessions.clear()
    assert web.states[:6] == [CONNECTING, READY] * 3


@pytest.mark.parametrize("refuse", UNSURE.values(), ids=UNSURE)
async def test_a_request_that_may_have_been_carried_out_is_not_sent_again(refuse: Refusal) -> None:
    """The error names the session, and the next request works."""
    async with forgetful(refuse) as server, kept(server.url) as web:
        server.sessions.clear()
        error = await web.failed("work")
        assert (error.delivery, classify_end(error)) == ("unknown", CallEnd.UNCLEAR)
        assert "has forgotten the session" in error.message
        assert error.hint.startswith("A new session is opened.")
        assert await web.call("next") == "next"
        assert (server.greeted, server.executed) == (2, ["next"])


ORDINARY: dict[str, Refusal] = {
    "400": rpc(400, "Bad argument"),
    "400 of an interface": text(400, '{"error": "bad request"}', "application/json"),
    "410": text(410),
    "a tool's own session": rpc(200, "Session not found: tab-7", own_id=True),
    "a tool's own session, on a stream": streamed("Browser session expired"),
    "an exception": rpc(500, "database session expired"),
    "a tool that is not begun": rpc(200, "Browser not initialized", own_id=True),
    "a sign-in": text(401, "Your session has expired"),
    "404": text(404, '{"detail": "customer 17 not found"}', "application/json"),
    "404, plain": text(404, "no such row"),
    "404 of a tool's own session": text(404, '{"detail": "Session not found: tab-7"}', "application/json"),
    "404 with our id": rpc(404, "customer 17 not found", own_id=True),
}


@pytest.mark.parametrize("refuse", ORDINARY.values(), ids=ORDINARY)
async def test_a_refusal_that_is_not_about_our_session_opens_none(refuse: Refusal) -> None:
    """The server is asked whether it still knows ours; words about a session may be a tool's."""

    async def refuse_call(request: RawRequest, answer: RawAnswer) -> None:
        if request.message["method"] != "tools/call":
            answer.message(request.id, result={})
        elif request.tool == "fine":
            answer.text(request.id, "fine")
        else:
            refuse(request, answer)

    async with forgetful(text(404), tool=refuse_call) as server, kept(server.url) as web:
        for _ in range(3):
            error = await web.failed("work")
            assert not isinstance(error, LostSessionError)
        assert await web.call("fine") == "fine"
        assert server.greeted == 1
        assert web.upstream.is_ready


ENDINGS: dict[str, Refusal] = {
    "404 of an interface": text(404, '{"detail": "customer 17 not found"}', "application/json"),
    "404, plain": text(404, "no such row"),
    "404 with our id": rpc(404, "customer 17 not found", own_id=True),
    "a good status": rpc(200, "Logged out: session expired", own_id=True),
    "400": rpc(400, "Logged out: session expired", own_id=True),
    "a stream": streamed("Logged out: session expired"),
}


@pytest.mark.parametrize("refuse", ENDINGS.values(), ids=ENDINGS)
async def test_a_call_that_ends_its_own_session_is_carried_out_once(refuse: Refusal) -> None:
    """Its answer came from what dealt with it, so the caller is told that it may have been carried out."""
    executed: list[str] = []

    async def tool(request: RawRequest, answer: RawAnswer) -> None:
        executed.append(request.tool)
        if request.tool == "log out":
            server.sessions.clear()
            refuse(request, answer)
        else:
            answer.text(request.id, request.tool)

    async with forgetful(text(404), tool=tool) as server, kept(server.url) as web:
        error = await web.failed("log out")
        assert (error.delivery, classify_end(error)) == ("unknown", CallEnd.UNCLEAR)
        assert await web.call("next") == "next"
        assert (server.greeted, executed) == (2, ["log out", "next"])


async def test_a_list_is_read_again_whatever_the_refusal_says() -> None:
    """Reading twice does no harm."""
    async with forgetful(rpc(200, "Session gone", own_id=True)) as server, kept(server.url) as web:
        server.sessions.clear()
        assert (await web.upstream.list_tools()).definitions == []
        assert server.greeted == 2


async def test_a_call_under_way_outlives_the_404_of_another_tool() -> None:
    """The session stands: nothing is ended for it."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def tool(request: RawRequest, answer: RawAnswer) -> None:
        if request.tool == "long":
            begun.set()
            await go.wait()
            answer.text(request.id, "long")
        else:
            text(404, '{"detail": "customer 17 not found"}', "application/json")(request, answer)

    async with forgetful(text(404), tool=tool) as server, kept(server.url) as web:
        long_call = asyncio.create_task(web.call("long"))
        await begun.wait()
        error = await web.failed("find")
        assert (error.delivery, error.said) == ("unknown", "customer 17 not found")
        assert "path" not in error.hint
        go.set()
        assert await long_call == "long"
        assert server.greeted == 1


async def test_the_check_takes_no_longer_than_the_request_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs when asked keeps the caller with its own error from waiting."""
    monkeypatch.setattr(raw_http, "_LEAST_CHECK_S", 0.01)

    async def tool(request: RawRequest, answer: RawAnswer) -> None:
        if request.message["method"] == "ping":
            await asyncio.Event().wait()
        text(400, "no")(request, answer)

    async with forgetful(text(404), tool=tool, capabilities={}) as server, kept(server.url) as web:
        with anyio.fail_after(5), pytest.raises(UpstreamError, match="HTTP 400"):
            await web.upstream.request("tools/call", {"name": "work", "arguments": {}}, timeout_s=0.3)


async def test_a_request_that_is_sent_again_has_the_time_that_is_left() -> None:
    """Not its whole time anew."""
    given: list[float] = []
    async with forgetful(text(404)) as server, kept(server.url) as web:
        now_s, upstream = 0.0, web.upstream
        upstream.clock = lambda: now_s
        ready, session = upstream.ready, type(upstream._session)
        ask = session.request

        async def wait(timeout_s: float, **options: Any) -> bool:
            nonlocal now_s
            given.append(timeout_s)
            is_ready = await ready(timeout_s, **options)
            now_s += 7
            return is_ready

        def note(self: Any, *args: Any, timeout_s: float, **options: Any) -> Any:
            given.append(timeout_s)
            return ask(self, *args, timeout_s=timeout_s, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(upstream, "ready", wait)
            patch.setattr(session, "request", note)
            server.sessions.clear()
            assert await web.call("work") == "work"
    assert (given[0], given[-1]) == (20, 13)


@pytest.mark.parametrize(
    "refuse",
    [CERTAIN["the Go SDK"], CERTAIN["mcp-go"], CERTAIN["a good status, without the id"]],
    ids=["404", "400", "200"],
)
async def test_calls_that_meet_the_same_lost_session_share_one_renewal(refuse: Refusal) -> None:
    """Each is carried out once, on the new session."""
    async with forgetful(refuse) as server, kept(server.url) as web:
        await web.call("first")
        server.sessions.clear()
        names = [f"work {number}" for number in range(20)]
        assert await asyncio.gather(*map(web.call, names)) == names
        assert server.greeted == 2
        assert sorted(server.executed[1:]) == sorted(names)


@pytest.mark.parametrize("refuse", [text(404), rpc(400, "Invalid session ID")], ids=["404", "400"])
async def test_a_server_that_never_knows_its_sessions_is_not_stormed(refuse: Refusal) -> None:
    """A request is the cause of one new session, and the error says what is wrong."""
    async with forgetful(refuse) as server, kept(server.url) as web:
        remember, server.sessions = server.sessions, Nothing()
        error = await web.failed("work")
        assert (error.delivery, classify_end(error)) == ("not_sent", CallEnd.UNCLEAR)
        assert "has forgotten the session" in error.message
        assert "path" not in error.hint
        assert server.greeted == 2
        server.sessions = remember


class Nothing(set[str]):
    """Keeps nothing."""

    def add(self, item: str) -> None:
        pass


async def test_a_call_under_way_when_the_session_is_lost_may_have_been_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is given up for it, and says so; the other is sent again."""
    monkeypatch.setattr(raw_http, "REFUSALS_S", 0.05)
    begun, executed = asyncio.Event(), []

    async def tool(request: RawRequest, answer: RawAnswer) -> None:
        if request.tool == "long":
            begun.set()
            await asyncio.Event().wait()
        executed.append(request.tool)
        answer.text(request.id, request.tool)

    async with forgetful(text(404), tool=tool) as server, kept(server.url) as web:
        long_call = asyncio.create_task(web.failed("long"))
        await begun.wait()
        server.sessions.clear()
        assert await web.call("short") == "short"
        error = await long_call
        assert (error.delivery, classify_end(error)) == ("unknown", CallEnd.UNCLEAR)
        assert isinstance(error, LostSessionError)
        assert executed == ["short"]


@pytest.mark.parametrize("refuse", [text(404), text(400, "Invalid or missing session ID")], ids=["404", "400"])
async def test_a_loss_that_the_stream_of_announcements_shows_needs_no_call(
    refuse: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was open before; when it is refused, the next call finds a new session."""
    monkeypatch.setattr("smart_mcp_proxy.upstream.http.http_session._FIRST_PAUSE_S", 0.01)
    async with forgetful(refuse, may_stream=True) as server, kept(server.url) as web:
        await server.until(1, "GET")
        server.sessions.clear()
        for connection in server.open_connections:
            connection.cancel()
        await server.until(2, "initialize")
        assert await web.call("work") == "work"
        assert server.executed == ["work"]


async def test_a_server_that_begins_to_keep_sessions_gets_one() -> None:
    """Ours had no id, and the server's next version wants one."""
    refuse = rpc(400, "Bad Request: Missing session ID")
    async with forgetful(refuse, has_ids=False) as server, kept(server.url) as web:
        assert await web.call("before") == "before"
        server.has_ids = True
        server.sessions.clear()
        assert await web.call("after") == "after"
        assert (server.greeted, server.executed) == (2, ["before", "after"])


async def test_a_server_of_the_modern_era_has_no_session_to_lose() -> None:
    """Whatever its words."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        answer.message(request.id, error={"code": -32000, "message": "Session not found"})

    async with raw_served(RawServer("modern", refuse)) as server, kept(server.url) as web:
        error = await web.failed("work")
        assert (error.delivery, error.said) == ("executed", "Session not found")
        assert server.heard("initialize") == server.heard("tools/list") == []


@pytest.mark.parametrize("era", ["modern", "none"])
async def test_a_404_that_is_no_sessions_keeps_its_hint(era: str) -> None:
    """About the path, where nothing speaks MCP or a server of the modern era answers so."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(status=404)

    async with raw_served(RawServer(era, refuse, other=refuse)) as server, Connector() as connector:
        config = ServerConfig("web", "http", url=server.url)
        options: Any = {"environ": {}, "era": None, "on_event": lambda _: None}
        with anyio.fail_after(20), pytest.raises(UpstreamError) as caught:
            session = await connector(config, **options)
            try:
                await session.request("tools/call", {"name": "work"}, timeout_s=20)
            finally:
                await session.close()
        assert "check the path of its url" in caught.value.hint


async def test_a_sign_in_that_is_over_is_not_taken_for_a_lost_session() -> None:
    """The server refuses everything, the greeting too: it needs a sign-in."""
    refuse = text(401, "Session expired, sign in again")

    async def refuse_all(request: RawRequest, answer: RawAnswer) -> None:
        refuse(request, answer)

    async with forgetful(refuse) as server, kept(server.url) as web:
        server.answer = refuse_all  # type: ignore[method-assign]  # the greeting too, from now on
        error = await web.failed("work")
        assert isinstance(error, UpstreamAuthError)
        assert "mcpproxy server login web" in error.hint
        assert web.states[2:] == [CONNECTING, ServerState.NEEDS_AUTH]

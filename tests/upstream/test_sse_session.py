"""Sessions over HTTP+SSE: a real server, and every way in which the stream, its address or a POST can fail."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from http_fakes import Target
from run_wire import configured_with
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from upstream_fakes import served

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamBusyError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.models import ProgressReport
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream.http.sse_session import SseSession, open_sse
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.session import SessionEvent, ToolsChanged

# A server that is cut off in the middle of its stream leaves its own memory streams open.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

OpenWeb = Callable[..., Awaitable[SseSession]]
Post = Callable[[Request, dict[str, Any]], Awaitable[Response]]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collects what the server left open within the test that left it, once its event loop has closed."""
    yield
    gc.collect()


@pytest.fixture
async def target() -> Target:
    """The server's inside."""
    return Target()


@pytest.fixture
async def url(target: Target) -> AsyncIterator[str]:
    """The server's address."""
    inner = target.mcp.http_app(transport="sse")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await target.app(scope, receive, send, inner)

    async with served(app) as address:
        yield f"{address}/sse"


@pytest.fixture
async def open_web(events: list[SessionEvent]) -> AsyncIterator[OpenWeb]:
    """Opens links, closed at the end of the test."""
    links: list[SseSession] = []

    async def open_one(url: str, *, limit: int = 16 << 20, **changes: Any) -> SseSession:
        configured_with(changes.get("headers", {}))
        values: dict[str, Any] = {"name": "web", "transport": "sse", "url": url, "limits": ServerLimits(init_s=30)}
        config = ServerConfig(**(values | changes))
        session = await open_sse(SessionOptions(config, events.append, max_message_bytes=limit))
        links.append(session)
        return session

    yield open_one
    for session in links:
        await session.close()


class FakeStream:
    """A server whose address to post to and whose answers to POSTs a test decides."""

    def __init__(self, post: Post | None = None, endpoint: str = "/messages?session_id=1") -> None:
        self.messages: list[dict[str, Any]] = []
        self._post = post
        self._endpoint = endpoint
        self._events: asyncio.Queue[str | None] = asyncio.Queue()

    @property
    def app(self) -> Starlette:
        """What serves it."""
        routes = [Route("/sse", self._stream), Route("/messages", self._take, methods=["POST"])]
        return Starlette(routes=routes)

    def send(self, message: dict[str, Any] | None) -> None:
        """Puts a message on the stream; None ends it."""
        self._events.put_nowait(None if message is None else json.dumps(message))

    async def _stream(self, request: Request) -> Response:
        async def written() -> AsyncIterator[str]:
            yield f"event: endpoint\ndata: {self._endpoint}\n\n"
            while (text := await self._events.get()) is not None:
                yield f"event: message\ndata: {text}\n\n"

        return StreamingResponse(written(), media_type="text/event-stream")

    async def _take(self, request: Request) -> Response:
        message = await request.json()
        self.messages.append(message)
        if message.get("method") == "tools/call" and self._post is not None:
            return await self._post(request, message)
        if "id" in message and "method" in message:
            result = {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        return Response(status_code=202)


async def call(session: SseSession, name: str, timeout_s: float = 30, **arguments: Any) -> Any:
    """The text of a tool's first content block."""
    text = (await session.request("tools/call", {"name": name, "arguments": arguments}, timeout_s=timeout_s)).text
    return json.loads(text)["content"][0]["text"]


async def test_calls_arrive_in_the_handshake_era(open_web, url):
    """The older transport knows no other."""
    session = await open_web(url)
    assert (session.era, session.server_info) == ("handshake", "target 3")
    assert await call(session, "echo", text="hé") == "hé"
    assert await asyncio.gather(*(call(session, "echo", text=str(n)) for n in range(20))) == [str(n) for n in range(20)]


async def test_a_tools_own_failure_is_a_result(open_web, url):
    """Not an error of ours."""
    session = await open_web(url)
    result = json.loads((await session.request("tools/call", {"name": "fail", "arguments": {}}, timeout_s=30)).text)
    assert result["isError"] is True


async def test_configured_headers_are_sent_with_every_request(open_web, target, url):
    """And nothing is asked to be compressed."""
    session = await open_web(url, headers={"X-Api-Key": "k1"})
    await call(session, "echo", text="x")
    assert {headers.get("x-api-key") for headers in target.headers} == {"k1"}
    assert {headers.get("accept-encoding") for headers in target.headers} == {"identity"}


async def test_progress_is_passed_on(open_web, url):
    """Forwards only, the last one included."""
    session = await open_web(url)
    reports: list[ProgressReport] = []

    async def note(report: ProgressReport) -> None:
        reports.append(report)

    await session.request("tools/call", {"name": "count", "arguments": {}}, timeout_s=30, on_progress=note)
    assert reports[-1] == ProgressReport(2.0, 2.0, "step 2")


async def test_leaving_a_call_reaches_the_server(open_web, target, url):
    """The tool is cancelled."""
    session = await open_web(url)
    task = asyncio.ensure_future(call(session, "hang"))
    with anyio.fail_after(20):
        await target.started.wait()
        task.cancel()
        await target.cancelled.wait()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call(session, "echo", text="next") == "next"


async def test_a_timeout_says_unknown_and_reaches_the_server(open_web, target, url):
    """The session stays usable."""
    session = await open_web(url)
    with pytest.raises(UpstreamTimeoutError) as caught:
        await call(session, "hang", timeout_s=0.3)
    assert caught.value.delivery == "unknown"
    with anyio.fail_after(20):
        await target.cancelled.wait()
    assert await call(session, "echo", text="next") == "next"


async def test_a_changed_tool_list_is_reported(open_web, events, url):
    """As a plain notification."""
    session = await open_web(url)
    await call(session, "change")
    with anyio.fail_after(20):
        while not events:
            await anyio.lowlevel.checkpoint()
    assert set(events) == {ToolsChanged()}


@pytest.mark.long  # a third of a second of processor time
async def test_messages_may_be_as_long_as_over_other_transports(open_web, target, url):
    """Up to the setting; a longer one costs the session, and the error says why."""
    session = await open_web(url, limit=8 << 20)  # the text goes twice, structured too
    assert len(await call(session, "big", size=3 << 20)) == 3 << 20
    with pytest.raises(UpstreamError) as caught:
        await call(session, "big", size=5 << 20)
    for error in (caught.value, await session.wait_closed()):
        assert error.message == "Server 'web' sent an answer of more than 8,388,608 bytes."
        assert "MCPPROXY_MAX_MESSAGE_BYTES" in error.hint
    assert caught.value.delivery == "unknown"


async def test_the_end_of_the_stream_ends_the_session(open_web):
    """Calls under way fail, and the supervisor learns of it."""
    server = FakeStream()

    async def end(request: Request, message: dict[str, Any]) -> Response:
        server.send(None)
        return Response(status_code=202)

    server._post = end
    async with served(server.app) as address:
        session = await open_web(f"{address}/sse")
        with anyio.fail_after(20):
            with pytest.raises(UpstreamError, match="'web' closed the connection") as caught:
                await call(session, "any")
            assert caught.value.delivery == "unknown"
            assert "closed the connection" in (await session.wait_closed()).message
            with pytest.raises(UpstreamError) as late:
                await call(session, "any")
    assert late.value.delivery == "not_sent"


@pytest.mark.parametrize(
    ("status", "kind", "words", "delivery"),
    [
        (401, UpstreamAuthError, "answered with HTTP 401 Unauthorized.", "not_sent"),
        (429, UpstreamBusyError, "answered with HTTP 429 Too Many Requests.", "unknown"),
        (500, UpstreamError, "answered with HTTP 500 Internal Server Error.", "unknown"),
        (307, UpstreamError, "redirects to http://other.invalid/ (HTTP 307), which is not followed.", "not_sent"),
    ],
)
async def test_a_post_that_fails_costs_one_call(open_web, status, kind, words, delivery):
    """The session goes on."""

    async def refuse(request: Request, message: dict[str, Any]) -> Response:
        headers = {"location": "http://other.invalid/", "retry-after": "7"}
        if message["params"]["name"] == "fine":
            server.send({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"text": "fine"}]}})
        return Response(status_code=202 if message["params"]["name"] == "fine" else status, headers=headers)

    server = FakeStream(refuse)
    async with served(server.app) as address:
        session = await open_web(f"{address}/sse")
        with pytest.raises(UpstreamError) as caught:
            await call(session, "refused")
        assert await call(session, "fine") == "fine"
        await session.close()
    assert type(caught.value) is kind
    assert caught.value.message == f"Server 'web' {words}"
    assert caught.value.delivery == delivery


async def test_a_forgotten_session_ends_the_link(open_web):
    """The server answers 404 to what is posted to it."""

    async def forget(request: Request, message: dict[str, Any]) -> Response:
        return Response(status_code=404)

    server = FakeStream(forget)
    async with served(server.app) as address:
        session = await open_web(f"{address}/sse")
        with anyio.fail_after(20):
            with pytest.raises(UpstreamError) as caught:
                await call(session, "any")
            assert caught.value.delivery == "not_sent"
            assert "has forgotten the session" in (await session.wait_closed()).message
        await session.close()


async def test_a_request_of_the_server_is_answered(open_web):
    """It may ask whether we are there."""
    server = FakeStream()
    async with served(server.app) as address:
        session = await open_web(f"{address}/sse")
        server.send({"jsonrpc": "2.0", "id": "p1", "method": "ping"})
        with anyio.fail_after(20):
            while server.messages[-1].get("id") != "p1":
                await anyio.lowlevel.checkpoint()
        await session.close()
    assert server.messages[-1] == {"jsonrpc": "2.0", "id": "p1", "result": {}}


@pytest.mark.parametrize(
    "endpoint",
    ["http://other.invalid/messages", "http://127.0.0.1:9/messages", "https://127.0.0.1/", "file:///etc/passwd", "//["],
)
async def test_an_address_on_another_host_is_refused(open_web, endpoint):
    """What is posted carries headers meant for the server's own host."""
    server = FakeStream(endpoint=endpoint)
    async with served(server.app) as address:
        with pytest.raises(UpstreamError, match="names an address to post to that is not on its own host") as caught:
            await open_web(f"{address}/sse", headers={"Authorization": "Bearer secret"})
    assert caught.value.delivery == "not_sent"
    assert server.messages == []


async def test_a_stream_without_an_address_is_given_up_in_time(open_web):
    """Some servers open a stream for everybody who asks."""

    async def stream(request: Request) -> Response:
        async def silent() -> AsyncIterator[str]:
            yield ": nothing\n\n"
            await asyncio.Event().wait()

        return StreamingResponse(silent(), media_type="text/event-stream")

    async with served(Starlette(routes=[Route("/sse", stream)])) as address:
        with pytest.raises(UpstreamTimeoutError, match=r"did not answer 'initialize' within 0.3 s"):
            await open_web(f"{address}/sse", limits=ServerLimits(init_s=0.3))


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, UpstreamAuthError, "answered with HTTP 401 Unauthorized."),
        (403, UpstreamError, "answered with HTTP 403 Forbidden."),
        (404, UpstreamError, "answered with HTTP 404 Not Found."),
        (500, UpstreamError, "answered with HTTP 500 Internal Server Error."),
        (200, UpstreamError, "opened no stream of events (HTTP 200, no content type)."),
    ],
)
async def test_an_http_error_at_connecting_is_named(open_web, status, kind, words):
    """401 is a matter of sign-in, the others of the address."""

    async def answer(request: Request) -> Response:
        return Response(status_code=status)

    async with served(Starlette(routes=[Route("/sse", answer)])) as address:
        with pytest.raises(UpstreamError) as caught:
            await open_web(f"{address}/sse")
    assert type(caught.value) is kind
    assert caught.value.message == f"Server 'web' {words}"
    assert caught.value.data == (None if status == 200 else {"http_status": status})

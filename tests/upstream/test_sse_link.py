"""Sessions over HTTP and SSE: both eras of a real server, and every way an HTTP exchange can fail."""

import asyncio
import gc
import json
import socket
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
import pytest
from http_fakes import Target
from pydantic import Field
from run_wire import configured_with
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from upstream_fakes import served

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.models import Progress
from smart_mcp_proxy.servers import Limits, ServerConfig
from smart_mcp_proxy.upstream.http.sse_link import SdkLink, open_http
from smart_mcp_proxy.upstream.http_failures import TlsContext
from smart_mcp_proxy.upstream.protocol.session import LinkEvent, ToolsChanged

pytestmark = pytest.mark.anyio


@pytest.fixture
async def target() -> Target:
    """The server's inside."""
    return Target()


@pytest.fixture
async def url(target: Target) -> AsyncIterator[str]:
    """The server's address."""
    inner = target.mcp.http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await target.app(scope, receive, send, inner)

    async with served(app) as address:
        yield f"{address}/mcp"


def config(url: str, **changes: Any) -> ServerConfig:
    """A configured server named `web`."""
    configured_with(changes.get("headers", {}))
    values: dict[str, Any] = {"name": "web", "transport": "http", "url": url, "limits": Limits(init_s=4)}
    return ServerConfig(**(values | changes))


@pytest.fixture
async def open_web(events: list[LinkEvent]) -> AsyncIterator[Any]:
    """Opens links, closed at the end of the test."""
    links: list[SdkLink] = []

    async def open_one(url: str, *, era: Any = None, limit: int = 16 << 20, **changes: Any) -> SdkLink:
        link = await open_http(
            config(url, **changes), era=era, on_event=events.append, max_message_bytes=limit, tls=TlsContext()
        )
        links.append(link)
        return link

    yield open_one
    for link in links:
        await link.close()


async def call(link: SdkLink, name: str, timeout_s: float = 4, **arguments: Any) -> Any:
    """The text of a tool's first content block."""
    text = (await link.request("tools/call", {"name": name, "arguments": arguments}, timeout_s=timeout_s)).text
    return json.loads(text)["content"][0]["text"]


ERAS = pytest.mark.parametrize("era", [None, "handshake"], ids=["modern", "handshake"])


@ERAS
async def test_a_call_arrives_in_both_eras(open_web, url, era):
    """The era is negotiated, or remembered."""
    link = await open_web(url, era=era)
    assert (link.era, link.server_info) == (era or "modern", "target 3")
    assert await call(link, "echo", text="hé") == "hé"
    assert await asyncio.gather(*(call(link, "echo", text=str(n)) for n in range(20))) == [str(n) for n in range(20)]


async def test_a_tools_own_failure_is_a_result(open_web, url):
    """Not an error of ours."""
    link = await open_web(url)
    result = json.loads((await link.request("tools/call", {"name": "fail", "arguments": {}}, timeout_s=4)).text)
    assert result["isError"] is True


@ERAS
async def test_configured_headers_are_sent_with_every_request(open_web, target, url, era):
    """And nothing is asked to be compressed."""
    link = await open_web(url, era=era, headers={"X-Api-Key": "k1"})
    await call(link, "echo", text="x")
    assert {headers.get("x-api-key") for headers in target.headers} == {"k1"}
    assert {headers.get("accept-encoding") for headers in target.headers} == {"identity"}


@ERAS
async def test_progress_is_passed_on(open_web, url, era):
    """Forwards only, the last one included."""
    link = await open_web(url, era=era)
    reports: list[Progress] = []

    async def note(report: Progress) -> None:
        reports.append(report)

    await link.request("tools/call", {"name": "count", "arguments": {}}, timeout_s=4, on_progress=note)
    assert reports[-1] == Progress(2.0, 2.0, "step 2")


@ERAS
async def test_leaving_a_call_reaches_the_server(open_web, target, url, era):
    """The tool is told to stop."""
    link = await open_web(url, era=era)
    task = asyncio.ensure_future(call(link, "hang"))
    with anyio.fail_after(5):
        await target.started.wait()
        task.cancel()
        await target.cancelled.wait()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call(link, "echo", text="next") == "next"


@ERAS
async def test_a_timeout_says_unknown_and_reaches_the_server(open_web, target, url, era):
    """The session stays usable."""
    link = await open_web(url, era=era)
    with pytest.raises(UpstreamTimeoutError) as caught:
        await call(link, "hang", timeout_s=0.3)
    assert caught.value.delivery == "unknown"
    with anyio.fail_after(5):
        await target.cancelled.wait()
    assert await call(link, "echo", text="next") == "next"


@ERAS
async def test_results_of_megabytes_arrive(open_web, url, era):
    """The SDK's own limit for events is one mebibyte."""
    link = await open_web(url, era=era)
    assert len(await call(link, "big", size=3 << 20)) == 3 << 20


@ERAS
async def test_a_result_over_the_limit_fails_its_call_only(open_web, url, era):
    """Memory is bounded by the setting."""
    link = await open_web(url, era=era, limit=100_000)
    with pytest.raises(UpstreamError) as caught:
        await call(link, "big", size=300_000)
    assert caught.value.delivery == "unknown"
    assert await call(link, "echo", text="next") == "next"


@ERAS
async def test_a_changed_tool_list_is_reported(open_web, events, url, era):
    """By subscription in the modern era, as a plain notification before."""
    link = await open_web(url, era=era)
    with anyio.fail_after(5):
        while era is None and not events:  # the open subscription itself
            await anyio.lowlevel.checkpoint()
        events.clear()
        await call(link, "change")
        while not events:
            await anyio.lowlevel.checkpoint()
    assert set(events) == {ToolsChanged()}


# The server is cut off in the middle of its stream, and leaves its own memory streams open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_sse_server_works_and_its_loss_is_noticed(open_web, target):
    """The older transport knows the handshake era only."""
    async with served(target.mcp.http_app(transport="sse")) as address:
        link = await open_web(f"{address}/sse", transport="sse")
        assert link.era == "handshake"
        assert await call(link, "echo", text="x") == "x"
    with anyio.fail_after(5):
        assert "'web'" in (await link.wait_closed()).message
    gc.collect()


# The server is cut off in the middle of its stream, and leaves its own memory streams open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_an_sse_server_may_send_messages_as_long_as_others(open_web, target):
    """Up to the setting; a longer one costs the session, and the error says why."""
    async with served(target.mcp.http_app(transport="sse")) as address:
        link = await open_web(f"{address}/sse", transport="sse", limit=8 << 20)  # the text goes twice, structured too
        assert len(await call(link, "big", size=3 << 20)) == 3 << 20
        with pytest.raises(UpstreamError) as caught:
            await call(link, "big", size=5 << 20)
        for error in (caught.value, await link.wait_closed()):
            assert error.message == "Server 'web' sent an answer of more than 8,388,608 bytes."
            assert "MCPPROXY_MAX_MESSAGE_BYTES" in error.hint
        assert caught.value.delivery == "unknown"
    gc.collect()


async def test_a_tool_that_asks_for_headers_gets_them(open_web, target, url):
    """A modern server may demand arguments as headers; one whose demand is invalid is left out of the list."""
    for name, header in [("good", "Region"), ("bad", "not a token")]:

        async def run(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": header})]) -> str:
            return region

        target.mcp.tool(run, name=name)
    link = await open_web(url)
    listed = json.loads((await link.request("tools/list", {}, timeout_s=4)).text)["tools"]
    assert {"good", "echo"} <= {tool["name"] for tool in listed}
    assert "bad" not in {tool["name"] for tool in listed}
    assert await call(link, "good", region="eu") == "eu"
    assert target.headers[-1]["mcp-param-region"] == "eu"


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, UpstreamAuthError, "Server 'web' answered with HTTP 401 Unauthorized."),
        (403, UpstreamError, "Server 'web' answered with HTTP 403 Forbidden."),
        (404, UpstreamError, "Server 'web' answered with HTTP 404 Not Found."),
        (500, UpstreamError, "Server 'web' answered with HTTP 500 Internal Server Error."),
    ],
)
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_http_error_at_connecting_is_named(open_web, status, kind, words, transport):
    """401 is a matter of sign-in, the others of the address."""

    async def answer(request: Request) -> Response:
        return Response(status_code=status)

    app = Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST"])])
    async with served(app) as address:
        with pytest.raises(UpstreamError) as caught:
            await open_web(f"{address}/mcp", transport=transport)
    assert type(caught.value) is kind
    assert caught.value.message == words
    assert caught.value.data == {"http_status": status}


async def test_a_refused_connection_is_named(open_web):
    """Nothing listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UpstreamError, match="'web' cannot be reached") as caught:
        await open_web(f"http://127.0.0.1:{port}/mcp")
    assert caught.value.delivery == "not_sent"


async def test_a_redirect_to_another_host_is_not_followed(open_web):
    """The request carries credentials meant for one host only."""
    asked: list[str] = []

    async def elsewhere(request: Request) -> Response:
        asked.append(request.url.path)
        return Response(status_code=500)

    async with served(Starlette(routes=[Route("/mcp", elsewhere, methods=["GET", "POST"])])) as other:

        async def answer(request: Request) -> Response:
            return Response(status_code=307, headers={"location": f"{other}/mcp"})

        async with served(Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST"])])) as address:
            with pytest.raises(UpstreamError, match=r"redirects to 127.0.0.1 \(HTTP 307\), which is not followed"):
                await open_web(f"{address}/mcp", headers={"Authorization": "Bearer secret"})
    assert asked == []


async def misbehaving(request: Request) -> Response:
    """A modern server whose tools are HTTP faults."""
    message = await request.json()
    if message["method"] == "server/discover":
        discovered = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        caching = {"ttlMs": 0, "cacheScope": "private"}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": discovered | caching})

    async def body() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc":"2.0",'
        raise ConnectionResetError

    match message["params"]["name"]:
        case "truncated":
            return StreamingResponse(body(), media_type="application/json", headers={"content-length": "1000"})
        case "garbled":
            return Response(b'{"jsonrpc":"2.0","id":1,"result":[}', media_type="application/json")
        case "page":
            return Response("<html>", media_type="text/html")
        case "busy":
            return Response(status_code=429, headers={"retry-after": "7"})
        case "refused":
            error = {"code": -32602, "message": "bad argument"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error}, status_code=400)
        case "zipped":
            return Response(b"\x1f\x8b", media_type="application/json", headers={"content-encoding": "gzip"})
        case "signed-out":
            return Response(status_code=401)
    return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"text": "fine"}]}})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("name", "words", "delivery"),
    [
        ("truncated", "broke the connection", "unknown"),
        ("garbled", "gave no proper answer to 'tools/call'", "unknown"),
        ("page", "gave no proper answer to 'tools/call': Unexpected content type", "unknown"),
        ("busy", "answered with HTTP 429", "unknown"),
        ("refused", "answered 'tools/call' with error -32602: bad argument", "unknown"),
        ("zipped", "sent a compressed answer", "unknown"),
        ("signed-out", "answered with HTTP 401", "not_sent"),
    ],
)
async def test_a_failed_exchange_costs_one_call(open_web, name, words, delivery):
    """The error is clear, others under way and later ones are not touched."""
    async with served(Starlette(routes=[Route("/mcp", misbehaving, methods=["POST"])])) as address:
        link = await open_web(f"{address}/mcp")
        failed, fine = await asyncio.gather(call(link, name), call(link, "fine"), return_exceptions=True)
        assert fine == "fine"
        assert isinstance(failed, UpstreamError)
        assert words in failed.message
        assert failed.delivery == delivery
        assert failed.retry_after_s == (7 if name == "busy" else None)
        assert isinstance(failed, UpstreamAuthError) == (name == "signed-out")
        assert await call(link, "fine") == "fine"


async def test_a_server_that_is_gone_ends_the_link(open_web, target):
    """The call fails clearly and the supervisor learns of it."""
    async with served(target.mcp.http_app()) as address:
        link = await open_web(f"{address}/mcp")
    with anyio.fail_after(5):
        with pytest.raises(UpstreamError, match="cannot be reached") as caught:
            await call(link, "echo", text="x")
        assert caught.value.delivery == "not_sent"
        assert "cannot be reached" in (await link.wait_closed()).message


async def test_a_forgotten_session_ends_the_link(open_web, target):
    """A restarted server of the handshake era knows nothing of our session."""
    inner = target.mcp.http_app()
    is_restarted = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (Response(status_code=404) if is_restarted else inner)(scope, receive, send)

    async with served(app) as address:
        link = await open_web(f"{address}/mcp", era="handshake")
        is_restarted = True
        with anyio.fail_after(5):
            with pytest.raises(UpstreamError, match="HTTP 404") as caught:
                await call(link, "echo", text="x")
            assert caught.value.delivery == "not_sent"
            await link.wait_closed()
        is_restarted = False  # so that the server can shut down

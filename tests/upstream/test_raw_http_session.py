"""Raw sessions over HTTP: both eras of a real server, and every way an HTTP exchange can fail."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any

import anyio
import pytest
from http_fakes import META, RawAnswer, RawRequest, RawServer, Script, Target, raw_served
from pydantic import Field
from run_wire import configured_with
from starlette.responses import Response
from upstream_fakes import served

from smart_mcp_proxy.errors import RequestError, UpstreamAuthError, UpstreamError, UpstreamTimeoutError
from smart_mcp_proxy.models import ProgressReport
from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream.http.raw_http import RawHttpSession, open_raw_http
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.session import LogLine, SessionEvent, ToolsChanged

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", [None, "handshake"], ids=["modern", "handshake"])
RAW_ERAS = pytest.mark.parametrize("era", ["modern", "handshake"])
CHANGING = {"tools": {"listChanged": True}}


@pytest.fixture
async def target() -> Target:
    """The real server's inside."""
    return Target()


@pytest.fixture
async def url(target: Target) -> AsyncIterator[str]:
    """The real server's address."""
    inner = target.mcp.http_app()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await target.app(scope, receive, send, inner)

    async with served(app) as address:
        yield f"{address}/mcp"


def config(url: str, **changes: Any) -> ServerConfig:
    """A configured server named `web`."""
    configured_with(changes.get("headers", {}))
    values: dict[str, Any] = {"name": "web", "transport": "http", "url": url, "limits": ServerLimits(init_s=30)}
    return ServerConfig(**(values | changes))


@pytest.fixture
async def open_web(events: list[SessionEvent], serve: Any) -> AsyncIterator[Any]:
    """Opens links, closed at the end of the test and before the servers."""
    links: list[RawHttpSession] = []

    async def open_one(url: str, *, era: Any = None, limit: int = 16 << 20, **changes: Any) -> RawHttpSession:
        session = await open_raw_http(
            SessionOptions(config(url, **changes), events.append, era, max_message_bytes=limit)
        )
        links.append(session)
        return session

    yield open_one
    for session in links:
        await session.close()


@pytest.fixture
async def serve() -> AsyncIterator[Any]:
    """Starts raw servers."""
    async with AsyncExitStack() as stack:

        async def start(era: str, tool: Script, **options: Any) -> RawServer:
            return await stack.enter_async_context(raw_served(RawServer(era, tool, **options)))

        yield start


async def call(session: RawHttpSession, name: str, timeout_s: float = 30, **arguments: Any) -> Any:
    """The text of a tool's first content block."""
    text = (await session.request("tools/call", {"name": name, "arguments": arguments}, timeout_s=timeout_s)).text
    return json.loads(text)["content"][0]["text"]


async def echo(request: RawRequest, answer: RawAnswer) -> None:
    """Answers with the name of the tool."""
    answer.text(request.id, request.tool)


# --- a real server


@ERAS
@pytest.mark.long  # much work for one test
async def test_a_call_arrives_in_both_eras(open_web, url, era):
    """The era is negotiated, or remembered."""
    session = await open_web(url, era=era)
    assert (session.era, session.server_info) == (era or "modern", "target 3")
    assert await call(session, "echo", text="hé") == "hé"
    assert await asyncio.gather(*(call(session, "echo", text=str(n)) for n in range(100))) == [
        str(n) for n in range(100)
    ]


@ERAS
async def test_a_tools_own_failure_is_a_result(open_web, url, era):
    """Not an error of ours."""
    session = await open_web(url, era=era)
    result = json.loads((await session.request("tools/call", {"name": "fail", "arguments": {}}, timeout_s=30)).text)
    assert result["isError"] is True


@ERAS
async def test_configured_headers_are_sent_with_every_request(open_web, target, url, era, monkeypatch):
    """Nothing is asked to be compressed, and the environment adds nothing."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    session = await open_web(url, era=era, headers={"X-Api-Key": "k1"})
    await call(session, "echo", text="x")
    assert {headers.get("x-api-key") for headers in target.headers} == {"k1"}
    assert {headers.get("accept-encoding") for headers in target.headers} == {"identity"}


async def test_a_configured_header_is_not_sent_beside_one_of_ours(open_web, serve):
    """However it is spelled: it takes the place of a courtesy, and yields to what the protocol needs."""
    server = await serve("modern", echo)
    headers = {"user-agent": "mine", "ACCEPT": "text/html", "accept-Encoding": "gzip", "mcp-method": "none"}
    await call(await open_web(server.url, headers=headers), "x")
    sent = server.requests[-1].headers
    assert (sent["user-agent"], sent["mcp-method"]) == ("mine", "tools/call")
    assert (sent["accept"], sent["accept-encoding"]) == ("application/json, text/event-stream", "identity")


@ERAS
async def test_progress_is_passed_on(open_web, url, era):
    """Forwards only, the last one included."""
    session = await open_web(url, era=era)
    reports: list[ProgressReport] = []

    async def note(report: ProgressReport) -> None:
        reports.append(report)

    await session.request("tools/call", {"name": "count", "arguments": {}}, timeout_s=30, on_progress=note)
    assert reports[-1] == ProgressReport(2.0, 2.0, "step 2")


@ERAS
async def test_leaving_a_call_reaches_the_server(open_web, target, url, era):
    """The tool is told to stop."""
    session = await open_web(url, era=era)
    task = asyncio.ensure_future(call(session, "hang"))
    with anyio.fail_after(20):
        await target.started.wait()
        task.cancel()
        await target.cancelled.wait()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call(session, "echo", text="next") == "next"


@ERAS
async def test_a_timeout_says_unknown_and_reaches_the_server(open_web, target, url, era):
    """The session stays usable."""
    session = await open_web(url, era=era)
    with pytest.raises(UpstreamTimeoutError) as caught:
        await call(session, "hang", timeout_s=0.3)
    assert caught.value.delivery == "unknown"
    with anyio.fail_after(20):
        await target.cancelled.wait()
    assert await call(session, "echo", text="next") == "next"


@ERAS
async def test_results_of_megabytes_arrive(open_web, url, era):
    """As one body or as one event."""
    session = await open_web(url, era=era)
    assert len(await call(session, "big", size=3 << 20)) == 3 << 20


@ERAS
async def test_arguments_of_megabytes_arrive(open_web, url, era):
    """The server's own limit is four mebibytes."""
    session = await open_web(url, era=era)
    assert await call(session, "echo", text="x" * (3 << 20)) == "x" * (3 << 20)


@ERAS
async def test_a_result_over_the_limit_fails_its_call_only(open_web, url, era):
    """Memory is bounded by the setting."""
    session = await open_web(url, era=era, limit=100_000)
    with pytest.raises(UpstreamError, match="more than 100,000 bytes") as caught:
        await call(session, "big", size=300_000)
    assert caught.value.delivery == "unknown"
    assert await call(session, "echo", text="next") == "next"


@ERAS
async def test_a_changed_tool_list_is_reported(open_web, events, url, era):
    """By subscription in the modern era, on the stream of announcements before."""
    session = await open_web(url, era=era)
    await call(session, "change")
    with anyio.fail_after(20):
        while not events:
            await anyio.lowlevel.checkpoint()
    assert set(events) == {ToolsChanged()}


async def test_a_tool_that_asks_for_headers_gets_them(open_web, target, url):
    """A modern server may demand arguments as headers; one whose demand is invalid is left out of the list."""
    for name, header in [("good", "Region"), ("bad", "not a token")]:

        async def run(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": header})]) -> str:
            return region

        target.mcp.tool(run, name=name)
    session = await open_web(url)
    listed = json.loads((await session.request("tools/list", {}, timeout_s=30)).text)["tools"]
    assert {"good", "echo"} <= {tool["name"] for tool in listed}
    assert "bad" not in {tool["name"] for tool in listed}
    assert await call(session, "good", region="eu") == "eu"
    assert target.headers[-1]["mcp-param-region"] == "eu"
    assert await call(session, "good", region="Zürich\n") == "Zürich\n"
    assert target.headers[-1]["mcp-param-region"] == "=?base64?WsO8cmljaAo=?="


async def test_a_server_that_is_gone_ends_the_link(open_web, target):
    """The call fails clearly and the supervisor learns of it."""
    async with served(target.mcp.http_app()) as address:
        session = await open_web(f"{address}/mcp")
    with anyio.fail_after(20):
        with pytest.raises(UpstreamError, match="cannot be reached: Connection refused") as caught:
            await call(session, "echo", text="x")
        assert caught.value.delivery == "not_sent"
        assert "cannot be reached" in (await session.wait_closed()).message


async def test_a_forgotten_session_ends_the_link(open_web, target):
    """A restarted server of the handshake era knows nothing of our session."""
    inner = target.mcp.http_app()
    is_restarted = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (Response(status_code=404) if is_restarted else inner)(scope, receive, send)

    async with served(app) as address:
        session = await open_web(f"{address}/mcp", era="handshake")
        is_restarted = True
        with anyio.fail_after(20):
            with pytest.raises(UpstreamError, match="HTTP 404") as caught:
                await call(session, "echo", text="x")
            assert caught.value.delivery == "not_sent"
            assert "has forgotten the session" in (await session.wait_closed()).message
        is_restarted = False  # so that the server can shut down


# --- agreeing on an era


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, UpstreamAuthError, "Server 'web' answered with HTTP 401 Unauthorized."),
        (403, UpstreamError, "Server 'web' answered with HTTP 403 Forbidden."),
        (404, UpstreamError, "Server 'web' answered with HTTP 404 Not Found."),
        (500, UpstreamError, "Server 'web' answered with HTTP 500 Internal Server Error."),
    ],
)
async def test_an_http_error_at_connecting_is_named(open_web, serve, status, kind, words):
    """401 is a matter of sign-in, the others of the address."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(status=status)

    server = await serve("none", echo, other=refuse)
    with pytest.raises(UpstreamError) as caught:
        await open_web(server.url)
    assert type(caught.value) is kind
    assert caught.value.message == words
    assert caught.value.data == {"http_status": status}


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:{port}/mcp", "'web' cannot be reached: Connection refused"),
        ("mailto:someone", "'web' cannot be asked: its url or one of its headers is not valid"),
        ("http://[/", "'web' cannot be asked"),
    ],
)
async def test_an_address_without_a_server_is_named(open_web, url, words):
    """Nothing listens there, or it is no address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(UpstreamError, match=words) as caught:
        await open_web(url.format(port=port))
    assert caught.value.delivery == "not_sent"


async def test_a_header_that_http_cannot_carry_is_refused_before_anything_is_sent(open_web, serve):
    """And is not shown: it may be a secret."""
    server = await serve("modern", echo)
    with pytest.raises(UpstreamError, match="not valid in HTTP") as caught:
        await open_web(server.url, headers={"Authorization": "Bearer s3cret\nX: y"})
    assert caught.value.delivery == "not_sent"
    assert "s3cret" not in str(caught.value)
    assert server.requests == []


async def test_a_server_that_stays_silent_is_given_up_in_time(open_web, serve):
    """Whatever is still under way then."""

    async def nothing(request: RawRequest, answer: RawAnswer) -> None:
        pass

    server = await serve("none", echo, other=nothing)
    with anyio.fail_after(20), pytest.raises(UpstreamTimeoutError, match=r"'initialize' within 0.2 s"):
        await open_web(server.url, limits=ServerLimits(init_s=0.2))


@pytest.mark.parametrize("status", [200, 400, 401, 404, 405, 500])
async def test_what_is_no_sign_of_the_modern_era_leads_to_the_handshake(open_web, serve, status):
    """Whichever way an older server refuses the probe."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(b"What?", status=status, kind="text/plain")

    server = await serve("handshake", echo, other=refuse)
    session = await open_web(server.url)
    assert (session.era, session.protocol_version) == ("handshake", "2025-11-25")
    assert await call(session, "x") == "x"
    sent = server.heard("tools/call")[0].headers
    assert (sent["mcp-session-id"], sent["mcp-protocol-version"]) == ("s1", "2025-11-25")
    assert "mcp-protocol-version" not in server.heard("initialize")[0].headers


@pytest.mark.parametrize(
    "refusal",
    [
        {"status": 400},
        {"error": {"code": -32601, "message": "Method not found"}},
        {"error": {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}}, "status": 400},
    ],
)
async def test_a_server_that_left_the_handshake_behind_is_found_out(open_web, serve, refusal):
    """It was updated since the last connection."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        if "error" in refusal:
            answer.message(request.id, **refusal)
        else:
            answer.plain(**refusal)

    server = await serve("modern", echo, other=refuse)
    assert (await open_web(server.url, era="handshake")).era == "modern"


async def test_a_refused_version_is_asked_for_again_where_it_is_offered(open_web, serve):
    """A server that refuses one names those that it has; only where none of them is ours is it greeted as of old."""
    offered: list[str] = []

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        if request is not server.requests[0]:
            server.era, server.other = ("handshake" if offered == ["1999-01-01"] else "modern"), None
            await server.answer(request, answer)
            return
        data = {"supported": offered, "requested": request.headers["mcp-protocol-version"]}
        answer.message(request.id, error={"code": -32022, "message": "no", "data": data}, status=400)

    for offered[:], era, greetings in ((["1999-01-01", "2026-07-28"], "modern", 0), (["1999-01-01"], "handshake", 1)):
        server = await serve("neither", echo, other=refuse)
        assert (await open_web(server.url)).era == era
        assert len(server.heard("initialize")) == greetings


async def test_modern_requests_say_in_headers_what_they_are(open_web, serve):
    """As the body does, other alphabets encoded; the envelope declares no capability."""
    server = await serve("modern", echo)
    session = await open_web(server.url)
    params = {"name": "café", "arguments": {}, "_meta": {"a": 1}}
    await session.request("tools/call", params, timeout_s=30)
    await session.notify("notifications/anything", {})
    probe, sent = server.requests
    assert probe.headers["mcp-method"] == "server/discover"
    assert probe.headers["mcp-protocol-version"] == sent.headers["mcp-protocol-version"] == "2026-07-28"
    assert (sent.headers["mcp-method"], sent.headers["mcp-name"]) == ("tools/call", "=?base64?Y2Fmw6k=?=")
    meta = sent.message["params"]["_meta"]
    assert (meta["a"], meta[META + "clientCapabilities"]) == (1, {})


async def test_arguments_that_are_no_json_are_refused_before_anything_is_sent(open_web, serve):
    """Half a character cannot be written."""
    server = await serve("modern", echo)
    session = await open_web(server.url)
    with pytest.raises(RequestError):
        await call(session, "\ud800")
    assert server.heard("tools/call") == []


# --- answers


async def faults(request: RawRequest, answer: RawAnswer) -> None:  # noqa: C901  (a flat list of behaviours reads best)
    """Each tool is one way to answer badly."""
    request_id = request.id
    match request.tool:
        case "reset":
            answer.reset()
        case "hang-up":
            answer.hang_up()
        case "truncated":
            answer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
            answer.hang_up()
        case "cut-chunk":
            answer.open_stream()
            answer.raw(b"64\r\ndata: {")
            answer.hang_up()
        case "bad-chunk":
            answer.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nno chunk\r\n")
        case "bad-chunk-later":
            answer.open_stream()
            answer.chunk(b": soon\n")
            await asyncio.sleep(0.05)  # so that it comes in a packet of its own
            answer.raw(b"zz\r\nno chunk\r\n")
        case "stream-without":
            answer.open_stream()
            answer.event(method="notifications/message", params={"data": "so far"})
            answer.end_stream()
        case "stream-garbled":
            answer.open_stream()
            answer.chunk(b'data: {"jsonrpc":"2.0","result":[}\n\n')
            answer.end_stream()
        case "garbled":
            answer.plain(b'{"jsonrpc":"2.0","id":1,"result":[}')
        case "empty":
            answer.plain()
        case "page":
            answer.plain(b"<html>", kind="text/html; charset=utf-8")
        case "accepted":
            answer.plain(status=202)
        case "other-id":
            answer.message(request_id + 1, result={"stolen": True})
        case "null-result":
            answer.message(request_id, result=None)
        case "busy":
            answer.plain(status=429, Retry_After="7")
        case "broken":
            answer.plain(b"<html>", status=502, kind="text/html")
        case "refused":
            answer.message("server-error", status=400, error={"code": -32602, "message": "bad argument"})
        case "unknown-method":
            answer.message(None, error={"code": -32601, "message": "never heard"})
        case "zipped":
            answer.plain(b"\x1f\x8b", Content_Encoding="gzip")
        case "signed-out":
            answer.message(request_id, status=401, error={"code": -32001, "message": "who?"})
        case "long-header":
            answer.plain(b"{}", X_Long="x" * 20_000)
        case "no-http":
            answer.raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        case "elsewhere":
            answer.plain(status=307, Location="http://127.0.0.2:9/mcp")
        case _:
            await echo(request, answer)


@RAW_ERAS
@pytest.mark.parametrize(
    ("name", "words", "delivery"),
    [
        ("reset", "broke the connection", "unknown"),
        ("hang-up", "broke the connection: the connection was closed", "unknown"),
        ("truncated", "broke the connection in the middle of its answer", "unknown"),
        ("cut-chunk", "broke the connection in the middle of its answer", "unknown"),
        ("bad-chunk", "sent an answer that is no valid HTTP", "unknown"),
        ("bad-chunk-later", "sent an answer that is no valid HTTP", "unknown"),
        ("stream-without", "gave no proper answer to 'tools/call': its stream ended before it came", "unknown"),
        ("stream-garbled", "sent an answer to 'tools/call' that cannot be read", "unknown"),
        ("garbled", "sent an answer to 'tools/call' that cannot be read", "unknown"),
        ("empty", "sent an answer to 'tools/call' that cannot be read", "unknown"),
        ("page", "gave no proper answer to 'tools/call': HTTP 200 with content type text/html", "unknown"),
        ("accepted", "sent an answer to 'tools/call' that cannot be read: it is no JSON-RPC message", "unknown"),
        ("other-id", "gave no proper answer to 'tools/call': no message in it carries the request's id", "unknown"),
        ("null-result", "its result is no JSON object", "unknown"),
        ("busy", "answered with HTTP 429", "unknown"),
        ("broken", "answered with HTTP 502 Bad Gateway", "unknown"),
        ("refused", "answered with HTTP 400 Bad Request: bad argument", "unknown"),
        ("unknown-method", "answered 'tools/call' with error -32601: never heard", "unknown"),
        ("zipped", "sent an answer that is no valid HTTP: its compressed body is cut off", "unknown"),
        ("signed-out", "answered with HTTP 401", "not_sent"),
        ("long-header", "sent an answer that is no valid HTTP", "unknown"),
        ("no-http", "sent an answer that is no valid HTTP", "unknown"),
        ("elsewhere", "redirects to http://127.0.0.2:9/mcp (HTTP 307), which is not followed", "not_sent"),
    ],
)
async def test_a_failed_exchange_costs_one_call(open_web, serve, era, name, words, delivery):
    """The error is clear, others under way and later ones are not touched, and nothing is sent twice."""
    server = await serve(era, faults)
    session = await open_web(server.url, era=era)
    with anyio.fail_after(20):
        failed, fine = await asyncio.gather(call(session, name), call(session, "fine"), return_exceptions=True)
        assert fine == "fine"
        assert isinstance(failed, UpstreamError)
        assert words in failed.message
        assert failed.delivery == delivery
        assert failed.retry_after_s == (7 if name == "busy" else None)
        assert isinstance(failed, UpstreamAuthError) == (name == "signed-out")
        assert await call(session, "fine") == "fine"
    assert [request.tool for request in server.heard("tools/call")].count(name) == 1


@RAW_ERAS
@pytest.mark.parametrize("is_stream", [False, True], ids=["json", "stream"])
async def test_a_result_is_passed_on_as_it_was_written(open_web, serve, era, is_stream):
    """Numbers, blanks and escapes are the server's business; other replies on the way are not."""
    result = b'{ "content":[],  "n":1.50, "u":"\\u00e9"}'

    async def verbatim(request: RawRequest, answer: RawAnswer) -> None:
        text = b'{ "jsonrpc":"2.0","id":%d , "result": %s}' % (request.id, result)
        if not is_stream:
            answer.plain(b"\xef\xbb\xbf" + text + b"\r\n", kind="Application/JSON; charset=utf-8")
            return
        answer.open_stream()
        answer.event(id=request.id + 1, result={"stolen": True})
        answer.event(head="event: note\n", id=request.id, result={"of": "another type"})
        answer.event(method="notifications/message", params={"data": "hello"})
        answer.chunk(b"data: " + text + b"\r\n\r\n")
        answer.end_stream()

    server = await serve(era, verbatim)
    session = await open_web(server.url, era=era)
    for _ in range(3):
        assert (await session.request("tools/call", {"name": "x"}, timeout_s=30)).text == result


@pytest.mark.parametrize("size", [1, 20_000, 1_000_000, 5_000_000])
@pytest.mark.parametrize("filling", ["x", "\\n", "é", " ", "\\u001b"])
@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
async def test_a_long_result_comes_to_the_letter(open_web, serve, filling, size, is_chunked):
    """In whatever pieces it arrives, with or without something to look for in it."""
    text = filling.encode() * (size // len(filling.encode()))
    result = b'{"content":[{"type":"text","text":"%s"}],"isError":false}' % text

    async def long(request: RawRequest, answer: RawAnswer) -> None:
        body = b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request.id, result)
        if not is_chunked:
            answer.plain(body)
            return
        answer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        step = max(1, len(body) // 100)
        for start in range(0, len(body), step):
            answer.chunk(body[start : start + step])
        answer.end_stream()

    session = await open_web((await serve("modern", long)).url, era="modern")
    raw = await session.request("tools/call", {"name": "x"}, timeout_s=10)
    assert (raw.outline["isError"], raw.text) == (b"false", result)


@RAW_ERAS
@pytest.mark.parametrize("way", ["length", "chunks", "event"])
async def test_an_endless_answer_is_refused_while_it_arrives(open_web, serve, era, way):
    """Whether it is announced, comes in pieces, or is one event."""

    async def endless(request: RawRequest, answer: RawAnswer) -> None:
        if request.tool == "fine":
            await echo(request, answer)
        elif way == "length":
            answer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n")
            answer.raw(b" " * 300_000)
        elif way == "chunks":
            answer.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            answer.chunk(b" " * 300_000)
        else:
            answer.open_stream()
            answer.chunk(b"data: " + b"x" * 300_000)

    server = await serve(era, endless)
    session = await open_web(server.url, era=era, limit=100_000)
    with anyio.fail_after(20), pytest.raises(UpstreamError, match="more than 100,000 bytes"):
        await call(session, "big")
    assert await call(session, "fine") == "fine"


@RAW_ERAS
async def test_a_drip_is_no_answer_in_time(open_web, serve, era):
    """The deadline is for the whole call; a byte now and then does not move it."""

    async def drip(request: RawRequest, answer: RawAnswer) -> None:
        answer.open_stream()
        for _ in range(200):
            answer.chunk(b": still here\n")
            await asyncio.sleep(0.02)

    server = await serve(era, drip)
    session = await open_web(server.url, era=era)
    with anyio.fail_after(20), pytest.raises(UpstreamTimeoutError):
        await call(session, "x", timeout_s=0.3)


async def test_a_cancelled_call_is_named_to_a_server_of_the_handshake_era(open_web, serve):
    """By the id it was sent with."""

    async def hang(request: RawRequest, answer: RawAnswer) -> None:
        answer.open_stream()

    server = await serve("handshake", hang)
    session = await open_web(server.url, era="handshake")
    with anyio.fail_after(20):
        with pytest.raises(UpstreamTimeoutError):
            await call(session, "x", timeout_s=0.1)
        (notice,) = await server.until(1, "notifications/cancelled")
    assert notice.message["params"]["requestId"] == server.heard("tools/call")[0].id


async def test_a_cut_stream_is_taken_up_again(open_web, serve):
    """A server of the handshake era that numbers its events may close the stream at will."""
    asked: list[Any] = []

    async def cut(request: RawRequest, answer: RawAnswer) -> None:
        asked.append(request.id)
        answer.open_stream()
        answer.chunk(b"id: e1\nretry: 1\ndata:\n\n")
        answer.end_stream()

    async def rest(request: RawRequest, answer: RawAnswer) -> None:
        if "last-event-id" not in request.headers:
            answer.plain(status=405 if request.verb == "GET" else 202)
            return
        answer.open_stream()
        if request.headers["last-event-id"] == "e1":
            answer.event(head="id: e2\nretry: 1\n", method="notifications/message", params={"data": "x"})
            answer.hang_up()  # in the middle
        else:
            answer.event(id=asked[-1], result={"content": [{"type": "text", "text": "the rest"}]})
            answer.end_stream()

    server = await serve("handshake", cut, other=rest)
    session = await open_web(server.url, era="handshake")
    assert await call(session, "x") == "the rest"
    assert [r.headers.get("last-event-id") for r in server.heard("GET")] == [None, "e1", "e2"]
    assert len(server.heard("tools/call")) == 1


async def test_a_cut_stream_that_cannot_be_taken_up_again_fails_the_call(open_web, serve):
    """The call may have been carried out."""

    async def cut(request: RawRequest, answer: RawAnswer) -> None:
        answer.open_stream()
        answer.chunk(b"id: e1\nretry: 1\n\n")
        answer.end_stream()

    server = await serve("handshake", cut)
    session = await open_web(server.url, era="handshake")
    with pytest.raises(UpstreamError, match=r"cannot be taken up again \(HTTP 405\)") as caught:
        await call(session, "x")
    assert caught.value.delivery == "unknown"


@RAW_ERAS
async def test_requests_of_the_server_are_answered(open_web, serve, era):
    """`ping` well, all others as unknown: nobody could tell whose answer they would get."""
    done = asyncio.Event()

    async def ask(request: RawRequest, answer: RawAnswer) -> None:
        answer.open_stream()
        answer.event(id="q1", method="ping")
        answer.event(id=2, method="sampling/createMessage", params={})
        await done.wait()
        answer.event(id=request.id, result={"content": [{"text": "answered"}]})
        answer.end_stream()

    answers: dict[Any, Any] = {}

    async def other(request: RawRequest, answer: RawAnswer) -> None:
        if request.verb == "POST" and "method" not in request.message:
            answers[request.message["id"]] = request.message
            if len(answers) == 2:
                done.set()
        answer.plain(status=202 if request.verb == "POST" else 405)

    server = await serve(era, ask, other=other)
    session = await open_web(server.url, era=era)
    assert await call(session, "x") == "answered"
    assert answers["q1"]["result"] == {}
    assert answers[2]["error"]["code"] == -32601


# --- connections


async def test_a_connection_closed_while_idle_costs_no_call(open_web, serve):
    """A new one is made, and nothing is sent into the old one."""
    closed = asyncio.Event()

    async def answer_and_close(request: RawRequest, answer: RawAnswer) -> None:
        await echo(request, answer)
        answer.hang_up()
        closed.set()

    server = await serve("modern", answer_and_close)
    session = await open_web(server.url)
    with anyio.fail_after(20):
        for number in range(20):
            closed.clear()
            assert await call(session, str(number)) == str(number)
            await closed.wait()
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)  # until the kernel has told us


@RAW_ERAS
@pytest.mark.parametrize("is_stream", [False, True], ids=["json", "stream"])
async def test_connections_are_used_again(open_web, serve, era, is_stream):
    """After answers of both kinds."""

    async def answer_it(request: RawRequest, answer: RawAnswer) -> None:
        if not is_stream:
            await echo(request, answer)
            return
        answer.open_stream()
        answer.event(id=request.id, result={"content": [{"text": "x"}]})
        answer.end_stream()

    server = await serve(era, answer_it)
    session = await open_web(server.url, era=era)
    for _ in range(20):
        await call(session, "x")
    assert server.connections <= 3


async def test_a_call_that_never_had_its_turn_was_not_sent(open_web, serve):
    """One server gets so many connections and no more; its other calls wait, and say so."""
    started, enough = 0, asyncio.Event()

    async def hang(request: RawRequest, answer: RawAnswer) -> None:
        nonlocal started
        started += 1
        if started == 256:
            enough.set()

    server = await serve("modern", hang)
    session = await open_web(server.url)
    async with asyncio.TaskGroup() as group:
        hanging = [group.create_task(call(session, "x", timeout_s=60)) for _ in range(256)]
        with anyio.fail_after(10):
            await enough.wait()
            with pytest.raises(UpstreamTimeoutError) as caught:
                await call(session, "late", timeout_s=0.1)
        for task in hanging:
            task.cancel()
    assert caught.value.delivery == "not_sent"
    assert "late" not in [request.tool for request in server.heard("tools/call")]


async def test_a_redirect_to_another_origin_is_not_followed(open_web, serve):
    """The request carries credentials meant for one server only."""
    other = await serve("modern", echo)

    async def away(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(status=307, Location=other.url)

    server = await serve("none", echo, other=away)
    with pytest.raises(
        UpstreamError, match=r"redirects to http://127.0.0.1:\d+/mcp \(HTTP 307\), which is not followed"
    ):
        await open_web(server.url, headers={"Authorization": "Bearer secret"})
    assert other.requests == []


async def test_a_redirect_on_the_same_origin_is_followed(open_web, target):
    """As servers do that want a slash at the end."""
    async with served(target.mcp.http_app(path="/mcp/")) as address:
        session = await open_web(f"{address}/mcp", headers={"X-Api-Key": "k"})
        assert await call(session, "echo", text="x") == "x"


async def test_a_redirect_in_circles_ends(open_web, serve):
    """After a few rounds."""

    async def around(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(status=307, Location="/mcp")

    server = await serve("none", echo, other=around)
    with pytest.raises(UpstreamError, match=r"redirects in circles, at last to http://127\.0\.0\.1:\d+/mcp"):
        await open_web(server.url, era="handshake")
    assert len(server.requests) < 20


# --- announcements


async def test_announcements_are_heard_again_after_a_loss(open_web, serve, events):
    """From where they ended; what nobody heard may have been a change."""
    streams = 0

    async def other(request: RawRequest, answer: RawAnswer) -> None:
        nonlocal streams
        if request.verb != "GET":
            answer.plain(status=202)
            return
        streams += 1
        answer.open_stream()
        answer.event(head=f"id: e{streams}\nretry: 1\n", method="notifications/message", params={"data": "hi"})
        if streams < 3:
            answer.end_stream()

    server = await serve("handshake", echo, other=other, capabilities=CHANGING)
    await open_web(server.url, era="handshake")
    with anyio.fail_after(20):
        heard = await server.until(3, "GET")
        while len(events) < 5:
            await anyio.lowlevel.checkpoint()
    assert [request.headers.get("last-event-id") for request in heard] == [None, "e1", "e2"]
    assert heard[0].headers["mcp-session-id"] == "s1"
    line = LogLine('{"data": "hi"}')
    assert events == [line, ToolsChanged(), line, ToolsChanged(), line]


async def test_a_server_without_announcements_is_left_in_peace(open_web, serve, events):
    """It says so once."""
    server = await serve("handshake", echo, capabilities=CHANGING)
    session = await open_web(server.url, era="handshake")
    assert await call(session, "x") == "x"
    assert len(server.heard("GET")) == 1
    assert events == []


async def test_a_session_forgotten_between_calls_is_noticed(open_web, serve):
    """When the stream of announcements is opened again."""
    streams = 0

    async def other(request: RawRequest, answer: RawAnswer) -> None:
        nonlocal streams
        streams += request.verb == "GET"
        if request.verb != "GET":
            answer.plain(status=202)
        elif streams == 1:
            answer.open_stream()
            answer.chunk(b"retry: 1\n\n")
            answer.end_stream()
        else:
            answer.plain(status=404)

    server = await serve("handshake", echo, other=other)
    session = await open_web(server.url, era="handshake")
    with anyio.fail_after(20):
        assert "has forgotten the session" in (await session.wait_closed()).message
    with pytest.raises(UpstreamError) as caught:
        await call(session, "x")
    assert caught.value.delivery == "not_sent"
    await session.close()
    assert server.heard("DELETE") == []


async def test_a_subscription_is_renewed(open_web, serve, events):
    """Whenever it ends; the first one is open before anybody can list."""
    subscriptions: list[RawRequest] = []

    async def other(request: RawRequest, answer: RawAnswer) -> None:
        assert request.message["method"] == "subscriptions/listen"
        subscriptions.append(request)
        meta = {"_meta": {META + "subscriptionId": request.id}}
        answer.open_stream()
        answer.event(head="retry: 1\n", method="notifications/subscriptions/acknowledged", params=meta)
        if len(subscriptions) == 1:
            answer.event(method="notifications/tools/list_changed", params=meta)
            answer.event(id=request.id, result={"resultType": "complete"})
            answer.end_stream()

    server = await serve("modern", echo, other=other, capabilities=CHANGING)
    await open_web(server.url)
    with anyio.fail_after(20):
        await server.until(2, "subscriptions/listen")
        while len(events) < 2:
            await anyio.lowlevel.checkpoint()
    assert events == [ToolsChanged(), ToolsChanged()]
    assert subscriptions[0].message["params"]["notifications"] == {"toolsListChanged": True}
    assert subscriptions[0].headers["mcp-method"] == "subscriptions/listen"
    assert subscriptions[0].id != subscriptions[1].id


async def test_a_subscription_that_is_refused_is_not_asked_for_again(open_web, serve, events):
    """The server announced what it does not serve."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        answer.message(request.id, error={"code": -32601, "message": "Method not found"})

    server = await serve("modern", echo, other=refuse, capabilities=CHANGING)
    session = await open_web(server.url)
    assert await call(session, "x") == "x"
    assert len(server.heard("subscriptions/listen")) == 1
    assert events == []


# --- the end


@RAW_ERAS
@pytest.mark.parametrize("phase", ["head", "body"])
async def test_closing_fails_what_is_under_way(open_web, serve, era, phase):
    """At once, as an error of ours, and a server with a session is told."""
    started = asyncio.Event()

    async def hang(request: RawRequest, answer: RawAnswer) -> None:
        if phase == "body":
            answer.open_stream()
        started.set()

    async def other(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(status={"GET": 405, "DELETE": 200}.get(request.verb, 202))

    server = await serve(era, hang, other=other)
    session = await open_web(server.url, era=era)
    task = asyncio.ensure_future(call(session, "x"))
    with anyio.fail_after(20):
        await started.wait()
        await session.close()
        with pytest.raises(UpstreamError, match="was stopped") as caught:
            await task
    assert caught.value.delivery == "unknown" and "gateway ended the connection" in caught.value.hint
    deleted = server.heard("DELETE")
    assert [request.headers.get("mcp-session-id") for request in deleted] == (["s1"] if era == "handshake" else [])
    with pytest.raises(UpstreamError, match="was stopped") as caught:
        await call(session, "x")
    assert caught.value.delivery == "not_sent"
    await session.close()


async def test_closing_does_not_wait_for_a_server_that_hangs(open_web, serve):
    """A second for the goodbye, and then it is over."""

    async def other(request: RawRequest, answer: RawAnswer) -> None:
        if request.verb != "DELETE":
            answer.plain(status=405 if request.verb == "GET" else 202)

    server = await serve("handshake", echo, other=other)
    session = await open_web(server.url, era="handshake")
    with anyio.fail_after(20):
        await session.close()
    assert len(server.heard("DELETE")) == 1


async def test_the_dialer_takes_it_for_http_and_signs_nobody_in_without_a_place_to_keep_that(serve, dialer):
    """Servers that want a sign-in are not asked where there is no data directory."""
    server = await serve("modern", echo)
    session = await dialer(config(server.url), environ={}, era=None, on_event=lambda event: None)
    assert type(session) is RawHttpSession
    await session.close()
    asked = len(server.requests)
    with pytest.raises(UpstreamAuthError, match="no data directory"):
        await dialer(config(server.url, oauth={}), environ={}, era=None, on_event=lambda event: None)
    assert len(server.requests) == asked

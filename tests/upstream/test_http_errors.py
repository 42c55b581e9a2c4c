"""Errors of HTTP: a server's status outlives whatever body comes with it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from http_fakes import RawAnswer, RawRequest, RawServer, raw_served

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamBusyError, UpstreamError
from smart_mcp_proxy.policy.breaker import CallEnd, classify_end
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import secrets_hidden
from smart_mcp_proxy.upstream.http.raw_http import open_raw_http
from smart_mcp_proxy.upstream.http_failures import extract_error_message
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import UpstreamSession

pytestmark = pytest.mark.anyio

ERROR = {"code": -32050, "message": "the words"}
Body = Callable[[int], Any]


def rpc(**members: Any) -> Body:
    """A JSON-RPC message about the request, with these members in the place of its own."""
    return lambda id: {"jsonrpc": "2.0", "id": id, "error": ERROR} | members


WHOLE: dict[str, Body] = {
    "a JSON-RPC error": rpc(),
    "one with data": rpc(error=ERROR | {"data": {"a": 1}}),
    "one whose id is text": lambda id: rpc()(id) | {"id": str(id)},
    "one in a batch": lambda id: [rpc()(id)],
}
OTHERS: dict[str, Body] = {
    "an interface's error": lambda id: {"error": {"message": "the words"}},
    "one with a code": lambda id: {"error": ERROR},
    "one with a status": lambda id: {"error": {"code": 403, "message": "the words", "status": "DENIED"}},
    "RFC 6749": lambda id: {"error": "invalid_request", "error_description": "the words"},
    "RFC 6750": lambda id: {"error": "insufficient_scope", "error_description": "the words", "scope": "a"},
    "RFC 9457": lambda id: {"type": "about:blank", "title": "No", "status": 403, "detail": "the words"},
    "a message": lambda id: {"message": "the words", "documentation_url": "https://example.org"},
    "an error as text": lambda id: {"error": "the words"},
    "another id": rpc(id=7),
    "an id that was lost": rpc(id=None),
    "a word as its id": rpc(id="server-error"),
    "no id": lambda id: {"jsonrpc": "2.0", "error": ERROR},
    "no version": lambda id: {"id": id, "error": ERROR},
    "another version": rpc(jsonrpc="1.0"),
    "a code that is text": rpc(error=ERROR | {"code": "E1"}),
    "a code that is a fraction": rpc(error=ERROR | {"code": 1.5}),
    "a code that is a truth": rpc(error=ERROR | {"code": True}),
    "no code": rpc(error={"message": "the words"}),
    "text for an error": rpc(error="the words"),
    "a result": lambda id: {"jsonrpc": "2.0", "id": id, "result": {"content": []}},
    "a result and an error": rpc(result={"content": []}),
    "a request": lambda id: {"jsonrpc": "2.0", "id": id, "method": "ping"},
    "two errors": lambda id: [rpc()(id), rpc()(id)],
    "null": lambda id: None,
    "a number": lambda id: 403,
    "nothing": lambda id: b"",
    "half of it": lambda id: json.dumps(rpc()(id)).encode()[:-3],
    "no JSON": lambda id: b"<html>the words</html>",
}


@asynccontextmanager
async def linked(status: int, body: Body, **headers: str) -> AsyncIterator[UpstreamSession]:
    """A session to a server that answers every call with this status and body."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        said = body(request.id)
        answer.plain(said if isinstance(said, bytes) else json.dumps(said).encode(), status=status, **headers)

    async with raw_served(RawServer("modern", refuse)) as server:
        config = ServerConfig(name="web", transport="http", url=server.url)
        session = await open_raw_http(SessionOptions(config, lambda _: None, "modern", max_message_bytes=1 << 20))
        try:
            yield session
        finally:
            await session.close()


async def failure(session: UpstreamSession) -> UpstreamError:
    """The error that a call ends with."""
    with pytest.raises(UpstreamError) as caught:
        await session.request("tools/call", {"name": "x", "arguments": {}}, timeout_s=30)
    return caught.value


@pytest.mark.parametrize("status", [400, 403, 404, 422, 429, 500, 503])
@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
async def test_a_status_outlives_every_body_that_is_no_whole_answer(body: Body, status: int) -> None:
    """It is not known whether the call was carried out, and the breaker counts a server that was not reached."""
    async with linked(status, body) as session:
        error = await failure(session)
    assert (error.data, error.answer) == ({"http_status": status}, None)
    assert error.delivery == "unknown"
    assert f"answered with HTTP {status}" in error.message
    assert isinstance(error, UpstreamBusyError) == (status == 429)
    assert classify_end(error) is (CallEnd.UNANSWERED if status == 503 else CallEnd.ANSWERED)


@pytest.mark.parametrize("status", [400, 403, 429, 500])
@pytest.mark.parametrize("body", WHOLE.values(), ids=WHOLE)
async def test_a_whole_json_rpc_answer_is_the_servers_error_under_every_status(body: Body, status: int) -> None:
    """With the id of the request and an integer for its code."""
    async with linked(status, body) as session:
        error = await failure(session)
    assert error.answer is not None
    assert (error.answer.code, error.answer.message) == (-32050, "the words")
    assert error.delivery == "executed"


async def test_a_server_that_wants_a_pause_is_a_rate_limit() -> None:
    """With the seconds that it names."""
    async with linked(429, OTHERS["an interface's error"], Retry_After="7") as session:
        error = await failure(session)
    assert (error.error_code, error.http_status, error.retry_after_s) == ("rate_limited", 429, 7)
    assert error.to_dict()["retry_after_s"] == 7


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
async def test_a_sign_in_that_is_refused_stays_one(body: Body) -> None:
    """Whatever JSON comes with a 401."""
    async with linked(401, body, WWW_Authenticate='Bearer error="invalid_token"') as session:
        error = await failure(session)
    assert isinstance(error, UpstreamAuthError)
    assert (error.data, error.delivery) == ({"http_status": 401}, "not_sent")


@pytest.mark.parametrize(
    "name", ["an interface's error", "one with a code", "RFC 6749", "RFC 9457", "a message", "an error as text"]
)
async def test_what_a_body_says_to_people_is_told(name: str) -> None:
    """As the server's words, one short line without the secrets in use."""
    async with linked(403, OTHERS[name]) as session:
        with secrets_hidden(["the words"]):
            assert (await failure(session)).said == "[hidden]"
        error = await failure(session)
    assert error.message == "Server 'web' answered with HTTP 403 Forbidden: the words"
    assert extract_error_message(json.dumps({"message": "a\n" * 1_000}).encode()) == ("a " * 150)
    assert extract_error_message(json.dumps({"message": ["a"], "detail": " "}).encode()) == ""


async def test_a_body_that_does_not_come_does_not_hide_the_status() -> None:
    """It is known from the head."""

    async def stall(request: RawRequest, answer: RawAnswer) -> None:
        answer.raw(b"HTTP/1.1 403 No\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
        answer.hang_up()

    async with raw_served(RawServer("modern", stall)) as server:
        config = ServerConfig(name="web", transport="http", url=server.url)
        session = await open_raw_http(SessionOptions(config, lambda _: None, "modern", max_message_bytes=1 << 20))
        try:
            error = await failure(session)
        finally:
            await session.close()
    assert error.message == "Server 'web' answered with HTTP 403 Forbidden."

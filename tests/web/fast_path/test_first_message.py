"""The form of a reply over HTTP: what the first message makes of an event stream that an application opens."""

import asyncio
from typing import Any

import pytest

from smart_mcp_proxy.web.fast_path.wire_http import FormAtFirstMessage

pytestmark = pytest.mark.requirement("progress")

HEAD = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"cache-control", b"no-store"), (b"mcp-session-id", b"s"), (b"content-type", b"text/event-stream")],
}
RESULT = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[]}}'
TOLD = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"result":1}}'
ASKED = b'{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}'
PING = b": ping - now\r\n\r\n"
END: dict[str, Any] = {"type": "http.response.body", "body": b"", "more_body": False}


def event(text: bytes, opening: bytes = b"") -> bytes:
    return opening + b"event: message\r\ndata: " + text + b"\r\n\r\n"


def part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}


def sent(*messages: dict[str, Any]) -> list[Any]:
    """What goes out of what an application sends."""
    out: list[Any] = []

    async def keep(message: Any) -> None:
        out.append(message)

    async def serve() -> None:
        form = FormAtFirstMessage(keep)
        for message in messages:
            await form.send(message)
        await form.finish()

    asyncio.run(serve())
    return out


@pytest.mark.parametrize(
    "request_id", [b"1", b"-1", b"null", b'"a"', b'""', b'"a\\"b\\\\"', b'"' + b"x" * 100_000 + b'"']
)
def test_a_response_that_comes_first_is_one_body(request_id: bytes) -> None:
    """Of a known length; a ping that comes after it is left out."""
    body = RESULT % request_id
    head, *rest = sent(HEAD, part(event(body)), part(PING), END)
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    assert head == HEAD | {"headers": [(b"mcp-session-id", b"s"), *fields]}
    assert rest == [part(body), END]


def test_an_error_that_comes_first_is_one_body() -> None:
    """As a result is."""
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"No"}}'
    assert sent(HEAD, part(event(body)), END)[1:] == [part(body), END]


@pytest.mark.parametrize(
    "first", [event(TOLD), event(ASKED), PING, event(RESULT % b"1", b"id: 7\r\n"), b"id: 7\r\ndata: \r\n\r\n", b""]
)
def test_anything_else_that_comes_first_opens_the_stream(first: bytes) -> None:
    """It and all that follows passes as it is."""
    messages = (HEAD, part(first), part(event(RESULT % b"1")), part(PING), END)
    assert sent(*messages) == list(messages)


def test_a_stream_without_a_message_is_sent_when_it_ends() -> None:
    """Or when the application is through, and has not ended it."""
    assert sent(HEAD, END) == [HEAD, END]
    assert sent(HEAD) == [HEAD]


def test_other_replies_pass() -> None:
    """As they are, a body that looks like an event included."""
    plain = HEAD | {"status": 400, "headers": [(b"content-type", b"application/json")]}
    assert sent(plain, part(event(RESULT % b"1")), END) == [plain, part(event(RESULT % b"1")), END]

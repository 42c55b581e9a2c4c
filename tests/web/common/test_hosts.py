"""A request that could be understood in two ways goes no further than the first check."""

import pytest
from starlette.responses import Response
from starlette.types import Message, Scope

from smart_mcp_proxy.web.common.refusals import PlainAddress

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("host", "127.0.0.1:80")], 200),
        ([("host", "[::1]:80"), ("origin", "null")], 200),
        ([("host", "name.example")], 200),
        ([], 200),
        ([("host", "127.0.0.1"), ("host", "evil.example")], 421),
        ([("host", "127.0.0.1"), ("host", "127.0.0.1")], 421),
        ([("host", "[::1]evil.example")], 421),
        ([("host", "[::1]:80@evil.example")], 421),
        ([("host", "user@127.0.0.1")], 421),
        ([("host", "127.0.0.1"), ("origin", "http://127.0.0.1"), ("origin", "http://evil.example")], 403),
    ],
    ids=str,
)
async def test_one_host_and_one_origin_are_let_through(headers: list[tuple[str, str]], status: int) -> None:
    """Whether they are known is checked behind; that one of several is, is not enough."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    raw = [(name.encode(), value.encode()) for name, value in headers]
    scope: Scope = {"type": "http", "method": "GET", "path": "/", "headers": raw}
    await PlainAddress(Response("let in"))(scope, receive, send)
    assert sent[0]["status"] == status

"""Answers over HTTP: head and body of a short one arrive in one piece, a stream's head does not wait for its body."""

import asyncio
from typing import cast

import pytest
from protocol_wire import Wire
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from smart_mcp_proxy.web.protocol import BoundedProtocol

pytestmark = pytest.mark.anyio

REQUEST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"
TRAILED = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-late: 1\r\n\r\n"


def served(app: ASGIApp) -> tuple[BoundedProtocol, Wire]:
    config = Config(app, log_config=None, access_log=False)
    config.load()
    protocol = BoundedProtocol(config=config, server_state=ServerState(), app_state={})
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    headers = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"done"})


async def test_head_and_body_are_one_packet() -> None:
    protocol, wire = served(cast(ASGIApp, _answer))
    protocol.data_received(REQUEST)
    await wire.sent()
    protocol.connection_lost(None)
    [packet] = wire.packets
    assert packet.startswith(b"HTTP/1.1 200") and packet.endswith(b"\r\n\r\ndone")


async def test_the_head_of_a_stream_leaves_before_its_body_is_there() -> None:
    go_on = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"HTTP/1.1 is a word, too"})

    protocol, wire = served(stream)
    protocol.data_received(REQUEST)
    await wire.sent()
    assert len(wire.packets) == 1 and wire.packets[0].endswith(b"\r\n\r\n")
    go_on.set()
    await wire.sent(2)
    protocol.connection_lost(None)
    assert b"HTTP/1.1 is a word, too" in b"".join(wire.packets[1:])


async def test_fields_after_a_body_reach_nobody() -> None:
    seen = []

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        seen.extend(scope["headers"])
        await _answer(scope, receive, send)

    protocol, wire = served(look)
    protocol.data_received(TRAILED)
    await wire.sent()
    protocol.connection_lost(None)
    assert [name for name, _ in seen] == [b"host", b"transfer-encoding"]

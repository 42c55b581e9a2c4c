"""Heads that were read before: whatever is sent, it is understood as if it were read anew."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_wire import Wire
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from smart_mcp_proxy.io.header_cache import KnownHeads
from smart_mcp_proxy.web.fast_path.messages import WireCancel
from smart_mcp_proxy.web.fast_path.wire_protocol import FastPath, WireProtocol

ServerList = tuple[dict[bytes, bytes], bytes]


class Wires:
    """Heeds everything as a cancellation, which is answered at once."""

    def __init__(self) -> None:
        self.heard: list[ServerList] = []

    def take(self, headers: Mapping[bytes, bytes], body: bytes, path: str, **_: Any) -> Any:
        self.heard.append((dict(headers), body))
        return None if body == b"for the app" else WireCancel(cast(Any, None))


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message.get("more_body"):
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


CONFIG = Config(app, log_config=None, access_log=False)
CONFIG.load()


class Connection:
    """One connection, with a fast path of its own."""

    def __init__(self) -> None:
        self.wires, self.wire = Wires(), Wire()
        self.fast_path = FastPath(cast(Any, self.wires), "/mcp", lambda scheme, fields: "")
        self.protocol = WireProtocol(config=CONFIG, server_state=ServerState(), app_state={}, fast_path=self.fast_path)
        self.protocol.connection_made(self.wire)

    async def answer(self, packet: bytes, count: int) -> bytes:
        """All that was answered once the packet is."""
        self.protocol.data_received(packet)
        if packet.rstrip(b"\r\n"):
            await self.wire.sent(count)
        return self.wire.text


FIELDS = [
    b"host: here",
    b"Host: there",
    b"content-type: application/json",
    b"x-a: Content-Length: 4",
    b"x-b:",
    b"x-c: 1\r\n content-length: 4",
    b"accept: application/json",
    b"mcp-param-x: 1",
    b"connection: close",
]
LENGTHS = [
    b"content-length: %d",
    b"Content-Length: %d",
    b"CONTENT-LENGTH: %d",
    b"content-length:%d",
    b"Content-Length:  %d",
]
BODIES = [b"", b"call", b"other", b"for the app", b"a\r\n\r\nb", b"content-length: 4\r\n\r\ncall"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body = draw(st.sampled_from(BODIES))
    length = draw(st.sampled_from(LENGTHS)) % (len(body) + draw(st.sampled_from([0, 0, 0, 0, 0, 0, -1])))
    fields = draw(st.lists(st.sampled_from(FIELDS), max_size=3))
    fields.insert(draw(st.integers(0, len(fields))), length)
    if draw(st.integers(0, 9)) == 0:
        fields.insert(draw(st.integers(0, len(fields))), length)
    start = draw(st.sampled_from([b"POST /mcp HTTP/1.1"] * 8 + [b"POST /mcp/x HTTP/1.1", b"\r\nPOST /mcp HTTP/1.1"]))
    return b"\r\n".join([start, *fields, b"", b""]) + body


@pytest.mark.long  # many generated examples, seconds of them
@given(st.lists(requests(), min_size=2, max_size=6).map(lambda packets: [*packets, *packets]))
@settings(max_examples=300, deadline=None)
def test_a_known_head_says_what_it_said(packets: list[bytes]) -> None:
    """Headers, bodies and answers are the same, whether heads are remembered or read each time."""

    async def compare() -> None:
        remembering, reading = Connection(), Connection()
        for count, packet in enumerate(packets, 1):
            reading.fast_path.heads = KnownHeads(1)
            assert await remembering.answer(packet, count) == await reading.answer(packet, count)
            assert remembering.wires.heard == reading.wires.heard
            assert remembering.wire.is_closed == reading.wire.is_closed
            if reading.wire.is_closed:
                break
        for connection in (remembering, reading):
            connection.protocol.connection_lost(None)

    asyncio.run(compare())

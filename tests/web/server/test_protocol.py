"""Answers over HTTP: head and body of a short one arrive in one piece, a stream's head does not wait for its body."""

import asyncio
from typing import cast

import anyio
import pytest
from protocol_wire import Wire
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from smart_mcp_proxy.web.server.protocol import MOST_UNSENT_BYTES, BoundedProtocol

pytestmark = pytest.mark.anyio

REQUEST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}"
TRAILED = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx-late: 1\r\n\r\n"


def served(app: ASGIApp, wire: Wire | None = None) -> tuple[BoundedProtocol, Wire]:
    config = Config(app, log_config=None, access_log=False)
    config.load()
    protocol = BoundedProtocol(config=config, server_state=ServerState(), app_state={})
    wire = wire or Wire()
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


class SlowWire(Wire):
    """A client that reads when the test says so."""

    def __init__(self, unsent_bytes: list[int]) -> None:
        super().__init__()
        self.unsent_bytes = unsent_bytes
        self.is_aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes.pop(0)

    def abort(self) -> None:
        self.is_aborted.set()


async def test_a_client_that_takes_nothing_of_an_answer_is_let_go_and_a_slow_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is looked at again and again; the slow one is let go when it has stopped too."""
    monkeypatch.setattr(BoundedProtocol, "stall_s", 0.01)
    slow = SlowWire([30, 30, 20, 10, 10, 99])
    protocol, _ = served(cast(ASGIApp, _answer), slow)
    protocol.pause_writing()
    with anyio.fail_after(20):
        await slow.is_aborted.wait()
    assert slow.unsent_bytes == [99]
    protocol.connection_lost(None)


async def test_a_client_that_has_caught_up_is_not_watched_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that is gone."""
    monkeypatch.setattr(BoundedProtocol, "stall_s", 0.01)
    for ends in (BoundedProtocol.resume_writing, lambda protocol: protocol.connection_lost(None)):
        wire = SlowWire([30, 30])
        protocol, _ = served(cast(ASGIApp, _answer), wire)
        protocol.pause_writing()
        ends(protocol)
        await anyio.sleep(0.05)
        assert not wire.is_aborted.is_set() and wire.unsent_bytes == []
        protocol.connection_lost(None)


class _FullWire(Wire):
    """A client that takes nothing."""

    unsent_bytes = 0

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def abort(self) -> None:
        self.close()


async def test_all_clients_that_do_not_read_share_one_budget() -> None:
    """F48: who fell behind first is let go; who has caught up, and who is the newest, is not."""
    wires = [_FullWire() for _ in range(5)]
    protocols = [served(cast(ASGIApp, _answer), wire)[0] for wire in wires]
    for wire, protocol in zip(wires[:4], protocols, strict=False):
        wire.unsent_bytes = MOST_UNSENT_BYTES // 4
        protocol.pause_writing()
    protocols[0].resume_writing()
    wires[0].unsent_bytes = 0
    assert not any(wire.is_closed for wire in wires)
    wires[4].unsent_bytes = MOST_UNSENT_BYTES // 2
    protocols[4].pause_writing()
    assert [wire.is_closed for wire in wires] == [False, True, False, False, False]
    for protocol in protocols:
        protocol.connection_lost(None)
    assert not BoundedProtocol._behind


async def test_one_answer_is_sent_however_long_it_is() -> None:
    wire = _FullWire()
    protocol, _ = served(cast(ASGIApp, _answer), wire)
    wire.unsent_bytes = 2 * MOST_UNSENT_BYTES
    protocol.pause_writing()
    assert not wire.is_closed
    protocol.connection_lost(None)

"""A connection at one of two workers: what begins a request there, and what is refused at once."""

import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from protocol_wire import Wire
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.web.fast_path.wire_protocol import FastPath
from smart_mcp_proxy.web.server import protocol as server_protocol
from smart_mcp_proxy.web.workers.relay import Relays
from smart_mcp_proxy.web.workers.routing import RoutedProtocol

pytestmark = pytest.mark.anyio

NUMBER = 1
"""Of the worker here."""


class HandedWire(Wire):
    """A client over TCP."""

    def __init__(self, client: socket.socket) -> None:
        super().__init__()
        self._extra = {"socket": client}


class NoCalls:
    """A fast path that takes nothing."""

    def take(self, *args: Any, **_: Any) -> None:
        """Leaves it to the app."""


class Clients:
    """Makes connections.

    Attributes:
        begun: Bodies that the app was asked with.
    """

    def __init__(self, made: Callable[[], socket.socket]) -> None:
        self.begun: list[bytes] = []
        self._made = made
        self._fast_path = FastPath(cast(Any, NoCalls()), "/mcp", lambda scheme, fields: "")
        self._config = Config(self._app, interface="asgi3", log_config=None, access_log=False)
        self._config.load()

    def connected(self, begun: bytes = b"") -> tuple[RoutedProtocol, Wire]:
        """A connection, of which another worker has read `begun`."""
        worker = Worker(NUMBER, cast(Any, [None, None]), None)
        how: dict[str, Any] = {"fast_path": self._fast_path, "relays": Relays(worker), "begun": begun}
        protocol = RoutedProtocol(config=self._config, server_state=ServerState(), app_state={}, **how)
        wire = HandedWire(self._made())
        protocol.connection_made(wire)
        return protocol, wire

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        self.begun.append(body + message.get("body", b""))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    """Connections to one worker of two."""
    made: list[socket.socket] = []

    def make() -> socket.socket:
        made.append(socket.socket())
        return made[-1]

    yield Clients(make)
    for one in made:
        one.close()


def post(body: bytes, worker: int = NUMBER) -> bytes:
    """A message in a session of a worker."""
    session = b"%b-%d" % (32 * b"a", worker)
    fields = b"host: here\r\nmcp-session-id: %b\r\ncontent-length: %d" % (session, len(body))
    return b"POST /mcp HTTP/1.1\r\n%b\r\n\r\n%b" % (fields, body)


async def test_a_connection_that_is_handed_on_goes_on_where_it_was(clients: Clients) -> None:
    protocol, wire = clients.connected(post(b"call"))
    await wire.sent()
    protocol.connection_lost(None)
    assert wire.text.endswith(b"done") and clients.begun == [b"call"]


async def test_a_request_that_is_answered_503_for_want_of_descriptors_is_not_executed(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection was handed on with it; who is asked to try again would have the call twice."""
    monkeypatch.setattr(server_protocol, "is_scarce", lambda descriptor: True)
    protocol, wire = clients.connected(post(b"call"))
    assert wire.is_closed and wire.text.startswith(b"HTTP/1.1 503 ")
    assert not protocol.tasks
    protocol.connection_lost(None)


@pytest.mark.parametrize(
    "pieces",
    [
        [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
        [b"\x00\xff\x00\xff"],
        [b"hello\n"],
        [b"SSH-2.0-client\r\n"],
        [b"GET / HTTP/1.1\nhost: here\n\n"],
        [b"POST /mcp HTTP/1.1\r\nhost: ", b"here\nmcp-"],
        [b"GET / HT", b"TP/1.1\r\nho st: here\r\n"],
        [b"GET / HTTP/9.9\r\n"],
    ],
)
async def test_what_is_no_request_is_refused_at_its_first_bad_byte(clients: Clients, pieces: list[bytes]) -> None:
    """As by one process, which waits for no end of it."""
    protocol, wire = clients.connected()
    for piece in pieces:
        assert not wire.is_closed
        protocol.data_received(piece)
    assert wire.is_closed and wire.text.startswith(b"HTTP/1.1 400 ")
    protocol.connection_lost(None)


async def test_a_request_that_comes_byte_by_byte_is_answered(clients: Clients) -> None:
    """Two of them, behind empty lines, which HTTP allows for."""
    protocol, wire = clients.connected()
    for count in (1, 2):
        for byte in b"\r\n" + post(b"call"):
            protocol.data_received(bytes([byte]))
        await wire.sent(count)
    protocol.connection_lost(None)
    assert clients.begun == [b"call", b"call"] and wire.text.count(b"done") == 2


async def test_a_request_of_http_0_9_is_answered(clients: Clients) -> None:
    """Its head may end otherwise than others."""
    protocol, wire = clients.connected()
    for piece in (b"GET /\n", b"\r\n"):
        protocol.data_received(piece)
    await wire.sent()
    protocol.connection_lost(None)
    assert wire.text.endswith(b"done")


@pytest.mark.parametrize("way", ["one chunk", "two chunks", "handed on"])
async def test_a_connection_ends_before_a_request_for_another_worker_that_came_too_early(
    clients: Clients, way: str
) -> None:
    """A 404 would tell its client that the session is gone; what came before it is answered."""
    early, late = post(b"first") + post(b"second"), post(b"other", worker=0) + post(b"third") + b"garbage"
    protocol, wire = clients.connected(early + late if way == "handed on" else b"")
    for piece in {"one chunk": [early + late], "two chunks": [early, late[:70], late[70:]]}.get(way, []):
        protocol.data_received(piece)
    await wire.sent(2)
    assert wire.is_closed and clients.begun == [b"first", b"second"]
    first, second = wire.packets
    assert first.endswith(b"done") and b"connection: close" not in first
    assert second.endswith(b"done") and b"connection: close" in second
    assert protocol._limit is None
    protocol.connection_lost(None)


async def test_a_late_end_of_the_head_of_such_a_request_is_answered_503(clients: Clients) -> None:
    """Nothing is under way then."""
    protocol, wire = clients.connected()
    other = post(b"other", worker=0)
    protocol.data_received(post(b"first") + other[:10])
    await wire.sent()
    protocol.data_received(other[10:])
    assert wire.is_closed and clients.begun == [b"first"]
    assert wire.text.partition(b"done")[2].startswith(b"HTTP/1.1 503 ")
    protocol.connection_lost(None)


async def test_requests_for_this_worker_may_come_at_once(clients: Clients) -> None:
    protocol, wire = clients.connected()
    protocol.data_received(post(b"first") + post(b"second") + post(b"of no worker", worker=7))
    await wire.sent(3)
    assert not wire.is_closed and clients.begun == [b"first", b"second", b"of no worker"]
    protocol.connection_lost(None)

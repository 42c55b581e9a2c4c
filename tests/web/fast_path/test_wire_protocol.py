"""The fast path of the common call on one connection: who answers what, in which order, what a leaving client ends."""

import asyncio
import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from protocol_wire import Wire
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from smart_mcp_proxy.fastmcp_compat.paths import bind_request_path, get_endpoint_url, get_request_path
from smart_mcp_proxy.web.common.messages import BODY_LIMIT_BYTES
from smart_mcp_proxy.web.fast_path import wire_protocol
from smart_mcp_proxy.web.fast_path.messages import Pieces, Tell, WireCall, WireCancel
from smart_mcp_proxy.web.fast_path.wire_http import TakenCall
from smart_mcp_proxy.web.fast_path.wire_protocol import FastPath, WireProtocol

pytestmark = pytest.mark.anyio


class Call(TakenCall):
    """A call that ends when the test says so."""

    go_on: asyncio.Event
    has_left: asyncio.Event
    problem: Exception | None = None
    is_under_way = False
    told: tuple[bytes, ...] = ()
    served: list[str]

    def begin(self) -> None:
        self.is_under_way = True

    def end(self) -> None:
        self.is_under_way = False

    def leave(self) -> None:
        self.has_left.set()

    async def answer(self, tell: Tell | None) -> tuple[int, Pieces]:
        if tell is not None:
            for message in self.told:
                await tell(message)
        await self.go_on.wait()
        self.served.append(get_request_path())
        if self.problem is not None:
            raise self.problem
        return 200, (b"from the path at ", get_endpoint_url().encode())


class Wires:
    """Takes the messages that say so."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.paths: list[str] = []
        self.served: list[str] = []

    def take(self, headers: Mapping[bytes, bytes], body: bytes, path: str, **_: Any) -> Any:
        if body == b"cancel":
            return WireCancel(cast(Any, None))
        if body == b"break":
            raise ValueError("the path is broken")
        self.paths.append(path)
        if not body.startswith(b"call"):
            return None
        token = 7 if b"token" in body else None
        call = Call(WireCall(1, 1, "paint", {}, cast(Any, None), token), *[cast(Any, None)] * 4)
        call.served = self.served
        call.told = (b'{"half":1}', b'{"whole":2}') if b"told" in body else ()
        call.go_on, call.has_left = asyncio.Event(), asyncio.Event()
        if b"later" not in body:
            call.go_on.set()
        if b"fail" in body:
            call.problem = ValueError("the gateway failed")
        self.calls.append(call)
        return call


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    size = 0
    while (message := await receive()).get("more_body"):
        size += len(message["body"])
    answer = b"from the app"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"12")]})
    await send({"type": "http.response.body", "body": answer})


def connected() -> tuple[WireProtocol, Wire, Wires]:
    config = Config(app, log_config=None, access_log=False)
    config.load()
    wires = Wires()
    fast_path = FastPath(
        cast(Any, wires), "/mcp", lambda scheme, fields: f"{scheme}://{dict(fields)[b'host'].decode()}"
    )
    protocol = WireProtocol(config=config, server_state=ServerState(), app_state={}, fast_path=fast_path)
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire, wires


def connected_again(earlier: WireProtocol) -> tuple[WireProtocol, Wire]:
    """Another connection to the same fast path, whose parser has read nothing."""
    state = earlier.server_state
    protocol = WireProtocol(config=earlier.config, server_state=state, app_state={}, fast_path=earlier._fast_path)
    wire = Wire()
    protocol.connection_made(wire)
    return protocol, wire


def post(body: bytes, path: bytes = b"/mcp", more: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: here\r\n%bcontent-length: %d\r\n\r\n%b" % (path, more, len(body), body)


async def test_a_call_is_answered_in_one_packet_that_keeps_the_connection() -> None:
    protocol, wire, _ = connected()
    for count in (1, 2):
        protocol.data_received(post(b"call"))
        await wire.sent(count)
    protocol.connection_lost(None)
    assert len(wire.packets) == 2
    for packet in wire.packets:
        assert packet.startswith(b"HTTP/1.1 200 OK\r\n")
        assert packet.endswith(b"content-length: 28\r\n\r\nfrom the path at http://here")
        assert b"connection: close" not in packet


@pytest.mark.parametrize(
    "request_bytes",
    [
        post(b"something else"),
        post(b"call", path=b"/mcp?x=1"),
        post(b"call", path=b"/mcp/"),
        post(b"call", path=b"/mcp/p/w%6frk"),
        post(b"call", path=b"/mcp/p/work?x=1"),
        post(b"call", path=b"/mcpp"),
        post(b"call", more=b"expect: 100-continue\r\n"),
        post(b"call").replace(b"POST", b"PUT"),
        post(b"call" + b"x" * BODY_LIMIT_BYTES),
        post(b""),
    ],
)
async def test_everything_else_is_a_request_like_any_other(request_bytes: bytes) -> None:
    protocol, wire, wires = connected()
    for start in range(0, len(request_bytes), 100_000):
        protocol.data_received(request_bytes[start : start + 100_000])
    with anyio.fail_after(20):
        while b"from the app" not in wire.text:
            await wire.sent(len(wire.packets) + 1)
    protocol.connection_lost(None)
    assert not wires.calls


@pytest.mark.parametrize("place", ["p/work", "t/Ab-_9", "p/work/"])
async def test_a_call_at_a_place_below_is_answered_there(place: str) -> None:
    protocol, wire, wires = connected()
    for count in (1, 2):  # read by the parser, then known
        protocol.data_received(post(b"call", path=b"/mcp/" + place.encode()))
        await wire.sent(count)
    protocol.connection_lost(None)
    assert wire.text.count(b"from the path") == 2
    assert wires.paths == [place, place] == wires.served


@pytest.mark.parametrize("body", [b"call", b"something else"])
async def test_what_follows_the_last_request_of_a_connection_is_not_executed(body: bytes) -> None:
    """In one chunk with one that was answered at once: its client gets no answer, and may send it again."""
    protocol, wire, wires = connected()
    protocol.data_received(post(b"cancel", more=b"connection: close\r\n") + post(body))
    assert wire.is_closed and not wires.calls and not protocol.tasks
    protocol.connection_lost(None)
    assert wire.text.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("more", [b"connection: close\r\n", b""], ids=["closing", "HTTP/1.0"])
async def test_a_client_that_wants_the_connection_closed_is_answered_and_it_is(more: bytes) -> None:
    protocol, wire, _ = connected()
    message = post(b"call", more=more)
    protocol.data_received(message if more else message.replace(b"HTTP/1.1", b"HTTP/1.0"))
    await wire.sent()
    protocol.connection_lost(None)
    assert b"from the path" in wire.text and b"connection: close" in wire.text and wire.is_closed


async def test_a_head_and_a_body_in_two_packets_are_a_call_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many clients send them so; a head that was read before is not read again."""
    protocol, wire, wires = connected()
    head, end, body = post(b"call").partition(b"\r\n\r\n")
    for count in (1, 2, 3):
        if count == 2:
            monkeypatch.setattr(WireProtocol, "on_headers_complete", None)  # the parser finds nobody to tell
        protocol.data_received(head + end)
        assert len(wire.packets) == count - 1
        protocol.data_received(body)
        await wire.sent(count)
    protocol.connection_lost(None)
    assert wire.text.count(b"from the path") == len(wires.calls) == 3


async def test_a_known_head_without_its_body_waits_for_it() -> None:
    """In pieces, past the time for idle connections, and while the server is told to stop."""
    protocol, wire, _ = connected()
    head, end, body = post(b"call").partition(b"\r\n\r\n")
    protocol.data_received(head + end + body)
    await wire.sent()
    protocol.data_received(head + end)
    protocol.timeout_keep_alive = 0
    protocol.timeout_keep_alive_handler()
    protocol.data_received(body[:2])
    assert not wire.is_closed
    protocol.data_received(body[2:])
    await wire.sent(2)
    protocol.data_received(head + end)
    protocol.shutdown()
    protocol.data_received(body)
    await wire.sent(3)
    protocol.connection_lost(None)
    assert wire.text.count(b"HTTP/1.1 200 OK") == 3 and b"connection: close" in wire.text


async def test_a_known_head_that_announces_no_body_waits_for_none() -> None:
    protocol, wire, _ = connected()
    protocol.data_received(post(b"call"))
    await wire.sent()
    protocol.data_received(post(b""))
    await wire.sent(2)
    protocol.connection_lost(None)
    assert b"from the app" in wire.text


async def test_a_known_head_whose_body_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol, wire, _ = connected()
    protocol.data_received(post(b"call"))
    await wire.sent()
    monkeypatch.setattr(WireProtocol, "request_s", 0.0)
    protocol.data_received(post(b"call").removesuffix(b"call"))
    await wire.sent(2)
    protocol.connection_lost(None)
    assert b"HTTP/1.1 408" in wire.text and wire.is_closed


async def test_a_result_without_a_word_before_it_is_one_body() -> None:
    """Although the client asked for progress: the form is decided by what has to be sent first."""
    protocol, wire, _ = connected()
    protocol.data_received(post(b"call token"))
    await wire.sent()
    protocol.connection_lost(None)
    assert b"content-type: application/json" in wire.text and b"chunked" not in wire.text


@pytest.mark.parametrize(("era", "status"), [("modern", 400), ("handshake", 200)])
async def test_a_capability_that_a_client_lacks_has_the_status_of_its_era(era: Any, status: int) -> None:
    """The stateless revision gives some protocol errors an HTTP status."""

    class Lacking:
        async def answer(self, *_: object) -> Pieces:
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "needs sampling")

    call: Any = SimpleNamespace(id=7)
    who: Any = SimpleNamespace(id="local")
    found, reply = await TakenCall(call, who, cast(Any, Lacking()), None, era).answer(None)
    assert found == status
    assert json.loads(b"".join(reply))["error"]["code"] == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_a_word_before_the_result_makes_the_reply_a_stream() -> None:
    """Each message is an event of it, the result the last one; the connection goes on."""
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call token told later"))
    with anyio.fail_after(20):
        while b"whole" not in wire.text:
            await wire.sent(len(wire.packets) + 1)
    assert b"from the path" not in wire.text
    wires.calls[0].go_on.set()
    await wire.sent(len(wire.packets) + 1)
    head, _, body = wire.text.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"content-length" not in head
    assert {b"content-type: text/event-stream", b"x-accel-buffering: no"} <= set(head.split(b"\r\n"))
    said = [b'{"half":1}', b'{"whole":2}', b"from the path at http://here"]
    assert unchunked(body) == b"".join(b"event: message\r\ndata: %b\r\n\r\n" % text for text in said)
    assert not wire.is_closed
    protocol.data_received(post(b"call"))
    await wire.sent(len(wire.packets) + 1)
    protocol.connection_lost(None)
    assert b"content-length: 28" in wire.packets[-1]


async def test_a_client_that_leaves_in_the_middle_of_a_stream_ends_its_call(caplog: pytest.LogCaptureFixture) -> None:
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call token told later"))
    with anyio.fail_after(20):
        while b"whole" not in wire.text:
            await wire.sent(len(wire.packets) + 1)
    protocol.connection_lost(None)
    sent = wire.text
    [call] = wires.calls
    assert call.has_left.is_set()
    call.go_on.set()
    with anyio.fail_after(20):
        while call.is_under_way:
            await anyio.lowlevel.checkpoint()
    assert wire.text == sent and not caplog.text


async def test_a_client_that_waits_for_progress_hears_that_the_call_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in between closes connections on which nothing is said; from then on the reply is a stream."""
    monkeypatch.setattr(wire_protocol, "TICK_S", 0.0)
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call token later"))
    with anyio.fail_after(20):
        while wire.text.count(b": ping\r\n\r\n") < 2:
            await wire.sent(len(wire.packets) + 1)
    wires.calls[0].go_on.set()
    with anyio.fail_after(20):
        while not wire.text.endswith(b"\r\n0\r\n\r\n"):
            await wire.sent(len(wire.packets) + 1)
    count = len(wire.packets)
    await anyio.lowlevel.checkpoint()
    protocol.connection_lost(None)
    body = unchunked(wire.text.partition(b"\r\n\r\n")[2])
    assert body.replace(b": ping\r\n\r\n", b"") == b"event: message\r\ndata: from the path at http://here\r\n\r\n"
    assert len(wire.packets) == count


def unchunked(body: bytes) -> bytes:
    """The content of a body in chunks, which must be whole."""
    content = b""
    while True:
        size, _, rest = body.partition(b"\r\n")
        if not (length := int(size, 16)):
            assert rest == b"\r\n"
            return content
        assert rest[length : length + 2] == b"\r\n"
        content, body = content + rest[:length], rest[length + 2 :]


async def test_a_message_may_come_in_pieces() -> None:
    protocol, wire, _ = connected()
    message = post(b"call")
    for number in range(len(message)):
        assert not wire.packets
        protocol.data_received(message[number : number + 1])
    await wire.sent()
    protocol.connection_lost(None)
    assert b"from the path" in wire.text


async def test_answers_come_in_the_order_of_the_requests() -> None:
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call later") + post(b"something else") + post(b"call"))
    assert not wire.packets
    wires.calls[0].go_on.set()
    with anyio.fail_after(20):
        while wire.text.count(b"HTTP/1.1 200") < 3:
            await wire.sent(len(wire.packets) + 1)
    protocol.connection_lost(None)
    first, second, third = wire.text.split(b"HTTP/1.1 200 OK")[1:]
    assert b"from the path" in first and b"from the app" in second and b"from the app" in third


async def test_a_client_that_leaves_ends_its_call() -> None:
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call later"))
    protocol.connection_lost(None)
    [call] = wires.calls
    assert call.has_left.is_set()
    call.go_on.set()
    await anyio.lowlevel.checkpoint()
    assert not wire.packets


@pytest.mark.parametrize("body", [b"call later", b"call later token", b"call later token told"])
@pytest.mark.parametrize("packets", [1, 2])
@pytest.mark.parametrize("is_known", [False, True])
async def test_a_client_that_sends_nothing_more_gets_its_whole_answer(
    is_known: bool, packets: int, body: bytes
) -> None:
    """Whether or not the head was read before, and whether or not the client asked for progress."""
    protocol, wire, wires = connected()
    text = post(body)
    if is_known:
        protocol.data_received(text)
        wires.calls.pop().go_on.set()
        with anyio.fail_after(20):
            while b"from the path" not in wire.text:
                await wire.sent(len(wire.packets) + 1)
        protocol.connection_lost(None)
        protocol, wire = connected_again(protocol)
    for part in (text,) if packets == 1 else (text.removesuffix(body), body):
        protocol.data_received(part)
    assert protocol.eof_received()
    [call] = wires.calls
    call.go_on.set()
    with anyio.fail_after(20):
        while not wire.is_closed:
            await wire.sent(len(wire.packets) + 1)
    protocol.connection_lost(None)
    head, _, answer = wire.text.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and not call.has_left.is_set()
    if b"told" in body:
        assert unchunked(answer).count(b"event: message") == 3
    else:
        assert b"connection: close" in head and answer == b"from the path at http://here"


@pytest.mark.parametrize("method", [b"POST", b"GET"])
async def test_of_other_requests_only_a_message_is_answered_to_a_client_that_sends_nothing_more(method: bytes) -> None:
    """A client that closes its half while it listens to a stream has left."""
    protocol, wire, _ = connected()
    protocol.data_received(post(b"something else").replace(b"POST", method))
    assert protocol.eof_received() == (method == b"POST")
    if method == b"POST":
        with anyio.fail_after(20):
            while not wire.is_closed:
                await wire.sent(len(wire.packets) + 1)
        assert b"from the app" in wire.text
    protocol.connection_lost(None)


async def test_a_client_that_closes_its_half_in_the_middle_of_a_stream_has_left() -> None:
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call token told later"))
    with anyio.fail_after(20):
        while b"whole" not in wire.text:
            await wire.sent(len(wire.packets) + 1)
    assert not protocol.eof_received()
    protocol.connection_lost(None)
    assert wires.calls[0].has_left.is_set()
    wires.calls[0].go_on.set()


async def test_a_client_that_leaves_after_its_answer_ends_nothing() -> None:
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call"))
    await wire.sent()
    protocol.connection_lost(None)
    assert not wires.calls[0].has_left.is_set()


async def test_a_server_that_stops_answers_the_call_and_says_that_it_closes() -> None:
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call later"))
    protocol.shutdown()
    assert not wire.is_closing()
    wires.calls[0].go_on.set()
    await wire.sent()
    assert b"connection: close\r\n" in wire.text and wire.is_closed
    protocol.connection_lost(None)


async def test_a_server_that_stops_waits_for_a_call_whose_client_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has yet to take what was sent before."""
    protocol, wire, wires = connected()
    monkeypatch.setattr(wire, "get_write_buffer_size", lambda: 1_000_000)
    protocol.data_received(post(b"call later"))
    protocol.pause_writing()
    protocol.shutdown()
    assert not wire.is_closing()
    protocol.resume_writing()
    wires.calls[0].go_on.set()
    await wire.sent()
    assert b"connection: close\r\n" in wire.text and wire.is_closed
    protocol.connection_lost(None)


async def test_a_failure_of_our_own_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A client that waits for ever is worse than one that has to connect again."""
    protocol, wire, _ = connected()
    protocol.data_received(post(b"call fail"))
    await wire.sent()
    protocol.connection_lost(None)
    assert wire.is_closed and not wire.packets
    await _logged(caplog, lambda text: "the gateway failed" in text)


async def test_a_call_is_under_way_from_the_moment_it_is_taken() -> None:
    """A second one with the same id, on another connection, must not slip in before its task has begun."""
    protocol, wire, wires = connected()
    protocol.data_received(post(b"call"))
    [call] = wires.calls
    assert call.is_under_way
    await wire.sent()
    with anyio.fail_after(20):
        while call.is_under_way:
            await anyio.lowlevel.checkpoint()
    protocol.connection_lost(None)


async def test_a_connection_is_not_idle_while_a_call_behind_a_cancellation_is_under_way() -> None:
    protocol, wire, wires = connected()
    protocol.data_received(post(b"cancel") + post(b"call later"))
    assert wire.text.startswith(b"HTTP/1.1 202")
    assert protocol.timeout_keep_alive_task is None
    wires.calls[0].go_on.set()
    await wire.sent(2)
    assert protocol.timeout_keep_alive_task is not None
    protocol.connection_lost(None)


async def test_a_connection_is_closed_when_its_last_answer_is_old_enough_and_not_before() -> None:
    """One timer serves many answers: it looks at the time of the last one when it is due."""
    protocol, wire, wires = connected()
    for count in (1, 2):
        protocol.data_received(post(b"call"))
        await wire.sent(count)
    protocol.timeout_keep_alive_handler()  # due, but the last answer has just been sent
    assert not wire.is_closed
    assert protocol.timeout_keep_alive_task is not None

    protocol.data_received(post(b"call later"))
    protocol.timeout_keep_alive = 0
    protocol.timeout_keep_alive_handler()  # due while a call is under way
    assert not wire.is_closed
    wires.calls[-1].go_on.set()
    await wire.sent(3)
    await wire.sent(4)  # nothing more is sent: it is closed
    assert wire.is_closed
    protocol.connection_lost(None)


async def test_a_server_that_stops_answers_a_message_that_is_still_arriving() -> None:
    protocol, wire, _ = connected()
    message = post(b"call or not")
    protocol.data_received(message[:-3])
    protocol.shutdown()
    protocol.data_received(message[-3:])
    await wire.sent()
    protocol.connection_lost(None)
    assert b"from the app" in wire.text and b"connection: close" in wire.text


async def test_a_fast_path_that_breaks_leaves_the_message_to_the_app(caplog: pytest.LogCaptureFixture) -> None:
    protocol, wire, _ = connected()
    protocol.data_received(post(b"break"))
    await wire.sent()
    protocol.connection_lost(None)
    assert b"from the app" in wire.text
    assert "the path is broken" in caplog.text


async def test_a_field_after_the_body_asks_for_nothing() -> None:
    protocol, wire, _ = connected()
    protocol.data_received(
        b"POST /mcp HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"
        b"4\r\nelse\r\n0\r\nexpect: 100-continue\r\n\r\n"
    )
    await wire.sent()
    protocol.connection_lost(None)
    assert wire.text.startswith(b"HTTP/1.1 200") and b"100 Continue" not in wire.text


async def test_where_a_message_came_in_is_its_own_matter() -> None:
    """The event loop may call in whatever context the last request left behind."""
    protocol, wire, wires = connected()
    with bind_request_path("p/work"):
        protocol.data_received(post(b"call"))
    await wire.sent()
    protocol.connection_lost(None)
    assert wires.paths == [""]


async def _logged(caplog: pytest.LogCaptureFixture, is_there: Callable[[str], bool]) -> None:
    with anyio.fail_after(20):
        while not is_there(caplog.text):
            await anyio.lowlevel.checkpoint()

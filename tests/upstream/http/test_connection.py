"""Kept connections: whatever a server says unasked, in excess or for somebody else never becomes another's answer."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import pytest
from http_fakes import RawAnswer, RawRequest, RawServer, raw_served

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.io.header_cache import KnownHeads
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.http.connection import Connection, encode_head
from smart_mcp_proxy.upstream.http.exchange import BadAnswerError, RequestBody, Response
from smart_mcp_proxy.upstream.http.http_client import HttpClient
from smart_mcp_proxy.upstream.http.raw_http import open_raw_http
from smart_mcp_proxy.upstream.http_failures import TlsContext, retry_after_s
from smart_mcp_proxy.upstream.opening import SessionOptions

pytestmark = pytest.mark.anyio

LOOPBACK = "127.0.0.1"
STOLEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\nstolen"


def good(body: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncIterator[tuple[HttpClient, str, list[int]]]:
    """A client of a server that gives these answers in turn, with the number of the connection of each request."""
    left, seen, connections = list(answers), list[int](), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                seen.append(number)
                writer.write(left.pop(0))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, LOOPBACK, 0)
    client = HttpClient({}, TlsContext())
    async with listener:
        try:
            yield client, f"http://{LOOPBACK}:{listener.sockets[0].getsockname()[1]}/", seen
        finally:
            await client.close()


async def text_of(response: Response) -> bytes:
    """The whole body."""
    body = b""
    while chunk := await response.read_some():
        body += chunk
    return body


async def ask(client: HttpClient, url: str) -> bytes:
    with anyio.fail_after(20):
        return await text_of(await client.request("GET", url, {}, None))


EXCESS = {
    "a whole answer": STOLEN,
    "half a head": STOLEN[:30],
    "a head without its body": STOLEN[:-6],
    "half a body": STOLEN[:-3],
    "an announcement": b"HTTP/1.1 103 Early Hints\r\n\r\n",
    "a letter": b"H",
    "nonsense": b"what else?",
}


@pytest.mark.parametrize("excess", EXCESS.values(), ids=EXCESS)
async def test_what_comes_with_an_answer_and_is_too_much_ends_the_connection(excess: bytes) -> None:
    """The answer counts, the next request goes over a new connection."""
    async with scripted(good("first") + excess, good("second")) as (client, url, seen):
        assert await ask(client, url) == b"first"
        assert await ask(client, url) == b"second"
        assert seen == [1, 2]


async def test_a_blank_line_after_an_answer_does_no_harm() -> None:
    """Some servers write one, and it says nothing."""
    async with scripted(good("first") + b"\r\n", good("second")) as (client, url, seen):
        assert [await ask(client, url), await ask(client, url)] == [b"first", b"second"]
        assert seen == [1, 1]


@contextmanager
def slow_to_say_more() -> Iterator[tuple[str, Callable[[], None]]]:
    """A server in a thread that answers each connection once, and says more unasked when it is told to."""
    listener = socket.create_server((LOOPBACK, 0))
    say_more, has_said, is_over = threading.Event(), threading.Event(), threading.Event()

    def serve() -> None:
        for number in (1, 2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(good(f"answer {number}"))
                if number == 1:
                    assert say_more.wait(5)
                    connection.sendall(STOLEN)
                    has_said.set()
                    assert is_over.wait(5)

    thread = threading.Thread(target=serve)

    def tell() -> None:
        say_more.set()
        assert has_said.wait(5)
        is_over.set()

    thread.start()
    with listener:
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}/", tell
        thread.join(5)


async def test_what_lies_unread_in_the_socket_is_not_taken_for_the_next_answer() -> None:
    """It arrived while the event loop was busy: nobody has read it when the next request is sent."""
    client = HttpClient({}, TlsContext())
    with slow_to_say_more() as (url, say_more):
        assert await ask(client, url) == b"answer 1"
        say_more()  # without a turn of the event loop from here to the next request
        assert await ask(client, url) == b"answer 2"
        await client.close()


async def test_what_comes_between_two_requests_ends_the_connection() -> None:
    """Also where the event loop has the time to read it."""
    async with scripted(good("first"), good("second")) as (client, url, seen):
        assert await ask(client, url) == b"first"
        (connection,) = client._idle
        connection.get_buffer(0)[: len(STOLEN)] = STOLEN
        connection.buffer_updated(len(STOLEN))
        assert not connection.is_open
        assert await ask(client, url) == b"second"
        assert seen == [1, 2]


@pytest.mark.parametrize(
    "endless",
    [b"X-More: x\r\n", b"a", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"],
    ids=["headers", "one header", "announcements"],
)
async def test_a_head_that_does_not_end_is_refused(endless: bytes) -> None:
    """However its bytes are shared out."""
    head = b"" if endless.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\nX-First: "
    async with scripted(head + endless * 20_000) as (client, url, _):
        with pytest.raises(BadAnswerError, match="its headers are too long"):
            await ask(client, url)


@pytest.mark.parametrize("endless", [b"X-More: x\r\n", b"a"], ids=["trailers", "one trailer"])
async def test_trailers_that_do_not_end_are_refused(endless: bytes) -> None:
    """They come after the body, when the head has long been judged."""
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-First: "
    async with scripted(begun + endless * 100_000) as (client, url, _):
        with pytest.raises(BadAnswerError, match="its headers are too long"):
            await ask(client, url)


async def test_trailers_do_not_change_the_head() -> None:
    """What the answer is was decided before its body was read."""
    answer = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\nContent-Type: text/plain\r\nSet-Cookie: a=b\r\n\r\n"
    )
    async with scripted(answer, good("next")) as (client, url, seen):
        response = await client.request("GET", url, {}, None)
        assert await text_of(response) == b"x"
        assert response.headers["content-type"] == "text/event-stream"
        assert response.cookies == []
        assert await ask(client, url) == b"next"
        assert seen == [1, 1]


AMBIGUOUS = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
    "a length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\nhello",
    "a length in hexadecimal": b"Content-Length: 0x5\r\n\r\nhello",
    "a space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "a length that overflows": b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "a chunk size that overflows": b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("rest", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_an_answer_whose_end_can_be_read_in_two_ways_is_refused(rest: bytes) -> None:
    """And its connection is closed: nobody knows what of it is the next answer."""
    async with scripted(b"HTTP/1.1 200 OK\r\n" + rest, good("next")) as (client, url, seen):
        with pytest.raises(BadAnswerError):
            await ask(client, url)
        assert await ask(client, url) == b"next"
        assert seen == [1, 2]


async def test_a_connection_whose_answers_are_one_behind_is_not_used_again() -> None:
    """One call fails, the next is right: it would get the answer to the one before for ever."""
    last: list[Any] = [999_999]

    async def one_behind(request: RawRequest, answer: RawAnswer) -> None:
        answer.text(last.pop(), f"answer to {request.tool}")
        last.append(request.id)

    async def call(session: Any, name: str) -> bytes:
        reply: bytes = (await session.request("tools/call", {"name": name, "arguments": {}}, timeout_s=30)).text
        return reply

    async with raw_served(RawServer("modern", one_behind)) as server:
        config = ServerConfig(name="web", transport="http", url=server.url)
        session = await open_raw_http(SessionOptions(config, lambda _: None, "modern", max_message_bytes=1 << 20))
        try:
            before = server.connections
            with pytest.raises(UpstreamError, match="no message in it carries the request's id"):
                await call(session, "first")
            server.tool = _answered
            assert b"answer to second" in await call(session, "second")
            assert server.connections == before + 1
        finally:
            await session.close()


async def _answered(request: RawRequest, answer: RawAnswer) -> None:
    answer.text(request.id, f"answer to {request.tool}")


class Pipe(asyncio.Transport):
    """What a request is written to: over a connection that is open or closing."""

    def __init__(self, is_closing: bool, end: socket.socket) -> None:
        super().__init__({"socket": end})
        self.written = b""
        self._is_closing = is_closing

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data


@pytest.fixture
def end() -> Iterator[socket.socket]:
    """One end of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours


@pytest.mark.parametrize("is_lost", [False, True])
async def test_nothing_is_sent_into_a_connection_that_is_closing_or_gone(is_lost: bool, end: socket.socket) -> None:
    """Nobody waits for an answer there, and the body counts as not sent."""
    body, pipe = RequestBody(b"{}"), Pipe(not is_lost, end)
    connection = Connection(("http", "x", 80), KnownHeads(1), lambda _: None, lambda _: None)
    connection.connection_made(pipe)
    if is_lost:
        connection.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        connection.send(b"POST / HTTP/1.1\r\n\r\n", body, "")
    assert (body.is_sent, pipe.written) == (False, b"")


async def test_a_body_counts_as_sent_once_the_connection_has_it(end: socket.socket) -> None:
    """From then on nobody knows what the server has of it."""
    body, pipe = RequestBody(b"{}"), Pipe(False, end)
    connection = Connection(("http", "x", 80), KnownHeads(1), lambda _: None, lambda _: None)
    connection.connection_made(pipe)
    assert not body.is_sent
    connection.send(b"POST / HTTP/1.1\r\n\r\n", body, "")
    assert body.is_sent
    assert pipe.written.endswith(b"{}")


async def test_a_call_that_is_left_closes_its_connection() -> None:
    """Its answer would be the next one's; no connection stays behind."""
    async with scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", b"", good("next")) as (client, url, seen):
        for is_begun in (True, False):
            with anyio.move_on_after(0.1):
                response = await client.request("GET", url, {}, None)
                assert is_begun
                try:
                    await text_of(response)
                finally:
                    response.close()
        assert await ask(client, url) == b"next"
        assert seen == [1, 2, 3]
        assert repr(client) == "<HttpClient 1 connections, 1 idle>"


async def test_cookies_of_a_server_are_bounded() -> None:
    """The newest are kept, and none that is too long."""
    cookies = [f"Set-Cookie: c{number}=v\r\n" for number in range(60)] + [f"Set-Cookie: long={'x' * 5_000}\r\n"]
    head = "HTTP/1.1 200 OK\r\n" + "".join(cookies) + "Content-Length: 0\r\n\r\n"
    async with scripted(head.encode(), good("next")) as (client, url, _):
        await ask(client, url)
        await ask(client, url)
        assert sorted(client._cookies) == sorted(f"c{number}" for number in range(10, 60))


@pytest.mark.parametrize("text", ["a\r\nX-More: 1", "a\rX-More: 1", "a\nX-More: 1", "a\0b"])
def test_a_header_that_would_end_its_line_is_refused(text: str) -> None:
    """Also by a bare carriage return, which some servers take for a line end."""
    with pytest.raises(ValueError, match="line end"):
        encode_head("POST", "/", {"x-arg": text})


def test_a_target_with_a_space_is_refused() -> None:
    """What follows the space would be read as the version."""
    with pytest.raises(ValueError, match="space"):
        encode_head("POST", "/ HTTP/1.0", {})


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("9" * 400, 86_400.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
    ],
)
def test_a_wait_that_a_server_asks_for_is_a_number_of_seconds_up_to_a_day(header: str, wait_s: float | None) -> None:
    """Whatever stands there, what an agent is told is a number that JSON can write."""
    assert retry_after_s(header) == wait_s


async def test_a_connection_is_used_for_its_own_origin_only() -> None:
    """After a redirect to another port the credentials of a request must not go where the last one went."""
    async with (
        scripted(good("first"), good("third")) as (client, url, seen),
        scripted(good("second")) as (_, other, seen_there),
    ):
        assert [await ask(client, each) for each in (url, other, url)] == [b"first", b"second", b"third"]
        assert (seen, seen_there) == ([1, 2], [1])


async def test_after_a_sleep_of_the_computer_no_connection_from_before_is_used() -> None:
    """F62: the timers of the event loop stood still with it, so that nobody has closed them."""
    now_s = 0.0
    async with scripted(good("evening"), good("evening"), good("morning")) as (_, url, seen):
        client = HttpClient({}, TlsContext(), clock=lambda: now_s)
        for _ in range(2):
            assert await ask(client, url) == b"evening"
        now_s += 8 * 3600
        assert await ask(client, url) == b"morning"
        await client.close()
    assert seen == [1, 1, 2]


async def test_the_system_looks_after_connections_on_which_nothing_is_said() -> None:
    """F62: what is forgotten on the way, without a word, is found out in a minute."""
    async with scripted(good("first")) as (client, url, _):
        assert await ask(client, url) == b"first"
        (connection,) = client._idle
        assert connection._transport is not None
        end = connection._transport.get_extra_info("socket")
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30

"""Clients that take their time, or never stop: bounded, told so where they can be told, and no burden to others.

The ids are those of the project's list of bad inputs.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import HANDSHAKE_VERSION
from plain_http import plain_client
from transports import opened_gateway, served

from smart_mcp_proxy.fastmcp_compat.http import sessions as http_sessions
from smart_mcp_proxy.fastmcp_compat.http.sessions import MAX_SESSIONS
from smart_mcp_proxy.web.server.protocol import HEAD_LIMIT_BYTES, REQUEST_S, BoundedProtocol

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("http-endpoint")]

SOON_S = 0.3
PACE_S = 0.01
SLOW_CLIENTS = 100
LONG_TEXT = b"x" * 100_000
PARAMS = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
OPENING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}).encode()
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
LINES = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
HEAD = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{LINES}".encode()


@pytest.fixture(scope="module")
async def base(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Address of a gateway whose one server is switched off."""
    servers = {"off": {"command": "none", "disabled": True}}
    async with opened_gateway(tmp_path_factory.mktemp("data"), servers) as gateway, served(gateway) as address:
        yield address


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may take a moment, not a minute."""
    assert REQUEST_S <= 60
    monkeypatch.setattr(BoundedProtocol, "request_s", SOON_S)


@asynccontextmanager
async def connected(base: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(base.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def told_at_last(base: str, pieces: Callable[[], Any], *, pace_s: float = PACE_S) -> bytes:
    """Sends pieces until the gateway ends the connection; what it said before."""
    async with connected(base) as (reader, writer):
        end = asyncio.create_task(reader.read())
        with suppress(ConnectionError):
            for piece in pieces():
                if end.done():
                    break
                writer.write(piece)
                await writer.drain()
                await asyncio.wait({end}, timeout=pace_s)
        with anyio.fail_after(20):
            try:
                return await end
            except ConnectionError:  # it was closed while more was on its way
                return b""


def byte_by_byte(start: bytes, more: bytes) -> Callable[[], Any]:
    return lambda: itertools.chain([start], (more[n : n + 1] for n in itertools.cycle(range(len(more)))))


TRIES = 5
SLOW = {
    "nothing at all": (byte_by_byte(b"", b""), b" 408 "),
    "a head": (byte_by_byte(HEAD, b"X-More: x\r\n"), b" 408 "),
    "a first line": (byte_by_byte(b"", b"P"), b" 4"),
    "a body": (byte_by_byte(HEAD + b"Content-Length: 1000000\r\n\r\n", b"x"), b""),
    "chunks": (byte_by_byte(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"), b""),
    "a second request": (lambda: [b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", HEAD], b" 408 "),
}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("pieces", "words"), SLOW.values(), ids=SLOW)
async def test_a_client_that_sends_byte_by_byte_is_cut_off(base: str, pieces: Callable[[], Any], words: bytes) -> None:
    """B32: with a status where no answer has begun; waiting for it costs the gateway nothing else."""
    # What is still on its way when the gateway closes makes the system throw the answer away: then once more.
    answers = [await told_at_last(base, pieces)]
    while words not in answers[-1] and len(answers) < TRIES:
        answers.append(await told_at_last(base, pieces))
    assert words in answers[-1]


ENDLESS = {
    "headers": (HEAD, b"X-More: x\r\n" * 10_000, b" 431 "),
    "one header": (HEAD + b"X-More: ", LONG_TEXT, b" 431 "),
    "a first line": (b"GET /", LONG_TEXT, b" 431 "),
    "trailers": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-More: x\r\n" * 10_000, b""),
    "chunk extension": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", LONG_TEXT, b""),
}


@pytest.mark.parametrize(("start", "more", "words"), ENDLESS.values(), ids=ENDLESS)
async def test_a_head_that_does_not_end_is_refused(base: str, start: bytes, more: bytes, words: bytes) -> None:
    """B32: at once, whatever of a request it is that goes on and on."""
    assert len(more) > HEAD_LIMIT_BYTES
    assert words in await told_at_last(base, lambda: itertools.chain([start], itertools.repeat(more, 50)), pace_s=0)


@pytest.mark.usefixtures("hurried")
async def test_slow_clients_keep_nobody_waiting(base: str) -> None:
    """B32: a hundred of them, in the middle of a head or a body."""
    async with AsyncExitStack() as stack, plain_client() as client:
        for number in range(SLOW_CLIENTS):
            _, writer = await stack.enter_async_context(connected(base))
            writer.write(HEAD + (b"Content-Length: 99\r\n\r\n{" if number % 2 else b""))
        with anyio.fail_after(20):
            reply = await client.post(f"{base}/mcp", content=OPENING, headers=HEADERS)
        assert reply.status_code == 200


@pytest.mark.usefixtures("hurried")
async def test_a_stream_that_only_listens_is_left_open(base: str) -> None:
    """The limit is on what the client sends: a stream of announcements stays silent for hours."""
    async with plain_client() as client:
        opened = await client.post(f"{base}/mcp", content=OPENING, headers=HEADERS)
        headers = {"accept": "text/event-stream", "mcp-session-id": opened.headers["mcp-session-id"]}
        async with client.stream("GET", f"{base}/mcp", headers=headers) as stream:
            assert stream.status_code == 200
            assert b" 408 " in await told_at_last(base, byte_by_byte(b"", b""))  # so long it has been open now
            ended = asyncio.create_task(anext(stream.aiter_raw()))
            await asyncio.wait({ended}, timeout=PACE_S)
            assert not ended.done()
            ended.cancel()
            await asyncio.wait({ended})


@pytest.mark.parametrize("field", ["Origin: http://evil.example", "Mcp-Session-Id: unknown", "Host: evil.example"])
async def test_what_comes_after_the_body_is_no_header(base: str, field: str) -> None:
    """Whoever stands in front of the gateway has looked at the head, not at the trailers."""
    body = b"%x\r\n%s\r\n0\r\n%s\r\n\r\n" % (len(OPENING), OPENING, field.encode())
    async with connected(base) as (reader, writer):
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body)
        with anyio.fail_after(20):
            assert (await reader.readline()).split()[1] == b"200"


SMUGGLED = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
    "a length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks in disguise": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\nhello",
    "a space before the colon": b"Content-Length : 5\r\n\r\nhello",
    "a folded header": b"X-One: 1\r\n Content-Length: 5\r\n\r\nhello",
    "a bare carriage return": b"X-One: 1\rX-Two: 2\r\n\r\n",
}


@pytest.mark.parametrize("rest", SMUGGLED.values(), ids=SMUGGLED)
async def test_a_request_whose_end_can_be_read_in_two_ways_is_refused(base: str, rest: bytes) -> None:
    """And its connection is closed: what of it is the next request, a proxy in front may see otherwise."""
    async with connected(base) as (reader, writer):
        writer.write(HEAD + rest + b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with anyio.fail_after(20):
            said = await reader.read()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1") == 1


def resident_mb() -> float:
    """Memory of this process, the gateway in it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096 / 1e6


@pytest.mark.soak
async def test_thousands_of_sessions_that_nobody_uses_take_bounded_memory(
    base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B33: the first ones are gone, the last ones open."""
    monkeypatch.setattr(http_sessions, "IDLE_S", 0.0)
    async with plain_client() as client:
        sessions = []
        for number in range(4 * MAX_SESSIONS):
            reply = await client.post(f"{base}/mcp", content=OPENING, headers=HEADERS)
            assert reply.status_code == 200
            sessions.append(reply.headers["mcp-session-id"])
            if number == 2 * MAX_SESSIONS:
                full_mb = resident_mb()
        assert resident_mb() - full_mb < 20
        for session, status in ((sessions[0], 404), (sessions[-1], 200)):
            headers = HEADERS | {"mcp-session-id": session}
            reply = await client.post(
                f"{base}/mcp", content=b'{"jsonrpc":"2.0","id":2,"method":"ping"}', headers=headers
            )
            assert reply.status_code == status

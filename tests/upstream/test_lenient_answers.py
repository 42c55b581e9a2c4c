"""Answers that are used although they are not written as the protocol has them."""

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from http_fakes import RawAnswer, RawRequest, RawServer, raw_served

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream.http.raw_http import RawHttpSession, open_raw_http
from smart_mcp_proxy.upstream.opening import SessionOptions

pytestmark = pytest.mark.anyio

ERAS = pytest.mark.parametrize("era", ["modern", "handshake"])
LIMIT_BYTES = 1 << 20


class Restated(RawAnswer):
    """Writes every whole answer with another status and encoding."""

    def __init__(self, inner: RawAnswer, status: int, encoding: str, pack: Callable[[bytes], bytes]) -> None:
        super().__init__(inner._writer)
        self._status, self._encoding, self._pack = status, encoding, pack

    def plain(self, body: bytes = b"", *, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        if status == 200:
            body, status = self._pack(body), self._status
            headers |= {"Content-Encoding": self._encoding} if self._encoding else {}
        super().plain(body, status=status, kind=kind, **headers)


class RestatedServer(RawServer):
    """A server all of whose answers are written so."""

    status, encoding = 200, ""
    pack: Callable[[bytes], bytes] = staticmethod(lambda body: body)

    async def answer(self, request: RawRequest, answer: RawAnswer) -> None:
        await super().answer(request, Restated(answer, self.status, self.encoding, self.pack))


async def shout(request: RawRequest, answer: RawAnswer) -> None:
    answer.text(request.id, request.message["params"]["arguments"]["text"])


@asynccontextmanager
async def linked(server: RawServer, era: Era) -> AsyncIterator[RawHttpSession]:
    async with raw_served(server):
        config = ServerConfig(name="web", transport="http", url=server.url)
        with anyio.fail_after(20):
            session = await open_raw_http(SessionOptions(config, lambda _: None, era, max_message_bytes=LIMIT_BYTES))
        try:
            yield session
        finally:
            await session.close()


async def call(session: RawHttpSession, text: str = "x") -> str:
    params = {"name": "shout", "arguments": {"text": text}}
    with anyio.fail_after(20):
        raw = await session.request("tools/call", params, timeout_s=30)
    said: str = json.loads(raw.text)["content"][0]["text"]
    return said


@ERAS
@pytest.mark.parametrize("status", [200, 201, 202, 203, 206, 226])
async def test_json_under_any_good_status_is_the_answer(era: Era, status: int) -> None:
    """As both official SDKs take it."""
    server = RestatedServer(era, shout)
    server.status = status
    async with linked(server, era) as session:
        assert session.era == era
        assert await call(session) == "x"


async def test_a_stream_under_another_good_status_is_read() -> None:
    """The answer comes on it."""

    async def stream(request: RawRequest, answer: RawAnswer) -> None:
        answer.raw(b"HTTP/1.1 201 Created\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer.event(id=request.id, result={"content": [{"type": "text", "text": "streamed"}]})
        answer.end_stream()

    async with linked(RawServer("modern", stream), "modern") as session:
        assert await call(session) == "streamed"


@pytest.mark.parametrize("status", [202, 204])
async def test_a_good_status_without_an_answer_is_named(status: int) -> None:
    """Nothing says what came of the call."""

    async def nothing(request: RawRequest, answer: RawAnswer) -> None:
        answer.raw(f"HTTP/1.1 {status} Some Reason\r\nContent-Length: 0\r\n\r\n".encode())

    async with linked(RawServer("modern", nothing), "modern") as session:
        with pytest.raises(UpstreamError, match=f"no proper answer .*HTTP {status} with no content type") as caught:
            await call(session)
    assert caught.value.delivery == "unknown"


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "its older name": ("X-GZIP", gzip.compress),
    "deflate": ("deflate", zlib.compress),
}


@ERAS
@pytest.mark.parametrize(("encoding", "pack"), PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("size", [1, 300_000])
async def test_a_compressed_answer_is_unpacked(
    era: Era, encoding: str, pack: Callable[[bytes], bytes], size: int
) -> None:
    """Although none was asked for; the connection can be used again."""
    server = RestatedServer(era, shout)
    server.encoding, server.pack = encoding, pack
    async with linked(server, era) as session:
        assert await call(session, "ab" * size) == "ab" * size
        connections = server.connections
        assert await call(session) == "x"
        assert server.connections == connections


async def test_events_of_a_compressed_stream_are_read_as_they_come() -> None:
    """Each is sent before the stream is at its end."""
    told = anyio.Event()

    async def stream(request: RawRequest, answer: RawAnswer) -> None:
        packer = zlib.compressobj(wbits=31)
        answer.raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        reply = {"jsonrpc": "2.0", "id": request.id, "result": {"content": [{"type": "text", "text": "packed"}]}}
        for message in ({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, reply):
            event = packer.compress(f"data: {json.dumps(message)}\n\n".encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
            answer.chunk(event)
            if "method" in message:
                await told.wait()

    async def hear(message: bytes) -> None:
        told.set()

    async with linked(RawServer("modern", stream), "modern") as session:
        with anyio.fail_after(20):
            raw = await session.request("tools/call", {"name": "shout"}, timeout_s=30, on_message=hear)
    assert json.loads(raw.text)["content"][0]["text"] == "packed"


@pytest.mark.long  # a third of a second of processor time
async def test_an_answer_that_unpacks_to_too_much_is_refused() -> None:
    """The limit on the size of messages holds for what it says, not for what came."""
    bomb = gzip.compress(b'{"jsonrpc":"2.0",' + b" " * (64 * LIMIT_BYTES))
    assert len(bomb) < LIMIT_BYTES / 8

    async def explode(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(bomb, Content_Encoding="gzip")

    async with linked(RawServer("modern", explode), "modern") as session:
        with pytest.raises(UpstreamError, match="sent an answer of more than 1,048,576 bytes"):
            await call(session)


@pytest.mark.parametrize(
    ("body", "encoding", "words"),
    [
        (b"\x1f\x8b", "gzip", "its compressed body is cut off"),
        (gzip.compress(b"{}" * 999)[:-9], "gzip", "its compressed body is cut off"),
        (b"no gzip at all", "gzip", "its body is not compressed as it says"),
        (b"whatever", "br", "sent an answer compressed with 'br', which was not asked for"),
        (b"whatever", "gzip, zstd", "sent an answer compressed with 'gzip, zstd'"),
    ],
    ids=["too short", "cut off", "not packed", "brotli", "two encodings"],
)
async def test_a_body_that_cannot_be_unpacked_is_named(body: bytes, encoding: str, words: str) -> None:
    """With what to switch off, where another encoding is at fault."""

    async def packed(request: RawRequest, answer: RawAnswer) -> None:
        answer.plain(body, Content_Encoding=encoding)

    async with linked(RawServer("modern", packed), "modern") as session:
        with pytest.raises(UpstreamError, match=words) as caught:
            await call(session)
    assert caught.value.delivery == "unknown"
    assert ("Switch compression off" in caught.value.hint) == ("compressed with" in words)


async def test_words_of_a_compressed_refusal_are_told() -> None:
    """An error's body is unpacked like any other."""

    async def refuse(request: RawRequest, answer: RawAnswer) -> None:
        body = gzip.compress(json.dumps({"message": "not today"}).encode())
        answer.plain(body, status=503, Content_Encoding="gzip")

    async with linked(RawServer("modern", refuse), "modern") as session:
        with pytest.raises(UpstreamError, match="HTTP 503 Service Unavailable: not today"):
            await call(session)

"""HTTP exchange: the body of a request, and the response as it arrives."""

import asyncio
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

_ENCODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""Source: RFC 9110, section 8.4.1"""
_EITHER: Final = zlib.MAX_WBITS | 32
"""Tells zlib to read gzip and deflate. Source: https://docs.python.org/3/library/zlib.html#zlib.decompress"""
_UNPACKED_BYTES: Final = 1 << 16
"""Unpacked at a time: a small body may unpack to gigabytes, and others get their turn in between."""

_BUFFERED_BYTES: Final = 1 << 20
"""Limit on a body that nobody reads yet; beyond it the server has to wait."""
_PIECE_BYTES: Final = 16_384
"""On average; shorter pieces are put together, which takes less time than what is done with each."""


class BadAnswerError(Exception):
    """The response is not valid HTTP."""


class RequestBody:
    """A JSON body that knows whether any of it may have left.

    Args:
        text: The body.
        fields: Lines of the head that are this request's alone: the others are encoded once.

    Attributes:
        is_sent: False for as long as the server certainly has nothing of it.
    """

    def __init__(self, text: bytes, fields: bytes = b"") -> None:
        self.text = text
        self.fields = fields
        self.is_sent = False


class Carrier(Protocol):
    """The connection that brings an answer."""

    def resume(self) -> None:
        """Lets the server go on sending."""

    def retire(self) -> None:
        """Ends the connection as soon as no exchange is under way."""

    def abort(self) -> None:
        """Ends the connection at once."""


class Response:
    """An answer, of which the beginning has arrived.

    Args:
        connection: Brings it.
        url: Where it is from.

    Attributes:
        connection: Brings it.
        headers: By lower-case name; the length may be missing.
    """

    def __init__(self, connection: Carrier, url: str) -> None:
        self.url = url
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.cookies: list[str] = []
        self.connection = connection
        self._chunks: deque[bytes] = deque()
        self._buffered_bytes = 0
        self._has_head = False
        self._is_complete = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._unheard_bytes = 0
        """So much may arrive before whoever waits is told."""

    @property
    def is_complete(self) -> bool:
        """Whether all of it has arrived."""
        return self._is_complete

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it will come."""
        return self._is_complete or self._error is not None

    @property
    def available_body(self) -> bytes:
        """Bytes of the body that have arrived and were not read."""
        return b"".join(self._chunks)

    async def read_some(self) -> bytes:
        """Return body bytes that have arrived, at least one; empty at the end.

        Raises:
            BadAnswerError: The rest is no valid HTTP.
            OSError: The connection broke.
        """
        while not self._chunks and not self.is_over:
            await self._wait()
        if not self._chunks:
            if self._error is not None:
                raise self._error
            return b""
        chunk = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._buffered_bytes = 0
        self.connection.resume()
        return chunk

    async def read_whole(self, limit_bytes: int) -> Sequence[bytes] | None:
        """Read the rest of the body in pieces; None if it is longer than `limit_bytes`.

        Raises:
            BadAnswerError: The rest is no valid HTTP.
            OSError: The connection broke.
        """
        parts: list[bytes] = []
        size_bytes = 0
        while True:
            parts += self._chunks
            size_bytes += self._buffered_bytes
            self._chunks.clear()
            self._buffered_bytes = 0
            if size_bytes > limit_bytes:
                return None
            if self.is_over:
                break
            self.connection.resume()
            self._unheard_bytes = min(limit_bytes - size_bytes, _BUFFERED_BYTES)  # not woken for every part
            await self._wait()
        if self._error is not None:
            raise self._error
        return parts if size_bytes >= len(parts) * _PIECE_BYTES > 0 else (b"".join(parts),)

    def close(self) -> None:
        """Gives the answer up; its connection is used again only if all of it has arrived."""
        if not self.is_over:
            self.connection.abort()

    def reject(self) -> None:
        """Gives the answer up as one that belongs to another request; its connection is not used again."""
        self.connection.retire()
        self.close()

    async def wait_head(self) -> None:
        """Returns when status and headers are there; fails if what came with them already makes no sense."""
        while not self._has_head and self._error is None:
            await self._wait()
        if self._error is not None:
            raise self._error

    def _wait(self) -> "asyncio.Future[None]":
        self._news = asyncio.get_running_loop().create_future()
        return self._news

    # --- what the connection tells

    def begin(self, status: int, reason: str, headers: dict[str, str], cookies: list[str]) -> None:
        """The head has arrived."""
        self.status, self.reason, self.headers, self.cookies = status, reason, headers, cookies
        self._has_head = True
        self._tell()

    def bring(self, status: int, reason: str, headers: dict[str, str], body: bytes) -> None:
        """All of it has arrived at once; there is a body, and no cookie."""
        self.status, self.reason, self.headers = status, reason, headers
        self._chunks.append(body)
        self._buffered_bytes = len(body)
        self._has_head = self._is_complete = True
        self._tell()

    def add(self, chunk: bytes) -> bool:
        """A part of the body has arrived; returns whether the server should wait."""
        self._chunks.append(chunk)
        self._buffered_bytes += len(chunk)
        if self._buffered_bytes > self._unheard_bytes:
            self._tell()
        return self._buffered_bytes > _BUFFERED_BYTES

    def finish(self) -> None:
        """All of it has arrived."""
        self._is_complete = True
        self._tell()

    def fail(self, error: Exception) -> None:
        """The rest will not come."""
        if not self.is_over:
            self._error = error
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)


def can_unpack(encoding: str) -> bool:
    """Whether a body of this `Content-Encoding` can be read."""
    return encoding.strip().lower() in _ENCODINGS


class UnpackedResponse(Response):
    """Response whose body is read as it was before it was compressed.

    Args:
        packed: The response as it arrives.
    """

    def __init__(self, packed: Response) -> None:
        super().__init__(packed.connection, packed.url)
        self.status, self.reason, self.headers = packed.status, packed.reason, packed.headers
        self.cookies = packed.cookies
        self._packed = packed
        self._unpacker = zlib.decompressobj(_EITHER)
        self._has_begun = self._has_more = False

    @property
    def is_complete(self) -> bool:
        """Whether all of it has arrived."""
        return self._packed.is_complete

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it will come."""
        return self._packed.is_over

    async def read_some(self) -> bytes:
        """Return body bytes, at least one and at most a piece; empty at the end."""
        while not self._unpacker.eof:
            if self._has_more:
                await asyncio.sleep(0)
                chunk = self._unpacker.unconsumed_tail
            elif not (chunk := await self._packed.read_some()):
                if self._has_begun:
                    raise BadAnswerError("its compressed body is cut off")
                return b""
            self._has_begun = True
            try:
                piece = self._unpacker.decompress(chunk, _UNPACKED_BYTES)
            except zlib.error as exc:
                raise BadAnswerError("its body is not compressed as it says") from exc
            self._has_more = len(piece) == _UNPACKED_BYTES
            if piece:
                return piece
        return b""

    async def read_whole(self, limit_bytes: int) -> Sequence[bytes] | None:
        """Read the rest of the body; None if it is longer than `limit_bytes`."""
        parts: list[bytes] = []
        size_bytes = 0
        while piece := await self.read_some():
            size_bytes += len(piece)
            if size_bytes > limit_bytes:
                return None
            parts.append(piece)
        return (b"".join(parts),)

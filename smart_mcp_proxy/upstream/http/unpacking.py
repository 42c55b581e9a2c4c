"""Unpacking of compressed bodies piece by piece, within the limits on size."""

import asyncio
import zlib
from collections.abc import Sequence
from typing import Final

from smart_mcp_proxy.upstream.http.exchange import BadAnswerError, Response

_ENCODINGS: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""Source: RFC 9110, section 8.4.1"""
_EITHER: Final = zlib.MAX_WBITS | 32
"""Tells zlib to read gzip and deflate. Source: https://docs.python.org/3/library/zlib.html#zlib.decompress"""
_PIECE_BYTES: Final = 1 << 16
"""Unpacked at a time: a small body may unpack to gigabytes, and others get their turn in between."""


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
                piece = self._unpacker.decompress(chunk, _PIECE_BYTES)
            except zlib.error as exc:
                raise BadAnswerError("its body is not compressed as it says") from exc
            self._has_more = len(piece) == _PIECE_BYTES
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

"""HTTP/1.1 replies out of bytes, whatever pieces they come in."""

from collections.abc import Iterator
from typing import Final

_MOST_HEAD_BYTES: Final = 65_536
_HEX: Final = b"0123456789abcdefABCDEF"
_WITHOUT_BODY: Final = (204, 304)


class BrokenReplyError(ValueError):
    """A reply is not HTTP."""


class HttpReply:
    """Reply to one request.

    Attributes:
        status: 0 before it is known.
        headers: Names in lower case.
        is_whole: Whether nothing of it is missing.
        is_reusable: Whether the connection can carry another request afterwards.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_whole = False
        self.is_reusable = True
        self._in = bytearray()
        self._left: int | None = None
        """Bytes of the body or of its present chunk that are missing; None up to the connection's end."""
        self._is_chunked = False
        self._read = self._read_head

    @property
    def media_type(self) -> str:
        """Type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The pieces of the body that have come with `data`.

        Raises:
            BrokenReplyError: It is not HTTP.
        """
        self._in += data
        while not self.is_whole and (piece := self._read()) is not None:
            if piece:
                yield piece
        if self.is_whole and self._in:
            self.is_reusable = False

    def end(self) -> None:
        """The connection has ended.

        Raises:
            ConnectionResetError: Before a part of the reply.
        """
        if self._read != self._read_body or self._left is not None:
            raise ConnectionResetError
        self.is_whole = True

    # Each reads as much as it can and returns the body's part of it; None where bytes are missing.

    def _read_head(self) -> bytes | None:
        end = self._in.find(b"\r\n\r\n")
        if end < 0:
            if len(self._in) > _MOST_HEAD_BYTES:
                raise BrokenReplyError
            return None
        first, *lines = self._in[:end].decode("latin-1").split("\r\n")
        del self._in[: end + 4]
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            raise BrokenReplyError
        if rest[0] == "1":  # a further one follows
            return b""
        self.headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        self.status = int(rest[:3])
        words = self.headers.get("connection", "").lower()
        self.is_reusable = "close" not in words and (version == "HTTP/1.1" or "keep-alive" in words)
        self._begin_body()
        return b""

    def _begin_body(self) -> None:
        self._read = self._read_body
        length = self.headers.get("content-length")
        if self.status in _WITHOUT_BODY or length == "0":
            self.is_whole = True
        elif "chunked" in self.headers.get("transfer-encoding", "").lower():
            self._is_chunked, self._read = True, self._read_size
        elif length is None:
            self.is_reusable = False
        elif length.isdecimal():
            self._left = int(length)
        else:
            raise BrokenReplyError

    def _read_body(self) -> bytes | None:
        piece = bytes(self._in[: self._left])
        del self._in[: self._left]
        if self._left is not None:
            self._left -= len(piece)
            if not self._left:
                self.is_whole, self._read = not self._is_chunked, self._read_size
        return piece or None

    def _read_size(self) -> bytes | None:
        if (line := self._read_line()) is None:
            return None
        if self._left == 0:  # it ends the chunk before
            self._left = None
            if line:
                raise BrokenReplyError
            return b""
        size = line.partition(b";")[0].strip()
        if not size or size.strip(_HEX):
            raise BrokenReplyError
        self._left = int(size, 16)
        self._read = self._read_body if self._left else self._read_trailer
        return b""

    def _read_trailer(self) -> bytes | None:
        line = self._read_line()
        self.is_whole = line == b""
        return None if line is None else b""

    def _read_line(self) -> bytes | None:
        end = self._in.find(b"\r\n")
        if end < 0:
            if len(self._in) > _MOST_HEAD_BYTES:
                raise BrokenReplyError
            return None
        line = bytes(self._in[:end])
        del self._in[: end + 2]
        return line

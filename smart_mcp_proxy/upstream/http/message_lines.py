"""Notifications in front of a response in a JSON body, line by line."""

from collections.abc import Iterator
from typing import Final

import msgspec

_OF_A_REQUEST: Final = frozenset({"notifications/progress", "notifications/message"})
"""What a server says about one request; everything else it announces is about itself."""


class _Head(msgspec.Struct):
    method: str
    id: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_head = msgspec.json.Decoder(_Head)


def is_notification(text: bytes) -> bool:
    """Whether this is a message that tells how the request before it is getting on."""
    try:
        head = _head.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return head.id is msgspec.UNSET and head.method in _OF_A_REQUEST


class MessageLines:
    """Cuts notifications off the front of a body that arrives in pieces; each byte is looked at once.

    Args:
        limit_bytes: A longer line or rest is refused.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()
        self._is_cutting = True

    @property
    def rest(self) -> bytes:
        """Bytes from the first message on that is no notification."""
        return bytes(self._rest)

    @property
    def is_oversized(self) -> bool:
        """Whether more is held than may be."""
        return len(self._rest) > self._limit_bytes

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The notifications that `chunk` completes."""
        seen = len(self._rest)
        self._rest += chunk
        while self._is_cutting and (end := self._rest.find(b"\n", seen)) >= 0:
            line = bytes(self._rest[:end]).strip()
            if line and not is_notification(line):
                self._is_cutting = False
                return
            del self._rest[: end + 1]
            seen = 0
            if line:
                yield line

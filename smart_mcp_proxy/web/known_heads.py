"""Heads of requests that were read before: a client writes the same one into every call, but for the body's length.

To look one up takes a tenth of the time that it takes to read it again.
"""

import re
from typing import Final, NamedTuple

from smart_mcp_proxy.web.wire_http import Fields, Headers, unique_headers

__all__ = ["KnownHead", "KnownHeads"]

_HEADS: Final = 1_024
"""Remembered: of each client one for every tool that it calls. Beyond it all are forgotten and learned anew."""
_HEAD_BYTES: Final = 4_096
"""A longer one is read each time."""
_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (\d{1,9})\r\n")


class KnownHead(NamedTuple):
    """The head of a request that may be a call.

    Attributes:
        fields: As they were read, names in lower case.
        headers: Those of them that the door looks at.
    """

    fields: Fields
    headers: Headers


class KnownHeads:
    """What was read in heads, by their bytes without the digits of the length."""

    def __init__(self) -> None:
        self._heads: dict[bytes, KnownHead] = {}

    def find(self, packet: bytes) -> tuple[KnownHead, bytes] | None:
        """Head and body of a packet that holds exactly one request; None if its head is not known, or it does not."""
        parts = _split(packet)
        head = self._heads.get(parts[0]) if parts is not None else None
        return None if parts is None or head is None else (head, parts[1])

    def learn(self, packet: bytes, fields: Fields, body: bytes) -> None:
        """Remembers the head of a request, if nothing in it but the digits of its length says where the body ends.

        Args:
            packet: What came in one piece, from where the request before had ended.
            fields: What a parser read in its head, names in lower case.
            body: What it took for the body.
        """
        parts, headers = _split(packet), unique_headers(fields)
        names = [name for name, _ in fields]
        is_plain = names.count(b"content-length") == 1 and b"transfer-encoding" not in names
        if parts is None or headers is None or parts[1] != body or not is_plain or len(parts[0]) > _HEAD_BYTES:
            return
        if len(self._heads) == _HEADS:
            self._heads.clear()
        self._heads[parts[0]] = KnownHead(fields, headers)


def _split(packet: bytes) -> tuple[bytes, bytes] | None:
    """The head without the digits of its length, and the body; None where that length is not what follows."""
    end = packet.find(_END)
    length = _LENGTH.search(packet, 0, end + 2) if end > 0 else None
    if length is None or int(length[1]) != len(packet) - end - len(_END):
        return None
    return packet[: length.start(1)] + packet[length.end(1) : end], packet[end + len(_END) :]

"""Server-sent events out of bytes, in linear time and bounded memory."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

BURST_EVENTS: Final = 32
"""Events of one server that are dealt with before the others get a turn."""
SHORTEST_RETRY_S: Final = 0.1
"""A server that asks for no pause at all, and ends every stream at once, would keep both sides busy for ever."""
_BOM = b"\xef\xbb\xbf"
_USABLE_ID = re.compile(rb"[\x20-\x7e]{0,1024}")
"""Ids that can go back in a `Last-Event-ID` header."""
_RETRY_MS = re.compile(rb"\d{1,9}")


class OversizedEventError(Exception):
    """An event is larger than was asked for; the stream cannot be read any further."""


class ServerSentEvent(NamedTuple):
    """Server-sent event with data.

    Attributes:
        name: Its type, `message` where the server names none.
        data: Its data lines, joined by line feeds.
    """

    name: str
    data: bytes


class EventParser:
    """Cuts the bytes of one event stream into events; each byte is looked at once, whatever the chunks.

    Args:
        limit_bytes: Larger events are refused before they are complete.

    Attributes:
        last_id: Id of the last event that had one, empty before.
        retry_s: Pause the server asks for before the stream is opened again, at least `SHORTEST_RETRY_S`; None if it
            asks for none.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """

    def __init__(self, limit_bytes: int) -> None:
        self.last_id = ""
        self.retry_s: float | None = None
        self._limit_bytes = limit_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = ""
        self._is_after_cr = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """The events that `chunk` completes.

        Raises:
            OversizedEventError: The event it belongs to is too large.
        """
        if not chunk:
            return
        if self._is_after_cr:  # the second half of a CRLF that was cut in two
            chunk = chunk.removeprefix(b"\n")
        self._is_after_cr = chunk.endswith(b"\r")
        for piece in chunk.splitlines(keepends=True):
            text = piece.rstrip(b"\r\n")
            if self._data_bytes + len(self._line) + len(text) > self._limit_bytes:
                raise OversizedEventError
            if len(text) == len(piece):
                self._line += text
                return
            if self._line:
                text = bytes(self._line) + text
                self._line.clear()
            if (event := self._end_line(text)) is not None:
                yield event

    def _end_line(self, line: bytes) -> ServerSentEvent | None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and _USABLE_ID.fullmatch(value):
            self.last_id = value.decode()
        elif field == b"retry" and _RETRY_MS.fullmatch(value):
            self.retry_s = max(SHORTEST_RETRY_S, int(value) / 1000)
        return None

    def _end_event(self) -> ServerSentEvent | None:
        name, data = self._name or "message", b"\n".join(self._data)
        self._name = ""
        self._data.clear()
        self._data_bytes = 0
        return ServerSentEvent(name, data) if data else None

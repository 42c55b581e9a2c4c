"""Lines on pipes, split in linear time and bounded memory, with few turns of the event loop."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Final, SupportsIndex

import msgspec

from smart_mcp_proxy.io.busy_poll import Side, get_busy_poll

_KEPT_EDGE_BYTES = 256
"""Bytes that are kept of each end of a line over the limit: enough to read a JSON-RPC id from."""
_JOINED_BYTES: Final = 65_536
"""Most bytes that are held back: what a pipe takes at a time; more would be counted as sent that is not."""


class OverlongLine(msgspec.Struct, frozen=True):
    """Remainder of a line over the limit.

    Attributes:
        head: Its first bytes.
        tail: Its last bytes.
        size_bytes: Its whole length.
    """

    head: bytes
    tail: bytes
    size_bytes: int


class LineSplitter:
    """Splits a byte stream into lines without line ends; looks at each byte once.

    Args:
        limit_bytes: A longer line is skipped to its end and reported as `OverlongLine`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = b""

    @property
    def partial_line(self) -> bytes:
        """The line that has no end yet, as far as it is kept."""
        return b"".join(self._parts)

    def whole(self, chunk: bytes) -> bytes | None:
        """Return `chunk` as a line if it is exactly one, as `feed` would; else None, keeping nothing."""
        end = chunk.find(b"\n")
        if self._size or end < 0 or end != len(chunk) - 1 or end > self._limit_bytes:
            return None
        return chunk[:end].removesuffix(b"\r")

    def feed(self, chunk: bytes) -> Iterator[bytes | OverlongLine]:
        """The lines that `chunk` completes."""
        start = 0
        # Not split(): it looks for a single byte six times slower than find().
        while (end := chunk.find(b"\n", start)) >= 0:
            self._add(chunk[start:end])
            yield self._take()
            start = end + 1
        self._add(chunk[start:] if start else chunk)

    def _add(self, part: bytes) -> None:
        if not part:
            return
        before, self._size = self._size, self._size + len(part)
        if self._size <= self._limit_bytes:
            self._parts.append(part)
            return
        if before <= self._limit_bytes:  # the line goes over the limit just now: keep its edges only
            self._parts.append(part)
            # Edges of the parts, not of the line: it is never put together.
            self._tail = b"".join(each[-_KEPT_EDGE_BYTES:] for each in self._parts)[-_KEPT_EDGE_BYTES:]
            self._parts = [b"".join(each[:_KEPT_EDGE_BYTES] for each in self._parts)[:_KEPT_EDGE_BYTES]]
        else:
            self._tail = (self._tail + part)[-_KEPT_EDGE_BYTES:]

    def _take(self) -> bytes | OverlongLine:
        text = b"".join(self._parts)
        size, self._size = self._size, 0
        self._parts.clear()
        if size > self._limit_bytes:
            return OverlongLine(text, self._tail, size)
        return text.removesuffix(b"\r")


class LineSink:
    """The writing end of a pipe that many tasks share.

    A reader that is woken for every line of a busy pipe costs both sides more than the lines do. So only the first
    line of a turn of the event loop is written alone: nobody waits, and where many call at once few system calls do.

    Args:
        stream: The pipe.
    """

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._poll, self._side = get_busy_poll(self._loop), Side()
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._is_in_turn = False

    @property
    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._stream.is_closing()

    @property
    def backlog_bytes(self) -> int:
        """Bytes that the pipe has not taken; without those that this turn holds back."""
        return self._stream.transport.get_write_buffer_size()

    def write(self, line: bytes) -> None:
        """Writes a line, in the order of the calls; never waits. A closed pipe drops it."""
        if not self._is_in_turn:
            self._is_in_turn = True
            self._loop.call_soon(self._end_turn)
            self._put(line)
        else:
            self._held.append(line)
            self._held_bytes += len(line)
            if self._held_bytes > _JOINED_BYTES:
                self.flush()

    def write_pieces(self, pieces: Iterable[bytes]) -> None:
        """Writes a line in pieces: to copy a long one costs more than to send several."""
        self.flush()
        if not self._stream.is_closing():
            self._stream.writelines(pieces)

    def flush(self) -> None:
        """Writes what is held back until the end of the turn."""
        if self._held:
            lines = self._held[0] if len(self._held) == 1 else b"".join(self._held)
            self._held.clear()
            self._held_bytes = 0
            self._put(lines)

    async def drain(self) -> None:
        """Returns when the pipe has taken enough of what was written.

        Raises:
            ConnectionError: The other side is gone.
        """
        await self._stream.drain()

    def close(self) -> None:
        """Closes the pipe once it has taken everything."""
        self.flush()
        self._stream.close()

    async def wait_closed(self) -> None:
        """Returns when the pipe is closed.

        Raises:
            OSError: The other side was gone before it had taken everything.
        """
        await self._stream.wait_closed()

    def _end_turn(self) -> None:
        self._is_in_turn = False
        self.flush()
        self._poll.begin(self._loop, self._side)

    def _put(self, data: bytes) -> None:
        if not self._stream.is_closing():
            self._stream.write(data)


class OfferingReader(asyncio.StreamReader):
    """Stream that offers arriving bytes to `take` first; the rest waits to be read.

    To read means a turn of the event loop more, which costs a lonely call as much as all that is done with it. Nothing
    is offered unless somebody waits to read: then nothing lies before it, and nobody has given the stream up.

    Args:
        limit_bytes: The sender is paused while twice as much waits.

    Attributes:
        take: Says whether it has taken what it was offered.
    """

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit=limit_bytes)
        self.take: Callable[[bytes], bool] = _leave
        self._is_awaited = False
        self._poll = get_busy_poll(asyncio.get_running_loop())

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Called by the event loop."""
        self._poll.note_arrival()
        if self._is_awaited and self.take(bytes(data)):
            return
        self._is_awaited = False  # what comes behind it waits as well
        super().feed_data(data)

    def stop_offering(self) -> None:
        """Forget who takes: it mostly refers to this stream, and both would outlive their use."""
        self.take = _leave

    async def read(self, n: int = -1) -> bytes:
        """Return bytes that were not taken, without a turn of the loop if any; empty at the end."""
        self._is_awaited = True
        try:
            return await super().read(n)
        finally:
            self._is_awaited = False


def _leave(_: bytes) -> bool:
    return False


async def open_lines(connected: socket.socket, limit_bytes: int) -> tuple[OfferingReader, LineSink]:
    """The two ways of a socket that is connected already.

    Args:
        connected: Closed with the sink.
        limit_bytes: Of the reader.
    """
    loop, reader = asyncio.get_running_loop(), OfferingReader(limit_bytes)
    transport, protocol = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader), sock=connected)
    return reader, LineSink(asyncio.StreamWriter(transport, protocol, reader, loop))

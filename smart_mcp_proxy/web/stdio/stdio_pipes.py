"""Standard input and output as one client's pipes: never blocking, bounded if unread."""

import asyncio
import fcntl
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context

from smart_mcp_proxy.gateway.calls.admission import AdmissionControl
from smart_mcp_proxy.io.lines import LineSink, OfferingReader

CHUNK_BYTES = 256 * 1024
PIPE_BYTES = 1024 * 1024
"""Linux lets any user make a pipe this large."""
UNSENT_BYTES = 64 * 1024 * 1024
"""Answers that the client has not taken. Beyond it no call is started and nothing more is read, until it has taken
three quarters of them: whoever calls and never reads would have the gateway keep the results of all its calls."""

MOST_UNSENT_BYTES = 256 * 1024 * 1024
"""Calls that were sent before that still end: an answer that would take what waits beyond this is replaced by a short
error. As much as all clients over HTTP together may leave unread."""


@contextmanager
def claim_stdio() -> Iterator[tuple[int, int]]:
    """Private descriptors of the client's pipes; meanwhile fd 0 is empty and fd 1 is stderr.

    A stray print, ours or a library's, lands in the log then, not in the middle of the protocol.
    """
    source, sink = os.dup(0), os.dup(1)
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # a large result leaves at once
        with suppress(OSError):  # not a pipe, or this user's share of pipe memory is used up
            fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    try:
        yield source, sink
    finally:
        os.dup2(sink, 1)
        os.dup2(source, 0)


def _can_poll(descriptor: int) -> bool:
    """Whether the event loop can wait for this descriptor: pipes, sockets and terminals, not files."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def open_stdio_reader(source: int) -> OfferingReader:
    """Open a reader on a descriptor; a file is read like a pipe."""
    loop = asyncio.get_running_loop()
    reader = OfferingReader(CHUNK_BYTES)
    if _can_poll(source):
        protocol = asyncio.StreamReaderProtocol(reader)
        await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(source), "rb", buffering=0))
    else:
        # A file ends soon; a daemon thread reads it and ends with the process if it must.
        threading.Thread(target=_feed, args=(source, reader, loop, copy_context()), name="stdin", daemon=True).start()
    return reader


def _feed(source: int, reader: OfferingReader, loop: asyncio.AbstractEventLoop, context: Context) -> None:
    while chunk := os.read(source, CHUNK_BYTES):
        loop.call_soon_threadsafe(reader.feed_data, chunk, context=context)
    loop.call_soon_threadsafe(reader.feed_eof)


class Writer:
    """Writes to a file at once; the pipe's writer has the same methods.

    Attributes:
        is_behind: Whether a client that reads slowly, or never, has left too much unread.
        is_flowing: Whether there is nothing to wait for, and somebody who reads.
    """

    is_behind = False
    is_flowing = True

    def __init__(self, sink: int) -> None:
        self._sink = sink

    def write(self, data: bytes) -> None:
        """Writes all of it."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._sink, view) :]

    def has_room(self, size_bytes: int) -> bool:
        """Whether an answer of this size may wait with the others."""
        return True

    async def drain(self) -> None:
        """Returns when a client that reads slowly has caught up; a file always has."""

    async def flush(self) -> None:
        """Returns when everything was taken, or nobody is there to take it; nothing may be written meanwhile."""

    async def close(self) -> None:
        """Returns when everything was taken."""

    def abort(self) -> None:
        """Drop what was not taken."""


class _PipeWriter(Writer):
    """Writes to a pipe, socket or terminal without blocking the event loop."""

    def __init__(self, stream: asyncio.StreamWriter, flow: "_Flow") -> None:
        self._pipe = LineSink(stream)
        self._stream = stream
        self._flow = flow

    @property
    def is_behind(self) -> bool:  # type: ignore[override]  # of a pipe it changes
        """See `Writer`."""
        return self._flow.is_behind

    @property
    def is_flowing(self) -> bool:  # type: ignore[override]
        """See `Writer`."""
        return not self._flow.is_behind and not self._pipe.is_closing

    def write(self, data: bytes) -> None:
        """Writes what the pipe takes now and keeps the rest."""
        self._pipe.write(data)

    def has_room(self, size_bytes: int) -> bool:
        """See `Writer`."""
        waiting_bytes = self._pipe.backlog_bytes
        return not waiting_bytes or waiting_bytes + size_bytes <= MOST_UNSENT_BYTES

    async def drain(self) -> None:
        """Returns when the pipe has taken enough of what was kept."""
        await self._pipe.drain()

    async def flush(self) -> None:
        """See `Writer`."""
        self._pipe.flush()
        self._stream.transport.set_write_buffer_limits(0)  # a drain waits for the last byte now
        with suppress(OSError):
            await self._pipe.drain()

    async def close(self) -> None:
        """Returns when the pipe has taken everything, or is broken."""
        self._pipe.close()
        with suppress(OSError):
            await self._pipe.wait_closed()

    def abort(self) -> None:
        """See `Writer`."""
        self._stream.transport.abort()


class _Flow(asyncio.StreamReaderProtocol):
    """Holds calls back while the client leaves too much unread; the transport says when.

    Args:
        reader: Gets what comes in; of a writing side, nobody reads it.
        admission: Starts no calls meanwhile; None where the client is one of many.
    """

    def __init__(self, reader: asyncio.StreamReader, admission: AdmissionControl | None = None) -> None:
        super().__init__(reader)
        self._admission = admission
        self.is_behind = False

    def pause_writing(self) -> None:
        """There is too much."""
        super().pause_writing()
        self.is_behind = True
        if self._admission is not None:
            self._admission.hold(
                f"the client has not read the answers to its earlier calls, more than {UNSENT_BYTES:,} bytes"
            )

    def resume_writing(self) -> None:
        """Enough of it was read."""
        super().resume_writing()
        self.is_behind = False
        if self._admission is not None:
            self._admission.resume()


async def open_stdio_writer(sink: int, admission: AdmissionControl) -> Writer:
    """The writing side of a descriptor.

    Args:
        sink: A pipe, socket, terminal or file.
        admission: Starts no call while the client leaves too much unread.
    """
    if not _can_poll(sink):
        return Writer(sink)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(os.dup(sink), "wb", buffering=0)
    transport, flow = await loop.connect_write_pipe(lambda: _Flow(asyncio.StreamReader(), admission), pipe)
    transport.set_write_buffer_limits(UNSENT_BYTES)
    return _PipeWriter(asyncio.StreamWriter(transport, flow, None, loop), flow)


async def open_joined_streams(link: socket.socket) -> tuple[OfferingReader, Writer]:
    """The two ways of one client's connection among many; closed with the writer."""
    loop, reader = asyncio.get_running_loop(), OfferingReader(CHUNK_BYTES)
    transport, flow = await loop.create_connection(lambda: _Flow(reader), sock=link)
    transport.set_write_buffer_limits(UNSENT_BYTES)
    return reader, _PipeWriter(asyncio.StreamWriter(transport, flow, reader, loop), flow)

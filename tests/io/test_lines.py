"""Lines to a pipe: one system call for what one turn of the event loop writes, in order, and nothing lost."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from smart_mcp_proxy.io.lines import LineSink

pytestmark = pytest.mark.anyio

LIMIT_BYTES = 65_536


class Counted(asyncio.StreamWriter):
    """A writer that remembers what it was handed at a time."""

    writes: list[bytes]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        super().write(data)


@asynccontextmanager
async def piped() -> AsyncIterator[tuple[LineSink, Counted, int]]:
    source, sink = os.pipe()
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(asyncio.StreamReader())
    transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(sink, "wb", buffering=0))
    writer = Counted(transport, protocol, None, loop)
    writer.writes = []
    try:
        yield LineSink(writer), writer, source
    finally:
        writer.close()
        os.close(source)


async def test_the_first_line_of_a_turn_leaves_at_once_and_the_others_together() -> None:
    async with piped() as (sink, writer, source):
        for line in (b"1\n", b"2\n", b"3\n"):
            sink.write(line)
        assert writer.writes == [b"1\n"]
        await anyio.lowlevel.checkpoint()
        assert writer.writes == [b"1\n", b"2\n3\n"]
        sink.write(b"4\n")
        assert writer.writes[2:] == [b"4\n"]
        assert os.read(source, 100) == b"1\n2\n3\n4\n"


async def test_a_long_line_overtakes_nothing() -> None:
    long = b"x" * (LIMIT_BYTES + 1)
    async with piped() as (sink, writer, _):
        for line in (b"1\n", b"2\n", long, b"3\n"):
            sink.write(line)
        await anyio.lowlevel.checkpoint()
        assert b"".join(writer.writes) == b"1\n2\n" + long + b"3\n"


async def test_what_the_pipe_does_not_take_is_known_within_the_turn() -> None:
    """Else calls of one turn would count as sent by the megabyte that their server never reads."""
    line = b"x" * (LIMIT_BYTES // 2) + b"\n"
    async with piped() as (sink, _, _source):
        accepted = 0
        while not sink.backlog_bytes:
            sink.write(line)
            accepted += 1
        assert accepted <= 8


async def test_what_is_held_leaves_before_the_pipe_is_closed() -> None:
    async with piped() as (sink, _, source):
        sink.write(b"1\n")
        sink.write(b"2\n")
        sink.close()
        assert sink.is_closing
        sink.write(b"3\n")
        await anyio.lowlevel.checkpoint()
        assert os.read(source, 100) == b"1\n2\n"

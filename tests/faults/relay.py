"""A TCP relay that can be poisoned while it runs: what a bad network does to a good server."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

__all__ = ["CLEAN", "Relay", "Toxic", "opened_relay"]

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Toxic:
    """What happens to the bytes of every connection, old and new. Only what the server says is poisoned.

    Attributes:
        latency_s: Each piece is held back for so long.
        drip_s: One byte at a time, with this pause between them; 0 for whole pieces.
        reset_after: Connection is reset after so many bytes of the server; None for never.
        truncate_after: Connection is closed in good order after so many bytes of the server; None for never.
        is_silent: Nothing passes any more in either direction, and nobody is told (half-open).
        is_refusing: A new connection is reset as soon as it is made.
    """

    latency_s: float = 0.0
    drip_s: float = 0.0
    reset_after: int | None = None
    truncate_after: int | None = None
    is_silent: bool = False
    is_refusing: bool = False


CLEAN = Toxic()


class Relay:
    """Passes connections on to one port.

    Args:
        target_port: Where the server listens.

    Attributes:
        toxic: Counts from the next byte on; `heal()` ends what is silent.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._healed = asyncio.Event()
        self._toxic = CLEAN
        self._pairs: set[asyncio.Task[None]] = set()
        self.port = 0

    def __repr__(self) -> str:
        return f"<Relay to port {self._target_port}, {self._toxic}, {len(self._pairs)} connections>"

    @property
    def toxic(self) -> Toxic:
        """What happens now."""
        return self._toxic

    @toxic.setter
    def toxic(self, toxic: Toxic) -> None:
        self._toxic = toxic
        if not toxic.is_silent:
            self._healed.set()
            self._healed = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._pairs.add(task)
        try:
            if self._toxic.is_refusing:
                _reset(writer)
                return
            upstream = await asyncio.open_connection(LOOPBACK, self._target_port)
            await self._pass_both(reader, writer, *upstream)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._pairs.discard(task)

    async def _pass_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        ways = {
            asyncio.create_task(self._pass(reader, up_writer, is_poisoned=False)),
            asyncio.create_task(self._pass(up_reader, writer, is_poisoned=True)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up_writer.close()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_poisoned: bool) -> None:
        passed = 0
        while data := await reader.read(CHUNK_BYTES):
            while self._toxic.is_silent:
                await self._healed.wait()
            if is_poisoned:
                passed = await self._poison(writer, data, passed)
            else:
                writer.write(data)
            if writer.is_closing():
                return
            await writer.drain()

    async def _poison(self, writer: asyncio.StreamWriter, data: bytes, passed: int) -> int:
        """Writes `data` as the toxic has it; returns how much of this connection has passed since it was poisoned."""
        toxic = self._toxic
        if toxic == CLEAN:
            writer.write(data)
            return 0
        await asyncio.sleep(toxic.latency_s)
        for limit in (toxic.reset_after, toxic.truncate_after):
            if limit is not None and passed + len(data) >= limit:
                writer.write(data[: limit - passed])
                await writer.drain()
                _reset(writer) if limit == toxic.reset_after else writer.close()
                return limit
        if not toxic.drip_s:
            writer.write(data)
        for byte in data if toxic.drip_s else b"":
            writer.write(bytes([byte]))
            if self._toxic.drip_s:
                await asyncio.sleep(self._toxic.drip_s)
        return passed + len(data)

    def close(self) -> None:
        """Ends all connections."""
        for task in self._pairs:
            task.cancel()


@asynccontextmanager
async def opened_relay(target_port: int) -> AsyncIterator[Relay]:
    """A relay that listens on a port of its own."""
    relay = Relay(target_port)
    listener = await asyncio.start_server(relay.accept, LOOPBACK, 0)
    relay.port = listener.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        listener.close()
        relay.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

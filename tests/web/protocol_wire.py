"""A client's connection as a protocol of the server sees it."""

import asyncio
from collections.abc import Iterable

import anyio


class Wire(asyncio.Transport):
    """The client's side: what it is sent, packet by packet."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: list[bytes] = []
        self.is_closed = False
        self._news = asyncio.Event()

    @property
    def text(self) -> bytes:
        """All that was sent."""
        return b"".join(self.packets)

    async def sent(self, count: int = 1) -> None:
        """Returns when so many packets have been sent, or the connection was closed."""
        with anyio.fail_after(20):
            while len(self.packets) < count and not self.is_closed:
                self._news.clear()
                await self._news.wait()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.packets.append(bytes(data))
        self._news.set()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.is_closed = True
        self._news.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        """The test sends no more than it wants to."""

    def resume_reading(self) -> None:
        """Nothing was paused."""

"""A gateway that does what a test says, at the socket at which doors look for one."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from desks import DEADLINE_S


class Link:
    """Connection of one door.

    Args:
        reader: What the door says.
        writer: To the door.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.hello: dict[str, Any] = {}

    async def hear(self) -> dict[str, Any]:
        """The door's next message."""
        line = await self.read()
        assert line, "the door has left"
        message: dict[str, Any] = json.loads(line)
        return message

    async def read(self) -> bytes:
        """The door's next line; empty at its end."""
        return await asyncio.wait_for(self._reader.readline(), DEADLINE_S)

    async def read_rest(self) -> bytes:
        """All that the door still says."""
        return await asyncio.wait_for(self._reader.read(), DEADLINE_S)

    def say(self, **message: Any) -> None:
        """Sends a message of JSON-RPC."""
        self.put(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n")

    def put(self, data: bytes) -> None:
        """Sends bytes."""
        self._writer.write(data)

    async def answer(self, method: str, result: Any = None) -> dict[str, Any]:
        """Answers the door's next request, which is of this method."""
        request = await self.hear()
        assert request["method"] == method, request
        self.say(id=request["id"], result={} if result is None else result)
        return request

    def let_in(self) -> None:
        """Serves this client."""
        self.put(b'{"joined": {"pid": 1, "version": "1"}}\n')

    def leave(self, taken: int, *, is_stopped: bool = False) -> None:
        """Says that no more is read."""
        self.put(b"\0" + json.dumps({"taken": taken, "stopped": is_stopped}).encode() + b"\n")

    def pause(self) -> None:
        """Reads no more."""
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Ends the connection."""
        self._writer.close()

    async def end(self) -> None:
        """Ends the connection, and returns once it has ended."""
        self.close()
        await self._writer.wait_closed()


class FakeGateway:
    """What listens where doors connect."""

    def __init__(self) -> None:
        self._links: asyncio.Queue[Link] = asyncio.Queue()
        self._all: list[Link] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A door has connected."""
        link = Link(reader, writer)
        self._all.append(link)
        if line := await link.read():  # else the door has left already
            link.hello = json.loads(line)["join"]
            await self._links.put(link)

    async def next(self) -> Link:
        """The next door, which has said who it is."""
        return await asyncio.wait_for(self._links.get(), DEADLINE_S)

    async def joined(self) -> Link:
        """The next door, let in."""
        link = await self.next()
        link.let_in()
        return link

    def is_awaited(self) -> bool:
        """Whether a door has connected that nobody has looked at."""
        return not self._links.empty()

    def close(self) -> None:
        """Ends all connections."""
        for each in self._all:
            each.close()


@asynccontextmanager
async def listening(path: str) -> AsyncIterator[FakeGateway]:
    """A gateway of a test's own at this path."""
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    gateway = FakeGateway()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        server = await asyncio.start_unix_server(gateway.take, sock=listener, limit=1 << 28)
        try:
            yield gateway
        finally:
            gateway.close()
            server.close()
            Path(path).unlink()

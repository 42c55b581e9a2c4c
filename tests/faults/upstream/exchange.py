"""Just enough HTTP/1.1, written by hand so that it can be written wrongly."""

import asyncio
import socket
import struct
from dataclasses import dataclass

REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


@dataclass(frozen=True)
class Request:
    """One request; header names are in lower case."""

    verb: str
    target: str
    headers: dict[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request on a connection, None at its end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    verb, target, _ = first.split()
    return Request(verb, target, headers, body)


class Connection:
    """The answering side of a connection.

    Args:
        writer: Where it goes.

    Attributes:
        is_over: Whether no further request is read.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.is_over = False

    async def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, code: int, headers: dict[str, str]) -> None:
        """A status line and headers."""
        lines = [f"HTTP/1.1 {code} {REASONS.get(code, 'Whatever')}", *(f"{name}: {headers[name]}" for name in headers)]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def status(self, code: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        await self.head(code, {**(headers or {}), "Content-Length": str(len(body))})
        await self.send(body)

    async def json(self, body: bytes, **headers: str) -> None:
        """A whole answer that is said to be JSON."""
        await self.status(200, body, {"Content-Type": "application/json", **headers})

    async def begin_stream(self, headers: dict[str, str] | None = None) -> None:
        """The head of an event stream."""
        kind = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        await self.head(200, {**kind, **(headers or {})})

    async def chunk(self, data: bytes) -> None:
        """One chunk of a stream."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, message: bytes) -> None:
        """One event with `message` as its data."""
        lines = b"".join(b"data: " + line + b"\n" for line in message.split(b"\n"))
        await self.chunk(b"event: message\n" + lines + b"\n")

    async def end_stream(self) -> None:
        """The last chunk."""
        await self.chunk(b"")

    async def until_closed(self) -> None:
        """Says nothing any more until the other side leaves."""
        self.is_over = True
        await self._writer.wait_closed()

    def close(self) -> None:
        """Ends the connection in good order."""
        self.is_over = True
        self._writer.close()

    def reset(self) -> None:
        """Ends it with a RST."""
        self.is_over = True
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

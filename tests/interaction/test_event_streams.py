"""A client of the handshake era whose stream broke and who opens it again is told what happens from then on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import anyio
import pytest
from agents import HttpAgent
from transports import odd_server, over_http, served, settled

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("event-stream-anew")]

CHANGED = b"notifications/tools/list_changed"
LIMIT_S = 60


class Stream(NamedTuple):
    """One GET, on a connection of its own.

    Attributes:
        status: Of its answer.
        reader: Of what comes after its head.
        writer: Of the connection.
    """

    status: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def until(self, words: bytes) -> None:
        """Reads until they have come."""
        with anyio.fail_after(LIMIT_S):
            await self.reader.readuntil(words)

    async def until_over(self) -> bytes:
        """Reads the rest, which ends as a whole answer does."""
        with anyio.fail_after(LIMIT_S):
            return await self.reader.readuntil(b"0\r\n\r\n")


@dataclass
class Listener:
    """A client that opens its stream again and again.

    Attributes:
        agent: Its session.
        gateway: Its address.
        writers: Of all connections that it has opened.
    """

    agent: HttpAgent
    gateway: SplitResult
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def listen(self, **headers: str) -> Stream:
        """Opens it."""
        reader, writer = await asyncio.open_connection(self.gateway.hostname, self.gateway.port)
        self.writers.append(writer)
        given = {
            "host": self.gateway.netloc,
            "accept": "text/event-stream",
            "mcp-protocol-version": "2025-11-25",
            "mcp-session-id": str(self.agent.session_id),
        } | {name.replace("_", "-"): text for name, text in headers.items()}
        lines = ["GET /mcp HTTP/1.1", *(f"{name}: {text}" for name, text in given.items()), "", ""]
        writer.write("\r\n".join(lines).encode())
        with anyio.fail_after(LIMIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
        return Stream(int(head.split()[1]), reader, writer)

    async def leave(self) -> None:
        """Ends all connections."""
        for writer in self.writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def change(self, query: str) -> None:
        """Has its list of tools change."""
        found = await self.agent.call("retrieve_tools", query=query, limit=1)
        assert found["structuredContent"]["newly_registered"]


@asynccontextmanager
async def listening_to(tmp_path: Path) -> AsyncIterator[Listener]:
    (tmp_path / "ledger").touch()
    servers = {"old": odd_server("handshake", tmp_path / "ledger")}
    async with (
        settled(tmp_path / "data", servers, routing_type="DYNAMIC") as gateway,
        served(gateway) as base,
        over_http(base, "handshake") as agent,
    ):
        listener = Listener(agent, urlsplit(base))
        try:
            yield listener
        finally:
            await listener.leave()


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("is_abrupt", [False, True], ids=["closed", "reset"])
async def test_a_stream_that_is_opened_again_at_once_is_served(tmp_path: Path, is_abrupt: bool) -> None:
    """Twenty times, however the former one ended and whether the gateway has noticed; what happens then is told."""
    async with listening_to(tmp_path) as client:
        for _ in range(20):
            stream = await client.listen()
            assert stream.status == 200
            if is_abrupt:
                stream.writer.transport.abort()
            else:
                stream.writer.close()
        last = await client.listen()
        await client.change("echo")
        await last.until(CHANGED)


@pytest.mark.long  # a third of a second of processor time
async def test_a_stream_that_the_client_has_lost_gives_way_to_its_new_one(tmp_path: Path) -> None:
    """To the gateway the former connection looks alive; it is ended, and the new one is told everything."""
    async with listening_to(tmp_path) as client:
        lost, found = await client.listen(), await client.listen()
        assert (lost.status, found.status) == (200, 200)
        assert CHANGED not in await lost.until_over()
        await client.change("echo")
        await found.until(CHANGED)


@pytest.mark.long  # a third of a second of processor time
async def test_a_stream_that_is_to_go_on_after_an_event_begins_anew(tmp_path: Path) -> None:
    """Nothing is kept to be sent again, and no event has an id; a client that names one is served all the same."""
    async with listening_to(tmp_path) as client:
        stream = await client.listen(last_event_id="17")
        assert stream.status == 200
        await client.change("echo")
        await stream.until(CHANGED)


async def test_a_request_that_takes_no_stream_ends_none(tmp_path: Path) -> None:
    """It is refused, and the stream that is there stays."""
    async with listening_to(tmp_path) as client:
        stream = await client.listen()
        assert (await client.listen(accept="application/json")).status == 406
        await client.change("echo")
        await stream.until(CHANGED)

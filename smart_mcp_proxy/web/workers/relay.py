"""A way to the worker that keeps a session, for requests of a connection that stays where it is."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

import httptools

from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.telemetry import get_logger, spawn

__all__ = ["RELAY", "Relay"]

RELAY: Final = b"p"

log = get_logger("http")


class Relay(asyncio.Protocol):
    """One client's requests for one other worker, one at a time; answers go to the client as they come.

    Args:
        client: Takes the answers.
        on_answer: Told after each answer whether the client's connection may be kept.

    Attributes:
        is_busy: Whether an answer is on its way.
        is_open: Whether the other worker can be reached by it.
    """

    def __init__(self, client: asyncio.Transport, on_answer: Callable[[bool], None]) -> None:
        self._client = client
        self._on_answer = on_answer
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._unsent = b""
        """The first request, until the way is there."""
        self._is_answered = False
        self._is_kept = True
        self.is_busy = False
        self.is_open = True

    @classmethod
    def open(cls, worker: Worker, keeper: int, client: asyncio.Transport, on_answer: Callable[[bool], None]) -> "Relay":
        """One that may be used at once.

        Args:
            worker: This process.
            keeper: Number of the other one.
            client: Takes the answers.
            on_answer: See `Relay`.

        Raises:
            OSError: There are no descriptors left.
        """
        relay = cls(client, on_answer)
        own, theirs = socket.socketpair()
        with theirs:
            own.setblocking(False)
            worker.send(keeper, RELAY, b"", theirs.fileno())
        spawn(relay._connect(own), "relay of requests")
        return relay

    async def _connect(self, own: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self, own)

    def send(self, request: bytes) -> None:
        """Send a whole request; the answer to the one before has come."""
        self.is_busy = True
        if self._transport is None:
            self._unsent = request
        else:
            self._transport.write(request)

    def pause(self) -> None:
        """Take no more of an answer: the client is slow."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._transport is not None:
            self._transport.resume_reading()

    def close(self) -> None:
        """Tell the other worker that the client is gone."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The way is there."""
        self._transport = cast(asyncio.Transport, transport)
        if self.is_open:
            self._transport.write(self._unsent)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """A part of an answer has come."""
        self._client.write(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:  # what came before it is with the client, which cannot know its end
            log.warning("another worker's answer cannot be read: %s", exc)
            self._client.abort()
            return
        if self._is_answered:
            self._is_answered = self.is_busy = False
            self._on_answer(self._is_kept)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other worker has closed it, or is no more."""
        self.is_open = False
        if self.is_busy:
            self._client.close()

    # --- called by the parser

    def on_message_complete(self) -> None:
        """An answer is whole."""
        self._is_answered = True
        self._is_kept = self._parser.should_keep_alive()  # it knows no longer afterwards

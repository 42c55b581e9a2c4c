"""Connections to the workers that hold sessions, for requests that are passed on."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, cast

import httptools

from smart_mcp_proxy.io.open_files import is_scarce
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.telemetry import get_logger, spawn

RELAY: Final = b"p"
_UNREAD: Final = (BrokenPipeError, ConnectionResetError)
"""Errors of a way whose other side was closed before a request was sent, or with some of it unread."""

log = get_logger("http")


class WorkerRelay(asyncio.Protocol):
    """Relay of a client's requests to another worker, one at a time; answers pass as they come.

    Args:
        client: Takes the answers.
        on_answer: Told after each answer whether the client's connection may be kept.
        on_unread: Takes a request that the other worker cannot have read whole; its way is closed.

    Attributes:
        is_busy: Whether an answer is on its way.
        has_begun: Whether some of it has come.
        is_open: Whether the other worker can be reached by it.
    """

    def __init__(
        self, client: asyncio.Transport, on_answer: Callable[[bool], None], on_unread: Callable[[bytes], None]
    ) -> None:
        self._client = client
        self._on_answer = on_answer
        self._on_unread = on_unread
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._request = b""
        """The one that waits for the first of its answer, or for the way to be there."""
        self._has_served = False
        """Whether an answer has come by it before."""
        self._is_answered = False
        self._is_kept = True
        self.is_busy = False
        self.has_begun = False
        self.is_open = True

    async def connect(self, own: socket.socket) -> None:
        """Open the way; what is sent before waits for it.

        Args:
            own: This worker's end.
        """
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self, own)
        except OSError as exc:
            own.close()
            self.connection_lost(exc)

    def send(self, request: bytes) -> None:
        """Send a whole request; the answer to the one before has come."""
        self.is_busy, self.has_begun = True, False
        self._request = request
        if self._transport is not None:
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
        """The connection is open."""
        self._transport = cast(asyncio.Transport, transport)
        if self.is_open:
            self._transport.write(self._request)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """A part of an answer has come."""
        if self._parser is None or not self.is_busy or self._client.is_closing():
            self.close()
            return
        self.has_begun = True
        self._request = b""
        self._client.write(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as exc:  # what came before it is with the client, which cannot know its end
            log.warning("another worker's answer cannot be read: %s", exc)
            self._client.abort()
            return
        if self._is_answered:
            self._is_answered = self.is_busy = False
            self._has_served = True
            self.resume()  # the client may have been slow to take this one, and nobody would do so later
            self._on_answer(self._is_kept)

    def eof_received(self) -> None:
        """The other worker has closed it, or is no more.

        A request that is read in the same turn of the loop comes before `connection_lost`, and needs a way of its own.
        """
        self.is_open = False

    def connection_lost(self, exc: Exception | None) -> None:
        """The way is closed.

        A request that nobody read goes another way, once: a new way that ends so has a reason that may last.
        """
        self.is_open = False
        self._parser = None  # it refers to this
        request, self._request = self._request, b""
        if not self.is_busy:
            return
        if request and self._has_served and isinstance(exc, _UNREAD) and not self._client.is_closing():
            self._on_unread(request)
        else:
            self._client.close()

    # --- called by the parser

    def on_message_complete(self) -> None:
        """An answer is whole."""
        self._is_answered = True
        self._is_kept = self._parser is not None and self._parser.should_keep_alive()  # it knows no longer afterwards


class Relays:
    """All relays of this process.

    Args:
        worker: This process.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._under_way: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()

    def open(
        self,
        keeper: int,
        client: asyncio.Transport,
        on_answer: Callable[[bool], None],
        on_unread: Callable[[bytes], None],
    ) -> WorkerRelay:
        """Open a relay that may be used at once.

        Args:
            keeper: Number of the other worker.
            client: See `WorkerRelay`, as `on_answer` and `on_unread`.

        Raises:
            OSError: There are no descriptors left, or those that servers need.
        """
        own, theirs = socket.socketpair()
        own.setblocking(False)
        with theirs:
            try:
                if is_scarce(own.fileno()):
                    raise OSError("too few descriptors are left")
                self.worker.send(keeper, RELAY, b"", theirs.fileno())
            except OSError:
                own.close()
                raise
        relay = WorkerRelay(client, on_answer, on_unread)
        spawn(relay.connect(own), "relay of requests")
        return relay

    def begin(self, connection: object) -> None:
        """Take note of an answer on its way over a client's connection."""
        self._under_way.add(connection)
        self._none.clear()

    def end(self, connection: object) -> None:
        """Note that an answer was sent, or that its client left."""
        self._under_way.discard(connection)
        if not self._under_way:
            self._none.set()

    async def wait_for_answers(self, until_s: float) -> None:
        """Wait for those on their way, by the loop's clock until then at most."""
        try:
            async with asyncio.timeout_at(until_s):
                await self._none.wait()
        except TimeoutError:
            log.warning("%d answers of other workers are given up", len(self._under_way))

"""Sessions with a stdio server that another worker process runs, over a socket to that worker.

The first line is the worker's: what it agreed on with the server, or why there is no server. After it come requests,
replies and notifications, a line each, as between client and server; `keeper.py` is the other end. The connection of a
refusal stays open until the server's state is another one: its end says that a new try is due.
"""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

import msgspec

from smart_mcp_proxy.errors import Delivery, ProxyError, UpstreamError
from smart_mcp_proxy.io.lines import LineSink, OfferingReader, open_lines
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.models import Era, OnMessage
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream.opening import SessionOptions
from smart_mcp_proxy.upstream.protocol.base_session import StreamSession
from smart_mcp_proxy.upstream.protocol.codec import encode_message
from smart_mcp_proxy.upstream.protocol.pending import Reports
from smart_mcp_proxy.upstream.protocol.session import STOPPED, Retry, build_lost_error, start_error

SERVER: Final = b"s"
"""Kind of parcel: its words are a server's name."""
LOGS: Final = b"l"
"""Kind of question: the last lines of a server, by their number and its name; answered with a list."""
RESTART: Final = b"r"
"""Kind of question: restarts the server of that name."""
RETRY: Final = b"t"
"""Kind of question: a call waits for the server of that name, which failed."""
TIMED_OUT: Final = "timed out"
"""Notification that a request had no answer in time; `began_s` is on the clock of all processes of a machine."""
_HEAD_LIMIT_BYTES: Final = 1 << 20
_PATIENCE_S: Final = 2.0
"""The worker waits for the server as long as this one would."""
_REDIAL_S: Final = 0.1
"""Pause before a worker that ended without a word is addressed again: another takes its place."""
_LONGEST_REFUSAL_S: Final = 60.0
"""By then there has been another try."""
_CHUNK_BYTES: Final = 65_536
_UNSENT_BYTES: Final = 65_536
"""Beyond it a line waits."""


class GoneError(UpstreamError):
    """The server was lost and not tried again since."""


class WorkerFailure(msgspec.Struct):
    """A failure of the session with the server, in the worker's words.

    Attributes:
        message: Without `said`; these are as in `ProxyError`.
        hint: What to do.
        delivery: Whether the server may have executed the request.
        said: Words of the server.
        may_return: Whether the server was lost and not tried again since.
    """

    message: str
    hint: str = ""
    delivery: Delivery = "not_sent"
    said: str = ""
    may_return: bool = False

    @classmethod
    def of(cls, error: ProxyError) -> Self:
        """The facts of an error that another worker needs."""
        return cls(error.message.removesuffix(error.said).rstrip(), error.hint, error.delivery, error.said)

    def error(self) -> UpstreamError:
        """The same as an error here."""
        kind = GoneError if self.may_return else UpstreamError
        return kind(self.message, hint=self.hint, delivery=self.delivery, said=self.said)


class Head(msgspec.Struct):
    """The worker's first line.

    Attributes:
        era: What the worker agreed on with the server, as below.
        protocol_version: The version.
        capabilities: What the server declared.
        server_info: Its name and version.
        failure_code: Error code of replies that are failures of the session; no server knows it.
        run: Names the server's process.
        refusal: Why there is no session; None if there is one.
    """

    era: Era = "handshake"
    protocol_version: str = ""
    capabilities: dict[str, Any] = {}
    server_info: str = ""
    failure_code: int = 0
    run: str = ""
    refusal: WorkerFailure | None = None


_heads = msgspec.json.Decoder(Head)


def runs_elsewhere(config: ServerConfig, worker: Worker) -> bool:
    """Whether another worker than this one runs a server for all."""
    return config.transport == "stdio" and config.shared and worker.find_keeper_worker(config.name) != worker.number


async def open_relayed(opening: SessionOptions, worker: Worker) -> "RelayedSession":
    """Open a session with a server that another worker runs, once it is ready there.

    Raises:
        UpstreamError: It is not ready there; `Retry` is reported when it may be.
        UpstreamTimeoutError: The worker says nothing within `limits.init_s`.
    """
    config = opening.config
    try:
        async with asyncio.timeout(config.limits.init_s + _PATIENCE_S):
            head, reader, sink = await _dial_keeper(config, worker)
    except TimeoutError:
        raise start_error(config) from None
    if (refusal := head.refusal) is not None:
        spawn(_await_change(opening, reader, sink), f"upstream-refused-{config.name}")
        raise refusal.error()
    return RelayedSession(opening, head, reader, sink)


async def _dial_keeper(config: ServerConfig, worker: Worker) -> tuple[Head, OfferingReader, LineSink]:
    """First line and socket of the worker that runs a server, or of the one that takes its place."""
    while True:
        ours, theirs = socket.socketpair()
        with theirs:
            worker.send(worker.find_keeper_worker(config.name), SERVER, config.name.encode(), theirs.fileno())
        reader, sink = await open_lines(ours, _HEAD_LIMIT_BYTES)
        line = b""
        try:
            with suppress(ConnectionError):
                line = await reader.readline()
            if line.endswith(b"\n"):
                return _heads.decode(line), reader, sink
        except ValueError as exc:
            sink.close()
            raise build_lost_error(
                config.name, "declares too much to be used by several workers", was_sent=False
            ) from exc
        except BaseException:
            sink.close()
            raise
        sink.close()
        await asyncio.sleep(_REDIAL_S)


async def _await_change(opening: SessionOptions, reader: OfferingReader, sink: LineSink) -> None:
    """Reports when a refusal no longer holds."""
    try:
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_LONGEST_REFUSAL_S):
                await reader.read()
                opening.on_event(Retry())
    finally:
        sink.close()


class RelayedSession(StreamSession):
    """A session over a socket to the worker that runs the server.

    Args:
        opening: What it is opened from.
        head: The worker's first line.
        reader: Of the socket.
        sink: Of the socket.
    """

    def __init__(self, opening: SessionOptions, head: Head, reader: OfferingReader, sink: LineSink) -> None:
        super().__init__(opening.config, opening.on_event, opening.max_message_bytes, None, self._put_at_once)
        self.era = head.era
        self.protocol_version = head.protocol_version
        self.capabilities = head.capabilities
        self.server_info = head.server_info
        self.run = head.run
        self.folders = opening.folders()  # the worker has the same
        self._failure_code = head.failure_code
        self._sink = sink
        reader.take = self._inbox.take
        self._reading = spawn(self._read_all(reader), f"upstream-read-{self._server}")

    async def close(self) -> None:
        """Ends the session; the server goes on."""
        self._lose(STOPPED)
        self._reading.cancel()
        self._sink.close()

    def note_timeout(self, began_s: float) -> None:
        """Tells the worker, which can find out whether the server still works at all."""
        self._write_soon(encode_message({"method": TIMED_OUT, "params": {"began_s": began_s}}))

    async def _exchange(
        self, method: str, params: Mapping[str, Any], timeout_s: float, reports: Reports, on_message: OnMessage | None
    ) -> RawResult:
        """The result, with failures at the worker as if they had been here."""
        try:
            return await super()._exchange(method, params, timeout_s, reports, None)
        except UpstreamError as exc:
            if exc.answer is None or exc.answer.code != self._failure_code:
                raise
            failure = msgspec.convert(exc.answer.data, WorkerFailure)
        raise failure.error()

    def _put_at_once(self, line: bytes) -> bool:
        if self._sink.is_closing or self._sink.backlog_bytes > _UNSENT_BYTES:
            return False
        self._sink.write(line)
        return True

    async def _write(self, line: bytes, deadline_s: float | None = None) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._sink.drain()  # before it: what was begun must be written whole
                self._sink.write(line)
        except ConnectionError as exc:
            self._lose(_ENDED)
            raise self._build_lost_error(was_sent=False) from exc

    def _write_soon(self, line: bytes) -> None:
        self._sink.write(line)  # small, and nobody else could do what it asks for

    async def _read_all(self, reader: OfferingReader) -> None:
        with suppress(ConnectionError):
            await self._inbox.read(partial(reader.read, _CHUNK_BYTES))
        self._on_event(Retry())
        self._lose(_ENDED)


_ENDED: Final = "ended, or the worker that runs it"

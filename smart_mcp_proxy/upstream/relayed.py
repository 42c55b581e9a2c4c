"""Sessions with a stdio server that another worker process runs, over a socket to that worker.

The first line is the worker's: what it agreed on with the server, or why there is no server. After it come requests,
replies and notifications, a line each, as between client and server; `keeper.py` is the other end.
"""

import asyncio
import socket
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import Delivery, UpstreamError
from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.models import Era, OnMessage, OnProgress
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream.opening import Opening
from smart_mcp_proxy.upstream.protocol.base_session import StreamSession
from smart_mcp_proxy.upstream.protocol.session import lost_error, timeout_error

__all__ = ["HEAD_LIMIT_BYTES", "SERVER", "Failure", "Head", "open_relayed"]

SERVER: Final = b"s"
"""Kind of parcel: its words are a server's name."""
HEAD_LIMIT_BYTES: Final = 1 << 20
_PATIENCE_S: Final = 2.0
"""The worker waits for the server as long as this one would."""
_CHUNK_BYTES: Final = 65_536
_UNSENT_BYTES: Final = 65_536
"""Beyond it a line waits."""


class Failure(msgspec.Struct):
    """A failure of the session with the server, in the worker's words."""

    message: str
    hint: str
    delivery: Delivery = "not_sent"


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
    refusal: Failure | None = None


_heads = msgspec.json.Decoder(Head)


async def open_relayed(opening: Opening, worker: Worker) -> "RelayedSession":
    """Open a session with a server that another worker runs, once it is ready there.

    Raises:
        UpstreamError: It is not ready there.
        UpstreamTimeoutError: The worker says nothing within `limits.init_s`.
    """
    config = opening.config
    ours, theirs = socket.socketpair()
    with theirs:
        worker.send(worker.keeper_of(config.name), SERVER, config.name.encode(), theirs.fileno())
    reader, writer = await asyncio.open_connection(sock=ours, limit=HEAD_LIMIT_BYTES)
    try:
        async with asyncio.timeout(config.limits.init_s + _PATIENCE_S):
            head = _heads.decode(await reader.readline())
    except TimeoutError:
        writer.close()
        raise timeout_error(config.name, "initialize", config.limits.init_s, was_sent=False) from None
    except (msgspec.DecodeError, ValueError, OSError) as exc:
        writer.close()
        raise lost_error(config.name, "is run by a worker that has just ended", was_sent=False) from exc
    if (refusal := head.refusal) is not None:
        writer.close()
        raise UpstreamError(refusal.message, hint=refusal.hint)
    return RelayedSession(opening, head, reader, writer)


class RelayedSession(StreamSession):
    """A session over a socket to the worker that runs the server.

    Args:
        opening: What it is opened from.
        head: The worker's first line.
        reader: Of the socket.
        writer: Of the socket.
    """

    def __init__(
        self, opening: Opening, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(opening.config, opening.on_event, opening.max_message_bytes, None, self._put_at_once)
        self.era = head.era
        self.protocol_version = head.protocol_version
        self.capabilities = head.capabilities
        self.server_info = head.server_info
        self.run = head.run
        self._failure_code = head.failure_code
        self._writer = writer
        self._reading = spawn(self._read_all(reader), f"upstream-read-{self._server}")

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_s: float,
        on_progress: OnProgress | None = None,
        on_message: OnMessage | None = None,
    ) -> Coroutine[Any, Any, RawResult]:
        """The `result` of one request; see `UpstreamSession.request`."""
        return self._told(super().request(method, params, timeout_s=timeout_s, on_progress=on_progress))

    async def close(self) -> None:
        """Ends the session; the server goes on."""
        self._lose("was stopped")
        self._reading.cancel()
        self._writer.close()

    async def _told(self, exchange: Coroutine[Any, Any, RawResult]) -> RawResult:
        """The same, with failures at the worker as if they had been here."""
        try:
            return await exchange
        except UpstreamError as exc:
            if exc.answer is None or exc.answer.code != self._failure_code:
                raise
            failure = msgspec.convert(exc.answer.data, Failure)
        raise UpstreamError(failure.message, hint=failure.hint, delivery=failure.delivery)

    def _put_at_once(self, line: bytes) -> bool:
        transport = self._writer.transport
        if transport.is_closing() or transport.get_write_buffer_size() > _UNSENT_BYTES:
            return False
        self._writer.write(line)
        return True

    async def _write(self, line: bytes, deadline_s: float | None = None) -> None:
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._writer.drain()  # before it: what was begun must be written whole
                self._writer.write(line)
        except ConnectionError as exc:
            self._lose(_ENDED)
            raise self._lost_error(was_sent=False) from exc

    def _write_soon(self, line: bytes) -> None:
        self._put_at_once(line)

    async def _read_all(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            await self._inbox.read(partial(reader.read, _CHUNK_BYTES))
        self._lose(_ENDED)


_ENDED: Final = "ended, or the worker that runs it"

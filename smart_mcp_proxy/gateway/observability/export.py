"""Copies of stored activity records for syslog or a collector of OpenTelemetry.

A record that was sent out is out of reach of whoever changes the store later. Nothing waits for the receiver: what it
does not take is dropped, and the log says how many.
"""

import asyncio
import logging
import os
import queue
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from logging.handlers import SysLogHandler
from typing import Final
from urllib.parse import urlsplit

import msgspec

from smart_mcp_proxy.errors import ConfigError, MissingExtraError
from smart_mcp_proxy.gateway.activity.activity_log import Export
from smart_mcp_proxy.gateway.activity.records import view_record
from smart_mcp_proxy.telemetry import Activity, get_logger

_WAITING: Final = 10_000
"""Records that wait for the receiver; more are dropped."""
_CLOSE_S: Final = 3.0
"""Seconds that a stop waits for what is left."""
_SOCKET_S: Final = 2.0
_PORT: Final = 514
_SOCKETS: Final = {"syslog": socket.SOCK_DGRAM, "syslog+tcp": socket.SOCK_STREAM}
_FORMS: Final = "Use syslog://HOST:514, syslog+tcp://HOST:601, syslog:///dev/log or otlp."

log = get_logger("activity")


class _Syslog(SysLogHandler):
    """A syslog receiver that may come and go; failures are logged once until it takes a record again."""

    append_nul = False
    ident = f"mcpproxy[{os.getpid()}]: "

    def __init__(self, address: str | tuple[str, int], kind: socket.SocketKind) -> None:
        self._is_failing = False
        self._is_framed = kind == socket.SOCK_STREAM
        with suppress(OSError):  # the first record tells
            super().__init__(address, facility=SysLogHandler.LOG_AUTHPRIV, socktype=kind)

    socket: "socket.socket | None"

    def createSocket(self) -> None:  # noqa: N802 the library's name
        """Connect; what is sent then waits for a bounded time."""
        super().createSocket()
        if self.socket is not None:
            self.socket.settimeout(_SOCKET_S)

    def format(self, record: logging.LogRecord) -> str:
        """The record's JSON; on TCP with a line's end (RFC 6587, section 3.4.2)."""
        return record.getMessage() + ("\n" if self._is_framed else "")

    def emit(self, record: logging.LogRecord) -> None:
        """Sends it."""
        self._has_failed = False
        super().emit(record)
        self._is_failing = self._has_failed

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 the library's name
        """Says once that the receiver takes nothing."""
        self._has_failed = True
        if not self._is_failing:
            log.warning("MCPPROXY_ACTIVITY_EXPORT: the receiver takes no records at present")


class _Offer:
    """Puts records where the sending thread takes them."""

    def __init__(self, waiting: "queue.SimpleQueue[logging.LogRecord | None]") -> None:
        self._waiting = waiting
        self._dropped = 0

    def __call__(self, records: Sequence[Activity]) -> None:
        for record in records:
            line = msgspec.json.encode(view_record(record)).decode()
            made = logging.LogRecord("mcpproxy.activity", logging.INFO, "", 0, line, None, None)
            made.created = record.at_s
            if self._waiting.qsize() < _WAITING:
                self._waiting.put(made)
            else:
                self._dropped += 1
        if self._dropped and self._waiting.qsize() < _WAITING // 2:
            log.warning("MCPPROXY_ACTIVITY_EXPORT: %d records were dropped, the receiver was too slow", self._dropped)
            self._dropped = 0


def find_handler(target: str) -> Callable[[], logging.Handler]:
    """Find how records are sent to a target.

    Args:
        target: As MCPPROXY_ACTIVITY_EXPORT has it.

    Raises:
        ConfigError: There is no such way.
    """
    if target == "otlp":
        return _otlp
    parts = urlsplit(target)
    try:
        kind, port = _SOCKETS[parts.scheme], parts.port or _PORT
    except (KeyError, ValueError) as exc:
        raise ConfigError(f"MCPPROXY_ACTIVITY_EXPORT is {target[:80]!r}.", hint=_FORMS) from exc
    address = (parts.hostname, port) if parts.hostname else parts.path
    if not address:
        raise ConfigError(f"MCPPROXY_ACTIVITY_EXPORT is {target[:80]!r}, without a host.", hint=_FORMS)
    return lambda: _Syslog(address, kind)


def _otlp() -> logging.Handler:
    try:
        # Here and not above: they take a tenth of a second and 14 MB, which all others are spared.
        from smart_mcp_proxy.gateway.observability.otel_logs_edge import OtlpHandler
    except ImportError as exc:
        raise MissingExtraError(
            "MCPPROXY_ACTIVITY_EXPORT=otlp needs opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http.",
            hint="Install them: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
        ) from exc
    return OtlpHandler()


@asynccontextmanager
async def open_export(target: str | None) -> AsyncIterator[Export | None]:
    """Open a way out for records; None where none is asked for.

    Args:
        target: As MCPPROXY_ACTIVITY_EXPORT has it.

    Raises:
        ConfigError: There is no such way, or its packages are missing.
    """
    if target is None:
        yield None
        return
    handler = await asyncio.to_thread(find_handler(target))
    waiting: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
    # A daemon: a receiver that neither answers nor refuses must hold up no end.
    sender = threading.Thread(target=_send, args=(waiting, handler), name="activity export", daemon=True)
    sender.start()
    try:
        yield _Offer(waiting)
    finally:
        waiting.put(None)
        await asyncio.to_thread(sender.join, _CLOSE_S)
        if sender.is_alive():
            log.warning("MCPPROXY_ACTIVITY_EXPORT: the last records are lost, the receiver took none")


def _send(waiting: "queue.SimpleQueue[logging.LogRecord | None]", handler: logging.Handler) -> None:
    while (record := waiting.get()) is not None:
        handler.handle(record)
    handler.close()

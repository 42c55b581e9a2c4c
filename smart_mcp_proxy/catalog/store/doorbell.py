"""Notifications of a PostgreSQL database: they wake those that would otherwise look every second."""

import asyncio
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, get_args

import psycopg

from smart_mcp_proxy.catalog.store.migrations import CHANNEL
from smart_mcp_proxy.catalog.store.postgres_edge import hang_up
from smart_mcp_proxy.catalog.store.store import Topic
from smart_mcp_proxy.telemetry import get_logger

PING_S: Final = 30.0
"""Seconds between two tests of whether notifications arrive."""
FIRST_PING_S: Final = 2.0
AGAIN_S: Final = 1.0
"""Pause before another connection."""
_SERVER: Final = "SELECT pg_postmaster_start_time(), current_database()"
"""Tells one server and database from another."""

_log = get_logger("catalog")


class Doorbell:
    """Hears notifications in a thread and on a connection of its own, from the first `wait` on.

    A pooler between swallows them without an error, and so does a network that has dropped the connection: a
    notification from another connection, sent now and then, finds out. Where it does not come that is said once, and
    `wait` lasts as long as it may. If the other connection led to another server, the one that listens is made anew:
    after a failover the old server may hold it though nobody writes there any more.

    Args:
        dial: Opens a connection.
        ping_s: How often it is tried whether notifications arrive.

    Attributes:
        name: By which sessions find this process among those on one catalog; empty for none.
    """

    def __init__(self, dial: Callable[[], psycopg.Connection], ping_s: float = PING_S) -> None:
        self._dial = dial
        self._ping_s = ping_s
        self._rung: dict[str, asyncio.Event] = {topic: asyncio.Event() for topic in get_args(Topic)}
        self.name = ""
        self._ping = f"ping {uuid.uuid4().hex}"
        self._own_end = ""
        """Name and schema, as the last ping had them that came back."""
        self._is_namesake_told = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wire: psycopg.Connection | None = None
        self._is_closed = threading.Event()
        self._is_silent = False
        self._is_proven = False
        """Whether a notification has come over the present connection: that it ends is no silence, if another works."""

    def __repr__(self) -> str:
        return f"<Doorbell {'silent' if self._is_silent else 'hearing'}>"

    async def wait(self, topic: Topic, limit_s: float) -> None:
        """Return when a change was told since the last time, after `limit_s` at the latest."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._listen, name="catalog doorbell", daemon=True).start()
        rung = self._rung[topic]
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await rung.wait()
        rung.clear()

    def close(self) -> None:
        """Ends the thread; it may take a moment longer."""
        self._is_closed.set()
        if self._wire is not None:
            hang_up(self._wire)

    def _listen(self) -> None:
        while not self._is_closed.is_set():
            try:
                with self._dial() as wire:
                    self._wire = wire
                    wire.execute(f"LISTEN {CHANNEL}")
                    for topic in self._rung:  # what was told meanwhile is not told again
                        self._ring(topic)
                    self._hear(wire)
            except psycopg.Error as exc:
                if not self._is_proven:
                    self._note(is_heard=False, reason=type(exc).__name__)
            self._is_proven = False
            self._is_closed.wait(AGAIN_S)

    def _hear(self, wire: psycopg.Connection) -> None:
        """Rings for each notification, until the connection fails or leads to a server that others have left."""
        limit_s, server = FIRST_PING_S, wire.execute(_SERVER).fetchone()
        while not self._is_closed.is_set():
            # On another connection: a pooler brings what comes with the answer to a statement of one's own.
            with self._dial() as other:
                # Gateways on other schemas hear it, too, and may have the same names.
                ping = f"{self._ping} {self.name}@"
                other.execute("SELECT pg_notify(%s, %s || current_schema())", (CHANNEL, ping))
                is_left = other.execute(_SERVER).fetchone() != server
            is_heard = False
            for told in wire.notifies(timeout=min(limit_s, self._ping_s)):
                is_heard |= self._is_own(told.payload)
                self._ring(told.payload)
            if is_left:
                return
            self._is_proven = is_heard
            self._note(is_heard=is_heard, reason="a pooler may be in between")
            limit_s = self._ping_s

    def _is_own(self, payload: str) -> bool:
        """Return whether it is a ping of this process; warn once of a namesake's."""
        own, end = f"{self._ping} ", payload[len(self._ping) + 1 :]
        if payload.startswith(own):
            self._own_end = end
            return True
        is_named = bool(self.name) and end.startswith(f"{self.name}@")
        if is_named and end == self._own_end and not self._is_namesake_told:
            self._is_namesake_told = True
            _log.warning(
                "another gateway on the database is named %r, too: a balancer sends sessions of the one to the other, "
                "which answers 404. Give each a MCPPROXY_REPLICA of its own",
                self.name.partition(".")[2],
            )
        return False

    def _ring(self, topic: str) -> None:
        if (rung := self._rung.get(topic)) is not None and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(rung.set)

    def _note(self, *, is_heard: bool, reason: str) -> None:
        if is_heard is not self._is_silent or self._is_closed.is_set():
            return
        self._is_silent = not is_heard
        if is_heard:
            _log.info("the database tells of changes again")
        else:
            _log.warning(
                "the database does not tell of changes (%s): those of other gateways are looked for every second",
                reason,
            )

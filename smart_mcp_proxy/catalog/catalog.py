"""The catalog of tools: SQL is the truth, a snapshot in memory answers."""

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection

from smart_mcp_proxy.catalog import activity, instances, tools
from smart_mcp_proxy.catalog.database import Database
from smart_mcp_proxy.catalog.instances import Instance
from smart_mcp_proxy.catalog.schema import migrate
from smart_mcp_proxy.catalog.snapshot import Diff, Snapshot
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.telemetry import Activity, get_logger

__all__ = ["Catalog"]

_log = get_logger("catalog")


class Catalog:
    """Which tools exist, kept in the data directory over restarts and shared by the processes that use it.

    Every method that reads or writes the file runs in the catalog's own thread and raises `CatalogError` where the
    file fails. Methods that return a `Diff` return the way from the previous `snapshot` to the new one, other
    processes' writes included: an index that applies every one of them equals the catalog. One that missed some (its
    task was cancelled) asks `catalog.snapshot.since(its_snapshot)`.
    """

    def __init__(self, database: Database, *, name_limit: int, clock: Callable[[], float]) -> None:
        self._database = database
        self._name_limit = name_limit
        self._clock = clock
        self._snapshot = Snapshot()
        self._instance: Instance | None = None
        self._last_sync_s: dict[str, float] = {}
        self._unsaved_syncs: dict[str, float] = {}

    @classmethod
    @asynccontextmanager
    async def open(
        cls, data_dir: Path, *, name_limit: int, reset: bool = False, clock: Callable[[], float] = time.time
    ) -> AsyncIterator[Self]:
        """The catalog of a data directory, with what was known when it was last used.

        Args:
            data_dir: Created, for the owner only, if it does not exist.
            name_limit: Longest listed name, in characters, at least 10.
            reset: Whether to start without tools; listed names and used ids stay.
            clock: Seconds since the epoch. Times are compared with those of other processes, so it is not monotonic.

        Raises:
            ConfigError: The directory cannot be used, or a newer program has written the file.
            CatalogError: The file is damaged or stays locked.
        """
        async with Database.open(data_dir) as database:
            catalog = cls(database, name_limit=name_limit, clock=clock)
            await database.run(partial(catalog._load, is_reset=reset))
            try:
                yield catalog
            finally:
                await database.run(catalog._leave)

    def __repr__(self) -> str:
        return f"<Catalog {self._database.path} {self._snapshot!r}>"

    @property
    def snapshot(self) -> Snapshot:
        """All tools as of now; a new object after each change, the same one otherwise."""
        return self._snapshot

    def last_sync_s(self, server: str) -> float | None:
        """When `server` last told its tools, in seconds since the epoch; None if it never did."""
        return self._last_sync_s.get(server)

    async def sync(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> Diff:
        """Makes the catalog's tools of `server` equal to its full list, and returns what changed.

        A tool whose definition changed keeps its id; one that left and comes back gets a new one. A list that
        changes nothing writes nothing: that the server was heard is stored with the next heartbeat.

        Args:
            server: Configured name.
            definitions: Tool objects as the server sent them, each with a string `name`; of two with one name the
                first counts. One that JSON or UTF-8 cannot write is left out with a warning.
        """
        return await self._database.run(partial(self._sync, server, definitions))

    async def forget_servers(self, keep: Collection[str]) -> Diff:
        """Removes servers that are no longer configured, and their tools; returns what changed.

        Those in `keep` stay, and those that another living process on this data directory uses.
        """
        return await self._database.run(partial(self._forget_servers, frozenset(keep)))

    async def refresh(self) -> Diff | None:
        """What other processes changed since the last look; None, after one cheap query, if nothing."""
        return await self._database.run(self._follow) or None

    async def append_activity(self, batch: Sequence[Activity]) -> None:
        """Adds lines to the activity log."""
        if batch:
            await self._database.run(partial(self._database.write, partial(activity.append, batch=tuple(batch))))

    async def recent_activity(self, limit: int) -> tuple[Activity, ...]:
        """The last `limit` lines of the activity log, newest first, whichever process wrote them."""
        return await self._database.run(partial(self._database.read, partial(activity.recent, limit=limit)))

    async def register_instance(self, pid: int, servers: Collection[str]) -> Instance:
        """Tells other processes that this one lives and uses `servers`; again, when these change."""
        return await self._database.run(partial(self._register, pid, tuple(sorted(servers))))

    async def heartbeat(self) -> None:
        """Tells other processes that this one still lives, and drops those not heard of for 30 s.

        Raises:
            RuntimeError: `register_instance` was not called before.
        """
        await self._database.run(self._beat)

    async def instances(self) -> tuple[Instance, ...]:
        """The living processes on this data directory, oldest first, this one included once it is registered."""
        living = partial(instances.live_instances, now_s=self._clock())
        return await self._database.run(partial(self._database.read, living))

    # From here on: in the database's thread.

    def _load(self, *, is_reset: bool) -> None:
        migrate(self._database)
        if is_reset:
            self._database.write(tools.clear)
        self._database.write(partial(tools.shorten_listed_names, limit=self._name_limit))
        self._follow()

    def _leave(self) -> None:
        def farewell(connection: Connection) -> None:
            tools.note_syncs(connection, self._unsaved_syncs)
            if self._instance is not None:
                instances.unregister(connection, self._instance)

        try:
            self._database.write(farewell)
        except CatalogError as exc:
            _log.warning("the catalog was not told that this process ends: %s", exc)

    def _sync(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> Diff:
        wanted = tools.prepare(server, definitions)
        now_s = self._clock()

        def store(connection: Connection) -> None:
            tools.store(connection, server, wanted, self._name_limit)
            tools.note_syncs(connection, {server: now_s})

        if self._database.read(partial(tools.is_unstored, server=server, wanted=wanted)):
            self._database.write(store)
            self._unsaved_syncs.pop(server, None)
        else:
            self._unsaved_syncs[server] = now_s
        self._last_sync_s[server] = now_s
        return self._follow()

    def _forget_servers(self, keep: frozenset[str]) -> Diff:
        now_s = self._clock()

        def forget(connection: Connection) -> set[str]:
            others = instances.live_instances(connection, now_s)
            used = {name for other in others if not self._is_own(other) for name in other.servers}
            gone = (tools.known_servers(connection) | self._last_sync_s.keys()) - keep - used
            tools.delete_servers(connection, gone)
            return gone

        for name in self._database.write(forget):
            self._last_sync_s.pop(name, None)
            self._unsaved_syncs.pop(name, None)
        return self._follow()

    def _is_own(self, instance: Instance) -> bool:
        return self._instance is not None and instance.id == self._instance.id

    def _follow(self) -> Diff:
        before = self._snapshot

        def look(connection: Connection) -> tuple[Snapshot, dict[str, float]]:
            now = tools.advance(connection, before)
            return now, self._last_sync_s if now is before else tools.last_syncs(connection)

        self._snapshot, last_sync_s = self._database.read(look)
        self._last_sync_s = last_sync_s | self._unsaved_syncs
        return self._snapshot.since(before)

    def _register(self, pid: int, servers: tuple[str, ...]) -> Instance:
        now_s = self._clock()
        if self._instance is None:
            self._instance = self._database.write(partial(instances.register, pid=pid, servers=servers, now_s=now_s))
        else:
            self._instance = replace(self._instance, pid=pid, servers=servers)
            self._beat()
        return self._instance

    def _beat(self) -> None:
        if self._instance is None:
            raise RuntimeError("heartbeat before register_instance")
        instance = self._instance = replace(self._instance, heartbeat_s=self._clock())

        def beat(connection: Connection) -> None:
            instances.beat(connection, instance)
            tools.note_syncs(connection, self._unsaved_syncs)

        self._database.write(beat)
        self._unsaved_syncs.clear()

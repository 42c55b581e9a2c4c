"""The catalog of tools: SQL is the truth, a snapshot in memory answers."""

import itertools
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection

from smart_mcp_proxy.catalog import activity, examples, instances, tools, vectors
from smart_mcp_proxy.catalog.database import Database, StorageError
from smart_mcp_proxy.catalog.examples import Example, Lesson
from smart_mcp_proxy.catalog.instances import Instance
from smart_mcp_proxy.catalog.schema import migrate
from smart_mcp_proxy.catalog.snapshot import Diff, Snapshot
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity, get_logger

__all__ = ["Catalog"]

T = TypeVar("T")

UNREGISTERED = 0
"""Id of an instance that no file knows yet; stored ones begin at 1."""

_log = get_logger("catalog")


class Catalog:
    """Which tools exist, kept in the data directory over restarts and shared by the processes that use it.

    Every method that reads or writes the file runs in the catalog's own thread and raises `CatalogError` where the
    file fails. Methods that return a `Diff` return the way from the previous `snapshot` to the new one, other
    processes' writes included: an index that applies every one of them equals the catalog. One that missed some (its
    task was cancelled) asks `catalog.snapshot.since(its_snapshot)`.

    A file that cannot be used any more (disk full, read-only, damaged, removed) is no error for tools: from then on
    they are kept in memory, `problem` says so, and `refresh` stores them as soon as the file can be written again.
    Activity is refused meanwhile, because what is not on disk must not be taken for stored.
    """

    def __init__(self, database: Database, *, name_limit: int, clock: Callable[[], float]) -> None:
        self._database = database
        self._name_limit = name_limit
        self._clock = clock
        self._snapshot = Snapshot()
        self._instance: Instance | None = None
        self._last_sync_s: dict[str, float] = {}
        self._unsaved_syncs: dict[str, float] = {}
        self._lost: StorageError | None = None
        self._heard: dict[str, dict[str, tools.PreparedTool]] = {}
        """Lists that no file holds yet, by server."""
        self._is_empty = False
        """Whether the file is another one than the snapshot came from, and holds nothing of it yet."""
        self._ids = itertools.count(tools.FIRST_REMEMBERED_ID)

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
            CatalogError: The file stays locked.
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

    @property
    def problem(self) -> str | None:
        """Why nothing is stored at present; None while everything is."""
        return None if self._lost is None else f"{self._lost.message} Tools are kept in memory until it can be written."

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
        """What other processes changed since the last look; None, after one cheap query, if nothing.

        While nothing can be stored, it is tried again here.
        """
        return await self._database.run(self._refresh) or None

    async def append_activity(self, batch: Sequence[Activity]) -> None:
        """Adds lines to the activity log; once it returns they survive whatever happens to this process."""
        if batch:
            await self._database.run(partial(self._write, partial(activity.append, batch=tuple(batch))))

    async def recent_activity(self, limit: int) -> tuple[Activity, ...]:
        """The last `limit` lines of the activity log, newest first, whichever process wrote them."""
        return await self._database.run(partial(self._database.read, partial(activity.recent, limit=limit)))

    async def learn(self, lessons: Sequence[Lesson]) -> None:
        """Counts questions that led to a tool; `refresh` shows what became of it."""

        def work(connection: Connection) -> None:
            tools.mark_changed(connection, examples.learn(connection, lessons))

        await self._database.run(partial(self._write, work))

    async def examples_of(self, key: ToolKey) -> tuple[Example, ...]:
        """Everything learned about a tool, most used first, candidates included; nothing while the file fails."""
        try:
            return await self._database.run(partial(self._database.read, partial(examples.of_tool, key=key)))
        except StorageError:
            return ()

    async def forget_examples(self, key: ToolKey | None = None, words: str | None = None) -> int:
        """Forgets what was learned, about one tool or all, one question or all; returns how many questions that were.

        `refresh` shows what became of it.
        """

        def work(connection: Connection) -> int:
            count, changed = examples.forget(connection, key, words)
            tools.mark_changed(connection, changed)
            return count

        return await self._database.run(partial(self._write, work))

    async def stored_vectors(self, embedder: str, hashes: Collection[str]) -> dict[str, bytes]:
        """The vectors that an embedder made, by definition hash; those that nobody stored are absent."""
        find = partial(vectors.stored, embedder=embedder, hashes=hashes)
        return await self._database.run(partial(self._database.read, find))

    async def store_vectors(self, embedder: str, made: Mapping[str, bytes]) -> None:
        """Stores vectors by definition hash; once it returns they survive whatever happens to this process."""
        store = partial(vectors.store, embedder=embedder, made=made, now_s=self._clock())
        await self._database.run(partial(self._write, store))

    async def tidy_vectors(self, embedder: str, hashes: Collection[str]) -> None:
        """Notes that the vectors of these definitions are in use, and drops some that nobody used for 30 days."""

        def work(connection: Connection) -> None:
            vectors.note_use(connection, embedder, hashes, self._clock())
            vectors.drop_unused(connection, self._clock())

        await self._database.run(partial(self._write, work))

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
        try:
            self._database.connect()
            migrate(self._database)
            if is_reset:
                self._database.write(tools.clear)
            self._database.write(partial(tools.shorten_listed_names, limit=self._name_limit))
            self._snapshot, self._last_sync_s = self._database.read(self._look)
        except StorageError as exc:
            self._lose(exc)

    def _leave(self) -> None:
        def farewell(connection: Connection) -> None:
            tools.note_syncs(connection, self._unsaved_syncs)
            if self._instance is not None:
                instances.unregister(connection, self._instance)

        if self._lost is not None:
            return
        try:
            self._database.write(farewell)
        except CatalogError as exc:
            _log.warning("the catalog was not told that this process ends: %s", exc)

    def _lose(self, error: StorageError) -> None:
        """Goes on in memory; said once, however many reads and writes fail until the file is back."""
        if self._lost is None:
            _log.warning("%s Tools are kept in memory until it can be written.", error)
        self._lost = error

    def _write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, committed; nothing is tried while the file is known to fail."""
        if self._lost is not None:
            raise self._lost
        try:
            return self._database.write(work)
        except StorageError as exc:
            self._lose(exc)
            raise

    def _sync(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> Diff:
        wanted = tools.prepare(server, definitions)
        now_s = self._clock()
        try:
            self._store(server, wanted, now_s)
            self._last_sync_s[server] = now_s
            return self._read_on()
        except StorageError:
            return self._remember(server, wanted, now_s)

    def _store(self, server: str, wanted: Mapping[str, tools.PreparedTool], now_s: float) -> None:
        def store(connection: Connection) -> None:
            tools.store(connection, server, wanted, self._name_limit)
            tools.note_syncs(connection, {server: now_s})

        if self._lost is None and not self._is_unstored(server, wanted):
            self._unsaved_syncs[server] = now_s
            return
        self._write(store)
        self._unsaved_syncs.pop(server, None)

    def _is_unstored(self, server: str, wanted: Mapping[str, tools.PreparedTool]) -> bool:
        try:
            return self._database.read(partial(tools.is_unstored, server=server, wanted=wanted))
        except StorageError as exc:
            self._lose(exc)
            raise

    def _remember(self, server: str, wanted: dict[str, tools.PreparedTool], now_s: float) -> Diff:
        before = self._snapshot
        self._heard[server] = wanted
        self._last_sync_s[server] = self._unsaved_syncs[server] = now_s
        self._snapshot = tools.remember(before, server, wanted, self._name_limit, self._ids)
        return self._snapshot.since(before)

    def _forget_servers(self, keep: frozenset[str]) -> Diff:
        now_s = self._clock()

        def forget(connection: Connection) -> set[str]:
            others = instances.live_instances(connection, now_s)
            used = {name for other in others if not self._is_own(other) for name in other.servers}
            gone = (tools.known_servers(connection) | self._last_sync_s.keys()) - keep - used
            tools.delete_servers(connection, gone)
            return gone

        try:
            gone = self._write(forget)
        except StorageError:
            # What else the file holds is forgotten with the next change of the configuration.
            gone = self._heard.keys() - keep
        for name in gone:
            self._last_sync_s.pop(name, None)
            self._unsaved_syncs.pop(name, None)
            self._heard.pop(name, None)
        return self._follow()

    def _is_own(self, instance: Instance) -> bool:
        return self._instance is not None and instance.id == self._instance.id

    def _look(self, connection: Connection) -> tuple[Snapshot, dict[str, float]]:
        now = tools.advance(connection, self._snapshot)
        return now, self._last_sync_s if now is self._snapshot else tools.last_syncs(connection)

    def _read_on(self) -> Diff:
        """What the file holds by now and the snapshot does not."""
        before = self._snapshot
        try:
            self._snapshot, last_sync_s = self._database.read(self._look)
        except StorageError as exc:
            self._lose(exc)
            raise
        self._last_sync_s = last_sync_s | self._unsaved_syncs
        return self._snapshot.since(before)

    def _follow(self) -> Diff:
        if self._lost is None:
            with suppress(StorageError):  # from here on the memory is all there is
                return self._read_on()
        return self._snapshot.since(self._snapshot)

    def _refresh(self) -> Diff:
        if self._lost is None:
            return self._follow()
        before = self._snapshot
        try:
            self._regain()
        except (CatalogError, ConfigError) as exc:
            _log.debug("the catalog still cannot be stored: %s", exc)
        else:
            self._lost = None
            _log.warning("the catalog is stored again")
        return self._snapshot.since(before)

    def _regain(self) -> None:
        """Stores what was kept in memory, and serves what the file then holds."""
        self._is_empty |= self._database.mend()
        migrate(self._database)
        now_s, is_new_file = self._clock(), self._is_empty

        def store(connection: Connection) -> Instance | None:
            tools.restore(connection, self._snapshot, self._heard, self._name_limit, is_new_file=is_new_file)
            tools.note_syncs(connection, self._last_sync_s if is_new_file else self._unsaved_syncs)
            own = self._instance
            if own is None or not (is_new_file or own.id == UNREGISTERED):
                return own
            return instances.register(connection, own.pid, own.servers, now_s)

        self._instance = self._database.write(store)
        self._is_empty = False
        self._heard.clear()
        self._unsaved_syncs.clear()
        # Whole: ids and generations of another file do not go on from those in memory.
        self._snapshot, self._last_sync_s = self._database.read(
            lambda connection: (tools.advance(connection, Snapshot()), tools.last_syncs(connection))
        )

    def _register(self, pid: int, servers: tuple[str, ...]) -> Instance:
        now_s = self._clock()
        if self._instance is not None:
            self._instance = replace(self._instance, pid=pid, servers=servers)
            self._beat()
            return self._instance
        try:
            self._instance = self._write(partial(instances.register, pid=pid, servers=servers, now_s=now_s))
        except StorageError:
            self._instance = Instance(UNREGISTERED, pid, now_s, now_s, servers)
        return self._instance

    def _beat(self) -> None:
        if self._instance is None:
            raise RuntimeError("heartbeat before register_instance")
        instance = self._instance = replace(self._instance, heartbeat_s=self._clock())

        def beat(connection: Connection) -> None:
            instances.beat(connection, instance)
            tools.note_syncs(connection, self._unsaved_syncs)

        try:
            self._write(beat)
        except StorageError:
            return  # said already; other processes take this one for dead until the file is back
        self._unsaved_syncs.clear()

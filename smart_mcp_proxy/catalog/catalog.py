"""The catalog of tools: SQL is the truth, a snapshot in memory answers."""

import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection

from smart_mcp_proxy.catalog.recovery.rollback_guard import read_checkpoint
from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.recovery.storage_space import NO_ROOM_HINT
from smart_mcp_proxy.catalog.server_lists import ServerLists
from smart_mcp_proxy.catalog.snapshot import Diff, Snapshot
from smart_mcp_proxy.catalog.store.memory_fallback import restore
from smart_mcp_proxy.catalog.store.seal_rows import bring_up
from smart_mcp_proxy.catalog.store.store import StorageError
from smart_mcp_proxy.catalog.store.stores import open_store
from smart_mcp_proxy.catalog.store.versions import is_latest
from smart_mcp_proxy.catalog.tables import instances, tools
from smart_mcp_proxy.catalog.tables.following import ApprovalStanding, Followed
from smart_mcp_proxy.catalog.tables.instances import Instance
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.names import extract_server_name
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import get_logger

T = TypeVar("T")
Clock = Callable[[], float]

_log = get_logger("catalog")


class Catalog(ServerLists):
    """The tools of all servers, stored in the data directory and shared by its processes.

    Every method that reads or writes the file runs in the catalog's own thread and raises `CatalogError` where the
    file fails. Methods that return a `Diff` return the way from the previous `snapshot` to the new one, other
    processes' writes included: an index that applies every one of them equals the catalog. One that missed some (its
    task was cancelled) asks `catalog.snapshot.since(its_snapshot)`.

    A store that cannot be used any more (disk full, damaged, unreachable) is no error for tools: from then on they are
    kept in memory, `problem` says so, and `refresh` stores them as soon as it can be written again. Activity is refused
    meanwhile, because what is not on disk must not be taken for stored.
    """

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        data_dir: Path,
        *,
        name_limit: int,
        url: str | None = None,
        reset: bool = False,
        is_needed: bool = True,
        clock: Clock = time.time,
        secret: str | None = None,
    ) -> AsyncIterator[Self]:
        """The catalog of a data directory, with what was known when it was last used.

        Args:
            data_dir: Created, for the owner only, if it does not exist.
            name_limit: Longest listed name, in characters, at least 10.
            url: Address of a database that many data directories share; None for a file in this one.
            reset: Whether to start without tools; listed names and used ids stay.
            is_needed: Whether a directory that cannot be used is an error; otherwise tools are kept in memory.
            clock: Seconds since the epoch. Times are compared with those of other processes, so it is not monotonic.
            secret: That all gateways on the database have, for the key of their seals.

        Raises:
            ConfigError: The directory or the database cannot be used, or a newer program has written it.
            CatalogError: The file stays locked.
        """
        async with open_store(url, data_dir, is_needed=is_needed) as database:
            seals = Seals(data_dir, secret, is_shared=database.is_shared)
            catalog = cls(database, name_limit=name_limit, clock=clock, seals=seals)
            await database.run(partial(catalog._load, is_reset=reset))
            try:
                yield catalog
            finally:
                await database.run(catalog._leave)

    def __repr__(self) -> str:
        return f"<Catalog {self._database.label} {self._snapshot!r}>"

    @property
    def problem(self) -> str | None:
        """Why nothing is stored at present; None while everything is."""
        lost, since = self._lost, self.lost_since  # once: the database's thread sets both to None when it is back
        if lost is None or since is None:
            return None
        kept = f"Tools are kept in memory since {since:%F %T} UTC, until it can be written."
        return f"{lost.message} {kept} {lost.hint}".rstrip()

    @property
    def shortage(self) -> str | None:
        """Why what is decided may soon not be stored; None while there is room, as of the last heartbeat."""
        if self._is_tight and self._lost is None:
            return (
                f"The disk of '{self._database.label}' is nearly full: decisions may soon not be stored. {NO_ROOM_HINT}"
            )
        return None

    async def forget_servers(self, keep: Collection[str]) -> Diff:
        """Removes servers that are no longer configured, and their tools; returns what changed.

        Those in `keep` stay, and those that another living process on this data directory uses.
        """
        return await self._database.run(partial(self._forget_servers, frozenset(keep)))

    async def refresh(self) -> Diff | None:
        """Return the changes of other processes since the last look; None, cheaply, if there are none.

        While nothing can be stored, it is tried again here.
        """
        return await self._database.run(self._refresh) or None

    # From here on: in the database's thread.

    def _load(self, *, is_reset: bool) -> None:
        is_new = self._database.read_checkpoint() is None
        if was_blank := self._database.is_blank():
            if is_new:
                self._standing = ApprovalStanding()
            else:
                _log.warning("the catalog '%s' is gone; a new one is filled from the servers.", self._database.label)
        try:
            self._database.connect()
            self._migrate(is_lost=not is_new)
            if is_reset:
                self._database.write(tools.clear)
            self._database.write(partial(tools.shorten_listed_names, limit=self._name_limit, seals=self._seals))
            self._snapshot, self._standing, self._last_sync_s = self._database.read(self._look)
            self._database.advance_checkpoint(self._standing.checkpoint, adopts=True)
            self._seals.keep_edition()
        except StorageError as exc:
            self._lose(exc)
            if not was_blank:
                self._recall(is_lost=not is_new)

    def _migrate(self, *, is_lost: bool) -> None:
        work = partial(bring_up, migrate=partial(self._database.migrate, is_lost=is_lost), seals=self._seals)
        self._database.write(work, is_ordered=not self._database.read(is_latest))
        self._seals.keep()

    def _recall(self, *, is_lost: bool) -> None:
        """Load a file that cannot be written; one that falls short is not trusted."""

        def look(connection: Connection) -> Followed:
            migrate = partial(self._database.migrate, is_lost=is_lost)
            bring_up(connection, migrate=migrate, seals=self._seals, is_trial=True)
            return self._look(connection)

        try:
            self._snapshot, self._standing, self._last_sync_s = self._database.peek(look)
        except CatalogError as exc:
            _log.warning("what the catalog holds cannot be trusted, so every tool waits for the user: %s", exc)

    def _leave(self) -> None:
        self._seals.keep_edition()
        if self._lost is not None:
            return
        try:
            self._database.write(self._farewell)
        except CatalogError as exc:
            _log.warning("the catalog was not told that this process ends: %s", exc)

    def _forget_servers(self, keep: frozenset[str]) -> Diff:
        now_s = self.now_s()

        def forget(connection: Connection) -> set[str]:
            others = instances.live_instances(connection, now_s)
            own = None if self._instance is None else self._instance.id
            used = {name for other in others if other.id != own for name in other.servers}
            known = tools.read_known_servers(connection) | self._last_sync_s.keys()
            gone = {name for name in known if extract_server_name(name) not in keep | used}
            tools.delete_servers(connection, gone)
            return gone

        try:
            gone = self._write(forget)
        except StorageError:
            # What else the file holds is forgotten with the next change of the configuration.
            gone = {name for name in self._heard if extract_server_name(name) not in keep}
        for name in gone:
            self._last_sync_s.pop(name, None)
            self._unsaved_syncs.pop(name, None)
            self._heard.pop(name, None)
        # Also of one that another process removed first or still uses: ours spoke for a connection that is gone.
        self._listed = {name: listed for name, listed in self._listed.items() if extract_server_name(name) in keep}
        return self._follow()

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
        except (CatalogError, ConfigError) as exc:  # maybe for another reason than at first
            self._lose(StorageError(exc.message, hint=exc.hint))
        else:
            self._lost = self.lost_since = None
            _log.warning("the catalog is stored again")
        return self._snapshot.since(before)

    def _regain(self) -> None:
        """Stores what was kept in memory, and serves what the file then holds."""
        now_s, known, checkpoint = self.now_s(), self._standing, self._database.read_checkpoint()
        # Otherwise another process, now gone, may have stored a block that the memory lacks: no file then, no trust.
        is_whole = checkpoint is None or known.checkpoint.covers(checkpoint)
        self._database.mend()
        self._migrate(is_lost=known.is_closed or not is_whole)

        def store(connection: Connection) -> Instance | None:
            is_new_file = known.checkpoint.catalog_id not in (0, read_checkpoint(connection).catalog_id)
            restore(
                connection,
                self._snapshot,
                self._heard,
                known,
                self._name_limit,
                self._seals,
                is_new_file=is_new_file,
                is_whole=is_whole,
                now_s=now_s,
            )
            tools.note_syncs(connection, self._last_sync_s if is_new_file else self._unsaved_syncs)
            own = self._instance
            if own is None or not (is_new_file or own.id == instances.UNREGISTERED):
                return own
            return self._register_again(connection, now_s)

        self._instance = self._database.write(store)
        self._database.advance_checkpoint(self._database.read(read_checkpoint), adopts=True)
        # Whole: ids and generations of another file, or of memory, do not go on as those that are stored now.
        is_other = self._heard or self._database.read(read_checkpoint).catalog_id != known.checkpoint.catalog_id
        # The memory serves until all of it is read, and on if that fails.
        look = partial(self._look, base=Snapshot()) if is_other else self._look
        self._snapshot, self._standing, self._last_sync_s = self._database.read(look)
        self._heard.clear()
        self._unsaved_syncs.clear()


def open_catalog(
    settings: Settings, *, reset: bool = False, is_needed: bool = True
) -> AbstractAsyncContextManager[Catalog]:
    """Open the catalog in the settings' database, or in their data directory; see `Catalog.open`."""
    url, secret = settings.database_url, settings.secret_key
    return Catalog.open(
        settings.data_dir,
        name_limit=settings.tool_name_limit,
        url=None if url is None else url.get_secret_value(),
        reset=reset,
        is_needed=is_needed,
        secret=None if secret is None else secret.get_secret_value(),
    )

"""The SQLite file: one thread, one connection, waiting transactions, translated errors."""

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal, Self, TypeVar

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from smart_mcp_proxy.catalog.recovery import storage_space, wal_files
from smart_mcp_proxy.catalog.recovery.damage import FileId, file_id, find_damage, is_blank, move_aside, was_damaged
from smart_mcp_proxy.catalog.recovery.rollback_guard import CHECKPOINT_NAME, Checkpoint, CheckpointFile
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.store import HeldStoreError, StorageError, Store, Topic
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.io.file_looks import LOOK_S, file_looks
from smart_mcp_proxy.names import DATABASE_NAME
from smart_mcp_proxy.telemetry import get_logger

_BUSY_TIMEOUT_S = 5.0
"""Seconds that one statement waits for another process's transaction; the longest of ours takes under a second."""
LONGEST_WAIT_S = 10.0
"""For a write to the file: then it is looked into whatever its stamp."""
_ATTEMPTS = 10
"""SQLite answers "busy" without waiting in a few races (switch to WAL, recovery, last close): those are tried again."""
_PAUSE_S = 0.05
"""Longest first pause before another attempt; it grows with each one. All pauses together stay below 2.5 s."""

_UNUSABLE_CODES = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_STORAGE_CODES = _UNUSABLE_CODES | _DAMAGE_CODES | {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_PROBED_CODES = _UNUSABLE_CODES | {sqlite3.SQLITE_IOERR}
"""Codes that SQLite gives, among other cases, where it cannot create its files: the system knows why."""
_DIRECTORY_HINT = "Set MCPPROXY_DATA_DIR to a directory that you can write to, or change its permissions."
_HINTS = {
    sqlite3.SQLITE_BUSY: "Another process holds the file; try again, or stop that process.",
    sqlite3.SQLITE_FULL: storage_space.NO_ROOM_HINT,
    sqlite3.SQLITE_IOERR: "Check the disk, its free space and its quota.",
    sqlite3.SQLITE_READONLY: _DIRECTORY_HINT,
    sqlite3.SQLITE_CANTOPEN: _DIRECTORY_HINT,
}

T = TypeVar("T")

_log = get_logger("catalog")


def sqlite_engine(path: Path) -> Engine:
    """The engine of a file. Callers write BEGIN out: the driver's own is always deferred."""
    return create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={"timeout": _BUSY_TIMEOUT_S},
        hide_parameters=True,
    )


class _CutOffError(Exception):
    """The journal that this process uses is not the one that others would find."""


class SqliteStore(Store):
    """`proxy.db` in a data directory, opened by `async with SqliteStore.open(...)`.

    All SQL runs in one thread of its own, so the event loop never waits for a disk and SQLite sees one connection
    per process. `read` and `write` are for use inside that thread, which `run` enters.

    The journal is WAL (readers and one writer at once) with `synchronous=FULL`: a committed write survives a power
    cut. `NORMAL` would lose the last commits, and with them hand out again ids and generations that a side-car file
    already refers to. It costs one fsync per commit, in a thread, and unchanged tool lists commit nothing.

    Somebody may remove the journal (`-wal`) or its index (`-shm`) while processes use them. SQLite notices nothing:
    they would go on in files without a name, and the next process would begin new ones beside them. So every
    transaction looks whether they are the ones that were opened; if not, nothing is written, what the lost journal
    holds is put into the database, and it is opened anew. A process that starts meanwhile waits for that. Who is killed
    before it looks takes with it what no checkpoint has copied: records and lists of the last while. Decisions are
    copied at once, see `fold_journal`; where a reader holds that back the checkpoint tells that one is missing.
    """

    def __init__(self, path: Path, *, is_needed: bool = True) -> None:
        super().__init__()
        self.path = path
        self.label = str(path)
        self._is_needed = is_needed
        self._checkpoints = CheckpointFile(path.parent)
        self._engine = sqlite_engine(path)
        self._connection: Connection | None = None
        self._file: FileId | None = None
        self._companions: tuple[FileId | None, ...] = ()
        self._is_suspect = False
        self._looked: dict[str, object] = {}
        """Stamp of the files at the last look, by topic."""

    @classmethod
    @asynccontextmanager
    async def open(cls, data_dir: Path, *, is_needed: bool = True) -> AsyncIterator[Self]:
        """The database of a data directory; `connect` has to follow.

        Args:
            data_dir: Where.
            is_needed: Whether a directory that cannot be used is an error of the user's, not one to live with.
        """
        database = cls(data_dir / DATABASE_NAME, is_needed=is_needed)
        try:
            yield database
        finally:
            await database.end(database._disconnect)

    async def wait_change(self, topic: Topic, limit_s: float) -> None:
        """Return when the file or its journal was written to, at least a second later: nobody tells of that.

        Where it cannot be used, after `limit_s`, to try again.
        """
        if self._connection is None or limit_s < LOOK_S:
            await asyncio.sleep(limit_s)
            return
        self._looked[topic] = await file_looks.wait(
            partial(wal_files.stamp_files, self.path), self._looked.get(topic), LONGEST_WAIT_S
        )

    def announce(self, name: str) -> None:
        """Nothing: gateways that share no database are not told apart by names."""

    def is_tight(self) -> bool:
        """Whether the disk of the file is nearly full."""
        return storage_space.is_nearly_full(self.path.parent)

    def is_blank(self) -> bool:
        """Whether nothing is stored, nor was moved aside; not so where one cannot look."""
        return is_blank(self.path)

    def migrate(self, connection: Connection, *, is_lost: bool) -> None:
        """Brings the file to the latest version; one in the place of a damaged file counts as lost, too."""
        versions.migrate(connection, self.label, is_closed=is_lost or was_damaged(self.path))

    def connect(self) -> None:
        """Opens the file; it and its directory are created, for the owner only, where they do not exist.

        A damaged file, or one that lacks decisions of the user's, is moved aside, with a message, and a new one takes
        its place.

        Raises:
            ConfigError: The directory cannot be used, and is needed.
            StorageError: The disk does not let us.
            CatalogError: The file stays locked.
        """
        damage = self._connect(joins=True)
        if damage is None:
            return
        seen = self._file
        self._disconnect()  # first: closing a file that was moved would take the new one's journal for its own
        try:
            target = move_aside(self.path, seen)
        except OSError as exc:
            raise self._unusable(f"{damage}, and it cannot be moved: {exc.strerror}") from exc
        if target is not None:
            _log.warning(
                "the catalog '%s' was damaged (%s). It is now '%s'; a new one is filled from the servers.",
                self.path,
                damage,
                target.name,
            )
        if (damage := self._connect()) is not None:
            raise StorageError(f"The catalog '{self.path}' is damaged: {damage}.", hint="Check the disk.")

    def mend(self) -> None:
        """Make a failed file usable again, if another try is not enough; may be a new file then.

        Raises:
            As `connect`.
        """
        if self._connection is None or self._is_suspect or file_id(self.path) != self._file or self._is_cut_off():
            self._save_journal()
            self._disconnect()
            self.connect()

    def peek(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a file that may refuse writes; its writes are rolled back.

        For a start on a full disk: SQLite needs room for shared memory to open a file together with other processes.
        Alone it needs none, and finds what a killed process left in the journal as well. Where it is not room that is
        missing but the permission to write, a copy in memory is looked at.

        Raises:
            CatalogError: The file cannot be read, is damaged, or lacks decisions of the user's. It stays where it is.
        """

        def examine(connection: Connection) -> T:
            versions.refuse_newer(connection, self.label)
            if damage := find_damage(connection) or self._checkpoints.find_loss(connection):
                raise self._build_damage_error(damage)
            return work(connection)

        def attempt() -> T:
            if storage_space.is_read_only(self.path):
                try:
                    with wal_files.copy_in_memory(self.path) as copy:
                        return examine(copy)
                except sqlite3.Error as exc:
                    raise StorageError(f"The catalog '{self.path}' cannot be read: {exc}.") from exc
            connection = self._connection or self._engine.connect()
            try:
                if connection is not self._connection:
                    connection.exec_driver_sql("PRAGMA locking_mode = EXCLUSIVE")
                    connection.exec_driver_sql("PRAGMA cache_spill = OFF")  # no page goes to the disk before a commit
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                return examine(connection)
            finally:
                connection.rollback()
                connection.connection.rollback()
                if connection is not self._connection:
                    connection.close()

        # Once: whoever else holds the file was able to open it.
        return self._run_with_retries(attempt, attempts=1)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` with all its queries in one state of the file."""
        return self._transact("DEFERRED", work)

    def write(self, work: Callable[[Connection], T], *, is_ordered: bool = True) -> T:
        """Run `work` with all its writes committed, or none and an error; SQLite orders all writes."""
        return self._transact("IMMEDIATE", work)

    def read_checkpoint(self) -> Checkpoint | None:
        """Read how many decisions the file must hold; None where nothing says so."""
        return self._checkpoints.read()

    def advance_checkpoint(self, checkpoint: Checkpoint, *, adopts: bool = False) -> None:
        """Note the file's progress beside it, and fold its journal if there is any.

        See `CheckpointFile.advance`.

        Raises:
            StorageError: The disk does not let us.
        """
        if not self._checkpoints.knows(checkpoint):
            self.fold_journal()
        try:
            self._checkpoints.advance(checkpoint, adopts=adopts)
        except OSError as exc:
            where, reason = self.path.with_name(CHECKPOINT_NAME), exc.strerror or type(exc).__name__
            raise StorageError(f"'{where}' cannot be written: {reason}.") from exc

    def fold_journal(self) -> None:
        """Copies the journal into the file, but for what another process still reads an older state of."""
        if self._connection is not None and not self._is_cut_off():
            with suppress(SQLAlchemyError):  # the journal still has it
                self._connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")

    def _transact(self, mode: Literal["DEFERRED", "IMMEDIATE"], work: Callable[[Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise StorageError(f"The catalog '{self.path}' is not open.")
        if file_id(self.path) != self._file:
            raise StorageError(f"The catalog '{self.path}' was moved or removed.")

        try:
            return self._run_with_retries(partial(self._attempt, mode, work, connection))
        except _CutOffError:
            connection = self._rejoin()
        return self._run_with_retries(partial(self._attempt, mode, work, connection))

    def _attempt(self, mode: str, work: Callable[[Connection], T], connection: Connection) -> T:
        try:
            connection.exec_driver_sql(f"BEGIN {mode}")
            if self._is_cut_off():  # with the lock in hand: what others have saved since then lacks nothing of ours
                raise _CutOffError
            result = work(connection)
            connection.commit()
        except BaseException:
            connection.rollback()
            # The driver's own as well: SQLAlchemy takes a commit that failed for the end of the transaction.
            connection.connection.rollback()
            raise
        return result

    def _is_cut_off(self) -> bool:
        """Whether the journal or its index was removed or replaced since they were opened."""
        return wal_files.companion_ids(self.path) != self._companions

    def _rejoin(self) -> Connection:
        """Opens the file anew once its journal was removed or replaced; returns the new connection."""
        _log.warning("the journal of the catalog '%s' was removed or replaced while in use: it begins anew", self.path)
        self._save_journal()
        self._disconnect()
        try:
            damage = self._connect()
        except ConfigError as exc:  # a newer program has taken the file over: here that is one more way to lose it
            raise StorageError(exc.message, hint=exc.hint) from exc
        if damage is not None or self._connection is None:
            self._is_suspect = True
            raise self._build_damage_error(damage)
        return self._connection

    def _build_damage_error(self, damage: str | None) -> StorageError:
        return StorageError(f"The catalog '{self.path}' is damaged: {damage}.", hint="Check the disk.")

    def _save_journal(self) -> None:
        """Puts what the lost journal holds into the database, if this process was in time."""
        journal, index = wal_files.companion_ids(self.path)
        # An index of somebody else's counts another journal; one that is merely gone is made anew from the journal.
        if self._connection is None or journal == self._companions[0] or index not in (None, self._companions[1]):
            return
        with suppress(SQLAlchemyError):  # then the new connection finds out what is missing
            self._connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def _await_others(self) -> None:
        try:
            wal_files.await_companions(self.path, self._engine)
        except TimeoutError as exc:
            message = f"The journal of the catalog '{self.path}' was removed while other processes use it."
            raise StorageError(message, hint="End those processes.") from exc

    def _run_with_retries(self, attempt: Callable[[], T], attempts: int = _ATTEMPTS) -> T:
        number = 1
        while True:
            try:
                return attempt()
            except SQLAlchemyError as exc:
                if not wal_files.is_busy(exc) or number == attempts:
                    code, reason = self._diagnosis(exc)
                    self._is_suspect |= code in _DAMAGE_CODES
                    others = HeldStoreError if wal_files.is_busy(exc) else CatalogError
                    kind = StorageError if code in _STORAGE_CODES else others
                    message = f"The catalog '{self.path}' cannot be used: {reason}."
                    raise kind(message, hint=_HINTS.get(code, "")) from exc
            time.sleep(random.uniform(0, _PAUSE_S * number))
            number += 1

    def _connect(self, *, joins: bool = False) -> str | None:
        """Opens the file and returns what is wrong with it, None for a sound one.

        Args:
            joins: Whether those who have it open are waited for, if its journal is gone; it was this process's, too,
                otherwise.
        """
        try:
            storage_space.create_private(self.path)
        except FileExistsError as exc:
            raise self._unusable("it is not a directory") from exc
        except OSError as exc:
            if storage_space.is_full(exc):
                message = f"The catalog '{self.path}' cannot be made: {storage_space.disk_full(exc)}."
                raise StorageError(message, hint=storage_space.NO_ROOM_HINT) from exc
            raise self._unusable(exc.strerror or str(exc)) from exc
        if joins:
            self._await_others()
        # Before it is opened: what takes its place in between is then noticed as another file.
        self._file = file_id(self.path)
        try:
            damage = self._run_with_retries(self._connect_once)
        except CatalogError as exc:
            cause = exc.__cause__
            if not isinstance(cause, SQLAlchemyError):
                raise
            code, reason = self._diagnosis(cause)
            if code in _UNUSABLE_CODES:
                raise self._unusable(reason) from cause
            if code not in _DAMAGE_CODES:
                raise
            damage = reason
        self._is_suspect = damage is not None
        return damage

    def _connect_once(self) -> str | None:
        connection = self._engine.connect()
        try:
            versions.refuse_newer(connection, self.label)
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            connection.exec_driver_sql("PRAGMA synchronous = FULL")
            # A file that can be read but not written shows itself only when something is written.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.exec_driver_sql("PRAGMA application_id = 1")  # taken back with the rest
            connection.rollback()
            damage = find_damage(connection) or self._checkpoints.find_loss(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._companions = wal_files.companion_ids(self.path)
        return damage

    def _diagnosis(self, exc: SQLAlchemyError) -> tuple[int, str]:
        """SQLite's code and words for an error, or better ones: it has several for a disk that is merely full."""
        code = wal_files.primary_code(exc)
        refusal = storage_space.why_unwritable(self.path.parent) if code in _PROBED_CODES else None
        if refusal is None:
            return code, str(exc.orig if isinstance(exc, DBAPIError) else exc)
        if storage_space.is_full(refusal):
            return sqlite3.SQLITE_FULL, storage_space.disk_full(refusal)
        return code, refusal.strerror or str(refusal)

    def _unusable(self, reason: str) -> ConfigError | StorageError:
        kind = ConfigError if self._is_needed else StorageError
        return kind(f"Data directory '{self.path.parent}' cannot be used: {reason}.", hint=_DIRECTORY_HINT)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

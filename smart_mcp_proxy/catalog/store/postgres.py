"""PostgreSQL as the store of many gateways: transactions on one connection, notifications on another."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn, Self, TypeVar

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from smart_mcp_proxy.catalog.recovery.rollback_guard import CLOSED_KEY, LACKS_KEY, Checkpoint, read_checkpoint
from smart_mcp_proxy.catalog.store import postgres_edge, versions
from smart_mcp_proxy.catalog.store.doorbell import Doorbell
from smart_mcp_proxy.catalog.store.migrations import LOCK, LONGEST_KEY_BYTES
from smart_mcp_proxy.catalog.store.store import HeldStoreError, StorageError, Store, Topic
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.io.clocks import since_boot
from smart_mcp_proxy.names import DATABASE_NAME
from smart_mcp_proxy.telemetry import get_logger

LIMIT_S: Final = 10.0
"""A server that does not go on with a transaction for so long counts as lost; half of it at least."""
_LIMITS: Final = "SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL statement_timeout = 0"
"""A gateway that was frozen must not hold up the others; what the database's own settings say of its other users, a
tenth of a second for each statement perhaps, would take it for lost."""
_HEAD: Final = f"BEGIN ISOLATION LEVEL READ COMMITTED; {_LIMITS}; SET LOCAL lock_timeout = '4s'"
"""Nor be held up for long. At any other level, which the database's settings may name, it would not see what was
committed while it waited for the lock."""
_ORDERED: Final = (
    f"{_HEAD}; DO $$ BEGIN IF to_regclass('meta') IS NOT NULL THEN "
    "LOCK TABLE meta IN SHARE UPDATE EXCLUSIVE MODE; END IF; END $$"
)
"""Only who may write the table can hold this lock; one by a number alone anybody may who can connect."""
_READ: Final = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_LIMITS}"
_IS_FILLED: Final = """SELECT EXISTS (SELECT FROM pg_locks WHERE relation = to_regclass('meta') AND granted
  AND mode = 'ShareRowExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""
"""A copy holds that lock to its end; nothing else of the gateway's takes it."""
_ATTEMPTS: Final = 5
_SAME_S: Final = 1.0
"""Clocks that differ by less are one: nothing here lasts so short, and times stay what they are."""
_COMPARE_S: Final = 60.0
_AGAIN: Final = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, a lock that others held for long: the transaction is tried again.

Source: https://www.postgresql.org/docs/15/errcodes-appendix.html
"""
_FULL: Final = "53100"
"""The server's disk is full. Source: https://www.postgresql.org/docs/15/errcodes-appendix.html"""
_TAKE_ROOM: Final = "SET LOCAL work_mem = '64kB'; SELECT count(*) FROM generate_series(1, 60000)"
"""Writes a temporary file of a megabyte or so to the database's disk. While it is full a small write may still fit into
pages that are there, and that it does says nothing of the next one."""
_ROOM_HINT: Final = "Let its server have more disk space."
_HELD: Final = "55P03"
"""Others held a lock for too long. Source: https://www.postgresql.org/docs/15/errcodes-appendix.html"""
_HELD_HINT: Final = "Try again when what else writes to it has ended, such as `mcpproxy data restore`."
_STORAGE_STATES: Final = ("08", "25", "28", "3D", "3F", "42501", "42P01", "53", "57", "58", "F0", "XX")
"""Beginnings of the codes for which the database is at fault, not one statement of ours."""

T = TypeVar("T")

_log = get_logger("catalog")


class _DroppedError(Exception):
    """The connection was gone before the transaction began: it was idle, or the server was restarted."""


class PostgresStore(Store):
    """The database at an address, opened by `async with PostgresStore.open(...)`.

    Works through a pooler that lends a connection for one transaction at a time: only locks and settings that end with
    the transaction are used, and no prepared statements.

    The rollback guard of a file lies beside it; that of a server is the memory of its gateways. Each transaction looks
    whether the database still counts all the decisions about tools that this process has seen in it. One that was put
    back, or whose standby took over too early, is not used until it does, and is marked: gateways that start on it
    trust no first list.
    """

    unstorable = "\0"
    longest_bytes = LONGEST_KEY_BYTES
    is_shared = True

    def __init__(self, url: str, data_dir: Path) -> None:
        super().__init__()
        self._address = postgres_edge.DatabaseAddress(url)
        self.label = self._address.label
        self._file = data_dir / DATABASE_NAME
        self._engine = postgres_edge.postgres_engine(self._dial)
        self._connection: Connection | None = None
        self._wire: psycopg.Connection | None = None
        self._began_s: float | None = None
        self._compare_due_s = self._set_s = 0.0
        self._seen: Checkpoint | None = None
        self._down: StorageError | None = None
        self._is_full = False
        self._has_older = True
        self._doorbell = Doorbell(self._address.dial)

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, data_dir: Path) -> AsyncIterator[Self]:
        """The database at `url`; `connect` has to follow.

        Args:
            url: For libpq.
            data_dir: Of this gateway: a file in it may know more than a new database.

        Raises:
            ConfigError: Nothing can be made of `url`.
        """
        store = cls(url, data_dir)
        try:
            yield store
        finally:
            store._doorbell.close()
            await store.end(store._disconnect)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the store's thread, to its end; a server that does not go on with it is given up."""
        done = self.submit(work)
        while not (await asyncio.wait([done], timeout=LIMIT_S))[0]:
            self._give_up()
        return done.result()

    async def end(self, last: Callable[[], None]) -> None:
        """As of any store; what nobody waits for any more, as after an interrupted start, is given up."""
        done = self.submit(last)
        self._thread.shutdown(wait=False)
        while not (await asyncio.wait([done], timeout=LIMIT_S))[0]:
            if self._wire is not None:
                postgres_edge.hang_up(self._wire)
        done.result()

    async def wait_change(self, topic: Topic, limit_s: float) -> None:
        """Return when the database tells of a change, after `limit_s` at the latest."""
        await self._doorbell.wait(topic, limit_s)

    def announce(self, name: str) -> None:
        """Tell other gateways the name of this one; a gateway that has it, too, is named in the log."""
        self._doorbell.name = name

    def connect(self) -> None:
        """Connects.

        Raises:
            ConfigError: The database cannot be used, or not by this program.
        """
        self._disconnect()
        self._down = None
        self._began_s = time.monotonic()
        try:
            connection = self._engine.connect()
        except (SQLAlchemyError, psycopg.Error) as exc:
            raise self._address.unusable(exc) from exc
        finally:
            self._began_s = None
        self._began_s = time.monotonic()  # anew: a pooler answers though its server does not
        try:
            postgres_edge.refuse_unusable(connection, self.label)
            versions.refuse_newer(connection, self.label)
            _refuse_half_copied(connection, self.label)
            self._compare_clocks(connection)
        except BaseException as exc:
            connection.close()
            if isinstance(exc, SQLAlchemyError):
                raise self._address.unusable(exc) from exc
            raise
        finally:
            self._began_s = None
        connection.rollback()
        self._connection = connection

    def migrate(self, connection: Connection, *, is_lost: bool) -> None:
        """Brings the database to the latest version, in a transaction.

        Raises:
            ConfigError: A newer program has written it, or this one may not create tables.
        """
        self._began_s = None  # given up, a step through a long log would begin anew, and never end
        is_beside = versions.read_version(connection) == 0 and self._file.exists() and self._file.stat().st_size > 0
        if is_beside:
            told = "the database '%s' is new, and decisions in '%s' are not in it: every tool waits for approval"
            _log.warning(told, self.label, self._file)
        try:
            versions.migrate(connection, self.label, is_closed=is_lost or is_beside)
        except DBAPIError as exc:
            if _state(exc) == "42501":
                raise self._address.unusable(exc, "Let its user create tables in the schema.") from exc
            if _state(exc).startswith("42"):  # half of a step was done by somebody else
                raise self._address.unusable(exc, postgres_edge.NOT_WHOLE_HINT) from exc
            raise

    def mend(self) -> None:
        """Connects anew.

        Raises:
            ConfigError: The database cannot be used any more.
            StorageError: It lacks decisions, or its disk is still full.
        """
        self.connect()
        self.read(lambda connection: connection.exec_driver_sql(_TAKE_ROOM) if self._is_full else None)
        self._is_full = False

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` with all its queries in one state of the database."""
        return self._transact(_READ, work)

    def write(self, work: Callable[[Connection], T], *, is_ordered: bool = True) -> T:
        """Run `work` with all its writes committed, or none and an error. It may run more than once."""
        if not is_ordered:
            return self._transact(_HEAD, work)

        def work_in_order(connection: Connection) -> T:
            self._await_older(connection)
            return work(connection)

        return self._transact(_ORDERED, work_in_order)

    def _await_older(self, connection: Connection) -> None:
        """Wait for earlier programs, which lock by number alone; not again for somebody who never lets go."""
        if self._has_older:
            try:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
            except DBAPIError as exc:
                if _state(exc) == _HELD:
                    self._has_older = False
                    told = "another user of the database '%s' holds advisory lock %d: it is no longer waited for"
                    _log.warning(told, self.label, LOCK)
                raise

    def advance_checkpoint(self, checkpoint: Checkpoint, *, adopts: bool = False) -> None:
        """Note what was just decided: the database must have it from now on, though nothing was read since."""
        if self._seen is None or checkpoint.covers(self._seen):
            self._seen = checkpoint

    def fold_journal(self) -> None:
        """Do nothing: a commit is in the server's own journal."""

    def _transact(self, begin: str, work: Callable[[Connection], T]) -> T:
        if self._down is not None:  # tried again by `mend` alone: a caller must not wait for each attempt
            raise StorageError(self._down.message, hint=self._down.hint)
        try:
            return self._run_with_retries(begin, work)
        except StorageError as exc:
            self._down = exc
            raise

    def _run_with_retries(self, begin: str, work: Callable[[Connection], T]) -> T:
        number, is_fresh = 1, False
        while True:
            try:
                return self._attempt(begin, work)
            except _DroppedError as exc:
                if is_fresh:
                    self._fail(exc.__cause__)
                is_fresh = True
                self._rejoin()
            except SQLAlchemyError as exc:
                if _state(exc) not in _AGAIN or number == _ATTEMPTS:
                    self._fail(exc)
                number += 1

    def _attempt(self, begin: str, work: Callable[[Connection], T]) -> T:
        connection, wire = self._connection, self._wire
        if connection is None or wire is None:
            raise StorageError(f"The database '{self.label}' is not connected.")
        self._began_s = time.monotonic()
        try:
            try:
                connection.exec_driver_sql(begin)
            except DBAPIError as exc:
                if wire.closed:
                    raise _DroppedError from exc
                raise
            self._require_decisions(connection)
            # Also if this machine's clock was set since it was compared: leases would end too soon, say.
            was_set = abs(time.time() - since_boot() - self._set_s) >= _SAME_S
            if was_set or time.monotonic() >= self._compare_due_s:
                self._compare_clocks(connection)
            result = work(connection)
            connection.commit()
        except BaseException:
            _roll_back(connection)
            raise
        finally:
            self._began_s = None
        return result

    def _compare_clocks(self, connection: Connection) -> None:
        asked = connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())::float8").scalar_one()
        ahead_s = float(asked) - time.time()
        self.ahead_s = ahead_s if abs(ahead_s) >= _SAME_S else 0.0
        self._set_s = time.time() - since_boot()
        self._compare_due_s = time.monotonic() + _COMPARE_S

    def _require_decisions(self, connection: Connection) -> None:
        """Passes if the database counts every decision that this process has seen in it.

        Raises:
            StorageError: It does not.
        """
        if self._seen is None and not versions.read_version(connection):
            return
        found = read_checkpoint(connection)
        # Of no decision none can be lost: a catalog was copied into the empty database while this process started.
        if self._seen is None or not self._seen.count or found.covers(self._seen):
            self._seen = found
            return
        with suppress(SQLAlchemyError):  # another gateway may be able to
            _roll_back(connection)
            connection.exec_driver_sql(f"BEGIN; {'; '.join(_marks(found, self._seen))}")
            connection.commit()
        raise StorageError(
            f"The database '{self.label}' has gone back: it lacks decisions about tools.",
            hint="Bring the newer one back. To go on with this one, restart all gateways and look at what waits: "
            "mcpproxy approve --list",
        )

    def _rejoin(self) -> None:
        try:
            self.connect()
        except ConfigError as exc:  # what stops a start is here one more way to lose it
            raise StorageError(exc.message, hint=exc.hint) from exc

    def _dial(self) -> psycopg.Connection:
        self._wire = wire = self._address.dial()
        # A pooler may lend a connection on which another one has listened; without it the driver keeps what that hears.
        wire.add_notify_handler(lambda told: None)
        return wire

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(SQLAlchemyError, psycopg.Error):
                connection.close()

    def _give_up(self) -> None:
        """Ends a transaction that the server does not go on with; in the event loop."""
        began_s, wire = self._began_s, self._wire
        if began_s is not None and wire is not None and time.monotonic() - began_s > LIMIT_S / 2:
            postgres_edge.hang_up(wire)

    def _fail(self, exc: BaseException | None) -> NoReturn:
        state = _state(exc)
        kind: type[CatalogError] = StorageError if not state or state.startswith(_STORAGE_STATES) else CatalogError
        told = self._address.unusable(exc)
        if state == _FULL:
            self._is_full = True
            told = self._address.unusable(exc, _ROOM_HINT)
        elif state == _HELD:
            kind, told = HeldStoreError, self._address.unusable(exc, _HELD_HINT)
        raise kind(told.message, hint=told.hint) from exc


def _marks(found: Checkpoint, seen: Checkpoint) -> Iterator[str]:
    """Statements that mark a database that has gone back."""
    yield f"INSERT INTO meta (key, value) VALUES ('{CLOSED_KEY}', 1) ON CONFLICT DO NOTHING"
    # Once: those that started on it since go on. One that never was the same is not for this process to mark so.
    if (found.catalog_id, found.lacking) == (seen.catalog_id, seen.lacking):
        lacking = max(seen.count, seen.lacking + 1)
        yield (
            f"INSERT INTO meta (key, value) VALUES ('{LACKS_KEY}', {lacking}) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )


def _refuse_half_copied(connection: Connection, label: str) -> None:
    """Passes unless a catalog is being copied into the database.

    Raises:
        ConfigError: It is: what a gateway reads until that ends, and decides by it, is void afterwards.
    """
    if connection.exec_driver_sql(_IS_FILLED).scalar_one():
        raise ConfigError(
            f"The database '{label}' is being filled by `mcpproxy data copy` or `mcpproxy data restore`.",
            hint="Start again when that has ended.",
        )


def _state(exc: BaseException | None) -> str:
    """The SQLSTATE of an error, empty where the connection is what failed."""
    return (getattr(exc.orig, "sqlstate", "") or "") if isinstance(exc, DBAPIError) else ""


def _roll_back(connection: Connection) -> None:
    with suppress(SQLAlchemyError, psycopg.Error):  # a connection that is gone has done so
        connection.rollback()
        connection.connection.rollback()

"""Copies of a whole catalog from one store to another: every row, compared before any of them counts."""

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from anyio import CancelScope
from sqlalchemy import Connection, Engine, func, literal_column, select
from sqlalchemy.exc import SQLAlchemyError

from smart_mcp_proxy.catalog.recovery.rollback_guard import CheckpointFile, read_checkpoint
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.postgres_tables import FILL_LOCK
from smart_mcp_proxy.catalog.store.store import Store
from smart_mcp_proxy.catalog.store.stores import build_hang_up, create_store_engine, open_store
from smart_mcp_proxy.catalog.tables.instances import INSTANCE_STALE_S
from smart_mcp_proxy.catalog.tables.schema import instances, meta
from smart_mcp_proxy.catalog.transfer import TABLES, Copied, Told, Transfer
from smart_mcp_proxy.errors import CatalogError, ConfigError

_PATIENT: Final = (
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; "
    "SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'"  # there since version 17
)
"""One side waits while the other one is read, and for as long as that takes: a database's own settings are of its other
users."""
_STEADY: Final = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PATIENT}"
_ALONE: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; {_PATIENT}; SET LOCAL lock_timeout = '10s'; "
    f"SELECT pg_advisory_xact_lock({FILL_LOCK}, hashtext(current_schema())); "
    f"LOCK TABLE {instances.name}, {meta.name} IN SHARE ROW EXCLUSIVE MODE"
)
"""Gateways that would start on the target are refused, those that were about to register wait; those on another schema
of the database go on."""
_NOTHING: Final = frozenset({"tools", "approvals", "baselines", "agent_tokens", "activity"})
"""A store whose tables of these names are empty holds nothing that anybody would miss."""

T = TypeVar("T")


class _StoppedError(Exception):
    """The caller of a copy was cancelled."""


class _Stop:
    """Ends a copy from another thread, until it is about to commit."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_set = False
        self._ends: list[Callable[[], None]] = []

    def set(self) -> None:
        """Lets the copy go no further, also where a database stands still."""
        with self._lock:
            self._is_set = True
            for end in self._ends:
                end()

    def track_connection(self, connection: Connection) -> Connection:
        """The connection, which ends with the copy."""
        with self._lock:
            if self._is_set:
                connection.close()
            self.require_unset()
            self._ends.append(build_hang_up(connection))
        return connection

    def require_unset(self) -> None:
        """Passes unless nobody wants the copy any more.

        Raises:
            _StoppedError: So that connections end without a commit.
        """
        if self._is_set:
            raise _StoppedError

    def pass_by(self) -> None:
        """As `require_unset`, the last time: a commit is waited for."""
        with self._lock:
            self.require_unset()
            self._ends.clear()


class StoreLocation(NamedTuple):
    """Location of a stored catalog.

    Attributes:
        url: Of a database; None for the file in the data directory.
        data_dir: Of a gateway.
    """

    url: str | None
    data_dir: Path


async def copy_catalog(
    source: StoreLocation, target: StoreLocation, *, replaces: bool = False, told: Told = lambda *_: None
) -> Copied:
    """Copy every row of `source`, in one transaction of each store, and compare both before it counts.

    Gateways may go on with `source`; what they change meanwhile is not copied.

    Args:
        source: Brought to the latest version, as a start does.
        target: Made if there is none.
        replaces: Whether what `target` holds is dropped; otherwise it has to be empty.
        told: How far it is.

    Returns:
        Numbers of rows.

    Raises:
        ConfigError: One of them cannot be used, `source` is empty, or `target` is not, or gateways run on it.
        CatalogError: A store failed, or the copy is not equal; `target` is as it was.
    """
    if source.url is None and not (await _prepare_store(source, is_source=True)):
        raise ConfigError(
            f"There is no catalog in '{source.data_dir}' to copy.",
            hint="MCPPROXY_DATA_DIR names another data directory.",
        )
    if source.url is not None:
        await _prepare_store(source, is_source=True)
    await _prepare_store(target, is_source=False)
    return await _run(partial(_copy, source, target, replaces, told))


async def _run(copy: Callable[[_Stop], T]) -> T:
    """Run `copy` in a thread; a caller that is cancelled stops it and waits: then nothing of it counts.

    Returns:
        Its result, also if it was cancelled too late to be stopped.
    """
    stop = _Stop()
    done = asyncio.get_running_loop().run_in_executor(None, copy, stop)
    done.add_done_callback(asyncio.Future.exception)  # looked at, or asyncio prints what ended a copy that was stopped
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        stop.set()
        while not done.done():
            # Again: a second Ctrl-C must not leave the thread alone either, it could commit.
            with suppress(asyncio.CancelledError), CancelScope(shield=True):
                await asyncio.wait([done])
        if done.exception() is not None:
            raise
    return done.result()


async def _prepare_store(place: StoreLocation, *, is_source: bool) -> bool:
    """Bring the store at `place` to the latest version; False, untouched, if a source is not there."""
    async with open_store(place.url, place.data_dir, is_needed=True) as store:

        def make() -> bool:
            if is_source and store.is_blank():
                return False
            store.connect()
            if not store.read(versions.is_latest):
                # A source as a start does: one in the place of what was lost trusts nothing, and nor does its copy.
                store.write(partial(store.migrate, is_lost=False) if is_source else partial(_migrate, store))
            return True

        return await store.run(make)


def _migrate(store: Store, connection: Connection) -> None:
    # Closed until the copy is committed, which replaces all of `meta`: where it never is, a gateway that starts there
    # would approve as a first list what the source blocks.
    versions.migrate(connection, store.label, is_closed=True)


def _copy(source: StoreLocation, target: StoreLocation, replaces: bool, told: Told, stop: _Stop) -> Copied:
    beside = CheckpointFile(target.data_dir) if target.url is None else None
    former = None if beside is None else beside.read()
    is_committed = False
    try:
        with (
            closing(stop.track_connection(_connect(source))) as reading,
            closing(stop.track_connection(_connect(target))) as writing,
        ):
            reading.exec_driver_sql(_begin(reading, _STEADY, "BEGIN"))
            writing.exec_driver_sql(_begin(writing, _ALONE, "BEGIN IMMEDIATE"))
            for side in (reading, writing):
                _require_known(side)
            _require_room(writing, replaces=replaces)
            copied = Transfer(reading, writing, told, stop.require_unset).run()
            checkpoint = read_checkpoint(writing)
            stop.pass_by()
            if beside is not None:
                # Before the commit, or a start after a kill in between would miss the decisions that are replaced.
                beside.remove()
            writing.commit()
            is_committed = True
    except (SQLAlchemyError, OSError) as exc:
        if not is_committed:  # a source that is lost afterwards takes nothing back
            if beside is not None and former is not None:
                with suppress(OSError):
                    beside.advance(former, adopts=True)
            reason = str(getattr(exc, "orig", None) or exc).strip().partition("\n")[0]
            raise CatalogError(f"The catalog cannot be copied: {reason}.", hint="The target is as it was.") from exc
    if beside is not None:
        with suppress(OSError):  # the copy counts; the next start writes it
            beside.advance(checkpoint, adopts=True)
    return copied


def _connect(place: StoreLocation) -> Connection:
    engine: Engine = create_store_engine(place.url, place.data_dir)
    return engine.connect()


def _begin(connection: Connection, postgres: str, sqlite: str) -> str:
    return sqlite if connection.dialect.name == "sqlite" else postgres


def _require_known(connection: Connection) -> None:
    """Refuse a store that a newer program has extended, which gateways of this version may use meanwhile.

    Raises:
        ConfigError: It has; what it added would not be copied, or stay beside what is.
    """
    if (version := versions.read_version(connection)) > versions.LATEST_VERSION:
        raise ConfigError(
            f"A newer program has added to the catalog: it has schema version {version}, and this program knows "
            f"versions up to {versions.LATEST_VERSION}.",
            hint="Copy, back up and restore it with that program.",
        )


def _require_room(connection: Connection, *, replaces: bool) -> None:
    """Passes if nothing in the target would be missed, and nobody works on it.

    Raises:
        ConfigError: Otherwise.
    """
    now = "strftime('%s', 'now')" if connection.dialect.name == "sqlite" else "extract(epoch FROM clock_timestamp())"
    lately = instances.c.heartbeat > literal_column(f"CAST({now} AS DOUBLE PRECISION)") - INSTANCE_STALE_S
    if running := connection.scalar(select(func.count()).select_from(instances).where(lately)):
        raise ConfigError(
            f"{running} gateways run on the target, or ended less than {INSTANCE_STALE_S:g} s ago without a word.",
            hint="End them first, or wait.",
        )
    counts = {table.name: connection.scalar(select(func.count()).select_from(table)) for table in TABLES}
    held = [f"{count:,} {name}" for name, count in counts.items() if count and name in _NOTHING]
    if held and not replaces:
        raise ConfigError(
            f"The target is not empty: {', '.join(held)}.", hint="Drop what it holds with --replace, or take another."
        )

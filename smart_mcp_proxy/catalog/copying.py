"""Copies of a whole catalog from one store to another: every row, compared before any of them counts.

Refused: *SQLite's `VACUUM INTO`, and `pg_dump`* (3.40, 15.18). The first is quicker (0.1 s for 5,000 tools, 2.5 s
here), but ends in SQLite alone, with the gateways' tables and without a comparison. Of 39 rows of the second, written
as INSERT and adapted, SQLite refused 4, and 3 tables differed.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from anyio import CancelScope
from sqlalchemy import Connection, Row, Table, delete, func, insert, literal_column, select, update
from sqlalchemy.exc import SQLAlchemyError

from smart_mcp_proxy.catalog.recovery.rollback_guard import CATALOG_ID_KEY, CheckpointFile, read_checkpoint
from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import FILL_LOCK, LONGEST_KEY_BYTES
from smart_mcp_proxy.catalog.store.seal_rows import accept_put_back, bring_up, pass_on
from smart_mcp_proxy.catalog.store.stores import build_hang_up, create_store_engine, open_store
from smart_mcp_proxy.catalog.tables.instances import INSTANCE_STALE_S
from smart_mcp_proxy.catalog.tables.schema import gateway_keys, gateway_tokens, instances, leases, meta, metadata
from smart_mcp_proxy.errors import CatalogError, ConfigError

Told = Callable[[str, int], None]
"""Called from a thread with a table's name and the number of its rows copied since."""

_OF_GATEWAYS: Final = (instances, leases, gateway_tokens, gateway_keys)
"""Tables of running gateways; who may enter at those of one store has no right at those of another, nor its key."""
TABLES: Final[Sequence[Table]] = tuple(table for table in metadata.sorted_tables if table not in _OF_GATEWAYS)
"""All others."""
_BATCH_ROWS: Final = 500
_PLACE_BYTES: Final = 2
_SUMS: Final = 256**_PLACE_BYTES
_MODULUS: Final = 2**256
_NUMBERED: Final = tuple(
    table.name for table in TABLES if "id" in table.c and table.name not in ("gone", "activity_chains")
)
"""Tables whose ids are never used twice."""

_PATIENT: Final = (
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0; "
    "SELECT set_config(name, '0', true) FROM pg_settings WHERE name = 'transaction_timeout'"  # there since version 17
)
"""Settings without time limits for one transaction: one side waits while the other one is read, for as long as that
takes. A database's own settings are for its other users."""
_STEADY: Final = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_PATIENT}"
_ALONE: Final = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; {_PATIENT}; SET LOCAL lock_timeout = '10s'; "
    f"SELECT pg_try_advisory_xact_lock({FILL_LOCK}, hashtext(current_schema())); "
    f"LOCK TABLE {instances.name}, {meta.name} IN SHARE ROW EXCLUSIVE MODE"
)
"""Gateways that would start on the target are refused, those that were about to register wait; those on another schema
of the database go on."""
_NOTHING: Final = frozenset({"tools", "approvals", "baselines", "agent_tokens", "activity"})
"""A store whose tables of these names are empty holds nothing that anybody would miss."""


class Copied(NamedTuple):
    """Numbers of rows.

    Attributes:
        rows: Copied, by table.
        left_out: Likewise those whose names are too long for the target; tables without any are absent.
    """

    rows: dict[str, int]
    left_out: dict[str, int]


class Transfer:
    """Copy of a catalog from one store to another, both sides in their transactions.

    Args:
        reading: Of the source.
        writing: Of the target.
        told: How far it is.
        require_wanted: Raises once nobody wants it any more.
    """

    def __init__(
        self, reading: Connection, writing: Connection, told: Told, require_wanted: Callable[[], None]
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._told = told
        self._require_wanted = require_wanted
        kinds = (reading.dialect.name, writing.dialect.name)
        self._longest_bytes = LONGEST_KEY_BYTES if kinds == ("sqlite", "postgresql") else None
        self._left_out: dict[str, int] = {}

    def run(self) -> Copied:
        """Copy, and compare."""
        used = {
            name: max(_read_highest_id(self._reading, name), _read_highest_id(self._writing, name))
            for name in _NUMBERED
        }
        generation = max(map(_generation, (self._reading, self._writing)))
        is_replacing = _generation(self._writing) > 1
        # `meta` first and last: triggers count decisions and departures in it, and this is neither.
        for table in (meta, *TABLES):
            self._writing.execute(delete(table))
        rows = [table for table in TABLES if table is not meta]
        counts = {table.name: self._copy_table(table) for table in (*rows, meta)}
        for name, last in used.items():
            _use_ids(self._writing, name, last)
        for table in TABLES:
            self._compare(table)
        if is_replacing:
            # After the comparison: caches of the earlier content must look older than this, and a checkpoint of it,
            # which may count more decisions, is another catalog's.
            for key, value in (("generation", generation + 1), (CATALOG_ID_KEY, 1 + secrets.randbits(62))):
                self._writing.execute(update(meta).where(meta.c.key == key).values(value=value))
        return Copied(counts, self._left_out)

    def _copy_table(self, table: Table) -> int:
        count = 0
        for batch in self._batches(self._reading, table):
            if held := [dict(row._mapping) for row in batch if self._holds(row)]:
                self._writing.execute(insert(table), held)
            count += len(held)
            if len(held) < len(batch):
                self._left_out[table.name] = self._left_out.get(table.name, 0) + len(batch) - len(held)
            self._told(table.name, len(batch))
        return count

    def _holds(self, row: Row[Any]) -> bool:
        """True if the target can hold a row of the source; gateways there store no such tool either."""
        values = row._mapping
        name = values.get("name", values.get("uri"))
        if self._longest_bytes is None or name is None or "server_name" not in values:
            return True
        return len(f"{values['server_name']}{name}".encode("utf-8", "replace")) <= self._longest_bytes

    def _compare(self, table: Table) -> None:
        """Passes if both sides have the same rows.

        Raises:
            CatalogError: They differ.
        """
        ours, theirs = (self._sums(side, table) for side in (self._reading, self._writing))
        if differing := sum(one != other for one, other in zip(ours, theirs, strict=True)):
            raise CatalogError(
                f"The copy of table '{table.name}' is not equal: {differing} rows differ.",
                hint="The target is as it was. Please report this.",
            )

    def _sums(self, side: Connection, table: Table) -> list[int]:
        """Sums of the rows' digests, in any order, spread over many: one a row would not fit into memory."""
        sums = [0] * _SUMS
        for batch in self._batches(side, table):
            for row in filter(self._holds, batch) if side is self._reading else batch:
                digest = _digest(row)
                place = int.from_bytes(digest[:_PLACE_BYTES])
                sums[place] = (sums[place] + int.from_bytes(digest)) % _MODULUS
        return sums

    def _batches(self, side: Connection, table: Table) -> Iterator[Sequence[Row[Any]]]:
        with closing(_rows(side, table)) as found:
            for batch in found.partitions(_BATCH_ROWS):
                self._require_wanted()
                yield batch


def _rows(connection: Connection, table: Table) -> Any:
    """All rows, in an order that tells which came last where that counts."""
    last = literal_column("rowid") if table.name == "vectors" else next(iter(table.primary_key))
    streamed = select(table).order_by(last).execution_options(stream_results=True, max_row_buffer=_BATCH_ROWS)
    return connection.execute(streamed)


def _digest(row: Row[Any]) -> bytes:
    """SHA-256 of a row's values; PostgreSQL holds no character 0 (`postgres_edge`)."""
    hashed = hashlib.sha256()
    for value in row:
        text = value.replace("\0", "\ufffd") if isinstance(value, str) else value
        held = bytes(text) if isinstance(text, bytes | memoryview) else repr(text).encode("utf-8", "surrogatepass")
        hashed.update(b"%d:%s" % (len(held), held))
    return hashed.digest()


def _generation(connection: Connection) -> int:
    return connection.scalar(select(meta.c.value).where(meta.c.key == "generation")) or 0


def _read_highest_id(connection: Connection, table: str) -> int:
    """The highest id that was ever used in a table."""
    if connection.dialect.name == "sqlite":
        return connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).scalar() or 0
    sequence = connection.exec_driver_sql("SELECT pg_get_serial_sequence(%s, 'id')", (table,)).scalar_one()
    last, is_called = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence}").one()
    return int(last) if is_called else 0


def _use_ids(connection: Connection, table: str, last: int) -> None:
    """Lets the next id of a table come after `last`."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))
        return
    sequence = connection.exec_driver_sql("SELECT pg_get_serial_sequence(%s, 'id')", (table,)).scalar_one()
    connection.exec_driver_sql("SELECT setval(%s::regclass, greatest(%s, 1), %s > 0)", (sequence, last, last))


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

    def connect(self, place: "StoreLocation") -> Connection:
        """A connection to the store at `place`, which ends with the copy."""
        connection = create_store_engine(place.url, place.data_dir).connect()
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
        secret: That all gateways on the database have.
    """

    url: str | None
    data_dir: Path
    secret: str | None = None

    def open_seals(self) -> Seals:
        """The seals of this store."""
        return Seals(self.data_dir, self.secret, is_shared=self.url is not None)


async def copy_catalog(
    source: StoreLocation,
    target: StoreLocation,
    *,
    replaces: bool = False,
    told: Told = lambda *_: None,
    passes_seals: bool = True,
) -> Copied:
    """Copy every row of `source`, in one transaction of each store, and compare both before it counts.

    Gateways may go on with `source`; what they change meanwhile is not copied.

    Args:
        source: Brought to the latest version, as a start does.
        target: Made if there is none.
        replaces: Whether what `target` holds is dropped; otherwise it has to be empty.
        told: How far it is.
        passes_seals: Whether decisions that carry the seal of `source` get that of `target`; else they keep it.

    Returns:
        Numbers of rows.

    Raises:
        ConfigError: One of them cannot be used, `source` is empty, or `target` is not, or gateways run on it.
        CatalogError: A store failed, or the copy is not equal; `target` is as it was.
    """
    if not await _prepare_store(source, is_source=True):
        raise ConfigError(
            f"There is no catalog in '{source.data_dir}' to copy.",
            hint="MCPPROXY_DATA_DIR names another data directory.",
        )
    await _prepare_store(target, is_source=False)
    return await _run(partial(_copy, source, target, replaces, told, passes_seals=passes_seals))


async def _run(copy: Callable[[_Stop], Copied]) -> Copied:
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
            # A source as a start does: one in the place of what was lost trusts nothing, and nor does its copy.
            # A target is closed until the copy is committed, which replaces all of `meta`: where it never is, a
            # gateway that starts there would approve as a first list what the source blocks.
            closed = partial(versions.migrate, label=store.label, is_closed=True)
            seals, migrate = place.open_seals(), partial(store.migrate, is_lost=False) if is_source else closed
            store.write(partial(bring_up, migrate=migrate, seals=seals))
            seals.keep()
            return True

        return await store.run(make)


def _copy(
    source: StoreLocation, target: StoreLocation, replaces: bool, told: Told, stop: _Stop, *, passes_seals: bool = True
) -> Copied:
    beside = CheckpointFile(target.data_dir) if target.url is None else None
    former = None if beside is None else beside.read()
    is_committed = False
    try:
        with closing(stop.connect(source)) as reading, closing(stop.connect(target)) as writing:
            reading.exec_driver_sql(_begin(reading, _STEADY, "BEGIN"))
            writing.exec_driver_sql(_begin(writing, _ALONE, "BEGIN IMMEDIATE"))
            for side in (reading, writing):
                _require_known(side)
            _require_room(writing, replaces=replaces)
            copied = Transfer(reading, writing, told, stop.require_unset).run()
            if passes_seals:
                pass_on(reading, writing, source.open_seals(), target.open_seals())
            else:
                accept_put_back(writing, target.open_seals())
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

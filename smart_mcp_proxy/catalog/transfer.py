"""Rows of a whole catalog, from one store's transaction to another's, and compared there."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Table, delete, insert, literal_column, select, update

from smart_mcp_proxy.catalog.recovery.rollback_guard import CATALOG_ID_KEY
from smart_mcp_proxy.catalog.store.postgres_tables import LONGEST_KEY_BYTES
from smart_mcp_proxy.catalog.tables.schema import gateway_keys, gateway_tokens, instances, leases, meta, metadata
from smart_mcp_proxy.errors import CatalogError

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
_NUMBERED: Final = tuple(table.name for table in TABLES if "id" in table.c and table.name != "gone")
"""Tables whose ids are never used twice."""


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

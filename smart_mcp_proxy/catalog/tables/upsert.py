"""Statements that differ between the stores' dialects, or that take so many values at most."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

if TYPE_CHECKING:
    from sqlalchemy.dialects.sqlite import Insert

_ASKED_ROWS = 500
"""Keys in one statement; SQLite takes at least 999."""
T = TypeVar("T")


def upsert(connection: Connection, table: Table) -> "Insert":
    """Return an insert into `table` that takes `on_conflict_do_update` and `on_conflict_do_nothing`.

    Both dialects spell these alike, so the one's type stands for both.
    """
    return _insert(connection.dialect.name, table)


def replace_columns(connection: Connection, table: Table, *columns: str) -> "Insert":
    """Return an insert that replaces these columns where the table has a row with the same key."""
    return _build_upsert(connection.dialect.name, table, columns)


@lru_cache
def _build_upsert(dialect: str, table: Table, columns: tuple[str, ...]) -> "Insert":
    """Makes a statement once: to put it together takes longer than to run it."""
    row = _insert(dialect, table)
    return row.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_={name: row.excluded[name] for name in columns}
    )


def _insert(dialect: str, table: Table) -> "Insert":
    if dialect == "sqlite":
        return sqlite_insert(table)
    # Here and not above: gateways on SQLite need none of it.
    from sqlalchemy.dialects.postgresql import insert

    return insert(table)  # type: ignore[return-value]


def parts(values: Iterable[T]) -> Iterator[list[T]]:
    """`values` in lists that one statement takes."""
    rest = iter(values)
    while part := list(islice(rest, _ASKED_ROWS)):
        yield part

"""Statements that differ between the stores' dialects, or that take so many values at most."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

if TYPE_CHECKING:
    from sqlalchemy.dialects.sqlite import Insert

__all__ = ["parts", "upsert"]

_ASKED_ROWS = 500
"""Keys in one statement; SQLite takes at least 999."""
T = TypeVar("T")


def upsert(connection: Connection, table: Table) -> "Insert":
    """Return an insert into `table` that takes `on_conflict_do_update` and `on_conflict_do_nothing`.

    Both dialects spell these alike, so the one's type stands for both.
    """
    if connection.dialect.name == "sqlite":
        return sqlite_insert(table)
    # Here and not above: gateways on SQLite need none of it.
    from sqlalchemy.dialects.postgresql import insert

    return insert(table)  # type: ignore[return-value]


def parts(values: Iterable[T]) -> Iterator[list[T]]:
    """`values` in lists that one statement takes."""
    rest = iter(values)
    while part := list(islice(rest, _ASKED_ROWS)):
        yield part

"""Insert statements that may conflict, in the words of the store's dialect."""

from typing import TYPE_CHECKING

from sqlalchemy import Connection, Table
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

if TYPE_CHECKING:
    from sqlalchemy.dialects.sqlite import Insert

__all__ = ["upsert"]


def upsert(connection: Connection, table: Table) -> "Insert":
    """Return an insert into `table` that takes `on_conflict_do_update` and `on_conflict_do_nothing`.

    Both dialects spell these alike, so the one's type stands for both.
    """
    if connection.dialect.name == "sqlite":
        return sqlite_insert(table)
    # Here and not above: gateways on SQLite need none of it.
    from sqlalchemy.dialects.postgresql import insert

    return insert(table)  # type: ignore[return-value]

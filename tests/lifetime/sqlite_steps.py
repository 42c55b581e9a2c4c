"""SQLite's connections, with a say right before each statement and each commit."""

import sqlite3
from collections.abc import Callable
from typing import Any

__all__ = ["stepping_connect"]


def stepping_connect(step: Callable[[], object]) -> Callable[..., sqlite3.Connection]:
    """What `sqlite3.connect` gives, calling `step` before everything that a connection does."""
    connect = sqlite3.connect

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *args: Any) -> Any:
            step()
            return super().execute(sql, *args)

        def executemany(self, sql: str, *args: Any) -> Any:
            step()
            return super().executemany(sql, *args)

    class Connection(sqlite3.Connection):
        def cursor(self, *args: Any) -> Any:
            return super().cursor(Cursor)

        def commit(self) -> None:
            step()
            super().commit()

    return lambda *args, **more: connect(*args, **more, factory=Connection)

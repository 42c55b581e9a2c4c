"""Engines of both kinds of store; no driver is imported before one connects."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Engine, NullPool, create_engine

_BUSY_TIMEOUT_S: Final = 5.0
"""How long one statement waits for another process's transaction; the longest of ours takes under a second."""


def sqlite_engine(path: Path) -> Engine:
    """The engine of a file. Callers write BEGIN out: the driver's own is always deferred."""
    return create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        connect_args={"timeout": _BUSY_TIMEOUT_S},
        hide_parameters=True,
    )


def postgres_engine(dial: Callable[[], Any]) -> Engine:
    """The engine of a server. Callers write BEGIN out, with what belongs to it.

    Args:
        dial: Opens a connection of the driver.
    """
    return create_engine(
        "postgresql+psycopg://",
        creator=dial,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
        hide_parameters=True,
        use_native_hstore=False,
    )

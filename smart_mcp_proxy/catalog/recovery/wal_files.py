"""The `-wal` and `-shm` files of the database: whether all processes share the same ones."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from smart_mcp_proxy.catalog.recovery.damage import COMPANIONS, FileId, file_id

MOST_S: Final = 5.0
"""Others look every other second whether theirs are still there, and make new ones."""
PAUSE_S: Final = 0.05
_TICK_S: Final = 0.05
"""Writes that come so soon after each other may have one time."""
_BUSY_CODES: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def primary_code(exc: SQLAlchemyError) -> int:
    """SQLite's primary result code behind an error, 0 where there is none."""
    origin = exc.orig if isinstance(exc, DBAPIError) else None
    code: int = getattr(origin, "sqlite_errorcode", 0)
    return code & 0xFF


def is_busy(exc: SQLAlchemyError) -> bool:
    """Whether it is only another connection that is in the way."""
    return primary_code(exc) in _BUSY_CODES


def companion_ids(path: Path) -> tuple[FileId | None, ...]:
    """Identities of the `-wal` and `-shm` files, in this order; None for a missing one.

    Args:
        path: Of the database.
    """
    return tuple([file_id(path.with_name(path.name + ending)) for ending in COMPANIONS])


def stamp_files(path: Path) -> tuple[object, ...]:
    """Stamp of a database that differs after each write to it.

    It is equal to no other while another write may have the same time.

    Args:
        path: Of the database.
    """
    stamps: list[object] = [companion_ids(path)]
    for file in (path, path.with_name(f"{path.name}-wal")):
        with suppress(OSError):
            facts = file.stat()
            stamps.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
            if time.time() - facts.st_mtime < _TICK_S:
                stamps.append(object())
    return tuple(stamps)


def await_companions(path: Path, engine: Engine) -> None:
    """Wait until a new process may open the database.

    That is at once, unless its `-wal` was removed under others.

    They have what is missing: without it the database would be taken for one that lost decisions, or both would write.

    Args:
        path: Of the database.
        engine: For it.

    Raises:
        TimeoutError: They did nothing about it.
    """
    if not path.stat().st_size:
        return
    until_s = time.monotonic() + MOST_S
    while None in companion_ids(path) and not _is_alone(engine):
        if time.monotonic() > until_s:
            raise TimeoutError
        time.sleep(PAUSE_S)


def _is_alone(engine: Engine) -> bool:
    """Whether no connection has the file open; then nothing of a journal is missing."""
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA busy_timeout = 0")
            connection.exec_driver_sql("PRAGMA locking_mode = EXCLUSIVE")
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.connection.rollback()
    except SQLAlchemyError as exc:
        return not is_busy(exc)  # what else is wrong is found out by those who open it
    return True


@contextmanager
def copy_in_memory(path: Path) -> Iterator[Connection]:
    """Connect to a copy of the file at `path`, for this thread; writes go to the copy alone.

    SQLite needs files beside one in WAL mode, also to read it, unless it is told that nobody writes. Then it leaves
    the journal out, so that is said only where there is none. One that a killed process left is read with the shared
    memory that it left as well; without that it is not, and SQLite says so.

    Source: https://www.sqlite.org/wal.html; https://www.sqlite.org/uri.html

    Raises:
        sqlite3.Error: It cannot be read.
    """
    memory = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", poolclass=NullPool, isolation_level="AUTOCOMMIT", creator=lambda: memory)
    with closing(memory):
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{_access_to(path)}", uri=True)) as file:
            file.backup(memory)
        with engine.connect() as copy:
            yield copy


def _access_to(path: Path) -> str:
    journal = path.with_name(f"{path.name}-wal")
    has_journal = journal.exists() and journal.stat().st_size
    return "mode=ro" if has_journal else "mode=ro&immutable=1"

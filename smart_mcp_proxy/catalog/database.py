"""The SQLite file: one thread, one connection, transactions that wait for other processes, errors in our words."""

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Self, TypeVar

from sqlalchemy import URL, Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from smart_mcp_proxy.errors import CatalogError, ConfigError

__all__ = ["DATABASE_NAME", "Database"]

DATABASE_NAME = "proxy.db"
"""Source: contract.md, SQL."""

_BUSY_TIMEOUT_S = 5.0
"""How long one statement waits for another process's transaction; the longest of ours takes under a second."""
_ATTEMPTS = 10
"""SQLite answers "busy" without waiting in a few races (switch to WAL, recovery, last close): those are tried again."""
_PAUSE_S = 0.05
"""Longest first pause before another attempt; it grows with each one. All pauses together stay below 2.5 s."""

_BUSY_CODES = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNUSABLE_CODES = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM})
_DIRECTORY_HINT = "Set MCPPROXY_DATA_DIR to a directory that you can write to, or change its permissions."
_HINTS = {
    sqlite3.SQLITE_BUSY: "Another process holds the file; try again, or stop that process.",
    sqlite3.SQLITE_FULL: "Free some disk space and try again.",
    sqlite3.SQLITE_CORRUPT: "Stop every gateway and move the file away; the servers' tools are listed anew.",
    sqlite3.SQLITE_NOTADB: "Stop every gateway and move the file away; the servers' tools are listed anew.",
}

T = TypeVar("T")


class Database:
    """`proxy.db` in a data directory, opened by `async with Database.open(...)`.

    All SQL runs in one thread of its own, so the event loop never waits for a disk and SQLite sees one connection
    per process. `read` and `write` are for use inside that thread, which `run` enters.

    The journal is WAL (readers and one writer at once) with `synchronous=FULL`: a committed write survives a power
    cut. `NORMAL` would lose the last commits, and with them hand out again ids and generations that a side-car file
    already refers to. It costs one fsync per commit, in a thread, and unchanged tool lists commit nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")
        self._engine = create_engine(
            URL.create("sqlite", database=str(path)),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",  # BEGIN is written out below: the driver's own is always deferred
            connect_args={"timeout": _BUSY_TIMEOUT_S},
            hide_parameters=True,
        )
        self._connection: Connection | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, data_dir: Path) -> AsyncIterator[Self]:
        """The database of a data directory; both are created, for the owner only, where they do not exist.

        Raises:
            ConfigError: The directory cannot be used.
            CatalogError: The file is not a database, or stays locked.
        """
        database = cls(data_dir / DATABASE_NAME)
        try:
            await database.run(database._connect)
            yield database
        finally:
            closed = database._thread.submit(database._disconnect)
            database._thread.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(closed))

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns from the database's thread; it is done even if the caller is cancelled meanwhile."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, work))

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, all its queries seeing one state of the file."""
        return self._transact("DEFERRED", work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, with all its writes committed, or none and an error. It may run more than once."""
        return self._transact("IMMEDIATE", work)

    def _transact(self, mode: Literal["DEFERRED", "IMMEDIATE"], work: Callable[[Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise RuntimeError(f"{self.path} is not open")

        def attempt() -> T:
            try:
                connection.exec_driver_sql(f"BEGIN {mode}")
                result = work(connection)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
            return result

        return self._retried(attempt)

    def _retried(self, attempt: Callable[[], T]) -> T:
        number = 1
        while True:
            try:
                return attempt()
            except SQLAlchemyError as exc:
                code = _primary_code(exc)
                if code not in _BUSY_CODES or number == _ATTEMPTS:
                    raise CatalogError(
                        f"The catalog '{self.path}' cannot be used: {_reason(exc)}.", hint=_HINTS.get(code, "")
                    ) from exc
            time.sleep(random.uniform(0, _PAUSE_S * number))
            number += 1

    def _connect(self) -> None:
        try:
            _create_private(self.path)
        except FileExistsError as exc:
            raise self._unusable("it is not a directory") from exc
        except OSError as exc:
            raise self._unusable(exc.strerror or str(exc)) from exc
        try:
            self._retried(self._connect_once)
        except CatalogError as exc:
            cause = exc.__cause__
            if isinstance(cause, SQLAlchemyError) and _primary_code(cause) in _UNUSABLE_CODES:
                raise self._unusable(_reason(cause)) from cause
            raise

    def _connect_once(self) -> None:
        connection = self._engine.connect()
        try:
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            connection.exec_driver_sql("PRAGMA synchronous = FULL")
            # A file that can be read but not written shows itself only when a write begins.
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.rollback()
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _unusable(self, reason: str) -> ConfigError:
        return ConfigError(f"Data directory '{self.path.parent}' cannot be used: {reason}.", hint=_DIRECTORY_HINT)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _create_private(path: Path) -> None:
    """Creates the directory (0700) and the file (0600); SQLite gives its companion files the file's mode.

    A file that exists is not opened here: closing it again would drop the locks that SQLite, in this same process,
    holds on it. Source: sqlite.org, How To Corrupt An SQLite Database File, section 2.2.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return  # another process was faster


def _primary_code(exc: SQLAlchemyError) -> int:
    """SQLite's primary result code behind an error, 0 where there is none."""
    origin = exc.orig if isinstance(exc, DBAPIError) else None
    code: int = getattr(origin, "sqlite_errorcode", 0)
    return code & 0xFF


def _reason(exc: SQLAlchemyError) -> str:
    return str(exc.orig if isinstance(exc, DBAPIError) else exc)

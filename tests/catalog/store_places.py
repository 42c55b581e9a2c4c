"""Places for a test's catalog on each kind of store, and a clock."""

import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog
from smart_mcp_proxy.catalog.recovery.seals import Seals
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import MIGRATIONS
from smart_mcp_proxy.catalog.store.postgres_edge import postgres_engine
from smart_mcp_proxy.catalog.store.repository import Archive
from smart_mcp_proxy.catalog.store.seal_rows import bring_up
from smart_mcp_proxy.catalog.store.stores import open_store

__all__ = ["KINDS", "NAME_LIMIT", "HandClock", "MakeTool", "OpenCatalog", "StorePlace", "open_earlier"]

NAME_LIMIT = 60
KINDS = ("sqlite", "postgresql")
MakeTool = Callable[..., dict[str, Any]]
OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]


class HandClock:
    """A clock turned by hand, in seconds since the epoch."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


def make_tables(url: str) -> None:
    """Makes an empty catalog's tables, as the first gateway does."""
    engine = postgres_engine(lambda: psycopg.connect(url, autocommit=True))
    with closing(engine.connect()) as connection:
        connection.exec_driver_sql("BEGIN")
        migrate = partial(versions.migrate, label=url, is_closed=False)
        bring_up(connection, migrate, Seals(Path(), is_shared=True))
        connection.commit()


@asynccontextmanager
async def open_earlier(url: str, data_dir: Path, version: int, patch: pytest.MonkeyPatch) -> AsyncIterator[Archive]:
    """What a gateway of an earlier version does with a database: its tables, and its part of the log."""
    with patch.context() as patched:
        patched.setattr(versions, "LATEST_VERSION", version)
        patched.setattr(versions, "MIGRATIONS", MIGRATIONS[:version])
        async with open_store(url, data_dir, is_needed=True) as store:
            await store.run(store.connect)
            await store.run(partial(store.write, partial(store.migrate, is_lost=False)))
            patched.undo()
            yield Archive(store, clock=time.time, seals=Seals(data_dir, is_shared=True))


class StorePlace:
    """Where a test's catalog is stored, and what another program sees and does there.

    Attributes:
        data_dir: Of the gateway.
        url: Of the database; None where the catalog is a file.
        opened: Opens the catalog there.
        hold: What another program says to be the one that writes, until it commits.
    """

    def __init__(self, data_dir: Path, server: PostgresServer | None = None) -> None:
        data_dir.parent.mkdir(exist_ok=True)
        self.data_dir = data_dir
        self._server = server
        self._database = "" if server is None else server.new_catalog(make_tables)
        self.url = None if server is None else server.url(self._database)
        self.opened: OpenCatalog = partial(Catalog.open, data_dir, url=self.url, name_limit=NAME_LIMIT)
        self.hold = "BEGIN IMMEDIATE" if server is None else "BEGIN; LOCK TABLE meta IN SHARE UPDATE EXCLUSIVE MODE"

    def connect(self) -> Any:
        """Connect as another program; each statement by itself, until it begins a transaction."""
        if self.url is None:
            return sqlite3.connect(self.data_dir / DATABASE_NAME, isolation_level=None)
        return psycopg.connect(self.url, autocommit=True)

    def rows(self, sql: str) -> list[Any]:
        """What another program sees."""
        with closing(self.connect()) as connection:
            return list(connection.execute(sql).fetchall())

    def execute(self, sql: str) -> None:
        """Lets another program do something."""
        with closing(self.connect()) as connection:
            connection.execute(sql)

    def written(self) -> object:
        """A value that any write changes."""
        if self.url is None:
            return (self.data_dir / f"{DATABASE_NAME}-wal").read_bytes()
        tables = ("SELECT xmin::text, key, value FROM meta", "SELECT xmin::text, name, tool_count FROM servers")
        return self.rows(f"{' UNION ALL '.join(tables)} UNION ALL SELECT xmin::text, name, generation FROM tools")

    def lose(self) -> None:
        """Takes the store away: the file for good, the server until it is brought back."""
        if self._server is not None:
            self._server.refuse(self._database)
            return
        shutil.rmtree(self.data_dir)
        self.data_dir.write_text("in the way")

    def bring_back(self) -> None:
        """Lets the store be used again."""
        if self._server is not None:
            self._server.accept(self._database)
        else:
            self.data_dir.unlink()

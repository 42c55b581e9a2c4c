"""Fixtures of the catalog's tests, which run on each kind of store."""

import itertools
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer
from trusting import TrustingCatalog

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.engines import postgres_engine
from smart_mcp_proxy.catalog.store.postgres import LOCK

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
        versions.migrate(connection, url, is_closed=False)
        connection.commit()


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
        self.hold = "BEGIN IMMEDIATE" if server is None else f"BEGIN; SELECT pg_advisory_xact_lock({LOCK})"

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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test once for each kind of store; one that asks for the data directory is about the file in it."""
    if "store_place" in metafunc.fixturenames:
        kinds = KINDS[:1] if "data_dir" in metafunc.fixturenames else KINDS
        metafunc.parametrize("store_place", kinds, indirect=True)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], StorePlace]:
    """Makes empty places for a catalog, all of one kind."""
    server = None if request.param == "sqlite" else request.getfixturevalue("postgres")
    names = map(str, itertools.count())
    return lambda: StorePlace(tmp_path / next(names) / "data", server)


@pytest.fixture
def store(store_place: Callable[[], StorePlace]) -> StorePlace:
    """An empty place for this test's catalog."""
    return store_place()


@pytest.fixture
def data_dir(store: StorePlace) -> Path:
    return store.data_dir


@pytest.fixture
def open_catalog(store: StorePlace, clock: HandClock) -> OpenCatalog:
    """Opens this test's catalog; it agrees to whatever servers list."""
    return partial(TrustingCatalog.open, store.data_dir, **{"url": store.url, "name_limit": NAME_LIMIT, "clock": clock})


@pytest.fixture
def tool() -> MakeTool:
    """Makes a tool definition with a name, and whatever fields are given on top."""

    def make(name: str, **fields: Any) -> dict[str, Any]:
        return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} | fields

    return make

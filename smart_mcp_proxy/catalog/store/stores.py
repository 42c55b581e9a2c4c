"""The kinds of store, by the scheme of their address."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine

from smart_mcp_proxy.catalog.store.sqlite import SqliteStore, sqlite_engine
from smart_mcp_proxy.catalog.store.store import Store
from smart_mcp_proxy.errors import MissingExtraError
from smart_mcp_proxy.names import DATABASE_NAME

OpenStore = Callable[[str, Path], AbstractAsyncContextManager[Store]]
"""Opens the store at an address for a data directory; `connect` has to follow."""


def open_store(url: str | None, data_dir: Path, *, is_needed: bool) -> AbstractAsyncContextManager[Store]:
    """Open the store at `url`, or the file in the data directory.

    Args:
        url: Its scheme is a key of `STORES`; None for the file.
        data_dir: Of this gateway.
        is_needed: Whether a directory that cannot be used is an error of the user's, not one to live with.

    Raises:
        MissingExtraError: A package is missing.
    """
    if url is None:
        return SqliteStore.open(data_dir, is_needed=is_needed)
    return STORES[url.partition(":")[0]](url, data_dir)


async def reach_store(url: str, data_dir: Path) -> str:
    """Connect once to the store at `url`, and write nothing; returns its address without the password.

    Raises:
        ConfigError: It cannot be used.
    """
    async with open_store(url, data_dir, is_needed=True) as store:
        await store.run(store.connect)
        return store.label


def create_store_engine(url: str | None, data_dir: Path) -> Engine:
    """Engine of the store at `url`, or of the file in the data directory, beside the store's own."""
    if url is None:
        return sqlite_engine(data_dir / DATABASE_NAME)
    from smart_mcp_proxy.catalog.store.postgres_edge import DatabaseAddress, postgres_engine  # see _postgres

    return postgres_engine(DatabaseAddress(url).dial)


def build_hang_up(connection: Connection) -> Callable[[], None]:
    """Return what ends a connection from another thread: its own may wait for ever."""
    if connection.dialect.name == "sqlite":
        return lambda: None
    from smart_mcp_proxy.catalog.store.postgres_edge import hang_up  # see _postgres

    return partial(hang_up, connection.connection.dbapi_connection)  # type: ignore[arg-type]


def _postgres(url: str, data_dir: Path) -> AbstractAsyncContextManager[Store]:
    try:
        # Here and not above: it takes a package that gateways on SQLite do without.
        from smart_mcp_proxy.catalog.store.postgres import PostgresStore
    except ImportError as exc:
        raise MissingExtraError(
            "MCPPROXY_DATABASE_URL needs psycopg.", hint="Install it: pip install 'psycopg[binary]'"
        ) from exc
    return PostgresStore.open(url, data_dir)


STORES: Final[Mapping[str, OpenStore]] = {"postgresql": _postgres, "postgres": _postgres}

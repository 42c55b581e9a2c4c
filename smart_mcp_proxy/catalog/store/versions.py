"""The way of a store to the latest version of its tables, on SQLite and PostgreSQL alike."""

import re
from typing import Final

from sqlalchemy import Connection

from smart_mcp_proxy.catalog.recovery.rollback_guard import CLOSED_KEY
from smart_mcp_proxy.catalog.store.migrations import (
    APPROVALS_TABLES,
    MIGRATIONS,
    POSTGRES_TABLES,
    READABLE_FROM,
    VERSION_TABLE,
)
from smart_mcp_proxy.catalog.tables.schema import metadata
from smart_mcp_proxy.errors import ConfigError

LATEST_VERSION: Final = len(MIGRATIONS)
_VISIBLE: Final = f"FROM pg_class WHERE relname = '{VERSION_TABLE}' AND pg_table_is_visible(oid)"
_CREATED = re.compile(r"CREATE TABLE (\w+)")


def tables_at(version: int) -> frozenset[str]:
    """Names of the tables that a PostgreSQL database has at a version that this program knows."""
    statements = (statement for step in MIGRATIONS[:version] for statement in step.postgresql)
    created = {found[1] for statement in statements if (found := _CREATED.match(statement))}
    return frozenset(created & {*metadata.tables, VERSION_TABLE})


def read_version(connection: Connection) -> int:
    """Read the version of a store; 0 where nothing was stored."""
    if connection.dialect.name == "sqlite":
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    # Asked of the table of tables: `to_regclass` may answer from a cache that another gateway's commit has not reached.
    if connection.exec_driver_sql(f"SELECT 1 {_VISIBLE}").scalar() is None:
        return 0
    # Its name may be known before its row is seen: another gateway has just made it.
    return int(connection.exec_driver_sql(f"SELECT version FROM {VERSION_TABLE}").scalar() or 0)


def is_latest(connection: Connection) -> bool:
    """Whether the store has the version that this program writes, or a later one that it can write, too."""
    return read_version(connection) >= LATEST_VERSION


def refuse_newer(connection: Connection, label: str) -> None:
    """Passes unless a newer program has written the store: what that holds is not for this one to judge.

    A PostgreSQL database says from which version on programs can use it: replicas are upgraded one after the other.

    Args:
        connection: To the store.
        label: Its path or address.

    Raises:
        ConfigError: It has.
    """
    version = needed = read_version(connection)
    is_file = connection.dialect.name == "sqlite"
    if not is_file and version:
        needed = int(connection.exec_driver_sql(f"SELECT readable_from FROM {VERSION_TABLE}").scalar_one())
    if needed > LATEST_VERSION:
        raise ConfigError(
            f"Catalog '{label}' has schema version {version}; this program knows versions up to {LATEST_VERSION}.",
            hint="Upgrade smart-mcp-proxy, or set "
            + ("MCPPROXY_DATA_DIR to another directory." if is_file else "MCPPROXY_DATABASE_URL to another database."),
        )


def migrate(connection: Connection, label: str, *, is_closed: bool) -> None:
    """Brings the store to the latest version.

    All steps are one transaction: until it is committed the store is what it was, also if this process is killed, and
    the program that wrote it can go on with it.

    Args:
        connection: In a transaction.
        label: Path or address of the store.
        is_closed: Whether a store that begins empty takes the place of one with decisions that nobody knows any more.

    Raises:
        ConfigError: A newer program has written the store.
    """
    refuse_newer(connection, label)
    if connection.dialect.name != "sqlite":  # beside the tables that are there, whatever schema is looked into first
        home = f"SELECT quote_ident(nspname) FROM pg_namespace WHERE oid = (SELECT relnamespace {_VISIBLE})"
        if (schema := connection.exec_driver_sql(home).scalar()) is not None:
            connection.exec_driver_sql(f"SET LOCAL search_path = {schema}")
    for version in range(read_version(connection), LATEST_VERSION):
        _apply(connection, version, is_closed=is_closed)


def _apply(connection: Connection, version: int, *, is_closed: bool) -> None:
    """Leads from one version to the next."""
    migration = MIGRATIONS[version]
    is_sqlite = connection.dialect.name == "sqlite"
    for statement in migration.sqlite if is_sqlite else migration.postgresql:
        connection.exec_driver_sql(statement)
    # With the tables, not after them: a process that is killed in between leaves no store that trusts anything.
    if is_closed and (migration.sqlite is APPROVALS_TABLES if is_sqlite else migration.postgresql is POSTGRES_TABLES):
        nothing_known = "NOT EXISTS (SELECT 1 FROM baselines)"
        connection.exec_driver_sql(f"INSERT INTO meta (key, value) SELECT '{CLOSED_KEY}', 1 WHERE {nothing_known}")
    if is_sqlite:
        connection.exec_driver_sql(f"PRAGMA user_version = {version + 1}")
    elif migration.postgresql:
        connection.exec_driver_sql(
            f"UPDATE {VERSION_TABLE} SET version = {version + 1}, readable_from = {READABLE_FROM}"
        )

"""The tables of `proxy.db`, and the way of a file to their latest version."""

from pathlib import Path

from sqlalchemy import Column, Connection, Float, Integer, LargeBinary, MetaData, Table, Text

from smart_mcp_proxy.catalog.recovery.damage import was_damaged
from smart_mcp_proxy.catalog.recovery.rollback_guard import CLOSED_KEY
from smart_mcp_proxy.catalog.tables.migrations import APPROVALS_TABLES, MIGRATIONS
from smart_mcp_proxy.errors import ConfigError

__all__ = [
    "LATEST_VERSION",
    "activity",
    "agent_tokens",
    "approvals",
    "baselines",
    "examples",
    "instances",
    "is_latest",
    "links",
    "listed_names",
    "meta",
    "migrate",
    "refuse_newer",
    "servers",
    "tools",
    "toolsets",
    "vectors",
]

metadata = MetaData()
"""For writing queries. The tables' rules (keys, uniqueness) stand in the migrations alone."""

tools = Table(
    "tools",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("hash", Text, nullable=False),
    Column("server_name", Text, nullable=False),
    Column("faiss_vector_id", Integer),
    Column("definition", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("annotations", Text, nullable=False),
    Column("listed_name", Text, nullable=False),
    Column("generation", Integer, nullable=False),
)
listed_names = Table(
    "listed_names",
    metadata,
    Column("server_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("listed_name", Text, nullable=False),
)
servers = Table(
    "servers",
    metadata,
    Column("name", Text, primary_key=True),
    Column("last_sync_s", Float, nullable=False),
    Column("tool_count", Integer, nullable=False),
)
meta = Table("meta", metadata, Column("key", Text, primary_key=True), Column("value", Integer, nullable=False))
activity = Table(
    "activity",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("duration_ms", Float, nullable=False),
    Column("at_s", Float, nullable=False),
    Column("detail", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("delivery", Text, nullable=False),
    Column("parent", Text, nullable=False),
    Column("arguments", Text),
)
instances = Table(
    "instances",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("pid", Integer, nullable=False),
    Column("started", Float, nullable=False),
    Column("heartbeat", Float, nullable=False),
    Column("servers", Text, nullable=False),
)
examples = Table(
    "examples",
    metadata,
    Column("server_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("words", Text, primary_key=True),
    Column("question", Text, nullable=False),
    Column("uses", Integer, nullable=False),
    Column("last_used_s", Float, nullable=False),
)
vectors = Table(
    "vectors",
    metadata,
    Column("definition_hash", Text, primary_key=True),
    Column("embedder", Text, primary_key=True),
    Column("used_s", Float, nullable=False),
    Column("vector", LargeBinary, nullable=False),
)
approvals = Table(
    "approvals",
    metadata,
    Column("server_name", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("hash", Text),
    Column("definition", Text),
    Column("decided_by", Text, nullable=False),
    Column("at_s", Float, nullable=False),
)
toolsets = Table(
    "toolsets",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("handle", Text, nullable=False),
    Column("principal", Text, nullable=False),
    Column("profile", Text, nullable=False),
    Column("tools", Text, nullable=False),
    Column("expires_s", Float, nullable=False),
)
links = Table(
    "links",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("principal", Text, nullable=False),
    Column("server_name", Text, nullable=False),
    Column("uri", Text, nullable=False),
    Column("expires_s", Float, nullable=False),
)
agent_tokens = Table(
    "agent_tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("servers", Text),
    Column("access", Text, nullable=False),
    Column("profile", Text),
    Column("created_s", Float, nullable=False),
    Column("expires_s", Float),
    Column("last_used_s", Float),
    Column("revoked_s", Float),
)
baselines = Table(
    "baselines", metadata, Column("server_name", Text, primary_key=True), Column("at_s", Float, nullable=False)
)

LATEST_VERSION = len(MIGRATIONS)


def is_latest(connection: Connection) -> bool:
    """Whether the file has the version that this program writes."""
    return _version(connection) == LATEST_VERSION


def refuse_newer(connection: Connection, path: Path) -> None:
    """Passes unless a newer program has written the file: what that holds is not for this one to judge.

    Raises:
        ConfigError: It has.
    """
    if (version := _version(connection)) > LATEST_VERSION:
        raise ConfigError(
            f"Catalog '{path}' has schema version {version}; this program knows versions up to {LATEST_VERSION}.",
            hint="Upgrade smart-mcp-proxy, or set MCPPROXY_DATA_DIR to another directory.",
        )


def migrate(connection: Connection, path: Path, *, is_lost: bool) -> None:
    """Brings the file to the latest version.

    All steps are one transaction: until it is committed the file is what it was, also if this process is killed, and
    the program that wrote it can go on with it. Afterwards nothing is left of what it was.

    Args:
        connection: In a transaction.
        path: Of the file.
        is_lost: Whether a file that begins empty takes the place of one with decisions that nobody knows any more.
            One that takes the place of a damaged file always does.

    Raises:
        ConfigError: A newer program has written the file.
    """
    refuse_newer(connection, path)
    is_closed = is_lost or was_damaged(path)
    for version in range(_version(connection), LATEST_VERSION):
        _apply(connection, version, is_closed=is_closed)


def _version(connection: Connection) -> int:
    return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())


def _apply(connection: Connection, version: int, *, is_closed: bool) -> None:
    """Leads from one version to the next."""
    for statement in MIGRATIONS[version]:
        connection.exec_driver_sql(statement)
    # With the tables, not after them: a process that is killed in between leaves no file that trusts anything.
    if MIGRATIONS[version] is APPROVALS_TABLES and is_closed:
        nothing_known = "NOT EXISTS (SELECT 1 FROM baselines)"
        connection.exec_driver_sql(f"INSERT INTO meta (key, value) SELECT '{CLOSED_KEY}', 1 WHERE {nothing_known}")
    connection.exec_driver_sql(f"PRAGMA user_version = {version + 1}")

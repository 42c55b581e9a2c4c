"""The tables of `proxy.db`, and the numbered migrations that lead a file to them."""

from sqlalchemy import Column, Connection, Float, Integer, LargeBinary, MetaData, Table, Text

from smart_mcp_proxy.catalog.database import Database
from smart_mcp_proxy.errors import ConfigError

__all__ = [
    "LATEST_VERSION",
    "activity",
    "examples",
    "instances",
    "listed_names",
    "meta",
    "migrate",
    "servers",
    "tools",
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

_SEED_TABLE = (
    # A file of the earlier program already has it, at version 0.
    """CREATE TABLE IF NOT EXISTS tools (
      id              INTEGER PRIMARY KEY,
      name            TEXT NOT NULL,
      description     TEXT,
      hash            TEXT NOT NULL,
      server_name     TEXT NOT NULL,
      faiss_vector_id INTEGER UNIQUE
    )""",
    "CREATE INDEX IF NOT EXISTS idx_tools_hash ON tools(hash)",
)
"""Source: seeds/5_smart_mcp_proxy_design.md, section 5."""

_CATALOG_TABLES = (
    "DROP INDEX IF EXISTS idx_tools_hash",
    "ALTER TABLE tools RENAME TO tools_seed",
    """CREATE TABLE tools (
      id              INTEGER PRIMARY KEY AUTOINCREMENT,
      name            TEXT NOT NULL,
      description     TEXT,
      hash            TEXT NOT NULL,
      server_name     TEXT NOT NULL,
      faiss_vector_id INTEGER UNIQUE,
      definition      TEXT NOT NULL,
      digest          TEXT NOT NULL,
      annotations     TEXT NOT NULL,
      listed_name     TEXT NOT NULL UNIQUE,
      generation      INTEGER NOT NULL,
      UNIQUE (server_name, name)
    )""",
    "CREATE INDEX idx_tools_hash ON tools(hash)",
    "CREATE INDEX idx_tools_generation ON tools(generation)",
    # The old rows hold no definition, so the servers list their tools anew; the old ids stay used up.
    "INSERT INTO sqlite_sequence (name, seq) SELECT 'tools', max(id) FROM tools_seed HAVING max(id) IS NOT NULL",
    "DROP TABLE tools_seed",
    """CREATE TABLE listed_names (
      server_name TEXT NOT NULL,
      name        TEXT NOT NULL,
      listed_name TEXT NOT NULL UNIQUE,
      PRIMARY KEY (server_name, name)
    )""",
    "CREATE TABLE servers (name TEXT PRIMARY KEY, last_sync_s REAL NOT NULL, tool_count INTEGER NOT NULL)",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO meta (key, value) VALUES ('generation', 1)",
    """CREATE TABLE activity (
      id          INTEGER PRIMARY KEY AUTOINCREMENT,
      kind        TEXT NOT NULL,
      principal   TEXT NOT NULL,
      subject     TEXT NOT NULL,
      outcome     TEXT NOT NULL,
      duration_ms REAL NOT NULL,
      at_s        REAL NOT NULL,
      detail      TEXT NOT NULL
    )""",
    """CREATE TABLE instances (
      id        INTEGER PRIMARY KEY AUTOINCREMENT,
      pid       INTEGER NOT NULL,
      started   REAL NOT NULL,
      heartbeat REAL NOT NULL,
      servers   TEXT NOT NULL
    )""",
)

_EXAMPLES_TABLE = (
    """CREATE TABLE examples (
      server_name TEXT NOT NULL,
      name        TEXT NOT NULL,
      words       TEXT NOT NULL,
      question    TEXT NOT NULL,
      uses        INTEGER NOT NULL,
      last_used_s REAL NOT NULL,
      PRIMARY KEY (server_name, name, words)
    ) WITHOUT ROWID""",
    # By name and not by id: a changed definition keeps what was learned, a tool that leaves does not.
    """CREATE TRIGGER examples_leave AFTER DELETE ON tools BEGIN
      DELETE FROM examples WHERE server_name = OLD.server_name AND name = OLD.name;
    END""",
)

_VECTORS_TABLE = (
    # With a rowid: a vector of 384 components then lies whole in the page of its row; without one it would not.
    """CREATE TABLE vectors (
      definition_hash TEXT NOT NULL,
      embedder        TEXT NOT NULL,
      used_s          REAL NOT NULL,
      vector          BLOB NOT NULL,
      PRIMARY KEY (definition_hash, embedder)
    )""",
    "CREATE INDEX idx_vectors_used ON vectors(used_s)",
)

_MIGRATIONS = (_SEED_TABLE, _CATALOG_TABLES, _EXAMPLES_TABLE, _VECTORS_TABLE)
"""Statements that lead from version N, their place here, to N + 1. Released ones are never edited."""

LATEST_VERSION = len(_MIGRATIONS)


def migrate(database: Database) -> None:
    """Brings the file to the latest version, one transaction a step; other processes may do the same meanwhile.

    Raises:
        ConfigError: A newer program has written the file.
        CatalogError: A step failed; the file is left at the version before it.
    """
    while (version := database.read(_version)) < LATEST_VERSION:
        database.write(_apply_next)
    if version > LATEST_VERSION:
        raise ConfigError(
            f"Catalog '{database.path}' has schema version {version}; this program knows versions up to "
            f"{LATEST_VERSION}.",
            hint="Upgrade smart-mcp-proxy, or set MCPPROXY_DATA_DIR to another directory.",
        )


def _version(connection: Connection) -> int:
    return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())


def _apply_next(connection: Connection) -> None:
    version = _version(connection)
    if version >= LATEST_VERSION:
        return  # another process was faster
    for statement in _MIGRATIONS[version]:
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql(f"PRAGMA user_version = {version + 1}")

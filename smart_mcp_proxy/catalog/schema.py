"""The tables of `proxy.db`, and the numbered migrations that lead a file to them."""

from pathlib import Path

from sqlalchemy import Column, Connection, Float, Integer, LargeBinary, MetaData, Table, Text

from smart_mcp_proxy.catalog.damage import was_damaged
from smart_mcp_proxy.catalog.mark import CATALOG_ID_KEY, CLOSED_KEY, COUNT_KEY
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

_APPROVALS_TABLES = (
    # hash and definition are those approved last: null where the user blocked a tool that was never approved. A row
    # outlives its tool and its server, so that what comes back is compared with what was agreed to.
    """CREATE TABLE approvals (
      server_name TEXT NOT NULL,
      name        TEXT NOT NULL,
      state       TEXT NOT NULL CHECK (state IN ('approved', 'blocked')),
      hash        TEXT,
      definition  TEXT,
      decided_by  TEXT NOT NULL,
      at_s        REAL NOT NULL,
      PRIMARY KEY (server_name, name),
      CHECK (state = 'blocked' OR (hash IS NOT NULL AND definition IS NOT NULL))
    )""",
    # A server stands here from its first list on, also after it left: its first list is trusted, no second one.
    "CREATE TABLE baselines (server_name TEXT PRIMARY KEY, at_s REAL NOT NULL)",
    # What stands in the file was served to agents until today: exactly that is taken for agreed to, nothing newer.
    """INSERT INTO approvals (server_name, name, state, hash, definition, decided_by, at_s)
      SELECT server_name, name, 'approved', hash, definition, 'migration', strftime('%s', 'now') FROM tools""",
    """INSERT INTO baselines (server_name, at_s)
      SELECT name, last_sync_s FROM servers
      UNION SELECT server_name, strftime('%s', 'now') FROM tools
        WHERE server_name NOT IN (SELECT name FROM servers)""",
    # Tells a new file in the place of a lost one from the same file again; the file system may give both one number.
    f"INSERT INTO meta (key, value) VALUES ('{CATALOG_ID_KEY}', random())",
)

_TOOLSETS_TABLE = (
    """CREATE TABLE toolsets (
      id        INTEGER PRIMARY KEY AUTOINCREMENT,
      handle    TEXT NOT NULL UNIQUE,
      principal TEXT NOT NULL,
      profile   TEXT NOT NULL,
      tools     TEXT NOT NULL,
      expires_s REAL NOT NULL
    )""",
    "CREATE INDEX idx_toolsets_principal ON toolsets(principal)",
)

_ACTIVITY_COLUMNS = (
    "ALTER TABLE activity ADD COLUMN uid TEXT NOT NULL DEFAULT ''",
    *(
        f"ALTER TABLE activity ADD COLUMN {column} TEXT NOT NULL DEFAULT ''"
        for column in ("session", "server", "tool", "digest", "delivery", "parent")
    ),
    "ALTER TABLE activity ADD COLUMN arguments TEXT",
    "UPDATE activity SET uid = printf('%012x%016x', at_s * 1000, id)",
    # What a journal tells again after a crash is recognized by it.
    "CREATE UNIQUE INDEX idx_activity_uid ON activity(uid)",
)

_AGENT_TOKENS_TABLE = (
    # Of a token only its SHA-256: 256 random bits need no salt. Revoked ones stay, for those who read old logs.
    """CREATE TABLE agent_tokens (
      id          INTEGER PRIMARY KEY AUTOINCREMENT,
      name        TEXT NOT NULL,
      hash        TEXT NOT NULL UNIQUE,
      servers     TEXT,
      access      TEXT NOT NULL CHECK (access IN ('read', 'write', 'destructive')),
      profile     TEXT,
      created_s   REAL NOT NULL,
      expires_s   REAL,
      last_used_s REAL,
      revoked_s   REAL
    )""",
    "CREATE UNIQUE INDEX idx_agent_tokens_name ON agent_tokens(name) WHERE revoked_s IS NULL",
)

_APPROVALS_COUNT = (
    f"""INSERT INTO meta (key, value)
      SELECT '{COUNT_KEY}', (SELECT count(*) FROM approvals) + (SELECT count(*) FROM baselines)""",
    # By triggers: no writer can forget it, and it is committed with what it counts.
    *(
        f"""CREATE TRIGGER {table}_count_{event.lower()} AFTER {event} ON {table} BEGIN
          UPDATE meta SET value = value + 1 WHERE key = '{COUNT_KEY}';
        END"""
        for table in ("approvals", "baselines")
        for event in ("INSERT", "UPDATE", "DELETE")
    ),
    # That first lists are trusted again is a decision, too.
    f"""CREATE TRIGGER closed_count_delete AFTER DELETE ON meta WHEN OLD.key = '{CLOSED_KEY}' BEGIN
      UPDATE meta SET value = value + 1 WHERE key = '{COUNT_KEY}';
    END""",
)

_MIGRATIONS = (
    _SEED_TABLE,
    _CATALOG_TABLES,
    _EXAMPLES_TABLE,
    _VECTORS_TABLE,
    _APPROVALS_TABLES,
    _TOOLSETS_TABLE,
    _AGENT_TOKENS_TABLE,
    _ACTIVITY_COLUMNS,
    _APPROVALS_COUNT,
)
"""Statements that lead from version N, their place here, to N + 1. Released ones are never edited."""

LATEST_VERSION = len(_MIGRATIONS)


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
    for statement in _MIGRATIONS[version]:
        connection.exec_driver_sql(statement)
    # With the tables, not after them: a process that is killed in between leaves no file that trusts anything.
    if _MIGRATIONS[version] is _APPROVALS_TABLES and is_closed:
        nothing_known = "NOT EXISTS (SELECT 1 FROM baselines)"
        connection.exec_driver_sql(f"INSERT INTO meta (key, value) SELECT '{CLOSED_KEY}', 1 WHERE {nothing_known}")
    connection.exec_driver_sql(f"PRAGMA user_version = {version + 1}")

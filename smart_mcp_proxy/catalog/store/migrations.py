"""The numbered migrations that lead a store from one version of its tables to the next."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from smart_mcp_proxy.catalog.recovery.rollback_guard import CATALOG_ID_KEY, CLOSED_KEY, COUNT_KEY
from smart_mcp_proxy.catalog.store.postgres_tables import POSTGRES_TABLES
from smart_mcp_proxy.catalog.tables.activity_days import ACTIVITY_DAYS

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
"""Source: docs/design/processes.md#the-catalog"""

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

APPROVALS_TABLES = (
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

_LINKS_TABLE = (
    # Of the newest link the highest id: what is linked again is stored anew.
    """CREATE TABLE links (
      id          INTEGER PRIMARY KEY AUTOINCREMENT,
      principal   TEXT NOT NULL,
      server_name TEXT NOT NULL,
      uri         TEXT NOT NULL,
      expires_s   REAL NOT NULL,
      UNIQUE (principal, uri, server_name)
    )""",
    "CREATE INDEX idx_links_expires ON links(expires_s)",
)

_GONE_TABLE = (
    # Ids of tools that left, for those who hold an older picture of the catalog: they need not read all ids.
    "CREATE TABLE gone (id INTEGER PRIMARY KEY, generation INTEGER NOT NULL)",
    "CREATE INDEX idx_gone_generation ON gone(generation)",
    "CREATE INDEX idx_approvals_blocked ON approvals(server_name, name) WHERE state = 'blocked'",
    # One ahead: the tool may leave before its transaction moves the generation. Read twice, it does no harm.
    """CREATE TRIGGER tools_gone AFTER DELETE ON tools BEGIN
      INSERT INTO gone (id, generation) SELECT OLD.id, value + 1 FROM meta WHERE key = 'generation';
    END""",
)


def _define_sealed_tables(blob: str, real: str) -> tuple[str, ...]:
    """Tables of sealed values and leases, by the dialect's names of two types."""
    return (
        # Encrypted with keys that are not in the store. The size stands apart: boxes are long, and not read to count.
        f"""CREATE TABLE sealed (
      kind      TEXT NOT NULL,
      key       TEXT NOT NULL,
      box       {blob} NOT NULL,
      size      BIGINT NOT NULL,
      stamp     TEXT NOT NULL,
      expires_s {real},
      PRIMARY KEY (kind, key)
    )""",
        "CREATE INDEX idx_sealed_expires ON sealed(expires_s)",
        f"CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_s {real} NOT NULL)",
    )


_SERVES_COLUMN = "ALTER TABLE instances ADD COLUMN serves BIGINT NOT NULL DEFAULT 1"
"""An earlier program's gateways do not say it; its commands count, too, as long as they run."""


def _gateway_tokens_table(real: str) -> str:
    """Return the SQL of the table of gateways' own tokens (SHA-256); `real` is a type name."""
    return f"""CREATE TABLE gateway_tokens (
      kind        TEXT NOT NULL,
      replica     TEXT NOT NULL,
      digest      TEXT NOT NULL,
      confirmed_s {real} NOT NULL,
      PRIMARY KEY (kind, replica)
    )"""


_GATEWAY_TOKENS_TOLD = tuple(
    f"CREATE TRIGGER mcpproxy_gateway_tokens_{number} AFTER {event} ON gateway_tokens FOR EACH ROW {condition} "
    "EXECUTE FUNCTION mcpproxy_tokens_change()"
    for number, (event, condition) in enumerate(
        (("INSERT OR DELETE", ""), ("UPDATE", "WHEN (OLD.digest <> NEW.digest)"))
    )
)
"""Told as agent tokens are; that one is confirmed changes nothing."""


def _gateway_keys_table(blob: str) -> str:
    """Return the SQL of the table of keys that a store's gateways share; `blob` is a type name."""
    return f"CREATE TABLE gateway_keys (name TEXT PRIMARY KEY, key {blob} NOT NULL CHECK (length(key) = 32))"


def _former_approvals_table(real: str) -> str:
    """Definitions that were approved before the present ones, by the dialect's name of a type."""
    return f"""CREATE TABLE former_approvals (
      server_name TEXT NOT NULL,
      name        TEXT NOT NULL,
      hash        TEXT NOT NULL,
      at_s        {real} NOT NULL,
      PRIMARY KEY (server_name, name, hash)
    )"""


class Migration(NamedTuple):
    """Statements that lead from one version to the next.

    Attributes:
        sqlite: For `proxy.db`.
        postgresql: For PostgreSQL, which begins with the tables as they stood when it came. Within one minor version
            of the program they only add: the version before it goes on meanwhile.
    """

    sqlite: Sequence[str]
    postgresql: Sequence[str] = ()


MIGRATIONS: Final[Sequence[Migration]] = (
    Migration(_SEED_TABLE),
    Migration(_CATALOG_TABLES),
    Migration(_EXAMPLES_TABLE),
    Migration(_VECTORS_TABLE),
    Migration(APPROVALS_TABLES),
    Migration(_TOOLSETS_TABLE),
    Migration(_AGENT_TOKENS_TABLE),
    Migration(_ACTIVITY_COLUMNS),
    Migration(_APPROVALS_COUNT),
    Migration(_LINKS_TABLE),
    Migration(_GONE_TABLE, POSTGRES_TABLES),
    Migration(_define_sealed_tables("BLOB", "REAL"), _define_sealed_tables("BYTEA", "DOUBLE PRECISION")),
    Migration((_SERVES_COLUMN,), (_SERVES_COLUMN, *ACTIVITY_DAYS)),
    Migration((_gateway_tokens_table("REAL"),), (_gateway_tokens_table("DOUBLE PRECISION"), *_GATEWAY_TOKENS_TOLD)),
    Migration((_gateway_keys_table("BLOB"),), (_gateway_keys_table("BYTEA"),)),
    Migration((_former_approvals_table("REAL"),), (_former_approvals_table("DOUBLE PRECISION"),)),
)
"""They lead from version N, their place here, to N + 1. Released ones are never edited."""

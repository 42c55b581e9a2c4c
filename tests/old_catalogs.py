"""Catalogs that another program, an earlier one above all, has written."""

import sqlite3
from contextlib import closing
from pathlib import Path

from smart_mcp_proxy.catalog import DATABASE_NAME

__all__ = ["FIRST_PROGRAM", "UNDO_SINCE_SEALS", "version", "write"]

FIRST_PROGRAM = """
CREATE TABLE tools (
  id              INTEGER PRIMARY KEY,
  name            TEXT NOT NULL,
  description     TEXT,
  hash            TEXT NOT NULL,
  server_name     TEXT NOT NULL,
  faiss_vector_id INTEGER UNIQUE
);
CREATE INDEX idx_tools_hash ON tools(hash);
INSERT INTO tools VALUES (41, 'old', 'Does old.', 'abc', 's', 41);
"""
"""The file of the first program, which counted no versions, with one tool."""

UNDO_SINCE_SEALS = (
    "ALTER TABLE activity DROP COLUMN chain; ALTER TABLE activity DROP COLUMN link; "
    "ALTER TABLE activity DROP COLUMN seal; DROP TABLE activity_chains; "
    "ALTER TABLE agent_tokens DROP COLUMN role; ALTER TABLE agent_tokens DROP COLUMN made_by; "
    "DROP TABLE approval_votes; ALTER TABLE agent_tokens DROP COLUMN seal;"
)
"""The versions after the one that brought seals."""


def write(data_dir: Path, script: str) -> None:
    """Lets another program work on the file."""
    data_dir.mkdir(exist_ok=True)
    with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as file:
        file.executescript(script)


def version(data_dir: Path) -> int:
    """What the file says of its own layout."""
    with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as file:
        return int(file.execute("PRAGMA user_version").fetchone()[0])

"""In-memory copy of a database that can only be read."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Connection, NullPool, create_engine


@contextmanager
def copy_in_memory(path: Path) -> Iterator[Connection]:
    """Connect to a copy of the file at `path`, for this thread; writes go to the copy alone.

    SQLite needs files beside one in WAL mode, also to read it, unless it is told that nobody writes. Then it leaves
    the journal out, so that is said only where there is none. One that a killed process left is read with the shared
    memory that it left as well; without that it is not, and SQLite says so.

    Source: https://www.sqlite.org/wal.html; https://www.sqlite.org/uri.html

    Raises:
        sqlite3.Error: It cannot be read.
    """
    memory = sqlite3.connect(":memory:")
    engine = create_engine("sqlite://", poolclass=NullPool, isolation_level="AUTOCOMMIT", creator=lambda: memory)
    with closing(memory):
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{_access_to(path)}", uri=True)) as file:
            file.backup(memory)
        with engine.connect() as copy:
            yield copy


def _access_to(path: Path) -> str:
    journal = path.with_name(f"{path.name}-wal")
    has_journal = journal.exists() and journal.stat().st_size
    return "mode=ro" if has_journal else "mode=ro&immutable=1"

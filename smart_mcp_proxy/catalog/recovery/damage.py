"""A damaged file: how it is found out, and how it leaves the way without being lost."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

FileId = tuple[int, int]
"""Device and inode: which file a name stands for now."""

_JSON_TEXTS = (("tools", "definition"), ("approvals", "definition"), ("activity", "detail"))
"""Long texts. A page in the middle of one can be lost without SQLite's own check noticing: it knows no content."""
COMPANIONS = ("-wal", "-shm")
"""Endings of the names of the journal and of its index; all processes that use a database share both."""
_ASIDE = "corrupt"


def file_id(path: Path) -> FileId | None:
    """Identity of the file at `path`; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def was_damaged(path: Path) -> bool:
    """Whether a damaged file of this name was moved aside."""
    return any(path.parent.glob(f"{path.name}.{_ASIDE}-*"))


def is_blank(path: Path) -> bool:
    """Whether nothing is stored at `path`, nor was moved aside; not so where one cannot look."""
    try:
        return path.stat().st_size == 0 and not was_damaged(path)
    except FileNotFoundError:
        return not was_damaged(path)
    except OSError:
        return False


def find_damage(connection: Connection) -> str | None:
    """Describe the damage of the file, or None.

    Raises:
        DBAPIError: SQLite cannot even look.
    """
    verdict = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    if verdict != "ok":
        return verdict.splitlines()[-1]
    for table, column in _JSON_TEXTS:
        if not connection.exec_driver_sql(
            f"SELECT 1 FROM pragma_table_info('{table}') WHERE name = '{column}'"
        ).first():
            continue  # a file that no migration has reached yet
        broken = f"SELECT count(*) FROM {table} WHERE {column} IS NOT NULL AND NOT json_valid({column})"
        if count := connection.exec_driver_sql(broken).scalar_one():
            return f"{count} broken rows in table {table}"
    return None


def move_aside(path: Path, seen: FileId | None) -> Path | None:
    """Move the damaged file and its companions aside; None if another process was faster.

    Args:
        path: Of the database.
        seen: The file that was found damaged. One that has taken its place meanwhile stays.
    """
    with hold_directory(path.parent):
        if seen is None or file_id(path) != seen:
            return None
        stamp = time.strftime("%Y%m%d-%H%M%S")
        target, number = path.with_name(f"{path.name}.{_ASIDE}-{stamp}"), 1
        while target.exists():
            number += 1
            target = path.with_name(f"{path.name}.{_ASIDE}-{stamp}-{number}")
        # Companions first: a new database must not find the journal of the old one.
        for ending in COMPANIONS:
            companion = path.with_name(path.name + ending)
            if companion.exists():
                companion.rename(target.with_name(target.name + ending))
        path.rename(target)
    return target


@contextmanager
def hold_directory(directory: Path) -> Iterator[int]:
    """Lets one process at a time move files in this directory; with its descriptor."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)

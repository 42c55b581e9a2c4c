"""Disk space for the catalog: creating it, testing a directory, errors by the system."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

NO_ROOM_HINT = "Free some disk space."

_PROBE_BYTES = 1 << 16
"""More than SQLite needs to begin: its shared memory grows by 32 KiB."""
_ROOM_BYTES = 16 * 1024 * 1024
"""As much as the longest message that a server may send: a list of tools to be stored."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The disk is full, or what the user or the process may have of it; the last is how a limit on file sizes shows."""


def why_unwritable(directory: Path) -> OSError | None:
    """Error of the system for a small file in `directory`; None if it can be written."""
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as exc:
        return exc
    return None


def is_nearly_full(directory: Path) -> bool:
    """Whether the directory's disk has hardly any room left; False where that cannot be told."""
    try:
        return shutil.disk_usage(directory).free < _ROOM_BYTES
    except OSError:
        return False


def is_full(exc: OSError) -> bool:
    """Whether it is room that is missing, not a permission."""
    return exc.errno in _FULL


def is_read_only(path: Path) -> bool:
    """Whether a permission is missing, or the file system takes nothing, to write the file at `path`."""
    refusal = why_unwritable(path.parent)
    return not os.access(path, os.W_OK) or (refusal is not None and not is_full(refusal))


def disk_full(exc: OSError) -> str:
    """Message for an error that means missing space."""
    return f"the disk is full ({exc.strerror})"


def create_private(path: Path) -> None:
    """Creates the directory (0700) and the file (0600); SQLite gives its companion files the file's mode.

    A file that exists is not opened here: closing it again would drop the locks that SQLite, in this same process,
    holds on it.

    Source: https://www.sqlite.org/howtocorrupt.html
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return  # another process was faster

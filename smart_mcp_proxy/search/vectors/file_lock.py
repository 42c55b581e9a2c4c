"""A lock between processes that the system releases when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def try_lock_file(path: Path) -> Iterator[bool]:
    """Yield whether this process alone holds the lock; never waits.

    The file is created, for the owner only, and stays.

    Raises:
        OSError: The file cannot be created or opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _is_locked(descriptor) and _is_at(descriptor, path)
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Whether the lock could be had."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file still has this name: its last holder may just have given it another."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

"""A directory that can only be read, as a process meets it that has no rights of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["read_only"]

NOBODY = 65_534


@contextmanager
def read_only(directory: Path) -> Iterator[None]:
    """Nothing in `directory` can be written; root, who could all the same, is somebody else meanwhile.

    Args:
        directory: Nobody is kept from looking into the directories above it.
    """
    modes = {path: path.stat().st_mode for path in (directory, *directory.rglob("*"))}
    for path in modes:
        path.chmod(0o555 if path.is_dir() else 0o444)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)

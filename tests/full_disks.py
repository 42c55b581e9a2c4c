"""A disk that is full, as a process meets it that runs without rights of its own."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ON_FULL_DISK", "full_disk", "make_room"]
ON_FULL_DISK = (
    *(sys.executable, "-S", "-c"),
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); os.execv(sys.argv[1], sys.argv[1:])",
)
"""Before a command: no file of its process grows, nor of those that it starts, whatever limits they ask for."""


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process grows, nor of those that it starts meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def make_room() -> None:
    """From here on files of this process grow again."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

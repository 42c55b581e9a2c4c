"""Memory settings of the GNU C library; other libraries keep theirs."""

import ctypes
from contextlib import suppress

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Numbers of malloc.h of the GNU C library."""
LARGE_BUFFER_BYTES = 32 * 1024 * 1024
KEPT_FREE_BYTES = 64 * 1024 * 1024

_MISSING = (AttributeError, OSError, TypeError)
"""Errors that are raised where the C library is not that of GNU."""


def give_back() -> None:
    """Give freed memory back to the system, if the C library can."""
    with suppress(*_MISSING):
        ctypes.CDLL(None).malloc_trim(0)


def share_heap() -> None:
    """Have threads that begin from now on take memory from the first one's heap, not each from its own.

    What one thread reads, another one frees, and each heap keeps gaps: with 10,000 tools 8 of 42 MB (measured). They
    hardly wait for each other: nearly all of them hold the interpreter's lock when they ask for memory.
    """
    _set({M_ARENA_MAX: 1})


def keep_freed() -> None:
    """Keep some freed memory instead of giving every large buffer back at once.

    A result of a megabyte is held in a handful of buffers on its way. Without this each of them is mapped, zeroed and
    unmapped by the system, which took 1.2 of the 1.3 ms of putting such a line together (measured).
    """
    _set({M_MMAP_THRESHOLD: LARGE_BUFFER_BYTES, M_TRIM_THRESHOLD: KEPT_FREE_BYTES})


def _set(options: dict[int, int]) -> None:
    with suppress(*_MISSING):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in options.items():
            mallopt(option, value)

"""Memory that a process has freed and still holds."""

import ctypes
from contextlib import suppress

__all__ = ["give_back"]


def give_back() -> None:
    """Give freed memory back to the system, if the C library can."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)

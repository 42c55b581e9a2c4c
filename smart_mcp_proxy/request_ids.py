"""Ids of the requests to servers, which nobody can guess."""

import os
from array import array
from typing import Final

__all__ = ["next_request_id"]

_LEAST: Final = 1 << 48
"""Of all ids. With 48 random bits on top of it each has 15 digits: JavaScript keeps such a number, and so does a server
that reads it as a floating-point number and writes 15 digits of it."""
_SPARE_BITS: Final = 16
"""Of each 64 that are drawn."""
_BATCH: Final = 512
"""Drawn at a time: one system call for all of them."""

_drawn: list[int] = []


def next_request_id() -> int:
    """A random JSON-RPC id, of 48 bits nobody can foresee.

    A reply that comes late, even from before a reconnect, or unasked for meets no other request.
    """
    try:
        return _drawn.pop()
    except IndexError:
        numbers = array("Q", os.urandom(8 * _BATCH))
        _drawn.extend([_LEAST | number >> _SPARE_BITS for number in numbers])
        return _drawn.pop()

"""Limits for log lines that strangers can cause: a few are logged, the rest counted."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

LINES: Final = 5
WINDOW_S: Final = 60.0
"""So many lines of one place in a library's code are told within this time."""
_MOST_PLACES: Final = 256
_GONE: Final = frozenset({"ClientDisconnect", "ClosedResourceError", "BrokenResourceError", "ConnectionResetError"})
"""What a library raises where its client has left. By name: to log is no reason to import what raises them."""


class _Place:
    """A line of code that logs."""

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.lines = 0
        self.left_out = 0


class NoiseFilter(logging.Filter):
    """Lets a library log so much a minute per place in code; leaving clients are not logged.

    Anybody who reaches the port can send requests that are none, and leave before they are answered: what libraries
    log about it would fill a disk. Lines of the gateway's own all pass.

    Args:
        own: The gateway's own loggers begin with this name.
        clock: Monotonic seconds.
    """

    def __init__(self, own: str, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._own = (own, f"{own}.")
        self._clock = clock
        self._places: dict[tuple[str, int], _Place] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is logged; decided once for all handlers."""
        told: bool | None = getattr(record, "is_told", None)
        if told is None:
            told = record.is_told = self._is_own(record.name) or self._is_worth_it(record)
        return told

    def _is_own(self, name: str) -> bool:
        return name == self._own[0] or name.startswith(self._own[1])

    def _is_worth_it(self, record: logging.LogRecord) -> bool:
        exc = record.exc_info[1] if record.exc_info else None
        if exc is not None and type(exc).__name__ in _GONE:
            return False
        now_s, key = self._clock(), (record.pathname, record.lineno)
        place = self._places.get(key)
        if place is None:
            if len(self._places) == _MOST_PLACES:
                self._places.clear()
            place = self._places[key] = _Place(now_s)
        if now_s - place.began_s >= WINDOW_S:
            if place.left_out:
                _add(record, f"({place.left_out:,} more like this were left out)")
            place.began_s, place.lines, place.left_out = now_s, 0, 0
        if place.lines == LINES:
            place.left_out += 1
            return False
        place.lines += 1
        if place.lines == LINES:
            _add(record, f"(more like this are only counted for {WINDOW_S:.0f} s)")
        return True


def _add(record: logging.LogRecord, words: str) -> None:
    # A filter runs outside of what logging itself guards: a line that cannot be formatted is left to its handlers.
    with suppress(TypeError, ValueError, KeyError):
        record.msg, record.args = f"{record.getMessage()} {words}", None

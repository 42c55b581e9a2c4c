"""Notices of a server that its lists changed, and when they are read."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from anyio import move_on_after

LONGEST_PAUSE_S: Final = 8.0
"""Between readings of a server whose notices bring nothing new: a real change is seen within it."""
_GROWTH: Final = 4.0
"""Of the pause with each such reading: 5 of them in the first 20 s instead of 80."""

Wait = Callable[[asyncio.Event, float], Awaitable[None]]
"""Returns when the event is set, at the latest after so many seconds."""


async def wait_at_most(event: asyncio.Event, limit_s: float) -> None:
    """Return when the event is set, at the latest after `limit_s`."""
    with move_on_after(limit_s):
        await event.wait()


class Notices:
    """Notices of one server; some servers send one whenever they are read.

    Those within `merge_s` are read together. With each reading that shows nothing new the next one waits longer. A
    notice that comes during a pause is read at its end.

    Args:
        merge_s: The shortest pause.
        longest_s: The longest one.
        clock: Monotonic seconds.
        wait: Waits for an event.
    """

    def __init__(self, merge_s: float, longest_s: float, clock: Callable[[], float], wait: Wait) -> None:
        self._merge_s = merge_s
        self._longest_s = longest_s
        self._clock = clock
        self._wait = wait
        self._pause_s = merge_s
        self._read_s = -math.inf
        self._has_any = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Notices {'waiting' if self._has_any.is_set() else 'none'}, pause {self._pause_s:g} s>"

    def note(self) -> None:
        """Have the lists read after the pause."""
        self._has_any.set()

    def hurry(self) -> None:
        """Have the lists read at once: the server has just connected, or a user asks."""
        self._pause_s = self._merge_s
        self._is_urgent.set()
        self._has_any.set()

    async def due(self, limit_s: float) -> None:
        """Return when the lists are to be read.

        Args:
            limit_s: When that is without any notice.
        """
        await self._wait(self._has_any, limit_s)
        idle_s = self._clock() - self._read_s
        if idle_s > self._longest_s:  # no answer to a reading, so no loop
            self._pause_s = self._merge_s
        await self._wait(self._is_urgent, max(self._merge_s, self._pause_s - idle_s))
        self._has_any.clear()
        self._is_urgent.clear()

    def read(self, *, is_changed: bool) -> None:
        """Note that the lists were read, and whether they held anything new."""
        self._read_s = self._clock()
        self._pause_s = self._merge_s if is_changed else min(self._longest_s, self._pause_s * _GROWTH)

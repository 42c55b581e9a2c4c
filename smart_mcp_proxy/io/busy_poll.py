"""Busy poll: after sending, the event loop looks for the answer without sleeping.

A processor that has put a waiting process to sleep has to be woken by the one that has the answer. That costs both of
them time, and the process finds its caches cold: one that only passes bytes on needs four times the processor time for
a call where each wait is such a sleep (measured on a virtual machine with two processors). An answer from the same
machine is there sooner than that. Who looks for it for about as long as a sleep costs, and only then sleeps, never pays
more than twice what the better choice would have cost.

Where the answer is not there so soon, looking for it only takes time: from a server over HTTP, from one that works for
a while, on processors that have other work. So each side is watched, and looked out for only while that pays.

Refused:

- *Polling after every message.* For servers over HTTP and on busy cores it took up to 40 % more processor time
  (`scripts/bench_busy_poll.py`), and nothing came sooner.
- *Polling for longer.* With 100 us a call takes as much processor time as with none: what a wake-up costs bounds what
  may be spent to avoid it, and twice that is the worst case of any such rule.
- *A thread that polls.* It would hold the interpreter that the answer needs, and wake the loop by the very call that
  is to be avoided.
- *The socket option SO_BUSY_POLL.* It polls a network card's queue; pipes and loopback have none.

A callback that reschedules itself is all it takes: a loop with something due asks its selector without waiting. Neither
asyncio nor uvloop has to be patched.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

POLL_S: Final = 40e-6
"""30 and 50 us gain as much; with 100 us a call takes as much processor time as with none (measured)."""
TRIES: Final = 32
"""Times that a side is looked out for before it is judged: at least half of its answers must have come meanwhile."""
FIRST_PAUSE: Final = 128
LONGEST_PAUSE: Final = 2_048
"""Most answers of a side that is late for which is waited asleep; each time it is late again, twice as many."""
CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")


class Side:
    """Peer, a server or all clients over HTTP, with counts of its recent prompt messages."""

    __slots__ = ("_hits", "_pause", "_skips", "_tries")

    def __init__(self) -> None:
        self._hits = self._tries = self._skips = self._pause = 0

    def __repr__(self) -> str:
        return f"<Side, {'late' if self._skips else 'soon'}>"

    def is_worth_it(self) -> bool:
        """Whether to look out for it now; counted."""
        if self._skips:
            self._skips -= 1
            return False
        if self._tries >= TRIES:
            is_late = 2 * self._hits < self._tries
            self._pause = min(max(FIRST_PAUSE, 2 * self._pause), LONGEST_PAUSE) if is_late else 0
            self._skips = self._pause
            self._tries = self._hits = 0
            if is_late:
                return False
        self._tries += 1
        return True

    def was_soon(self) -> None:
        """Count a message that arrived while the loop polled."""
        self._hits += 1

    def is_unknown(self) -> None:
        """Ignore this round: the loop did other work meanwhile."""
        self._tries -= 1


class BusyPoll:
    """Keeps an event loop from sleeping for a moment.

    Args:
        poll_s: How long; 0 for never.
        clock: Monotonic seconds.
    """

    __slots__ = ("_clock", "_is_on", "_poll_s", "_side", "_sides", "_until_s")

    def __init__(self, poll_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._poll_s = poll_s
        self._clock = clock
        self._until_s = 0.0
        self._is_on = False
        self._side: Side | None = None
        self._sides: dict[str, Side] = {}

    def side(self, name: str) -> Side:
        """The one of that name, for what is too many to be watched one by one."""
        return self._sides.setdefault(name, Side())

    def begin(self, loop: asyncio.AbstractEventLoop, side: Side) -> None:
        """Something was sent to `side`; from now on `loop` does not sleep for `poll_s`, if that is worth it."""
        if not self._poll_s or not side.is_worth_it():
            return
        now_s = self._clock()
        if self._side is not None and now_s < self._until_s:
            self._side.is_unknown()
        self._side, self._until_s = side, now_s + self._poll_s
        if not self._is_on:
            self._is_on = True
            loop.call_soon(self._turn, loop)

    def note_arrival(self) -> None:
        """Something has arrived."""
        if (side := self._side) is not None:
            self._side = None
            if self._clock() <= self._until_s:
                side.was_soon()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Reschedule this callback until the poll ends: a loop with one that is due never sleeps."""
        self._is_on = self._clock() < self._until_s
        if self._is_on:
            loop.call_soon(self._turn, loop)


_polls: "WeakKeyDictionary[asyncio.AbstractEventLoop, BusyPoll]" = WeakKeyDictionary()


def get_busy_poll(loop: asyncio.AbstractEventLoop) -> BusyPoll:
    """The busy poll of this loop; with one processor it never polls: the other side needs it."""
    poll = _polls.get(loop)
    if poll is None:
        poll = _polls[loop] = BusyPoll(POLL_S if _processors() > 1 else 0.0)
    return poll


def _processors() -> int:
    """Processors that this process may keep busy, limits of containers included."""
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(most, *(math.floor(limit) for limit in _limits()), most)


def _limits() -> list[float]:
    """CPU limits of this process's control groups, in processors."""
    paths = [CGROUPS]
    with suppress(OSError, ValueError, StopIteration):
        line = next(line for line in OWN_CGROUP.read_text("utf-8").splitlines() if line.startswith("0::/"))
        own = CGROUPS / line.removeprefix("0::/")
        paths = [own, *own.parents[: len(own.parents) - len(CGROUPS.parents)]]
    found = []
    for path in paths:
        with suppress(OSError, ValueError):
            quota, period = (path / "cpu.max").read_text("ascii").split()
            found.append(int(quota) / int(period))  # "max" is no number, and no limit
    with suppress(OSError, ValueError):  # the older kind
        quota_us = int((CGROUPS / "cpu" / "cpu.cfs_quota_us").read_text("ascii"))
        if quota_us > 0:
            found.append(quota_us / int((CGROUPS / "cpu" / "cpu.cfs_period_us").read_text("ascii")))
    return found

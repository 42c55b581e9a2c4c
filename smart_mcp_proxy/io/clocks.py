"""Clocks that the standard library has no name for."""

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Monotonic seconds that go on while the machine sleeps, where the system counts those."""
    return time.clock_gettime(_CLOCK)

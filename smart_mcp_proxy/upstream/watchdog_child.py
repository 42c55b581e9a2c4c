"""The watchdog's program: `+GROUP` and `-GROUP` lines on stdin; at its end the remaining groups are ended.

Runs on its own with `python -I -S`: the standard library only.
"""

import contextlib
import os
import signal
import sys
import time

_GRACE_S = 1.0
_POLL_S = 0.05


def main() -> None:
    """Reads until the gateway is gone, then ends what it left."""
    groups: set[int] = set()
    for line in sys.stdin:
        number = int(line[1:])
        if line.startswith("+"):
            groups.add(number)
        else:
            groups.discard(number)
    _signal(groups, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while groups and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        groups = {group for group in groups if _is_alive(group)}
    _signal(groups, signal.SIGKILL)


def _signal(groups: set[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()

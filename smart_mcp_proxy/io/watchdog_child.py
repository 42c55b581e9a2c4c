"""Program of the watchdog: `+GROUP` and `-GROUP` on stdin; ends remaining groups at its end.

`?NAME=VALUE` announces a process with that in its environment, `!NAME=VALUE` says that its group is known by now.

Runs on its own with `python -I -S`: the standard library only.
"""

import contextlib
import glob
import os
import signal
import sys
import time

_GRACE_S = 1.0
_POLL_S = 0.05


def main() -> None:
    """Reads until the gateway is gone, then ends what it left."""
    known: set[str] = set()
    announced: set[str] = set()
    for line in sys.stdin:
        lines = known if line[0] in "+-" else announced
        if line[0] in "+?":
            lines.add(line[1:-1])
        else:
            lines.discard(line[1:-1])
    groups = set(map(int, known))
    _signal(groups, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while (groups or announced) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        groups = {group for group in groups if _is_alive(group)} | _groups_with(announced)
    _signal(groups, signal.SIGKILL)


def _groups_with(announced: set[str]) -> set[int]:
    """Process groups announced and begun, but not removed; only where there is /proc."""
    marks = {mark.encode() for mark in announced}
    found: set[int] = set()
    for file in glob.glob("/proc/[0-9]*/environ") if marks else ():
        with contextlib.suppress(OSError), open(file, "rb") as environ:
            if not marks.isdisjoint(environ.read().split(b"\0")):
                found.add(os.getpgid(int(file.split("/")[2])))
    return found


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

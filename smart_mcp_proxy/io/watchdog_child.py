"""Program of the watchdog: `+GROUP` and `-GROUP` on stdin; ends remaining groups at its end.

Tabs and the words of a command may follow a group: it is run once the groups have ended.

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
    known: dict[int, list[str]] = {}
    announced: set[str] = set()
    for line in sys.stdin:
        sign, (word, *command) = line[0], line[1:-1].split("\t")
        if sign == "+":
            known[int(word)] = command
        elif sign == "-":
            known.pop(int(word), None)
        elif sign == "?":
            announced.add(word)
        else:
            announced.discard(word)
    groups = set(known)
    _signal(groups, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while (groups or announced) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        groups = {group for group in groups if _is_alive(group)} | _groups_with(announced)
    _signal(groups, signal.SIGKILL)
    for command in filter(None, known.values()):
        with contextlib.suppress(OSError):
            os.spawnv(os.P_NOWAIT, command[0], command)


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

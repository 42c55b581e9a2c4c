"""Limit of open files and connections, and the share that is kept for servers."""

import errno
import resource
from contextlib import suppress
from typing import Final

OPEN_FILES_HINT: Final = "Close what is not needed, or raise the limit (ulimit -n) and start the gateway again."

_ENOUGH: Final = 65_536
"""More than any gateway needs. Not all that the system would give: children inherit it, and some programs close every
descriptor that there could be when they start."""
_KEPT: Final = 64
"""For files, servers and their pipes: a dozen servers that start at once have this many for a moment."""
_KEPT_SHARE: Final = 4
"""At most one in four is kept, where there are few."""
_NO_PAIR: Final = -1
"""uvloop's number for a pair of sockets that the system did not give; it has only this reason not to."""
_NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE, _NO_PAIR})


def most_open_files() -> int:
    """Number of descriptors that this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Lets this process have as many as the system allows, where it was started with fewer than enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS allows fewer than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def is_scarce(descriptor: int) -> bool:
    """Return whether only the share for servers is left; the newest descriptor is the lowest free."""
    most = most_open_files()
    return descriptor >= most - min(_KEPT, most // _KEPT_SHARE)


def why_none_left(exc: OSError) -> str | None:
    """The reason in the user's words where something failed for want of descriptors, else None."""
    if exc.errno not in _NONE_LEFT:
        return None
    if exc.errno == errno.ENFILE:
        return "the system has as many files open as it can"
    return f"the gateway has as many files and connections open as it may, {most_open_files():,}"

"""Limits of a server's processes, which the system keeps."""

import os
import platform
import re
import shutil
from collections.abc import Iterable
from typing import Final

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.servers import ServerConfig

_PROGRAM: Final = "prlimit"
_MEGABYTE: Final = 1 << 20
_MET: Final = {
    "memory_mb": r"(?i)MemoryError|ENOMEM|out of memory|cannot allocate|bad_alloc|heap limit",
    "open_files": r"(?i)EMFILE|too many open files",
    "processes": r"(?i)EAGAIN|resource temporarily unavailable|can't start new thread",
    "file_mb": r"(?i)EFBIG|file too large|file size limit",
}
"""Words by which programs say that they met a limit."""
_OPTIONS: Final = {
    "memory_mb": ("data", _MEGABYTE),
    "open_files": ("nofile", 1),
    "processes": ("nproc", 1),
    "file_mb": ("fsize", _MEGABYTE),
}
"""Options of the program, and what one of the limit is there."""


def limit_command(config: ServerConfig, path: str | None) -> tuple[str, ...]:
    """Give the command of a server with its limits, which hold from its first instruction on.

    Args:
        config: The server.
        path: Where programs are looked for.

    Raises:
        UpstreamError: The system cannot keep a limit that the entry asks for.

    Source: https://man7.org/linux/man-pages/man1/prlimit.1.html
    """
    command, limits = (config.command, *config.args), config.process_limits
    if limits.processes is not None and (config.isolation.mode != "sandbox" or not _counts_by_namespace()):
        raise refuse_process_limit(config)
    asked = {name: limit for name in _OPTIONS if (limit := getattr(limits, name)) is not None}
    if not asked:
        return command
    program = shutil.which(_PROGRAM, path=path)
    if program is None:
        raise _refuse(config, next(iter(asked)), f"the program {_PROGRAM} is missing", "install util-linux")
    place = os.path.join(config.cwd or "", config.command) if "/" in config.command else config.command
    if shutil.which(place, path=path) is None:
        return command  # the error of its start is clearer than that of the program before it
    words = [f"--{_OPTIONS[name][0]}={limit * _OPTIONS[name][1]}" for name, limit in asked.items()]
    return program, *words, "--", *command


def container_limits(config: ServerConfig) -> Iterable[str]:
    """Options of a container engine for all limits of a server."""
    limits = config.process_limits
    if limits.memory_mb is not None:
        yield f"--memory={limits.memory_mb}m"
    if limits.open_files is not None:
        yield f"--ulimit=nofile={limits.open_files}:{limits.open_files}"
    if limits.processes is not None:
        yield f"--pids-limit={limits.processes}"
    if limits.file_mb is not None:
        size = limits.file_mb * _MEGABYTE
        yield f"--ulimit=fsize={size}:{size}"


def hint_limit(config: ServerConfig, lines: Iterable[str]) -> str:
    """Hint on the limit that a server met, by the last lines that it wrote; empty for none."""
    text = "\n".join(lines)
    for name, words in _MET.items():
        limit = getattr(config.process_limits, name)
        if limit is not None and re.search(words, text):
            return f" Its limits.{name} is {limit}, which may be why."
    return ""


def refuse_process_limit(config: ServerConfig) -> UpstreamError:
    """The error for a server whose processes nothing here counts apart from the user's others."""
    reason = "only a container keeps it, or bubblewrap's sandbox on Linux from 5.14 for a user other than root"
    return _refuse(config, "processes", reason, 'install bubblewrap, or write "isolation": "container"')


def _counts_by_namespace() -> bool:
    """Whether the kernel counts the processes of a user namespace apart, as it does for all but root.

    Source: https://man7.org/linux/man-pages/man2/getrlimit.2.html,
    https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/commit/?id=21d1c5e386bc
    """
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    is_new = release is not None and (int(release[1]), int(release[2])) >= (5, 14)
    return platform.system() == "Linux" and is_new and os.geteuid() != 0


def _refuse(config: ServerConfig, limit: str, reason: str, remedy: str) -> UpstreamError:
    return UpstreamError(
        f"Server '{config.name}' is to have limits.{limit}, and {reason}.", hint=f"Take it out, or {remedy}."
    )

"""Limits of a server's process: memory and open files, which the system keeps."""

import os
import re
import shutil
from collections.abc import Iterable
from typing import Final

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.servers import ServerConfig

_PROGRAM: Final = "prlimit"
_MEGABYTE: Final = 1 << 20
_MET: Final = {
    "memory_mb": re.compile(r"MemoryError|ENOMEM|out of memory|cannot allocate|bad_alloc|heap limit", re.IGNORECASE),
    "open_files": re.compile(r"EMFILE|too many open files", re.IGNORECASE),
    "processes": re.compile(r"EAGAIN|resource temporarily unavailable|can't start new thread", re.IGNORECASE),
}
"""Words by which programs say that they met a limit."""


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
    if limits.processes is not None:
        # Outside of a container the system counts all processes of the user, whoever started them.
        raise _refuse(config, "processes", "only a container keeps it", 'write "isolation": "container"')
    if limits.memory_mb is None and limits.open_files is None:
        return command
    program = shutil.which(_PROGRAM, path=path)
    if program is None:
        asked = "open_files" if limits.memory_mb is None else "memory_mb"
        raise _refuse(config, asked, f"the program {_PROGRAM} is missing", "install util-linux")
    place = os.path.join(config.cwd or "", config.command) if "/" in config.command else config.command
    if shutil.which(place, path=path) is None:
        return command  # the error of its start is clearer than that of the program before it
    words = [program]
    if limits.memory_mb is not None:
        words.append(f"--data={limits.memory_mb * _MEGABYTE}")
    if limits.open_files is not None:
        words.append(f"--nofile={limits.open_files}")
    return *words, "--", *command


def container_limits(config: ServerConfig) -> Iterable[str]:
    """Options of a container engine for all limits of a server."""
    limits = config.process_limits
    if limits.memory_mb is not None:
        yield f"--memory={limits.memory_mb}m"
    if limits.open_files is not None:
        yield f"--ulimit=nofile={limits.open_files}:{limits.open_files}"
    if limits.processes is not None:
        yield f"--pids-limit={limits.processes}"


def hint_limit(config: ServerConfig, lines: Iterable[str]) -> str:
    """Hint on the limit that a server met, by the last lines that it wrote; empty for none."""
    text = "\n".join(lines)
    for name, words in _MET.items():
        limit = getattr(config.process_limits, name)
        if limit is not None and words.search(text):
            return f" Its limits.{name} is {limit}, which may be why."
    return ""


def _refuse(config: ServerConfig, limit: str, reason: str, remedy: str) -> UpstreamError:
    return UpstreamError(
        f"Server '{config.name}' is to have limits.{limit}, and {reason}.", hint=f"Take it out, or {remedy}."
    )

"""Processes that listen at a port of this machine. Scripts run this file alone, by an older Python."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

_LISTENING = "0A"
_PROGRAMS = ("mcpproxy", "smart-mcp-proxy", "smart_mcp_proxy")
_FIRST_WORDS = 5
"""Words that are read of a command line: the interpreter and its options, and our program."""


class PortHolder(NamedTuple):
    """Process that listens at a port.

    Attributes:
        pid: Its number; 0 where it is not known.
        name: Of its program.
        data_dir: Data directory of a gateway; empty where it is none, or has one of the moment.
    """

    pid: int = 0
    name: str = ""
    data_dir: str = ""


def find_port_holder(port: int) -> PortHolder:
    """Find the process that listens at a TCP port; on Linux alone, and among those of this user."""
    sockets = {f"socket:[{inode}]" for inode in _list_listening(port)}
    pids = sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()) if sockets else []
    for pid in pids:
        if _has_open(pid, sockets):
            words = _read(pid, "cmdline")
            is_gateway = any(os.path.basename(word) in _PROGRAMS for word in words[:_FIRST_WORDS])
            name = "".join(_read(pid, "comm")).strip()
            return PortHolder(pid, name, _find_data_dir(pid, words) if is_gateway else "")
    return PortHolder()


def _find_data_dir(pid: int, words: list[str]) -> str:
    if "demo" in words:
        return ""
    environ = dict(word.partition("=")[::2] for word in _read(pid, "environ"))
    home = environ.get("HOME") or os.path.expanduser("~")
    named = environ.get("MCPPROXY_DATA_DIR") or "~/.mcpproxy"
    place = home + named[1:] if named.startswith("~") else named
    with suppress(OSError):
        place = os.path.join(os.readlink(f"/proc/{pid}/cwd"), place)
    return os.path.normpath(place)


def _list_listening(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{table}") as rows:
            for row in rows:
                words = row.split()
                if words[3] == _LISTENING and words[1].rpartition(":")[2] == f"{port:04X}":
                    yield words[9]


def _has_open(pid: int, sockets: set[str]) -> bool:
    with suppress(OSError):  # another user's, or it has ended
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{name}") in sockets:
                    return True
    return False


def _read(pid: int, name: str) -> list[str]:
    """The texts of a file of a process; none where it has ended or may not be seen."""
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return [word.decode(errors="replace") for word in file.read().split(b"\0")]
    return []

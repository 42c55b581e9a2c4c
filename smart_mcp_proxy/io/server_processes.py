"""Processes that servers started, told from others by descent and by what they inherited."""

import errno
import hashlib
import os
import resource
import select
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

MARK: Final = "SMART_MCP_PROXY_START"
"""Variable that a child carries, and whatever it starts. That of a server says whose it is, behind a dot."""
_SO_PEERPIDFD: Final = 77
"""Source: https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/asm-generic/socket.h"""
_LISTENS: Final = "0A"
"""State of a socket in the system's tables."""
_UNLIKELY_LIMIT: Final = 2**62
"""In place of none; nobody would set it."""

Address = tuple[str, int]


class Peer(NamedTuple):
    """The process at the other end of a Unix socket.

    Attributes:
        pid: Its number; 0 where it lives outside of the gateway's container.
        uid: Its user.
        started: When it began, in ticks of the system: no later process with its number did. None where it has ended.
    """

    pid: int
    uid: int
    started: int | None


class LocalEnd(NamedTuple):
    """The other end of a TCP connection, on this machine.

    Attributes:
        uid: User of the process that made it.
        inode: Number of its socket; 0 where nobody has that open any more.
    """

    uid: int
    inode: int


class _Stat(NamedTuple):
    has_ended: bool
    parent: int
    group: int
    session: int
    started: int


def tag_server(name: str) -> str:
    """Return the short digest by which each process of the gateway knows a server's children."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def lower_limit(pid: int) -> None:
    """Mark a process, and all that it will start, by a limit that each may lower and none may raise.

    It is that of message queues, lower by a byte.

    Source: https://man7.org/linux/man-pages/man2/getrlimit.2.html
    """
    if sys.platform == "linux":
        with suppress(OSError):  # it has ended, or has another user's rights
            soft, hard = resource.prlimit(pid, resource.RLIMIT_MSGQUEUE)
            lower = _UNLIKELY_LIMIT if hard < 0 else max(hard - 1, 0)
            resource.prlimit(pid, resource.RLIMIT_MSGQUEUE, (lower if soft < 0 else min(soft, lower), lower))


def read_peer(link: socket.socket) -> Peer | None:
    """Read who made the connection to a Unix socket; None where the system does not say."""
    if sys.platform != "linux" or _read_stat(os.getpid()) is None:
        return None
    pid, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if pid == 0:
        return Peer(pid, uid, None)
    try:
        try:
            handle = link.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        except OSError as exc:
            if exc.errno != errno.ENOPROTOOPT:  # an older system
                raise
            handle = os.pidfd_open(pid)
    except OSError:
        return Peer(pid, uid, None)
    stat, ended = _read_stat(pid), select.poll()
    ended.register(handle, select.POLLIN)
    # Asked last: once it has ended its number may be another's.
    is_there = not ended.poll(0)
    os.close(handle)
    return Peer(pid, uid, stat.started if stat is not None and is_there else None)


def is_still(peer: Peer) -> bool:
    """Whether the process that made a connection lives."""
    stat = _read_stat(peer.pid)
    return stat is not None and not stat.has_ended and stat.started == peer.started


def find_connection(client: Address, server: Address) -> LocalEnd | None:
    """Find the client's end of a TCP connection; None where it is on another machine, or closed.

    Raises:
        OSError: The system has no such table.
    """
    for file, ends in _spell_ends(client, server).items():
        with open(f"/proc/net/{file}") as rows:
            for row in rows:
                words = row.split()
                if words[1:3] == ends:
                    return LocalEnd(int(words[7]), int(words[9]))
    return None


def listens_at(port: int) -> bool:
    """Whether this process listens at a port of the machine, if only by workers' common socket."""
    for file in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{file}") as rows:
            for row in rows:
                words = row.split()
                is_at_port = words[3] == _LISTENS and words[1].endswith(f":{port:04X}")
                if is_at_port and _holds(os.getpid(), int(words[9])):
                    return True
    return False


def may_gain_privileges(pid: int) -> bool:
    """Whether a process may start programs with more rights than its own; in a sandbox none may.

    Source: https://docs.kernel.org/userspace-api/no_new_privs.html
    """
    return b"\nNoNewPrivs:\t1\n" not in _read(pid, "status")


class ServerProcesses:
    """A look at the processes of this machine, for those of servers.

    A process is a server's if one of its ancestors is or belongs to a server's process group or session, carries a
    server's mark, or has the limit that `lower_limit` gives. What the gateway itself inherited says nothing.

    Args:
        running: Names of servers, by the process of each.
        names: Of all servers.
    """

    def __init__(self, running: Mapping[int, str], names: Iterable[str]) -> None:
        self._running = running
        self._names = {tag_server(name).encode(): name for name in names}
        self._own_mark = _read_mark(os.getpid())
        self._own_limit = _read_limit(os.getpid())
        self._known: dict[int, str | None] = {}
        above, pid = _read_stat(os.getpid()), os.getpid()
        while above is not None:
            self._known[pid] = None
            pid = above.parent
            above = _read_stat(pid)

    def __repr__(self) -> str:
        return f"<ServerProcesses, {len(self._running)} servers run>"

    def find_server(self, pid: int) -> str | None:
        """Find the server of a process: its name, empty where that cannot be told; None for a stranger."""
        line: list[int] = []
        found, older = self._known.get(pid), pid
        while older not in self._known:
            line.append(older)
            found, parent = self._judge(older)
            if found is not None or parent is None:
                break
            found, older = self._known.get(parent), parent
        for each in reversed(line):
            if found is None and _read_limit(each) < self._own_limit:
                found = ""
            self._known[each] = found
        return found

    def _judge(self, pid: int) -> tuple[str | None, int | None]:
        """The server that a process shows by itself to be of, and its parent, where that can be one."""
        if (stat := _read_stat(pid)) is None:
            return None, None
        for number in (pid, stat.group, stat.session):
            if number in self._running:
                return self._running[number], None
        mark = _read_mark(pid)
        if b"." in mark and mark != self._own_mark:
            return self._names.get(mark.rpartition(b".")[2], ""), None
        parent = _read_stat(stat.parent)
        # One that is younger has the number of a parent that has ended.
        is_parent = parent is not None and parent.started <= stat.started
        return None, stat.parent if is_parent else None

    def find_holder(self, inode: int) -> str | None:
        """Find the server of the process that holds a socket, as `find_server` names it.

        A server's process whose open files cannot be seen is taken for its holder where nobody else is.
        """
        hidden = None
        strangers = []
        for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
            if (server := self.find_server(pid)) is None:
                strangers.append(pid)
            elif (is_held := _holds(pid, inode)) is None:
                hidden = server
            elif is_held:
                return server
        return None if hidden is None or any(_holds(pid, inode) for pid in strangers) else hidden


def _read(pid: int, name: str) -> bytes:
    """Read a file of a process; empty where it has ended or may not be seen."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _read_stat(pid: int) -> _Stat | None:
    # The name stands in parentheses and may hold anything, parentheses included.
    words = _read(pid, "stat").rpartition(b")")[2].split()
    return _Stat(words[0] == b"Z", *map(int, (*words[1:4], words[19]))) if words else None


def _read_mark(pid: int) -> bytes:
    return (b"\0" + _read(pid, "environ")).partition(b"\0%b=" % MARK.encode())[2].partition(b"\0")[0]


def _read_limit(pid: int) -> float:
    if sys.platform == "linux":
        with suppress(OSError):
            hard = resource.prlimit(pid, resource.RLIMIT_MSGQUEUE)[1]
            return float("inf") if hard < 0 else hard
    return float("inf")


def _holds(pid: int, inode: int) -> bool | None:
    """Whether a process has a socket open; None where its files cannot be seen."""
    wanted = f"socket:[{inode}]"
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{name}") == wanted:
                    return True
    except PermissionError:
        return None
    except OSError:  # it has ended
        return False
    return False


def _spell_ends(client: Address, server: Address) -> dict[str, list[str]]:
    """Both ends of a connection, seen from the client, as each table of the system writes them."""
    tables: dict[str, list[str]] = {"tcp": [], "tcp6": []}
    for host, port in (client, server):
        address = ip_address(host.partition("%")[0])
        short = address.ipv4_mapped if isinstance(address, IPv6Address) else address
        long = address.packed if short is None else b"\0" * 10 + b"\xff\xff" + short.packed
        if short is not None:
            tables["tcp"].append(f"{_spell(short.packed)}:{port:04X}")
        tables["tcp6"].append(f"{_spell(long)}:{port:04X}")
    return tables


def _spell(packed: bytes) -> str:
    """An address as words in the byte order of this machine."""
    words = struct.unpack(f"!{len(packed) // 4}I", packed)
    return struct.pack(f"={len(words)}I", *words).hex().upper()

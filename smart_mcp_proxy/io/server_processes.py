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
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

MARK: Final = "SMART_MCP_PROXY_START"
"""Variable that a child carries, and whatever it starts. That of a server says whose it is, behind a dot."""
_SO_PEERPIDFD: Final = 77
"""Source: https://git.kernel.org/pub/scm/linux/kernel/git/torvalds/linux.git/tree/include/uapi/asm-generic/socket.h"""
_NETLINK, _SOCK_DIAG, _BY_FAMILY = 16, 4, 20
"""Protocol of netlink that finds a socket by its ends, and the only kind of message that is asked and answered.

Source: https://man7.org/linux/man-pages/man7/sock_diag.7.html"""
_NEAR: Final = (0, 1, -1, 2, -2)
"""Distances from its last known one at which a process is looked at for its next connection."""
_MOST_STRANGERS: Final = 16
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
    if (found := ask_connection(client, server)) is not None:
        return found
    near, far = _spell_end(client), _spell_end(server)
    for file in ("tcp", "tcp6"):
        with open(f"/proc/net/{file}") as rows:
            for row in rows:
                words = row.split()
                if words[1] in near and words[2] in far:
                    return LocalEnd(int(words[7]), int(words[9]))
    return None


def ask_connection(client: Address, server: Address) -> LocalEnd | None:
    """Ask the system for the same; at once, but None says nothing: not every system answers."""
    ends = [(host.packed, port.to_bytes(2, "big")) for host, port in map(_read_end, (client, server))]
    family = 2 if len(ends[0][0]) == len(ends[1][0]) == 4 else 10
    words = struct.pack("=IHHII4BI", 72, _BY_FAMILY, 1, 0, 0, family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
    words += struct.pack("=2s2s16s16sIQ", *(end[1] for end in ends), *(end[0] for end in ends), 0, 0xFFFFFFFFFFFFFFFF)
    try:
        with socket.socket(_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
            link.send(words)
            said = link.recv(4096, socket.MSG_DONTWAIT)
    except OSError:
        return None
    return (
        LocalEnd(*struct.unpack_from("=II", said, 80)) if said[4:6] == _BY_FAMILY.to_bytes(2, sys.byteorder) else None
    )


def listens_at(port: int) -> bool:
    """Whether this process listens at a port of the machine, if only by workers' common socket."""
    for file in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{file}") as rows:
            for row in rows:
                words = row.split()
                is_at_port = words[3] == _LISTENS and words[1].endswith(f":{port:04X}")
                if is_at_port and _find_file(os.getpid(), int(words[9])) not in (None, -1):
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

    def find_holder(self, inode: int, strangers: "Strangers | None" = None) -> tuple[str, int] | None:
        """Find the process of a server that holds a socket: its server, as `find_server` has it, and number.

        One whose open files cannot be seen is taken for the holder where nobody else is. The `strangers` are asked
        first, and told of the other process that holds it.
        """
        if strangers is not None and strangers.hold(inode, is_near=False):
            return None
        hidden, others = None, []
        for pid in sorted((int(name) for name in os.listdir("/proc") if name.isdecimal()), reverse=True):
            if (server := self.find_server(pid)) is None:
                others.append(pid)
            elif (file := _find_file(pid, inode)) is None:
                hidden = server, pid
            elif file >= 0:
                return server, pid
        for pid in others if hidden or strangers is not None else ():  # the newest first: clients have often just begun
            if (file := _find_file(pid, inode)) is not None and file >= 0:
                if strangers is not None:
                    strangers.note(pid, file)
                return None
        return hidden


class Strangers:
    """Processes of no server, known again by their next connections without a look at all others."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def __repr__(self) -> str:
        return f"<Strangers, {len(self._known)} known>"

    def note(self, pid: int, file: int) -> None:
        """Note a process that has a socket open as this file."""
        if (stat := _read_stat(pid)) is not None:
            self._known[pid] = stat.started, file
            if len(self._known) > _MOST_STRANGERS:
                del self._known[next(iter(self._known))]

    def hold(self, inode: int, *, is_near: bool) -> bool:
        """Whether one of them is seen to hold a socket; `is_near` looks where it is likely, at once."""
        for pid, (started, last) in [*self._known.items()][::-1]:
            file = _find_file(pid, inode, [last + by for by in _NEAR] if is_near else ())
            # Asked last: what was read before may be of a later process with its number.
            if file is not None and file >= 0 and (stat := _read_stat(pid)) is not None and stat.started == started:
                self._known.pop(pid, None)
                self._known[pid] = started, file
                return True
        return False


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


def _find_file(pid: int, inode: int, near: Iterable[int] = ()) -> int | None:
    """Find the file as which a process has a socket open, in `near` alone if that names some.

    It is -1 where it has not, and None where its files cannot be seen.
    """
    wanted = f"socket:[{inode}]"
    try:
        for file in near or os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(f"/proc/{pid}/fd/{file}") == wanted:
                    return int(file)
    except PermissionError:
        return None
    except OSError:  # it has ended
        return -1
    return -1


def _read_end(end: Address) -> tuple[IPv4Address | IPv6Address, int]:
    """Read one end of a connection; an address of IPv4 as such, also where IPv6 wraps it."""
    address = ip_address(end[0].partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address, end[1]


def _spell_end(end: Address) -> tuple[str, str]:
    """Spell one end of a connection as each table of the system may have it."""
    host, port = _read_end(end)
    long = host.packed if host.version == 6 else b"\0" * 10 + b"\xff\xff" + host.packed
    return f"{_spell(host.packed)}:{port:04X}", f"{_spell(long)}:{port:04X}"


def _spell(packed: bytes) -> str:
    """An address as words in the byte order of this machine."""
    words = struct.unpack(f"!{len(packed) // 4}I", packed)
    return struct.pack(f"={len(words)}I", *words).hex().upper()

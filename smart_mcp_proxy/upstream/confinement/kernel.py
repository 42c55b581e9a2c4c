"""Confinement by Linux itself: Landlock for files and signals, seccomp for sockets and keys.

Both hold for the thread that asks for them and for all that it starts, and nothing lifts them. So a server is started
by a thread of its own that was confined before: no program stands between, and no Python runs in a forked process.

Source: https://docs.kernel.org/userspace-api/landlock.html,
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CHANGE: Final = (1 << 13) - 1 - (1 << 6) - (1 << 11)
"""Reads, writes, makes, removes; no device files."""
_MOVE, _TRUNCATE, _DEVICES = 1 << 13, 1 << 14, 1 << 15
_HANDLED: Final = (1 << 13) - 1
_LATER: Final = {2: _MOVE, 3: _TRUNCATE, 5: _DEVICES}
"""Kinds of access by the version that brought them."""
_ON_A_FILE: Final = _EXECUTE | _WRITE | _READ | _TRUNCATE | _DEVICES
SCOPED_FROM: Final = 6
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_GAPS: Final = {3: "it can empty files outside", SCOPED_FROM: "it can send signals to your other programs"}

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAPBSET_DROP: Final = 24
_CAPABILITIES: Final = 64
_KEPT_CAPABILITIES: Final = frozenset({0, 1, 3, 4, 6, 7, 10})
"""Capabilities that root keeps: owners and modes of files, becoming another user, low ports. Others see or change what
no rule holds."""
_SECCOMP_FILTER: Final = 1
_NO_SPECULATION_COST: Final = 1 << 2


class _Machine(NamedTuple):
    """Numbers of a processor's system calls."""

    audit: int
    seccomp: int
    socket: int
    socketpair: int
    keys: tuple[int, ...]
    limits: int


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 317, 41, 53, (248, 249, 250), 302),
    "aarch64": _Machine(0xC00000B7, 277, 198, 199, (217, 218, 219), 261),
}
_IO_URING: Final = (425, 426, 427)
"""Opens sockets past every filter; programs do without it."""
_X32: Final = 0x40000000
_DATAGRAM: Final = 2
_RAW: Final = 3
"""A pair of these is made as one of datagram sockets."""
_TYPE_MASK: Final = 0xF
LOCAL, INTERNET, INTERNET_6, NETLINK = 1, 2, 10, 16
"""Families of sockets."""


class KernelRules(NamedTuple):
    """Access that a process keeps.

    Attributes:
        read: Files, and folders with all in them, that it may read and start.
        write: The same for all that changes them.
        listed: Folders whose entries' names it may read.
        devices: Files that it may read and write, not remove.
        families: Families of sockets that it may open.
    """

    read: tuple[str, ...]
    write: tuple[str, ...]
    listed: tuple[str, ...]
    devices: tuple[str, ...]
    families: tuple[int, ...]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *words: object) -> int:
    """The result of a system call.

    Raises:
        OSError: It failed.
    """
    result: int = _libc().syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@cache
def landlock_version() -> int:
    """Version of Landlock that the running kernel has, 0 for none."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        return 0
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return 0


def list_gaps(version: int) -> list[str]:
    """List gaps of this version of Landlock that later ones close."""
    return [gap for since, gap in _GAPS.items() if version < since]


def confine_thread(rules: KernelRules) -> None:
    """Confine the calling thread, and whatever it starts, for ever.

    Raises:
        OSError: The kernel refuses.
    """
    for number in range(_CAPABILITIES) if os.geteuid() == 0 else ():
        if number not in _KEPT_CAPABILITIES:
            _libc().prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    _renounce_privileges()
    _restrict_files(rules)
    _restrict_calls(rules.families)


def hide_abstract_sockets() -> None:
    """Keep the calling thread, and all that it starts, from others' abstract sockets, if the kernel can."""
    if landlock_version() >= SCOPED_FROM:
        _renounce_privileges()
        ruleset = _call(
            _CREATE_RULESET, struct.pack("QQQ", 0, 0, _ABSTRACT_SOCKETS), ctypes.c_size_t(24), ctypes.c_uint32(0)
        )
        try:
            _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        finally:
            os.close(ruleset)


def _renounce_privileges() -> None:
    if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _restrict_files(rules: KernelRules) -> None:
    version = landlock_version()
    handled = _HANDLED | sum(bit for since, bit in _LATER.items() if version >= since)
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if version >= SCOPED_FROM else 0
    words = struct.pack("QQQ", handled, 0, scoped)
    size = 24 if version >= SCOPED_FROM else 8
    ruleset = _call(_CREATE_RULESET, words, ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        reads = _EXECUTE | _READ | _LIST
        for paths, access in (
            (rules.read, reads),
            (rules.write, _CHANGE | _MOVE | _TRUNCATE),
            ([path for path in rules.write if path.startswith("/dev/")], _DEVICES),
            (rules.listed, _LIST),
            (rules.devices, _READ | _WRITE | _DEVICES),
        ):
            _add_rules(ruleset, paths, access & handled)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _add_rules(ruleset: int, paths: Iterable[str], access: int) -> None:
    for path in paths:
        try:
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:  # it is not there, or out of reach without us
            continue
        try:
            kinds = access if Path(path).is_dir() else access & _ON_A_FILE
            if not kinds:  # the kernel takes no rule without any
                continue
            rule = struct.pack("=Qi", kinds, beneath)
            _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        finally:
            os.close(beneath)


def socket_filter(families: tuple[int, ...]) -> bytes:
    """Program for seccomp that refuses sockets of other families, and keys of the user's sessions."""
    return b"".join(_filter(_MACHINES[platform.machine()], families))


def _restrict_calls(families: tuple[int, ...]) -> None:
    code = socket_filter(families)
    program = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(program))
    number = _MACHINES[platform.machine()].seccomp
    _call(number, ctypes.c_uint(_SECCOMP_FILTER), ctypes.c_uint(_NO_SPECULATION_COST), head)


_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_IF, _IF_AT_LEAST = 0x15, 0x35
_NUMBER, _AUDIT, _FIRST, _SECOND = 0, 4, 16, 24
_ALLOW: Final = 0x7FFF0000
_EPERM, _ENOSYS, _EACCES = 0x00050001, 0x00050026, 0x0005000D


def _filter(machine: _Machine, families: tuple[int, ...]) -> list[bytes]:
    """Instructions that answer a system call before it is made.

    A socket of a family that is not named is refused, and a pair of datagram ones: they can be led elsewhere later. So
    are limits of other processes than the caller itself.
    """

    def step(code: int, operand: int, then: int = 0, other: int = 0) -> bytes:
        return struct.pack("HBBI", code, then, other, operand)

    allow, deny = step(_RETURN, _ALLOW), step(_RETURN, _EACCES)
    known = [part for family in families for part in (step(_IF, family, 0, 1), allow)]
    socket = [step(_LOAD, _FIRST), *known, deny]
    pair = [
        step(_LOAD, _SECOND),
        step(_AND, _TYPE_MASK),
        *(part for kind in (_DATAGRAM, _RAW) for part in (step(_IF, kind, 0, 1), deny)),
        allow,
    ]
    limits = [step(_LOAD, _FIRST), step(_IF, 0, 0, 1), allow, step(_RETURN, _EPERM)]
    return [
        step(_LOAD, _AUDIT),
        *(step(_IF, machine.audit, 1, 0), step(_RETURN, _EPERM)),
        step(_LOAD, _NUMBER),
        *(step(_IF_AT_LEAST, _X32, 0, 1), step(_RETURN, _EPERM)),
        *(part for number in _IO_URING for part in (step(_IF, number, 0, 1), step(_RETURN, _ENOSYS))),
        *(part for number in machine.keys for part in (step(_IF, number, 0, 1), step(_RETURN, _EPERM))),
        *(step(_IF, machine.socket, 0, len(socket)), *socket),
        *(step(_IF, machine.socketpair, 0, len(pair)), *pair),
        *(step(_IF, machine.limits, 0, len(limits)), *limits),
        allow,
    ]

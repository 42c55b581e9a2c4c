"""All processes that this one has started, those that left their parents included, and what they use."""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.process import cpu_s

__all__ = ["Memory", "Usage", "adopt_orphans", "descendants", "end_all", "measure"]

_PR_SET_CHILD_SUBREAPER = 36
_SERVER = "desktop/server.py"
"""In the command lines of the servers behind a gateway; every other process is a gateway or a way to one."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What processes of one kind hold.

    Attributes:
        processes: How many.
        rss_mb: Resident, shared pages counted for each; 1 MB is 1,024 KiB.
        pss_mb: Shared pages divided among those that share them.
    """

    processes: int
    rss_mb: float
    pss_mb: float


@dataclass(frozen=True, slots=True)
class Usage:
    """What all processes have used so far.

    Attributes:
        own: Gateways and the processes that clients start to reach them.
        servers: Those behind them.
        own_cpu_s: Processor time of the former, with that of their ended children.
        servers_cpu_s: That of the servers.
    """

    own: Memory
    servers: Memory
    own_cpu_s: float
    servers_cpu_s: float

    @property
    def cpu_s(self) -> float:
        """Processor time of all."""
        return self.own_cpu_s + self.servers_cpu_s


def adopt_orphans() -> None:
    """Become the parent of processes that leave theirs, as a gateway in the background does; Linux alone has it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def descendants() -> dict[int, str]:
    """Command lines by process id; ended ones are left out."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError):
                state, parent = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    parents[int(entry)] = int(parent)
    return {pid: _command_line(pid) for pid in parents if os.getpid() in _ancestors(pid, parents)}


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid := parents.get(pid, 0):
        yield pid


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def measure(*, has_memory: bool = True) -> Usage:
    """Usage of all processes now; memory takes the kernel time that is not theirs, so it is left out on demand."""
    found = descendants()
    servers = {pid for pid, line in found.items() if _SERVER in line}
    own = found.keys() - servers
    none = Memory(0, 0.0, 0.0)
    memory = [_memory(pids) if has_memory else none for pids in (own, servers)]
    return Usage(memory[0], memory[1], sum(map(_cpu_s, own)), sum(map(_cpu_s, servers)))


def _memory(pids: Iterable[int]) -> Memory:
    sums = {"Rss": 0, "Pss": 0}
    count = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it has ended meanwhile
        count += 1
        for line in lines:
            name, _, amount = line.partition(":")
            if name in sums:
                sums[name] += int(amount.split()[0])
    return Memory(count, sums["Rss"] / 1024, sums["Pss"] / 1024)


def _cpu_s(pid: int) -> float:
    try:
        return cpu_s(pid, has_children=True)
    except OSError:
        return 0.0


def end_all(limit_s: float) -> int:
    """Wait for all to end, and end those that do not; returns how many did not."""
    end = time.monotonic() + limit_s
    while descendants() and time.monotonic() < end:
        _reap()
        time.sleep(0.02)
    left = descendants()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while descendants():
        time.sleep(0.02)
    _reap()
    return len(left)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass

"""What a process has used so far, by its files in /proc."""

import os
from pathlib import Path

__all__ = ["children", "cpu_s", "descendants", "memory_kb", "pss_kb"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int, *, has_children: bool = False) -> float:
    """Processor time of all its threads, user and system; with that of its ended children if asked; in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if has_children else 13])) / _TICKS_PER_S


def memory_kb(pid: int, what: str = "VmRSS") -> int:
    """Resident memory now (VmRSS), that of it which no file backs (RssAnon), or its peak (VmHWM), in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))


def pss_kb(pid: int) -> int:
    """Its share of all memory that it uses (PSS), in KiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def descendants(pid: int) -> list[int]:
    """Its processes, theirs, and so on."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def children(pid: int) -> list[int]:
    """Processes that any thread of a process has started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for file in files for child in file.read_text().split()]

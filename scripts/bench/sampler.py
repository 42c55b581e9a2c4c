"""Samples where a process spends its CPU time, by a timer signal: no hooks in the code, so the shares are true."""

import collections
import gc
import json
import signal
import sysconfig
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Sampler"]

_BORROWED = ("anyio", "exceptiongroup", "sniffio", "typing_extensions.py")
"""Packages that, like the standard library, work for whoever called them."""
_EVENT_LOOP = "(event loop)"
_OTHER_THREADS = "(other threads)"
_COLLECTION = "(garbage collection)"
_PERIOD_S = 0.001
"""The kernel may deliver it less often; each sample weighs as much CPU time as passed since the one before."""
_STDLIB = sysconfig.get_path("stdlib") + "/"
_SITE = sysconfig.get_path("purelib") + "/"


class Sampler:
    """Starts at SIGUSR1, stops at SIGUSR2 and writes a JSON file of shares.

    A call into C counts for the Python function that made it: `json` in C, system calls, pydantic's core. Garbage
    collection counts for itself: else it would be found in whatever function happens to run during it.

    Args:
        path: File to write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._owners: dict[str, float] = collections.defaultdict(float)
        self._modules: dict[str, float] = collections.defaultdict(float)
        self._functions: dict[str, float] = collections.defaultdict(float)
        self._inclusive: dict[str, float] = collections.defaultdict(float)
        self._thread_s = self._process_s = 0.0
        self._collecting_since: float | None = None
        signal.signal(signal.SIGUSR1, self._start)
        signal.signal(signal.SIGUSR2, self._stop)

    def _start(self, _number: int, _frame: FrameType | None) -> None:
        for table in (self._owners, self._modules, self._functions, self._inclusive):
            table.clear()
        self._thread_s, self._process_s = time.thread_time(), time.process_time()
        gc.callbacks.append(self._collecting)
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _PERIOD_S, _PERIOD_S)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        thread_s, process_s = time.thread_time(), time.process_time()
        here, all_threads = thread_s - self._thread_s, process_s - self._process_s
        self._thread_s, self._process_s = thread_s, process_s
        elsewhere = max(0.0, all_threads - here)
        self._modules[_OTHER_THREADS] += elsewhere
        self._owners[_OTHER_THREADS] += elsewhere
        if frame is None or self._collecting_since is not None:
            self._collected(here)
            return
        self._modules[_module(frame)] += here
        self._functions[_function(frame)] += here
        stack = []
        walker: FrameType | None = frame
        while walker is not None:
            stack.append(walker)
            walker = walker.f_back
        self._owners[next(filter(None, map(_owner, stack)), _EVENT_LOOP)] += here
        for name in {_function(caller) for caller in stack if _owner(caller)}:
            self._inclusive[name] += here

    def _collecting(self, phase: str, _info: dict[str, int]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        now = time.thread_time()
        if phase == "start":
            self._collecting_since = now
        elif self._collecting_since is not None:
            spent = now - max(self._collecting_since, self._thread_s)
            self._thread_s += spent
            self._process_s += spent
            self._collecting_since = None
            self._collected(spent)

    def _collected(self, spent: float) -> None:
        for table in (self._owners, self._modules, self._functions):
            table[_COLLECTION] += spent

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.callbacks.remove(self._collecting)
        total = sum(self._modules.values()) or 1
        tables = {
            "owners": self._owners,
            "modules": self._modules,
            "functions": self._functions,
            "inclusive": self._inclusive,
        }
        shares = {
            label: sorted(([name, seconds / total] for name, seconds in table.items()), key=_share, reverse=True)
            for label, table in tables.items()
        }
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps({"cpu_s": total, **shares}))
        partial.rename(self._path)


def _share(row: list[Any]) -> float:
    return float(row[1])


def _module(frame: FrameType) -> str:
    """Our own modules by room and file, others by package."""
    path = frame.f_code.co_filename
    for root in (_SITE, _STDLIB):
        if path.startswith(root):
            return path.removeprefix(root).split("/")[0].removesuffix(".py")
    _, found, rest = path.rpartition("/smart_mcp_proxy/")
    return f"smart_mcp_proxy/{rest}" if found else path


def _owner(frame: FrameType) -> str:
    """The package (of some, the part) whose work this is; empty for what works for its caller, and for this script."""
    path = frame.f_code.co_filename
    _, is_ours, rest = path.rpartition("/smart_mcp_proxy/")
    if is_ours:
        return f"smart_mcp_proxy/{rest.split('/')[0]}"
    if not path.startswith(_SITE):
        return ""
    package, _, rest = path.removeprefix(_SITE).partition("/")
    if package in _BORROWED:
        return ""
    return f"{package}/{rest.split('/')[0]}" if package in ("mcp", "fastmcp") else package


def _function(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    for root in (_SITE, _STDLIB):
        path = path.removeprefix(root)
    _, found, rest = path.rpartition("/smart_mcp_proxy/")
    return f"{'smart_mcp_proxy/' + rest if found else path}:{frame.f_code.co_qualname}"

"""The garbage collector while a process serves: short collections under load, full ones when idle."""

import asyncio
import gc
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final

from smart_mcp_proxy.io.memory import give_back
from smart_mcp_proxy.telemetry import spawn

THRESHOLDS: Final = (5_000, 2, 1_000_000)
"""New objects before the young are collected, such collections before those that outlived one are, and never.

Each object that is looked at takes 0.2 to 0.6 us, so the second takes some milliseconds. Collecting all objects takes
250 ms with 1,000 sessions open (measured).
"""
LOOK_S: Final = 0.1
"""The interpreter counts new objects less those that went. Where sessions take the place of others it counts none,
and its next collection is as long as there are sessions."""
REST_S: Final = 4.0
"""Until the next look of a process that does nothing: each look wakes the processor."""
WORKED_S: Final = 0.005
"""Processor time since the last look: a process that used less has made few objects."""
IDLE_S: Final = 2.0
IDLE_SHARE: Final = 0.02
"""Share of a processor: a process that used less than this for so long has nothing to do."""
DUE_S: Final = 0.1
"""Processor time since the last full collection: with less there is not much to find."""
OWED_S: Final = 0.008
"""The collections of the middle generation took so long since the last full one: that one would take about as long."""
WHOLE_AFTER_S: Final = 3600.0
WHOLE_AFTER_BYTES: Final = 256 << 20
"""More than 1,000 sessions take. A process that has grown by so much looks through all it has, at most once an hour."""
_MIDDLE: Final = 1


def _resident_bytes() -> int:
    """Resident memory of this process in bytes; 0 where the system does not report it so."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


@dataclass(eq=False, repr=False)
class Collector:
    """Collects young objects often and all others when idle; never rescans permanent ones.

    What outlives a full collection is frozen, and so is what would make the next one long: what is in use is freed
    with its last reference all the same. Only where the process has grown far is all of it looked through, idle or not.

    Attributes:
        clock: Monotonic seconds.
        cpu_s: Processor seconds that this process has used.
        thread_s: Processor seconds that this thread has used.
        resident_bytes: How much memory this process has; 0 where that is not known.
        trim: Gives back what was freed: a process keeps the memory of all lists that it read at once.
    """

    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    cpu_s: Callable[[], float] = time.process_time
    thread_s: Callable[[], float] = time.thread_time
    resident_bytes: Callable[[], int] = _resident_bytes
    trim: Callable[[], None] = give_back

    def __post_init__(self) -> None:
        self._seen_s, self._seen_used_s = self._looked_s, self._looked_used_s = self.clock(), self.cpu_s()
        self._young_used_s = self._full_used_s = self.cpu_s()
        self._begun_s = 0.0
        self._owed_s = 0.0
        self._is_young_done = False
        self._whole_s, self._least_bytes = self.clock(), 0

    def __repr__(self) -> str:
        return f"<Collector, a full collection would take {self._owed_s * 1000:.1f} ms>"

    def track_gc_phase(self, phase: str, info: dict[str, Any]) -> None:
        """A collection begins or ends; for `gc.callbacks`."""
        if info["generation"] != _MIDDLE:
            return
        if phase == "start":
            self._begun_s = self.thread_s()
            return
        self._is_young_done = True
        self._owed_s += self.thread_s() - self._begun_s
        if self._owed_s > OWED_S:
            self._freeze()

    def look(self) -> float:
        """Collects what is due; returns after how many seconds to look again."""
        now_s, used_s = self.clock(), self.cpu_s()
        is_at_rest = used_s - self._looked_used_s < IDLE_SHARE * (now_s - self._looked_s)
        self._looked_s, self._looked_used_s = now_s, used_s
        if self._is_young_done:  # the interpreter has counted enough objects by itself
            self._young_used_s = used_s
        elif used_s - self._young_used_s >= WORKED_S:
            self._young_used_s = used_s
            gc.collect(_MIDDLE)
        self._is_young_done = False
        if (passed_s := now_s - self._seen_s) >= IDLE_S:
            is_idle = used_s - self._seen_used_s < IDLE_SHARE * passed_s
            self._seen_s, self._seen_used_s = now_s, used_s
            if self._has_grown():  # busy or not: one pause an hour is better than memory without a bound
                gc.unfreeze()
                self._collect_fully()
            elif is_idle and used_s - self._full_used_s >= DUE_S:
                self._collect_fully()
                self.trim()
        if not is_at_rest:
            return LOOK_S
        return IDLE_S if used_s - self._full_used_s >= DUE_S else REST_S

    def _collect_fully(self) -> None:
        gc.collect()
        self._freeze()
        self._young_used_s = self._full_used_s = self.cpu_s()

    def _freeze(self) -> None:
        gc.freeze()
        self._owed_s = 0.0

    def _has_grown(self) -> bool:
        """Whether there may be circles among what was frozen; a day of ordinary work does not come here."""
        now_bytes = self.resident_bytes()
        self._least_bytes = min(self._least_bytes or now_bytes, now_bytes)
        if now_bytes - self._least_bytes < WHOLE_AFTER_BYTES or self.clock() - self._whole_s < WHOLE_AFTER_S:
            return False
        self._whole_s, self._least_bytes = self.clock(), now_bytes
        return True


@asynccontextmanager
async def run_collector() -> AsyncIterator[Collector]:
    """While open, collect as `Collector` says, leaving out what the start left behind.

    Modules, schemas and the catalog live as long as the process; going through them again and again took 39 % of the
    processor time of calls over HTTP (measured with scripts/bench_calls.py --profile). To look for the 0.5 MB of
    garbage that importing them leaves takes 0.2 s, and 0.1 s more with 100,000 tools.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()  # the command line starts without it
    collector = Collector()
    looking = spawn(_look_now_and_then(collector), "garbage collector")
    gc.callbacks.append(collector.track_gc_phase)
    try:
        yield collector
    finally:
        gc.callbacks.remove(collector.track_gc_phase)
        looking.cancel()


async def _look_now_and_then(collector: Collector) -> None:
    pause_s = LOOK_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = collector.look()

"""The garbage collector while a process serves: short collections under load, full ones when it is idle."""

import gc

import pytest

from smart_mcp_proxy.web import collector
from smart_mcp_proxy.web.collector import (
    DUE_S,
    IDLE_S,
    IDLE_SHARE,
    LOOK_S,
    OWED_S,
    REST_S,
    WHOLE_AFTER_BYTES,
    WHOLE_AFTER_S,
    WORKED_S,
    Collector,
)

YOUNG, MIDDLE, OLDEST = 0, 1, 2
FULL = ["collect 2", "freeze"]
IDLE = [*FULL, "trim"]


class Machine:
    """A collector's clocks, turned by hand, and a note of all it has the interpreter do."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 0.0
        self.takes_s = 0.0
        self.resident_bytes = 1 << 30
        self.done: list[str] = []
        self.collector = Collector(
            clock=lambda: self.now_s,
            cpu_s=lambda: self.used_s,
            thread_s=lambda: self.used_s,
            resident_bytes=lambda: self.resident_bytes,
            trim=lambda: self.done.append("trim"),
        )

    def collect(self, generation: int = OLDEST) -> None:
        self.done.append(f"collect {generation}")
        self.collector.track_gc_phase("start", {"generation": generation})
        self.used_s += self.takes_s
        self.collector.track_gc_phase("stop", {"generation": generation})

    def freeze(self) -> None:
        self.done.append("freeze")

    def unfreeze(self) -> None:
        self.done.append("unfreeze")

    def look(self, *, after_s: float = IDLE_S, worked_s: float = 0.0) -> list[str]:
        """What one more look does; since the last one the process used so much of a processor."""
        self.now_s += after_s
        self.used_s += worked_s
        self.done.clear()
        self.collector.look()
        return list(self.done)

    def work(self) -> None:
        """The process works for as long as makes a full collection worth while, and the young are collected."""
        assert self.look(worked_s=2 * DUE_S) == ["collect 1"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    own = Machine()
    monkeypatch.setattr(collector, "gc", own)
    return own


def test_the_young_are_collected_while_there_is_work(machine: Machine) -> None:
    """However few objects the interpreter counts: where one takes the place of another it counts none."""
    assert machine.look(after_s=0.1, worked_s=WORKED_S) == ["collect 1"]
    assert machine.look(after_s=0.1, worked_s=WORKED_S / 2) == []
    assert machine.look(after_s=0.1, worked_s=WORKED_S / 2) == ["collect 1"]


def test_the_young_are_not_collected_again_where_the_interpreter_has_just_done_so(machine: Machine) -> None:
    """Once: what it counts may stand still from then on."""
    machine.collect(MIDDLE)
    assert machine.look(after_s=0.1, worked_s=2 * WORKED_S) == []
    assert machine.look(after_s=0.1, worked_s=2 * WORKED_S) == ["collect 1"]
    machine.collect(YOUNG)
    assert machine.look(after_s=0.1, worked_s=2 * WORKED_S) == ["collect 1"], "the youngest alone are not enough"


def test_an_idle_process_collects_fully_once_and_freezes_what_is_left(machine: Machine) -> None:
    """And gives back what was freed; not again until it has worked."""
    assert machine.look() == [], "it has done nothing yet"
    machine.work()
    assert machine.look() == IDLE
    assert machine.look() == []
    machine.work()
    assert machine.look() == IDLE


def test_a_process_that_works_is_not_collected_fully(machine: Machine) -> None:
    """A little work is work, and a moment's rest is none."""
    machine.work()
    assert machine.look(worked_s=IDLE_SHARE * IDLE_S) == ["collect 1"]
    assert machine.look(after_s=IDLE_S / 2) == []
    assert machine.look(after_s=IDLE_S / 2) == IDLE


def test_what_would_make_the_next_full_collection_long_is_frozen(machine: Machine) -> None:
    """How long the middle ones took says how long it would take."""
    machine.takes_s = OWED_S * 0.6
    assert machine.look(worked_s=WORKED_S) == ["collect 1"]
    assert machine.look(worked_s=WORKED_S) == ["collect 1", "freeze"]
    assert machine.look(worked_s=WORKED_S) == ["collect 1"], "the count begins anew"


def test_a_process_that_has_grown_far_looks_through_everything_once_an_hour(machine: Machine) -> None:
    """Circles among what was frozen are freed, too."""
    machine.work()
    assert machine.look() == IDLE
    machine.resident_bytes += WHOLE_AFTER_BYTES
    machine.work()
    assert machine.look() == IDLE, "too soon after the start"
    machine.work()
    assert machine.look(after_s=WHOLE_AFTER_S) == ["unfreeze", *FULL]
    machine.work()
    assert machine.look(after_s=WHOLE_AFTER_S) == IDLE, "it has not grown since"


def test_a_process_that_is_never_idle_looks_through_everything_once_an_hour_too(machine: Machine) -> None:
    """Its memory would have no bound else."""
    machine.look()
    machine.resident_bytes += WHOLE_AFTER_BYTES
    busy = {"worked_s": WHOLE_AFTER_S / 2, "after_s": WHOLE_AFTER_S}
    assert machine.look(**busy) == ["collect 1", "unfreeze", *FULL]
    assert machine.look(**busy) == ["collect 1"], "it has not grown since"


@pytest.mark.anyio
async def test_it_collects_while_it_is_open_and_no_longer() -> None:
    """What the start left behind is frozen."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    try:
        async with collector.run_collector():
            assert gc.get_threshold() == collector.THRESHOLDS
            assert gc.get_freeze_count()
            assert len(gc.callbacks) == len(callbacks) + 1
        assert gc.callbacks == callbacks
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def test_a_process_that_does_nothing_is_looked_at_seldom(machine: Machine) -> None:
    """Soon again after work, and where a full collection is due; each look wakes the processor."""
    pauses = []
    for worked_s in (0.0, 2 * DUE_S, 0.0, 0.0):
        machine.now_s += LOOK_S
        machine.used_s += worked_s
        pauses.append(machine.collector.look())
    assert pauses == [REST_S, LOOK_S, IDLE_S, IDLE_S]
    for pause_s in (IDLE_S, REST_S, REST_S):
        machine.now_s += IDLE_S
        assert machine.collector.look() == pause_s

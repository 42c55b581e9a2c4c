"""For a moment after something was sent the event loop does not sleep, and then it does again."""

import asyncio
from pathlib import Path

import pytest

from smart_mcp_proxy.io import busy_poll
from smart_mcp_proxy.io.busy_poll import FIRST_PAUSE, LONGEST_PAUSE, TRIES, BusyPoll, Side, get_busy_poll


class Loop:
    """Counts its turns; time passes only by them."""

    def __init__(self, turn_s: float = 1.0) -> None:
        self.now_s = 0.0
        self.turns = 0
        self._turn_s = turn_s
        self._soon: list[tuple[object, ...]] = []

    def call_soon(self, *call: object) -> None:
        self._soon.append(call)

    def run_until_it_sleeps(self, most: int = 1_000) -> None:
        while self._soon and self.turns < most:
            calls, self._soon = self._soon, []
            self.turns += 1
            self.now_s += self._turn_s
            for function, *args in calls:
                assert callable(function)
                function(*args)


def begin(poll: BusyPoll, loop: Loop, side: Side | None = None) -> None:
    poll.begin(loop, side or Side())  # type: ignore[arg-type]  # all that is asked of it


def turns_for_answer(poll: BusyPoll, loop: Loop, side: Side, *, after: int) -> int:
    """Turns of the loop that are spent on looking out for an answer that comes after so many of them."""
    before = loop.turns
    begin(poll, loop, side)
    loop.run_until_it_sleeps(most=before + after)
    loop.now_s += max(0, after - (loop.turns - before))
    poll.note_arrival()
    loop.run_until_it_sleeps()
    return loop.turns - before


def test_the_loop_looks_for_as_long_as_it_is_told_and_then_sleeps() -> None:
    loop = Loop()
    poll = BusyPoll(5, lambda: loop.now_s)
    begin(poll, loop)
    loop.run_until_it_sleeps()
    assert loop.turns == 5
    begin(poll, loop)
    loop.run_until_it_sleeps()
    assert loop.turns == 10


def test_the_last_thing_sent_says_how_long_and_many_take_one_look_a_turn() -> None:
    loop = Loop()
    poll = BusyPoll(5, lambda: loop.now_s)
    begin(poll, loop)
    loop.run_until_it_sleeps(most=3)
    for _ in range(64):
        begin(poll, loop)
    assert len(loop._soon) == 1
    loop.run_until_it_sleeps()
    assert loop.turns == 3 + 5


def test_with_one_processor_nobody_waits_for_it_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, turns in ((1, 0), (2, 1)):
        monkeypatch.setattr(busy_poll, "_processors", lambda processors=processors: processors)
        loop, other = asyncio.new_event_loop(), Loop(turn_s=0)
        try:
            begin(get_busy_poll(loop), other)
            other.run_until_it_sleeps(most=1)
        finally:
            loop.close()
        assert other.turns == turns


def test_whoever_sends_on_a_loop_shares_one() -> None:
    loop, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        assert get_busy_poll(loop) is get_busy_poll(loop)
        assert get_busy_poll(loop) is not get_busy_poll(other)
    finally:
        loop.close()
        other.close()


def test_a_side_that_answers_soon_is_always_looked_out_for() -> None:
    loop = Loop()
    poll, side = BusyPoll(5, lambda: loop.now_s), Side()
    assert all(turns_for_answer(poll, loop, side, after=3) for _ in range(10 * TRIES))


def test_a_side_that_answers_late_is_waited_for_asleep() -> None:
    """A server over HTTP, or one whose processor has other work: it is tried again, more and more seldom."""
    loop = Loop()
    poll, side = BusyPoll(5, lambda: loop.now_s), Side()
    tried = sum(turns_for_answer(poll, loop, side, after=9) > 0 for _ in range(20 * LONGEST_PAUSE))
    assert TRIES * 20 <= tried < TRIES * 30


def test_a_side_that_has_become_soon_again_is_looked_out_for_again() -> None:
    loop = Loop()
    poll, side = BusyPoll(5, lambda: loop.now_s), Side()
    for _ in range(TRIES + 1):
        turns_for_answer(poll, loop, side, after=9)
    assert [turns_for_answer(poll, loop, side, after=3) for _ in range(FIRST_PAUSE)] == [0] * FIRST_PAUSE
    assert all(turns_for_answer(poll, loop, side, after=3) for _ in range(10 * TRIES))


def test_a_late_side_does_not_count_for_another() -> None:
    """One gateway has servers of both kinds."""
    loop = Loop()
    poll, soon, late = BusyPoll(5, lambda: loop.now_s), Side(), Side()
    for _ in range(10 * TRIES):
        assert turns_for_answer(poll, loop, soon, after=3)
        turns_for_answer(poll, loop, late, after=9)
    assert turns_for_answer(poll, loop, late, after=9) == 0


def test_what_came_for_others_meanwhile_counts_for_nobody() -> None:
    """Where many call at once nobody sleeps, and it cannot be said whose answer it was."""
    loop = Loop()
    poll, sides = BusyPoll(5, lambda: loop.now_s), (Side(), Side())
    for _ in range(10 * TRIES):
        for side in sides:
            begin(poll, loop, side)
    loop.run_until_it_sleeps()
    assert all(side.is_worth_it() for side in sides)


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "150000 100000"}, 1),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0),
        ({"cpu.max": "nonsense"}, 8),
    ],
)
def test_a_limit_on_processor_time_counts_as_fewer_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], count: int
) -> None:
    """As containers have it, in both kinds of control groups, of the process's own group and of those above."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    (tmp_path / "own").write_text("0::/a/b\n")
    monkeypatch.setattr(busy_poll, "CGROUPS", tmp_path)
    monkeypatch.setattr(busy_poll, "OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(busy_poll.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert busy_poll._processors() == count

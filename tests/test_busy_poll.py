"""For a moment after something was sent the event loop does not sleep, and then it does again."""

import asyncio

import pytest

from smart_mcp_proxy import busy_poll
from smart_mcp_proxy.busy_poll import BusyPoll, busy_poll_of


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


def begin(poll: BusyPoll, loop: Loop) -> None:
    poll.begin(loop)  # type: ignore[arg-type]  # all that is asked of it


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
            begin(busy_poll_of(loop), other)
            other.run_until_it_sleeps(most=1)
        finally:
            loop.close()
        assert other.turns == turns


def test_whoever_sends_on_a_loop_shares_one() -> None:
    loop, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        assert busy_poll_of(loop) is busy_poll_of(loop)
        assert busy_poll_of(loop) is not busy_poll_of(other)
    finally:
        loop.close()
        other.close()

"""The parent of workers tells those that hang from those that work."""

import os
from collections.abc import Iterator

import pytest

from smart_mcp_proxy.cli.commands.operate import workers

TURNS = workers._SILENT_TURNS


class Process:
    """A worker that notes that it is ended."""

    def __init__(self) -> None:
        self.kills = 0

    def kill(self) -> None:
        self.kills += 1


class Parent(workers._Parent):
    """Of two workers that are told nothing."""

    def __init__(self, report: tuple[int, int]) -> None:
        super().__init__([], report[0])
        self._writing = report[1]
        self.first, self.second = Process(), Process()
        self._processes = {0: self.first, 1: self.second}

    def say(self, *words: int) -> None:
        os.write(self._writing, bytes(words))

    def turn(self, *words: int) -> tuple[int, int]:
        """How often each has been ended, after one turn in which workers said `words`."""
        self.say(*words)
        self._end_silent()
        return self.first.kills, self.second.kills


@pytest.fixture
def parent() -> Iterator[Parent]:
    report = os.pipe()
    os.set_blocking(report[0], False)
    yield Parent(report)
    for end in report:
        os.close(end)


def test_a_worker_that_says_nothing_any_more_is_ended_once(parent: Parent) -> None:
    """The other one, which does, is not."""
    parent.turn(0, 1)
    for _ in range(TURNS - 2):
        assert parent.turn(1) == (0, 0)
    assert [parent.turn(1) for _ in range(TURNS)] == [(1, 0)] * TURNS


def test_a_worker_that_is_heard_again_goes_on(parent: Parent) -> None:
    """However often it was silent for nearly as long."""
    for _ in range(3):
        parent.turn(0, 1)
        for _ in range(TURNS - 2):
            parent.turn()
    assert parent.turn(0, 1) == (0, 0)


def test_a_pause_of_all_processes_ends_none(parent: Parent) -> None:
    """However long: the parent has had one turn at its end, which may come before the workers'."""
    parent.turn(0, 1)
    assert parent.turn() == (0, 0)
    assert parent.turn(0, 1) == (0, 0)


def test_a_worker_that_starts_has_its_time(parent: Parent) -> None:
    """It is waited for from its first word on."""
    for _ in range(3 * TURNS):
        assert parent.turn(0) == (0, 0)


def test_the_report_of_the_start_is_no_word_of_a_worker(parent: Parent) -> None:
    """It is kept for those that are replaced, and says nothing of who works."""
    assert not parent._is_reported
    for _ in range(3 * TURNS):
        assert parent.turn(workers._REPORTED) == (0, 0)
    assert parent._is_reported

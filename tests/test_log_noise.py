"""Log lines that strangers can cause: a few from each place of a library, and nothing of clients that left."""

import logging
from typing import Any

import pytest

from smart_mcp_proxy.telemetry import LINES, WINDOW_S, NoiseFilter


class Clock:
    """Seconds, turned by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def record(name: str = "uvicorn.error", line: int = 1, exc: BaseException | None = None) -> logging.LogRecord:
    """A line that a library logs."""
    exc_info: Any = None if exc is None else (type(exc), exc, None)
    return logging.LogRecord(name, logging.WARNING, "library.py", line, "request %d is none", (7,), exc_info)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def noise(clock: Clock) -> NoiseFilter:
    return NoiseFilter("ours", clock)


def told(noise: NoiseFilter, *records: logging.LogRecord) -> list[str]:
    """What is let through."""
    return [each.getMessage() for each in records if noise.filter(each)]


def test_of_one_place_a_few_lines_a_minute_are_told_and_the_rest_is_counted(noise: NoiseFilter, clock: Clock) -> None:
    """The last one says so, and the first of the next minute how many there were."""
    first = told(noise, *(record() for _ in range(1_000)))
    assert first == ["request 7 is none"] * (LINES - 1) + [
        "request 7 is none (more like this are only counted for 60 s)"
    ]
    assert told(noise, record(line=2)) == ["request 7 is none"]
    clock.now_s += WINDOW_S
    assert told(noise, record()) == ["request 7 is none (995 more like this were left out)"]


def test_a_line_that_cannot_be_formatted_never_raises_into_the_library(noise: NoiseFilter) -> None:
    """Logging guards its handlers against such lines, and not its filters."""
    for _ in range(LINES + 1):
        broken = record()
        broken.args = ("seven",)
        noise.filter(broken)


def test_lines_of_the_gateways_own_all_pass(noise: NoiseFilter) -> None:
    """They are written for its operator, and limited where they are made."""
    assert len(told(noise, *(record("ours.http") for _ in range(100)))) == 100
    assert len(told(noise, *(record("oursish") for _ in range(100)))) == LINES


def test_a_line_is_judged_once_for_all_handlers(noise: NoiseFilter) -> None:
    """Stderr and the log file say the same."""
    records = [record() for _ in range(20)]
    assert told(noise, *records) == told(noise, *records)


@pytest.mark.parametrize("kind", ["ClientDisconnect", "ClosedResourceError", "BrokenResourceError"])
def test_a_client_that_left_is_not_told(noise: NoiseFilter, kind: str) -> None:
    """That is its right, and no error; another exception is told with its trace."""
    gone = type(kind, (Exception,), {})
    assert told(noise, record(exc=gone())) == []
    assert told(noise, record(exc=ValueError())) == ["request 7 is none"]


def test_places_are_forgotten_before_they_are_too_many(noise: NoiseFilter) -> None:
    """A library that makes its code at run time does not fill the memory."""
    told(noise, *(record(line=line) for line in range(10_000)))
    assert len(noise._places) <= 256

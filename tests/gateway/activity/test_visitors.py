"""Clients of the modern era, which have no session: who was here, how lately, and how many are remembered."""

import pytest
from gateway_fakes import HandClock, Notebook

from smart_mcp_proxy.fastmcp_compat.server import Visit
from smart_mcp_proxy.gateway.activity.visitors import ABSENT_S, VISITORS, Visitors


def visit(client: str = "agent") -> Visit:
    return Visit(client, "1", "2026-07-28", "http", "", "local")


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def visitors(notebook: Notebook, clock: HandClock) -> Visitors:
    return Visitors(notebook, clock)


def come(visitors: Visitors, client: str = "agent") -> None:
    with visitors.track_visit(visit(client)):
        pass


def test_a_client_is_written_down_when_it_comes_and_when_it_comes_back(
    visitors: Visitors, notebook: Notebook, clock: HandClock
) -> None:
    """Not for each request."""
    for _ in range(5):
        clock.now_s += ABSENT_S
        come(visitors)
    assert len(notebook.lines) == 1
    clock.now_s += ABSENT_S + 1
    come(visitors)
    assert [(line.kind, line.subject, line.at_s) for line in notebook.lines][1] == ("session", "agent", clock.now_s)


def test_whoever_waits_for_an_answer_is_here(visitors: Visitors, notebook: Notebook, clock: HandClock) -> None:
    """A stream that is listened on for hours is one request."""
    with visitors.track_visit(visit()):
        clock.now_s += 10 * ABSENT_S
        come(visitors)
        (here,) = visitors.list_visitors()
        assert (here.last_s, here.under_way) == (clock.now_s, 1)
    clock.now_s += 5
    (gone,) = visitors.list_visitors()
    assert (gone.last_s, gone.under_way, len(notebook.lines)) == (clock.now_s - 5, 0, 1)


def test_the_clients_seen_last_are_remembered(visitors: Visitors, clock: HandClock) -> None:
    """A bounded number, and never at the cost of one that waits."""
    with visitors.track_visit(visit("waits")):
        for number in range(2 * VISITORS):
            clock.now_s += 1
            come(visitors, f"agent {number}")
        names = [visitor.visit.client for visitor in visitors.list_visitors()]
    assert len(names) == VISITORS and "waits" in names
    assert names[-2] == f"agent {2 * VISITORS - 1}" or names[-1] == f"agent {2 * VISITORS - 1}"
    assert "agent 0" not in names

"""The pool of found tools: who enters, who stays, who leaves."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from smart_mcp_proxy.models import Hit
from smart_mcp_proxy.pool import Pool, PoolChange, retention

HALF_AN_HOUR = 1800.0


def hits(*scores: tuple[int, float]) -> list[Hit]:
    return [Hit(id_, score) for id_, score in scores]


@pytest.mark.parametrize(
    ("score", "idle_s", "weight"),
    [(1.0, 0.0, 1.0), (0.0, 0.0, 0.3), (1.0, HALF_AN_HOUR, 0.7), (0.5, 900.0, 0.5), (1.0, 86_400.0, 0.7)],
)
def test_a_tool_is_kept_for_its_score_and_for_half_an_hour_of_freshness(
    score: float, idle_s: float, weight: float
) -> None:
    """0.7 of the weight is the score, 0.3 is how recently it was used."""
    assert retention(score, idle_s) == pytest.approx(weight)


def test_hits_enter_until_the_pool_is_full_and_then_the_weakest_leaves() -> None:
    """Three places: the fourth tool replaces the one with the lowest score."""
    pool = Pool(3)
    assert pool.admit(hits((1, 0.9), (2, 0.4), (3, 0.8)), 0.0) == PoolChange(added=(1, 2, 3))
    assert pool.admit(hits((4, 0.5)), 1.0) == PoolChange(added=(4,), evicted=(2,))
    assert pool.ids == (1, 3, 4)


def test_a_hit_that_is_pooled_already_is_no_change_and_becomes_fresh() -> None:
    """The same search again changes nothing in the list, but keeps the tool for longer."""
    pool = Pool(2)
    pool.admit(hits((1, 0.5), (2, 0.5)), 0.0)
    assert not pool.admit(hits((1, 0.5)), HALF_AN_HOUR)
    assert pool.admit(hits((3, 0.1)), HALF_AN_HOUR).evicted == (2,)


def test_a_call_keeps_a_tool_fresh() -> None:
    """Of two equal tools the one that was called stays."""
    pool = Pool(2)
    pool.admit(hits((1, 0.5), (2, 0.5)), 0.0)
    pool.touch(1, 600.0)
    pool.touch(99, 600.0)
    assert pool.admit(hits((3, 0.1)), 700.0).evicted == (2,)


def test_hits_of_the_answer_are_never_evicted_for_each_other() -> None:
    """More hits than places: the first ones are in, the others stay outside, and nobody is evicted twice."""
    pool = Pool(2)
    pool.admit(hits((1, 1.0), (2, 1.0)), 0.0)
    assert pool.admit(hits((3, 0.2), (4, 0.1), (5, 0.05)), 0.0) == PoolChange(added=(3, 4), evicted=(1, 2))
    assert pool.ids == (3, 4)


def test_a_tool_keeps_the_best_score_it_was_found_with() -> None:
    """A weaker match later does not make a good tool a weak one."""
    pool = Pool(2)
    pool.admit(hits((1, 0.9), (2, 0.5)), 0.0)
    pool.admit(hits((1, 0.1)), 0.0)
    assert pool.admit(hits((3, 0.1)), 0.0).evicted == (2,)


def test_tools_that_may_not_be_seen_any_more_are_dropped() -> None:
    """Only those that were in the pool are named."""
    pool = Pool(3)
    pool.admit(hits((1, 0.9), (2, 0.5)), 0.0)
    assert pool.drop([2, 7]) == PoolChange(evicted=(2,))
    assert not pool.drop([2])
    assert pool.ids == (1,)


def test_the_pool_says_its_state() -> None:
    """For logs and debuggers."""
    pool = Pool(3)
    pool.admit(hits((1, 0.9)), 0.0)
    assert repr(pool) == "<Pool 1 of 3 tools>"


class PoolMachine(RuleBasedStateMachine):
    """Any sequence of searches, calls and removals, compared with a plain list of what must be in."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(4)
        self.shown: list[int] = []
        self.now_s = 0.0

    def perform(self, change: PoolChange) -> None:
        assert set(change.added).isdisjoint(self.shown)
        assert set(change.evicted) <= set(self.shown)
        self.shown = [id_ for id_ in self.shown if id_ not in change.evicted] + list(change.added)

    @rule(
        found=st.lists(st.tuples(st.integers(1, 12), st.floats(0, 1)), max_size=8, unique_by=lambda pair: pair[0]),
        later_s=st.sampled_from([0.0, 1.0, 900.0, 86_400.0, -86_400.0]),
    )
    def search(self, found: list[tuple[int, float]], later_s: float) -> None:
        """A search at any time, even on a clock that jumps."""
        self.now_s += later_s
        self.perform(self.pool.admit(hits(*found), self.now_s))
        assert {id_ for id_, _ in found[:4]} <= set(self.pool.ids)

    @rule(id_=st.integers(1, 12))
    def call(self, id_: int) -> None:
        """A call of any tool."""
        self.pool.touch(id_, self.now_s)

    @rule(ids=st.sets(st.integers(1, 12)))
    def remove(self, ids: set[int]) -> None:
        """Tools go away."""
        self.perform(self.pool.drop(sorted(ids)))
        assert ids.isdisjoint(self.pool.ids)

    @invariant()
    def holds(self) -> None:
        """Never more than the limit; performed changes give the pool's own list, in its order."""
        assert len(self.pool) <= 4
        assert list(self.pool.ids) == self.shown


TestPoolMachine = PoolMachine.TestCase

"""The measures of an evaluation, against examples worked out by hand and the laws they obey."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.evaluation.metrics import (
    bootstrap_difference,
    is_full_set,
    macro_mean,
    ndcg,
    recall,
    reciprocal_rank,
)

NAMES = st.text("abcdefgh", min_size=1, max_size=1)
RANKED = st.lists(NAMES, unique=True, max_size=8)
GOLD = st.lists(st.frozensets(NAMES, min_size=1, max_size=3), min_size=1, max_size=5, unique=True)
K = st.integers(1, 10)


def gold(*rights: str) -> list[frozenset[str]]:
    """One set for each word; its letters are equally right."""
    return [frozenset(right) for right in rights]


def test_recall_is_the_share_of_right_tools_that_is_found() -> None:
    """Of two right tools one is among the first two, both are among the first three."""
    assert recall("abc", gold("a", "c"), 1) == 0.5
    assert recall("abc", gold("a", "c"), 2) == 0.5
    assert recall("abc", gold("a", "c"), 3) == 1.0
    assert recall("", gold("a"), 5) == 0.0


def test_an_equally_right_tool_counts_as_found() -> None:
    """`x` stands for `a`; having both gains nothing more."""
    assert recall("x", gold("ax"), 5) == 1.0
    assert ndcg("x", gold("ax"), 5) == 1.0
    assert ndcg("xa", gold("ax", "b"), 5) == 1 / (1 + 1 / math.log2(3))
    assert reciprocal_rank("bx", gold("ax")) == 0.5
    assert is_full_set("xb", gold("ax", "b"), 5)


def test_ndcg_discounts_by_place() -> None:
    """One right tool in the second place, and two of three in the first and the fourth."""
    assert ndcg("ba", gold("a"), 5) == 1 / math.log2(3)
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert ndcg("axyb", gold("a", "b", "c"), 5) == (1 + 1 / math.log2(5)) / ideal


def test_ndcg_is_ideal_where_more_is_right_than_fits() -> None:
    """A list full of right tools cannot be better."""
    assert ndcg("ab", gold("a", "b", "c"), 2) == 1.0


def test_the_reciprocal_rank_looks_at_the_first_right_tool() -> None:
    """Third place, and nowhere."""
    assert reciprocal_rank("xya", gold("a", "b")) == pytest.approx(1 / 3)
    assert reciprocal_rank("xy", gold("a")) == 0.0


def test_a_full_set_has_every_right_tool_in_time() -> None:
    """The second right tool comes third."""
    assert is_full_set("axb", gold("a", "b"), 3)
    assert not is_full_set("axb", gold("a", "b"), 2)


@pytest.mark.long  # a third of a second of processor time
@given(ranked=RANKED, right=GOLD, k=K)
def test_measures_lie_between_0_and_1(ranked: list[str], right: list[frozenset[str]], k: int) -> None:
    """Whatever is ranked and whatever is right."""
    for value in (recall(ranked, right, k), ndcg(ranked, right, k), reciprocal_rank(ranked, right)):
        assert 0 <= value <= 1 + 1e-12


@given(ranked=st.lists(NAMES, unique=True, min_size=1, max_size=8), data=st.data())
def test_a_perfect_ranking_measures_1(ranked: list[str], data: st.DataObject) -> None:
    """All right tools first, in any order, and long enough lists."""
    count = data.draw(st.integers(1, len(ranked)))
    right = [frozenset({name}) for name in data.draw(st.permutations(ranked[:count]))]
    assert recall(ranked, right, count) == 1
    assert ndcg(ranked, right, count) == pytest.approx(1)
    assert reciprocal_rank(ranked, right) == 1
    assert is_full_set(ranked, right, count)


@pytest.mark.long  # a third of a second of processor time
@given(ranked=RANKED, right=GOLD, k=K)
def test_a_longer_list_never_has_less_recall(ranked: list[str], right: list[frozenset[str]], k: int) -> None:
    """Recall grows with k, and is whole exactly where the full set is there."""
    assert recall(ranked, right, k) <= recall(ranked, right, k + 1)
    assert is_full_set(ranked, right, k) == (recall(ranked, right, k) == 1)


@pytest.mark.long  # a third of a second of processor time
@given(ranked=st.lists(NAMES, unique=True, min_size=2, max_size=8), data=st.data())
def test_moving_a_right_tool_up_never_measures_less(ranked: list[str], data: st.DataObject) -> None:
    """A right tool changes places with a wrong one above it."""
    high, low = sorted(data.draw(st.lists(st.integers(0, len(ranked) - 1), min_size=2, max_size=2, unique=True)))
    right = [frozenset({ranked[low]})]
    better = list(ranked)
    better[high], better[low] = better[low], better[high]
    assert ndcg(better, right, 5) >= ndcg(ranked, right, 5)
    assert reciprocal_rank(better, right) > reciprocal_rank(ranked, right)


def test_no_stratum_counts_more_for_having_more_rows() -> None:
    """Three rows of one stratum weigh as much as one of another."""
    rows = [("big", 0.0), ("big", 0.0), ("big", 0.3), ("small", 0.9)]
    assert macro_mean(rows, lambda row: row[0], lambda row: row[1]) == pytest.approx(0.5)
    assert math.isnan(macro_mean([], lambda row: row, lambda row: 0.0))


def test_a_difference_that_every_query_shares_is_certain() -> None:
    """The interval has no width, because no draw of queries changes anything."""
    interval = bootstrap_difference([0.2] * 6, [0.5] * 6, ["a", "a", "a", "b", "b", "b"])
    assert interval == pytest.approx((0.3, 0.3, 0.3))
    assert interval.low > 0


def test_a_difference_of_equal_systems_is_nothing() -> None:
    """Equal measures, however they are spread, differ by 0 in every draw."""
    interval = bootstrap_difference([0.0, 1.0, 0.5], [0.0, 1.0, 0.5], ["a", "a", "b"])
    assert interval == (0, 0, 0)
    assert interval.low <= 0 <= interval.high


def test_an_interval_is_as_wide_as_theory_says() -> None:
    """400 differences of 0 or 1 with mean 0.5: the standard error is 0.025, so 95 % is about 0.049 to each side."""
    interval = bootstrap_difference([0.0] * 400, [0.0, 1.0] * 200, ["a"] * 400)
    assert interval.mean == 0.5
    assert interval.low == pytest.approx(0.451, abs=0.006)
    assert interval.high == pytest.approx(0.549, abs=0.006)


@pytest.mark.long  # a third of a second of processor time
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.sampled_from("ab")), min_size=1, max_size=12))
def test_intervals_are_repeatable_and_mirror(rows: list[tuple[float, float, str]]) -> None:
    """The same input gives the same interval, and changing sides changes signs."""
    before, after, strata = zip(*rows, strict=True)
    there = bootstrap_difference(before, after, strata, resamples=50)
    back = bootstrap_difference(after, before, strata, resamples=50)
    assert there == bootstrap_difference(before, after, strata, resamples=50)
    assert there.low <= there.high
    assert (there.mean, there.low, there.high) == pytest.approx((-back.mean, -back.high, -back.low), abs=1e-9)

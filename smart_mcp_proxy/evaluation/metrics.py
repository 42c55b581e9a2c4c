"""Measures of ranked lists against labels, with bootstrap intervals. Pure functions.

A label (`Gold`) is one set of names for each right tool: the tool itself and those that are equally right.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

import numpy as np

RESAMPLES = 1_000
"""Draws of a bootstrap; the ends of a 95 % interval then rest on 25 draws each."""
_SEED = 2026
"""Any fixed number: the same two rankings always give the same interval."""

Gold = Sequence[Set[str]]
T = TypeVar("T")
_Stratum = TypeVar("_Stratum", bound=Hashable)


def recall(ranked: Sequence[str], gold: Gold, k: int) -> float:
    """The share of the right tools that is among the first `k`, in [0, 1].

    Args:
        ranked: Names, best first, each once.
        gold: At least one set.
        k: At least 1.
    """
    top = ranked[:k]
    return sum(not right.isdisjoint(top) for right in gold) / len(gold)


def ndcg(ranked: Sequence[str], gold: Gold, k: int) -> float:
    """Normalised discounted gain of the first `k`, in [0, 1]; a twin of a right tool gains 0.

    Args:
        ranked: Names, best first, each once.
        gold: At least one set.
        k: At least 1.

    With binary gains. Source: https://doi.org/10.1145/582415.582418
    """
    gained, left = 0.0, list(gold)
    for place, name in enumerate(ranked[:k]):
        if (right := next((right for right in left if name in right), None)) is not None:
            left.remove(right)
            gained += _discount(place)
    return gained / sum(map(_discount, range(min(k, len(gold)))))


def reciprocal_rank(ranked: Sequence[str], gold: Gold) -> float:
    """1 over the place of the first right tool; 0 where none is in the list."""
    place = next((place for place, name in enumerate(ranked, 1) if any(name in right for right in gold)), None)
    return 1 / place if place else 0.0


def is_full_set(ranked: Sequence[str], gold: Gold, k: int) -> bool:
    """Whether every right tool is among the first `k`."""
    return all(not right.isdisjoint(ranked[:k]) for right in gold)


def macro_mean(rows: Sequence[T], stratum: Callable[[T], Hashable], value: Callable[[T], float]) -> float:
    """Mean of the strata's means; NaN for no rows."""
    groups = _group_by_stratum([stratum(row) for row in rows], [value(row) for row in rows])
    return float(np.mean([np.mean(values) for values in groups.values()])) if groups else math.nan


class Interval(NamedTuple):
    """A difference and its 95 % bootstrap interval over queries of the same kinds."""

    mean: float
    low: float
    high: float


def bootstrap_difference(
    before: Sequence[float], after: Sequence[float], strata: Sequence[Hashable], *, resamples: int = RESAMPLES
) -> Interval:
    """Macro mean by which `after` exceeds `before` over strata, with a bootstrap interval.

    Queries are drawn with replacement inside each stratum, always with both their measures. Equal input gives an
    equal interval.

    Args:
        before: One measure a query, at least one.
        after: The other system's measures of the same queries, in the same order.
        strata: What each query belongs to.
        resamples: Draws.

    Percentile intervals as in Efron and Tibshirani, "An Introduction to the Bootstrap", 1993.
    """
    differences = [b - a for a, b in zip(before, after, strict=True)]
    groups = [np.array(values) for values in _group_by_stratum(strata, differences).values()]
    random = np.random.default_rng(_SEED)
    drawn = [values[random.integers(0, len(values), (resamples, len(values)))].mean(axis=1) for values in groups]
    low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])
    return Interval(float(np.mean([values.mean() for values in groups])), float(low), float(high))


def _discount(place: int) -> float:
    """Discount of a hit at a place counted from 0."""
    return 1 / math.log2(place + 2)


def _group_by_stratum(strata: Sequence[_Stratum], values: Sequence[float]) -> Mapping[_Stratum, list[float]]:
    groups: dict[_Stratum, list[float]] = {}
    for stratum, value in zip(strata, values, strict=True):
        groups.setdefault(stratum, []).append(value)
    return groups

"""The best rows of an array of scores, found without sorting all of it."""

from collections.abc import Set

import numpy as np
from numpy.typing import NDArray

_SAMPLE = 512
"""Scores that are looked at to guess how high the best ones are."""

_SPARE = 4
"""How many of the sample more than twice their share must reach a guess: too high a one costs a second look."""

_TINY = float(np.finfo(np.float32).tiny)

_SMALL = 4_096
"""Shorter arrays are not worth the guess."""


def top_rows(scores: NDArray[np.float32], ties: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    """Rows of the `depth` best positive scores and ties, by falling score, then rising tie.

    Args:
        scores: By row, >= 0.
        ties: By row, what decides between equal scores.
        depth: At least 1.
    """
    rows = (scores >= (_guess(scores, depth) if len(scores) > _SMALL else _TINY)).nonzero()[0]
    if len(rows) < depth and len(scores) > _SMALL:
        rows = (scores >= _TINY).nonzero()[0]
    if len(rows) > depth:
        near = scores[rows]
        ordered = near.copy()
        ordered.sort()
        rows = rows[near >= ordered[-depth]]
    return rows[np.lexsort((ties[rows], -scores[rows]))]


def best_rows(
    scores: NDArray[np.float32], ids: NDArray[np.int64], ties: NDArray[np.int64], depth: int, allowed: Set[int] | None
) -> NDArray[np.int64]:
    """Rows of the first `depth` allowed tools, as in `top_rows`; looks deeper only as far as it must."""
    reach, enough = depth, depth if allowed is None else min(depth, len(allowed))
    while True:
        rows = top_rows(scores, ties, reach)
        is_all = len(rows) < reach
        if allowed is not None:
            rows = rows[[id in allowed for id in ids[rows].tolist()]]
        if len(rows) >= enough or is_all:
            return rows[:depth]
        reach *= 8


def _guess(scores: NDArray[np.float32], depth: int) -> float:
    """A score that probably more than `depth` rows reach, above 0."""
    stride = -(-len(scores) // _SAMPLE)
    sample = scores[::stride].copy()
    sample.sort()  # a partition takes several times as long where many scores are 0
    return max(float(sample[-min(2 * depth // stride + _SPARE, len(sample))]), _TINY)

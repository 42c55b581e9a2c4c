"""The best rows of an array of scores, found without sorting it."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["top_rows"]

_STRIDE = 16
"""Every 16th score is looked at to guess how high the best ones are."""

_TINY = float(np.finfo(np.float32).tiny)

_SMALL = 4_096
"""Shorter arrays are not worth the guess."""


def top_rows(scores: NDArray[np.float32], ids: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    """The rows of the `depth` best scores above 0 and of those equal to the last, by falling score, then rising id.

    Args:
        scores: By row, >= 0.
        ids: By row, unique.
        depth: At least 1.
    """
    rows = np.flatnonzero(scores >= (_guess(scores, depth) if len(scores) > _SMALL else _TINY))
    if len(rows) < depth and len(scores) > _SMALL:
        rows = np.flatnonzero(scores >= _TINY)
    if len(rows) > depth:
        near = scores[rows]
        rows = rows[near >= np.partition(near, len(rows) - depth)[len(rows) - depth]]
    return rows[np.lexsort((ids[rows], -scores[rows]))]


def _guess(scores: NDArray[np.float32], depth: int) -> float:
    """A score that probably more than `depth` rows reach, above 0."""
    sample = scores[::_STRIDE].copy()
    place = len(sample) - min(2 * depth // _STRIDE + 2, len(sample))
    sample.partition(place)
    return max(float(sample[place]), _TINY)

"""Cosines of one model on the scale of another, by how alike the tools of a catalog are to each model."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.search.vectors.vectors import VectorIndex


class _Spread(NamedTuple):
    """Mean and standard deviation of the cosines between tools."""

    mean: float
    deviation: float


_FITTED: Final = _Spread(0.1, 0.1)
"""Of all-MiniLM-L6-v2, which weights and floors were fitted to: 0.09 to 0.12 and 0.10 over two catalogs of 4,975 and
2,479 tools."""
_TOOLS: Final = 256
"""So many tools are compared; other samples of as many move the mean by 0.01."""
_LEAST_TOOLS: Final = 8
"""Fewer say nothing of a model."""
_LEAST_DEVIATION: Final = 1e-3
"""Below it all tools are the same to the model."""
_GROWTH: Final = 1.25
"""A catalog that has grown or shrunk by this factor is looked at again."""


class CosineScale:
    """Maps a model's cosines to those that all-MiniLM-L6-v2 has where it finds tools as alike.

    A straight line through the two means, so that the order stays. It is a rough guess: nothing is promised of the
    floors of another model.

    Args:
        vectors: Of the catalog's tools; may still be filled.
    """

    def __init__(self, vectors: VectorIndex) -> None:
        self._vectors = vectors
        self._seen = 0
        self._spread = _FITTED

    def __call__(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosines on the other scale; NaN stays NaN."""
        count = len(self._vectors)
        if not self._seen / _GROWTH <= count <= self._seen * _GROWTH:
            self._seen, self._spread = count, self._measure_spread()
        slope = _FITTED.deviation / self._spread.deviation
        scaled: NDArray[np.float32] = np.float32(_FITTED.mean) + (cosines - np.float32(self._spread.mean)) * slope
        return scaled.astype(np.float32)

    def _measure_spread(self) -> _Spread:
        sample = self._vectors.sample(_TOOLS)
        if len(sample) < _LEAST_TOOLS:
            return _FITTED
        between = (sample @ sample.T)[np.triu_indices(len(sample), 1)]
        return _Spread(float(between.mean()), max(_LEAST_DEVIATION, float(between.std())))

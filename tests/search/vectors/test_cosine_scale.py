"""Cosines of one model on the scale of another."""

import numpy as np
import pytest
from numpy.typing import NDArray

from smart_mcp_proxy.search.engines.fused import CosineScale
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

DIMENSION = 64


def vectors_like(share: float, count: int, seed: int = 1) -> NDArray[np.float32]:
    """Vectors of a model to which all tools have the same direction by this share."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(count, DIMENSION)) * (1 - share)
    rows[:, 0] += share * np.sqrt(DIMENSION)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def index_of(vectors: NDArray[np.float32]) -> VectorIndex:
    index = VectorIndex(DIMENSION)
    index.update(range(1, len(vectors) + 1), vectors)
    return index


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_the_tools_of_a_catalog_are_as_alike_to_each_model(share: float) -> None:
    """Models whose cosines lie between 0.6 and 0.9 and those around 0 come to one mean and spread."""
    rows = vectors_like(share, 400)
    cosines = (rows @ rows.T)[np.triu_indices(400, 1)]
    scaled = CosineScale(index_of(rows))(cosines)
    assert scaled.mean() == pytest.approx(0.1, abs=0.02)
    assert scaled.std() == pytest.approx(0.1, abs=0.02)


def test_the_order_stays_and_what_has_no_vector_has_no_cosine() -> None:
    """A line that rises, whatever the model."""
    scaled = CosineScale(index_of(vectors_like(0.5, 50)))(np.array([0.2, np.nan, 0.8, 0.5], np.float32))
    assert np.isnan(scaled[1])
    assert scaled[0] < scaled[3] < scaled[2]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_few_tools_say_nothing_of_a_model(count: int) -> None:
    """Then its cosines stay as they are."""
    scaled = CosineScale(index_of(vectors_like(0.5, count)))(np.array([0.25, 0.5], np.float32))
    assert scaled == pytest.approx([0.25, 0.5])


def test_a_model_to_which_all_tools_are_the_same_divides_by_nothing() -> None:
    """The numbers stay finite."""
    rows = np.repeat(vectors_like(0.5, 1), 20, axis=0)
    assert np.isfinite(CosineScale(index_of(rows))(np.array([0.5, 1.0], np.float32))).all()


def test_a_catalog_that_grows_is_looked_at_again() -> None:
    """The first vectors of a catalog come one server after another."""
    index = index_of(vectors_like(0.0, 10))
    scale = CosineScale(index)
    before = scale(np.array([0.5], np.float32))
    index.update(range(100, 400), vectors_like(0.6, 300, seed=2))
    assert scale(np.array([0.5], np.float32)) != pytest.approx(before)

"""Rounded vectors: a byte a component, nearly the same cosines, the same answers whatever came before."""

import numpy as np
import pytest
from numpy.typing import NDArray

from smart_mcp_proxy.search.vectors.rows import Rows, concat_rows
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

DIMENSION = 64
ROUNDING = 0.01


def unit(count: int, seed: int = 1) -> NDArray[np.float32]:
    """Random unit vectors, one a row."""
    matrix = np.random.default_rng(seed).standard_normal((count, DIMENSION), dtype=np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def test_rounded_rows_are_of_unit_length_and_near_to_the_exact_ones() -> None:
    """Also after rows of several parts were copied together."""
    vectors = unit(1_300)
    first, second = (Rows.of(part, is_rounded=True) for part in (vectors[:1_000], vectors[1_000:]))
    rows = concat_rows([(first, np.arange(1_000)), (second, np.arange(300))])
    assert rows.is_rounded and rows.matrix.nbytes == 1_300 * DIMENSION
    assert np.linalg.norm(rows.part(0, 1_300), axis=1) == pytest.approx(1, abs=1e-5)
    assert rows.products(vectors[7]) == pytest.approx(vectors @ vectors[7], abs=ROUNDING)
    assert rows.take(np.array([3, 1_200])) == pytest.approx(vectors[[3, 1_200]], abs=ROUNDING)


def test_an_index_of_rounded_vectors_finds_the_nearest_through_changes() -> None:
    """Added in parts, replaced and removed; search and single cosines say the same."""
    vectors = unit(6_000)
    index = VectorIndex(DIMENSION, is_rounded=True)
    for start in range(0, 6_000, 1_500):
        index.update(range(start, start + 1_500), vectors[start : start + 1_500])
    index.update([5], vectors[6:7], removed=[9])
    query = vectors[6]
    ids, cosines = index.search(query, 10)
    assert ids[:2].tolist() == [5, 6] and 9 not in index
    assert cosines[:2] == pytest.approx(1, abs=ROUNDING)
    assert (index.cosines(query, ids) == cosines).all()
    near = index.search(query, 10, allowed=set(range(6, 4_000)))[0]
    assert near[0] == 6 and len(near) == 10
    assert index._state.base.scan is None


def test_no_vector_is_no_division_by_zero() -> None:
    """An index may be empty, and a search of it finds nothing."""
    index = VectorIndex(DIMENSION, is_rounded=True)
    assert len(index.search(unit(1)[0], 5)[0]) == 0


def test_several_vectors_are_searched_for_at_once() -> None:
    """A tool's cosine is the highest of them, as if each had been looked for alone."""
    vectors = unit(3_000)
    index = VectorIndex(DIMENSION, is_rounded=True)
    index.update(range(3_000), vectors)
    asked = vectors[[10, 2_000]]
    ids, cosines = index.search(asked, 5)
    assert set(ids[:2].tolist()) == {10, 2_000}
    assert (np.max([index.cosines(vector, ids) for vector in asked], axis=0) == cosines).all()


@pytest.mark.long  # half a second of work and more
def test_many_rounded_vectors_are_scanned_and_found_as_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Faiss and without it, by one vector and by several: the same tools with the same cosines."""
    topics = unit(900, seed=5)
    vectors = topics[np.arange(24_000) % 900] + 0.4 * unit(24_000, seed=6)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    answers = []
    for has_faiss in (True, False):
        if not has_faiss:
            monkeypatch.setattr("smart_mcp_proxy.search.vectors.vectors.build_compressed_scan", lambda rows: None)
        index = VectorIndex(DIMENSION, is_rounded=True)
        index.update(range(24_000), vectors)
        index.update([], vectors[:0], removed=range(0, 24_000, 7))
        assert (index._state.base.scan is not None) == has_faiss
        answers.append([index.search(asked, 20) for asked in (topics[3], topics[8], topics[:3], topics[20:26])])
    for (ids, cosines), (same_ids, same_cosines) in zip(*answers, strict=True):
        assert ids.tolist() == same_ids.tolist() and cosines.tolist() == same_cosines.tolist()

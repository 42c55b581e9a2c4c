"""The vector index against a plain dictionary, its order, what it refuses, and searches beside updates."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smart_mcp_proxy.errors import SearchError
from smart_mcp_proxy.search.vectors import vectors
from smart_mcp_proxy.search.vectors.faiss_edge import build_compressed_scan
from smart_mcp_proxy.search.vectors.rows import Rows
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

Matrix = NDArray[np.float32]

DIMENSION = 5


def unit(rng: np.random.Generator, count: int, dimension: int = DIMENSION) -> Matrix:
    """Random unit vectors, one a row."""
    matrix = rng.standard_normal((count, dimension), dtype=np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def best(known: dict[int, Matrix], query: Matrix, depth: int) -> list[int]:
    """What a search has to find, from exact products; equal ones by id."""
    products = {id: float(vector.astype(np.float64) @ query.astype(np.float64)) for id, vector in known.items()}
    ordered = sorted(products, key=lambda id: (-round(products[id], 6), id))
    return [
        id for at, id in enumerate(ordered) if at < depth or round(products[id] - products[ordered[depth - 1]], 6) == 0
    ]


POOL = np.concatenate((np.eye(DIMENSION, dtype=np.float32), -np.eye(DIMENSION, dtype=np.float32)))
"""Few vectors, so that many tools have the same."""
UPDATES = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 12), st.integers(0, len(POOL) - 1), max_size=6),
        st.sets(st.integers(0, 12), max_size=6),
    ),
    max_size=12,
)


@pytest.mark.parametrize("fresh_rows", [0, 3, 2_048])
@settings(max_examples=60, deadline=None)
@given(updates=UPDATES, allowed=st.none() | st.sets(st.integers(0, 12)), depth=st.integers(1, 8))
@pytest.mark.long  # many generated examples
def test_it_answers_like_a_dictionary(
    fresh_rows: int, updates: list[tuple[dict[int, int], set[int]]], allowed: set[int] | None, depth: int
) -> None:
    """After any updates: the same ids, the same order, the same cosines, wherever the rows have come to lie."""
    index, known = VectorIndex(DIMENSION), dict[int, Matrix]()
    query = np.array([4, 3, 2, 1, 0], np.float32)
    query /= np.linalg.norm(query)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_FRESH_ROWS", fresh_rows)
        for added, removed in updates:
            index.update(list(added), POOL[list(added.values())], removed)
            known = {id: vector for id, vector in known.items() if id not in removed}
            known |= {id: POOL[at] for id, at in added.items()}
            ids, cosines = index.search(query, depth, allowed)
            assert ids.tolist() == best(
                {i: v for i, v in known.items() if allowed is None or i in allowed}, query, depth
            )
            assert cosines == pytest.approx([known[id] @ query for id in ids.tolist()], abs=1e-6)
            assert len(index) == len(known)
            assert {id for id in range(13) if id in index} == known.keys()
            taken, rows = index.take(range(13))
            assert taken == sorted(known)
            assert (rows == np.array([known[id] for id in taken], np.float32).reshape(-1, DIMENSION)).all()
            every = index.cosines(query, np.arange(13))
            assert {id for id in range(13) if not np.isnan(every[id])} == known.keys()
            assert (every[ids] == cosines).all()


def test_equal_vectors_have_equal_cosines_wherever_they_lie() -> None:
    """They stand by id, though they came at different times and lie among others."""
    rng = np.random.default_rng(1)
    index, twin = VectorIndex(384), unit(rng, 1, 384)
    index.update(range(1_000, 4_000), unit(rng, 3_000, 384))
    for id in (9, 5, 7):
        index.update([id, id + 100], np.concatenate((twin, unit(rng, 1, 384))))
    query = unit(rng, 1, 384)[0] * 0.1 + twin[0]
    ids, cosines = index.search(query / np.linalg.norm(query), 3)
    assert ids.tolist() == [5, 7, 9]
    assert len(set(cosines.tolist())) == 1


@pytest.mark.parametrize("has_faiss", [True, False])
@pytest.mark.long  # half a second of work and more
def test_many_vectors_are_searched_as_exactly_as_few(has_faiss: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a compressed scan brings are compared exactly; removed and replaced ones do not crowd out others."""
    if not has_faiss:
        monkeypatch.setattr(vectors, "build_compressed_scan", lambda rows: None)
    rng = np.random.default_rng(2)
    topics = unit(rng, 300, 64)
    matrix = topics[rng.integers(0, 300, 6_000)] + 0.4 * unit(rng, 6_000, 64)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    index, known = VectorIndex(64), dict(enumerate(matrix))
    index.update(range(6_000), matrix)
    assert (index._state.base.scan is not None) == has_faiss
    for at in range(0, 1_000, 100):
        changed, gone = range(at, at + 60), range(at + 60, at + 90)
        index.update(changed, new := unit(rng, 60, 64), gone)
        known = {id: vector for id, vector in known.items() if id not in gone} | dict(zip(changed, new, strict=True))
    queries = topics[:15] + 0.1 * unit(rng, 15, 64)
    for query in queries / np.linalg.norm(queries, axis=1, keepdims=True):
        ids, cosines = index.search(query, 50)
        assert cosines == pytest.approx([known[id] @ query for id in best(known, query, 50)], abs=1e-6)
        assert cosines == pytest.approx([known[id] @ query for id in ids.tolist()], abs=1e-6)


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.02])
def test_a_crowd_of_near_equals_is_ranked_exactly_in_whichever_order_it_came(noise: float) -> None:
    """More of them than a compressed scan can tell apart: the nearest are found, equal ones stand by id."""
    rng = np.random.default_rng(3)
    crowd = unit(rng, 1, 384) + noise * unit(rng, 1_000, 384)
    matrix = np.concatenate((unit(rng, 4_000, 384), crowd / np.linalg.norm(crowd, axis=1, keepdims=True)))
    query = crowd[0] + 0.3 * unit(rng, 1, 384)[0]
    query /= np.linalg.norm(query)
    exact = np.einsum("ij,j->i", matrix, query)
    wanted = np.lexsort((np.arange(len(matrix)), -exact))
    wanted = wanted[exact[wanted] >= exact[wanted[99]]].tolist()
    for _ in range(3):
        index, order = VectorIndex(384), rng.permutation(len(matrix))
        index.update(order.tolist(), matrix[order])
        assert index.search(query, 100)[0].tolist() == wanted


@pytest.mark.parametrize(("dimension", "is_rounded"), [(16, False), (384, False), (768, False), (256, True)])
@pytest.mark.long  # half a second of work and more
def test_a_compressed_scan_knows_what_it_may_have_missed(dimension: int, *, is_rounded: bool) -> None:
    """No row that it does not return has a larger cosine than it says."""
    rng = np.random.default_rng(4)
    matrix = unit(rng, 5_000, dimension)
    scan = build_compressed_scan(Rows.of(matrix, is_rounded=is_rounded))
    assert scan is not None
    for query in unit(rng, 50, dimension):
        rows, ceiling = scan(query, 20)
        others = np.delete(matrix @ query, rows)
        assert others.max() <= ceiling <= others.max() + 0.1


def test_one_component_in_every_row_can_be_zero() -> None:
    """Nor does a query along an axis trouble the compressed scan."""
    matrix = np.zeros((5_000, 16), np.float32)
    matrix[np.arange(5_000), np.arange(5_000) % 8] = 1
    index = VectorIndex(16)
    index.update(range(5_000), matrix)
    ids, cosines = index.search(matrix[3], 10)
    assert (ids % 8 == 3).all()
    assert (cosines == 1).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 2.0])
def test_what_is_no_unit_vector_is_refused(value: float) -> None:
    """The tool is named, and nothing of the update is kept."""
    index, rows = VectorIndex(DIMENSION), np.array(POOL[:3])
    rows[1] = value
    with pytest.raises(SearchError, match="tool 8 "):
        index.update([7, 8, 9], rows)
    assert len(index) == 0


def test_another_shape_is_refused() -> None:
    """Both shapes are named."""
    with pytest.raises(SearchError, match=r"\(2, 5\), expected \(1, 5\)"):
        VectorIndex(DIMENSION).update([1], POOL[:2])


def test_an_empty_index_finds_nothing() -> None:
    """With and without a filter."""
    index = VectorIndex(DIMENSION)
    for allowed in (None, {1}):
        ids, cosines = index.search(POOL[0], 3, allowed)
        assert len(ids) == len(cosines) == 0


def test_a_caller_may_go_on_with_its_matrix() -> None:
    """What was given is copied."""
    index, rows = VectorIndex(DIMENSION), np.array(POOL[:2])
    index.update([1, 2], rows)
    rows[:] = POOL[4]
    assert index.search(POOL[0], 1)[0].tolist() == [1]


@pytest.mark.long  # a third of a second of processor time
def test_a_search_beside_updates_sees_whole_ones() -> None:
    """Two tools that swap their vectors again and again are never seen with the same one."""
    index, is_done = VectorIndex(DIMENSION), threading.Event()

    def swap() -> None:
        for at in range(1_500):
            index.update([1, 2], POOL[[at % 2, 1 - at % 2]])
        is_done.set()

    index.update([1, 2], POOL[:2])
    thread = threading.Thread(target=swap)
    thread.start()
    searches = 0
    while not is_done.is_set() or not searches:
        _, cosines = index.search(POOL[0], 2)
        assert cosines.tolist() == [1, 0]
        searches += 1
    thread.join()


def test_many_ids_are_asked_for_at_once() -> None:
    """Known ones in the large block and among the new, removed ones, and those that never were."""
    index = VectorIndex(DIMENSION)
    assert index.has(np.array([1, 2])).tolist() == [False, False]
    index.update([30, 10, 20], POOL[:3])
    index.update([40], POOL[3:4], removed=[10])
    assert index.has(np.array([10, 20, 30, 40, 50])).tolist() == [False, True, True, True, False]
    assert (20 in index, 10 in index) == (True, False)

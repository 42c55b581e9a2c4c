"""The vectors of tools in memory: nearest ones to a query, changed in place while searches run."""

import threading
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import SearchError
from smart_mcp_proxy.search.vectors.faiss_edge import Scan, build_compressed_scan
from smart_mcp_proxy.search.vectors.rows import Rows, concat_rows, multiply

_FRESH_ROWS = 2_048
"""Rows that are copied at each change, 3 MB of 384 components; beyond, they join the large block, which is not."""
_COMPRESSED_FROM_ROWS = 4_000
"""From here on a matrix competes for the processor's cache, and reading it is what a search costs. Measured with 384
components, one thread: 0.4 ms exact against 0.1 ms compressed at 10,000 rows, 9.4 ms against 1.5 ms at 100,000."""
_ROUNDED_COMPRESSED_FROM_ROWS = 20_000
"""The same for rounded rows, which are read faster: 10,000 take 0.3 ms, and 100,000 take 4.6 ms against 0.9 ms."""
_REACHES = (3, 6)
"""Rows that a compressed scan is asked for, for each one that is wanted: more only where rounding may hide one. With 6
even random vectors, whose cosines are closer than those of texts, are far enough apart, with 3 nearly all of 10,000 and
all of 5,000 real tools; twice the rows took 0.1 ms more at 10,000."""
_REACH_FAR_FROM_ROWS = 50_000
"""In more rows than these the wanted ones are so close to others that the first reach is mostly in vain."""
_GATHERED_SHARE = 4
"""Up to a fourth of the rows are picked out and compared; more are cheaper compared where they lie."""
_UNIT_TOLERANCE = 1e-3
"""Most that a row's length differs from 1; far above what single precision does to it, far below what damage does."""
_ROUNDING = np.float32(1e-5)
"""Largest difference between two ways to sum the same product of unit vectors in single precision."""
_LOWEST = np.float32(-2)
"""Below every cosine."""
_FREE = -1


def are_sound(vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Flag the rows of a matrix that are vectors: finite and of unit length."""
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        sound: NDArray[np.bool_] = np.abs(lengths - 1) <= _UNIT_TOLERANCE
    return sound


class _Near(NamedTuple):
    """Rows that have a vector, and the cosine of each with the one that was asked for, both of shape (n,)."""

    rows: NDArray[np.int64]
    cosines: NDArray[np.float32]


class _Block(msgspec.Struct, frozen=True):
    """Some rows.

    Attributes:
        rows: Vectors.
        ids: Whose, shape (n,); -1 where a vector was removed.
        scan: Finds near rows faster than reading the matrix, for large ones.
    """

    rows: Rows
    ids: NDArray[np.int64]
    scan: Scan | None = None

    def without(self, rows: NDArray[np.int64]) -> "_Block":
        if not len(rows):
            return self
        ids = self.ids.copy()
        ids[rows] = _FREE
        return _Block(self.rows, ids, self.scan)

    def near(self, vector: NDArray[np.float32], depth: int) -> _Near:
        """Find the `depth` nearest rows, and perhaps some more."""
        for reach in _REACHES if len(self.ids) <= _REACH_FAR_FROM_ROWS else _REACHES[1:]:
            if (scanned := self._scan_nearest(vector, depth, reach * depth)) is not None:
                return scanned
        scores = self.rows.products(vector)
        scores[self.ids == _FREE] = -np.inf
        rows = _top(scores, depth)
        return _Near(rows, multiply(self.rows.take(rows), vector))

    def _scan_nearest(self, vector: NDArray[np.float32], depth: int, reach: int) -> _Near | None:
        """Scan for `reach` rows; None where so many are near that others may be as near."""
        if self.scan is None or reach * _GATHERED_SHARE > len(self.ids):
            return None
        scanned = [self.scan(each, reach) for each in np.atleast_2d(vector)]
        rows, ceiling = np.unique(np.concatenate([rows for rows, _ in scanned])), max(each for _, each in scanned)
        rows = rows[self.ids[rows] != _FREE]
        cosines = multiply(self.rows.take(rows), vector)
        near = _top(cosines, depth)
        rows, cosines = rows[near], cosines[near]
        if len(near) < depth or cosines.min() <= ceiling + 2 * _ROUNDING:
            return None
        return _Near(rows, cosines)


class _State(msgspec.Struct, frozen=True):
    """All that a search reads. Never changed once published; an update builds and publishes the next one.

    Attributes:
        base: Most rows. Removals mark them, nothing is added.
        fresh: What was added since `base` was built; its rows are counted on from those of `base`.
        known: The ids that have a vector, rising: looked up in many at a time, a table of pointers is ten times slower.
        places: The row of each.
    """

    base: _Block
    fresh: _Block
    known: NDArray[np.int64]
    places: NDArray[np.int64]

    @classmethod
    def of(cls, base: _Block, fresh: _Block) -> "_State":
        """Two blocks that are not changed any more."""
        ids = np.concatenate((base.ids, fresh.ids))
        rows = np.flatnonzero(ids != _FREE)
        rows = rows[np.argsort(ids[rows], kind="stable")]
        return cls(base, fresh, ids[rows], rows)

    def find_rows(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each of `ids`; -1 where an id has no vector."""
        if not len(self.known):
            return np.full(len(ids), _FREE, np.int64)
        at = np.minimum(np.searchsorted(self.known, ids), len(self.known) - 1)
        return np.where(self.known[at] == ids, self.places[at], _FREE)

    def rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these rows."""
        is_fresh = rows >= len(self.base.ids)
        if not is_fresh.any():
            return self.base.rows.take(rows)
        found = np.empty((len(rows), self.base.rows.matrix.shape[1]), np.float32)
        found[~is_fresh] = self.base.rows.take(rows[~is_fresh])
        found[is_fresh] = self.fresh.rows.take(rows[is_fresh] - len(self.base.ids))
        return found

    def ids(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whose rows these are."""
        if (rows < len(self.base.ids)).all():
            return self.base.ids[rows]
        return np.concatenate((self.base.ids, self.fresh.ids))[rows]

    def near(self, vector: NDArray[np.float32], depth: int, allowed: Set[int] | None) -> _Near:
        """Find the `depth` nearest allowed rows, and perhaps some more."""
        if allowed is None:
            near = self.base.near(vector, depth)
            if not len(self.fresh.ids):
                return near
            fresh = self.fresh.near(vector, depth)
            rows = np.concatenate((near.rows, fresh.rows + len(self.base.ids)))
            return _Near(rows, np.concatenate((near.cosines, fresh.cosines)))
        rows = self.find_rows(np.fromiter(allowed, np.int64, len(allowed)))
        rows = rows[rows != _FREE]
        if len(rows) * _GATHERED_SHARE > len(self.known):
            scores = np.concatenate((self.base.rows.products(vector), self.fresh.rows.products(vector)))
            rows = rows[_top(scores[rows], depth)]
        return _Near(rows, multiply(self.rows(rows), vector))


class VectorIndex:
    """Vectors of unit length by tool id.

    Safe for threads: readers take one immutable state, writers follow each other under a lock. Order and values do
    not depend on how the vectors came in: equal vectors have equal cosines, and stand by id.

    Args:
        dimension: Components of every vector.
        is_rounded: Whether a component takes one byte of memory and not four; a search of 10,000 vectors takes 0.3 ms
            and needs no Faiss.
    """

    def __init__(self, dimension: int, *, is_rounded: bool = False) -> None:
        self.dimension = dimension
        self._is_rounded = is_rounded
        empty = Rows.of(np.empty((0, dimension), np.float32), is_rounded=is_rounded)
        nothing = _Block(empty, np.empty(0, np.int64))
        self._state = _State.of(nothing, nothing)
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._state.known)

    def __contains__(self, id: int) -> bool:
        return bool(self.has(np.array([id], np.int64))[0])

    def __repr__(self) -> str:
        return f"<VectorIndex {len(self)} vectors of {self.dimension}>"

    def update(self, ids: Sequence[int], vectors: NDArray[np.float32], removed: Iterable[int] = ()) -> None:
        """Replace the vectors of `ids` and forget `removed`; atomic for searches.

        Args:
            ids: Each once, one for each row.
            vectors: Shape (len(ids), dimension), rows of unit length.
            removed: Unknown ones are ignored, as are those that are in `ids` as well.

        Raises:
            SearchError: The matrix has another shape, or a row is no unit vector.
        """
        added = np.ascontiguousarray(vectors, np.float32)
        if added.shape != (len(ids), self.dimension):
            raise SearchError(f"Vectors have shape {added.shape}, expected {(len(ids), self.dimension)}.")
        if not (sound := are_sound(added)).all():
            raise SearchError(f"The vector of tool {ids[int(np.argmin(sound))]} does not have unit length.")
        with self._writing:
            rows = Rows.of(added, is_rounded=self._is_rounded)
            self._state = _update_state(self._state, ids, rows, removed)

    def has(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Flag those of `ids` that have a vector."""
        has_vector: NDArray[np.bool_] = self._state.find_rows(ids) != _FREE
        return has_vector

    def search(
        self, vector: NDArray[np.float32], depth: int, allowed: Set[int] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The `depth` nearest tools, and those as near as the last: ids and cosines, best first.

        Equal cosines stand by id.

        Args:
            vector: Of unit length, shape (dimension,); or several rows of such, where a tool's cosine is the highest.
            depth: At least 1.
            allowed: Ids that may appear; None for all.
        """
        state = self._state
        rows, cosines = state.near(vector, depth, allowed)
        ids = state.ids(rows)
        order = np.lexsort((ids, -cosines))
        ids, cosines = ids[order], cosines[order]
        if len(ids) > depth:
            depth = int(np.searchsorted(-cosines, -cosines[depth - 1], side="right"))
        return ids[:depth], cosines[:depth]

    def cosines(self, vector: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """The cosine with each of `ids`, of several rows the highest, as in `search`; NaN without a vector."""
        state = self._state
        rows = state.find_rows(ids)
        known = rows != _FREE
        if known.all():
            return multiply(state.rows(rows), vector)
        cosines = np.full(len(ids), np.nan, np.float32)
        cosines[known] = multiply(state.rows(rows[known]), vector)
        return cosines

    def take(self, ids: Iterable[int]) -> tuple[list[int], NDArray[np.float32]]:
        """Select the `ids` that have a vector; returns them and their vectors, one row each."""
        state = self._state
        wanted = np.array(list(ids), np.int64)
        rows = state.find_rows(wanted)
        has_vector = rows != _FREE
        return wanted[has_vector].tolist(), state.rows(rows[has_vector])

    def sample(self, count: int) -> NDArray[np.float32]:
        """Up to `count` of the vectors, evenly spread over the ids, one row each."""
        state = self._state
        return state.rows(state.places[:: len(state.places) // count + 1])


def _update_state(state: _State, ids: Sequence[int], added: Rows, removed: Iterable[int]) -> _State:
    """The state after an update."""
    gone = state.find_rows(np.array(list({*removed, *ids}), np.int64))
    start = len(state.base.ids)
    base = state.base.without(gone[(gone != _FREE) & (gone < start)])
    fresh = state.fresh.without(gone[gone >= start] - start)
    fresh = _concat_blocks(fresh, _Block(added, np.array(ids, np.int64)))
    following = _State.of(base, fresh)
    size = len(following.known)
    free = start + len(fresh.ids) - size
    if len(fresh.ids) <= _FRESH_ROWS and free <= max(_FRESH_ROWS, size):
        return following
    nothing = _Block(concat_rows([(fresh.rows, np.empty(0, np.int64))]), fresh.ids[:0])
    return _State.of(_merge_blocks((base, fresh)), nothing)


def _concat_blocks(first: _Block, second: _Block) -> _Block:
    if not len(second.ids):
        return first
    rows = concat_rows([(block.rows, np.arange(len(block.ids))) for block in (first, second)])
    return _Block(rows, np.concatenate((first.ids, second.ids)))


def _merge_blocks(blocks: Sequence[_Block]) -> _Block:
    """Copy the vectors that are left in `blocks` into a block, each once."""
    left = [np.flatnonzero(block.ids != _FREE) for block in blocks]
    rows = concat_rows([(block.rows, numbers) for block, numbers in zip(blocks, left, strict=True)])
    ids = np.concatenate([block.ids[numbers] for block, numbers in zip(blocks, left, strict=True)])
    least = _ROUNDED_COMPRESSED_FROM_ROWS if rows.is_rounded else _COMPRESSED_FROM_ROWS
    return _Block(rows, ids, build_compressed_scan(rows) if len(ids) >= least else None)


def _top(scores: NDArray[np.float32], depth: int) -> NDArray[np.int64]:
    """Places that may hold the `depth` highest scores, summed in another order."""
    if depth >= len(scores):
        return np.flatnonzero(scores != -np.inf)
    threshold = np.partition(scores, len(scores) - depth)[len(scores) - depth]
    return np.flatnonzero(scores >= max(threshold - 2 * _ROUNDING, _LOWEST))

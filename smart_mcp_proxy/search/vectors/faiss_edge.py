"""The one place that knows Faiss: flat indexes as files, and a compressed scan of many vectors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import MissingExtraError, SearchError
from smart_mcp_proxy.search.vectors.rows import Rows

Scan = Callable[[NDArray[np.float32], int], tuple[NDArray[np.int64], float]]
"""Takes a vector of unit length, shape (d,), and a count k; returns the numbers of about the k nearest rows, in no
exact order, and a cosine that no other row has more than."""

_BYTE_MAX = 127
"""Largest component once rounded: vectors are scaled to signed bytes."""
_SCALED_ROWS = 4_096
"""Rows that are scaled at a time, so that no second matrix is made, nor a wide one of rounded rows."""


def build_compressed_scan(vectors: Rows) -> Scan | None:
    """Build a scan of vectors that reads one byte a component in one pass; None without Faiss.

    Its order is that of rounded vectors, so whoever uses it asks for more rows than it needs and compares exactly.
    """
    # Imported on use: it is optional, and costs 0.2 s and 30 MB that words alone need not pay.
    try:
        import faiss
    except ImportError:
        return None
    kind = faiss.ScalarQuantizer.QT_8bit_direct_signed
    index = faiss.IndexScalarQuantizer(vectors.matrix.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    scale = np.float32(_BYTE_MAX / vectors.largest)
    row_error = 0.0
    # Room for all: what grows as it is filled may keep twice of it.
    index.codes.resize(vectors.matrix.size)
    index.codes.resize(0)
    for start in range(0, len(vectors), _SCALED_ROWS):
        scaled = vectors.part(start, start + _SCALED_ROWS) * scale
        rounded = np.rint(scaled)
        index.add(rounded)
        row_error = max(row_error, _longest(scaled - rounded) / float(scale))

    def scan(vector: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], float]:
        query_scale = np.float32(_BYTE_MAX / max(vector.max(), -vector.min()))
        scaled = vector[np.newaxis] * query_scale
        rounded = np.rint(scaled)
        products, rows = index.search(rounded, min(k, index.ntotal))
        if k >= index.ntotal:
            return rows[0], -1.0
        # By Cauchy and Schwarz: how much a product of rounded vectors may lack, one of them being of unit length.
        query_error = _longest(scaled - rounded) / float(query_scale)
        lacking = row_error + query_error * (1 + row_error)
        return rows[0], float(products[0].min()) / float(scale * query_scale) + lacking

    return scan


def _longest(rows: NDArray[np.float32]) -> float:
    """The length of the longest row."""
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max()))


@contextmanager
def _is_needed() -> Iterator[None]:
    try:
        yield
    except ImportError as exc:
        raise MissingExtraError("tools.faiss needs faiss-cpu.", hint="Install it: pip install faiss-cpu") from exc


def write_index(path: Path, ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
    """Writes an `IndexIDMap2` over a flat inner-product index, as `faiss.read_index` reads it.

    Raises:
        MissingExtraError, SearchError: Faiss is not installed, or cannot write the file.
    """
    with _is_needed():
        import faiss
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(vectors.shape[1]))
    index.add_with_ids(vectors, ids)
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as exc:
        raise SearchError(f"'{path}' cannot be written: {exc}.", hint="Check the disk and its free space.") from exc


def read_index(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Ids, shape (n,), and vectors, shape (n, d), of an index that `write_index` wrote.

    Args:
        data: Its bytes, known to be whole: Faiss trusts the sizes that it reads.

    Raises:
        MissingExtraError, SearchError: Faiss is not installed, or it is another kind of index.
    """
    with _is_needed():
        import faiss
    try:
        index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    except RuntimeError as exc:
        raise SearchError(f"Not a Faiss index: {exc}.") from exc
    if not isinstance(index, faiss.IndexIDMap2) or not isinstance(
        inner := faiss.downcast_index(index.index), faiss.IndexFlatIP
    ):
        raise SearchError(f"A Faiss index of another kind: {type(index).__name__}.")
    ids = faiss.vector_to_array(index.id_map).astype(np.int64)
    return ids, np.array(inner.reconstruct_n(0, inner.ntotal), np.float32)

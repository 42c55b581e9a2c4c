"""Many vectors as a matrix, exact or rounded to a byte a component."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

_BYTE_MAX = 127
_WIDENED_ROWS = 512
"""Rounded rows that are made floats at a time: 0.5 MB of 256 components, which stay in the processor's cache."""
_EXACT: NDArray[np.float32] = np.ones(1, np.float32)


class Rows(msgspec.Struct, frozen=True):
    """Vectors of unit length, one a row; never changed.

    Attributes:
        matrix: Their components, shape (n, d): float32, or int8 where they are rounded.
        scales: What a rounded row is to be multiplied by to be of unit length, shape (n,); one number if none is.
    """

    matrix: NDArray[np.float32] | NDArray[np.int8]
    scales: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: NDArray[np.float32], *, is_rounded: bool) -> "Rows":
        """These vectors; rounded, each component is off by 1 in 254 of the largest of its row."""
        if not is_rounded:
            return cls(vectors, _EXACT)
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=np.finfo(np.float32).tiny)
        rounded = np.rint(vectors * (_BYTE_MAX / largest))
        return cls(rounded.astype(np.int8), (1 / np.linalg.norm(rounded, axis=1)).astype(np.float32))

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def is_rounded(self) -> bool:
        """Whether a component takes one byte."""
        return self.matrix.dtype == np.int8

    @property
    def largest(self) -> float:
        """The largest absolute value of a component."""
        if self.is_rounded:
            return float(_BYTE_MAX * self.scales.max(initial=0))
        return float(max(self.matrix.max(initial=0), -self.matrix.min(initial=0)))

    def part(self, start: int, stop: int) -> NDArray[np.float32]:
        """The vectors of the rows from `start` to before `stop`; without a copy where they are exact."""
        if self.is_rounded:
            return self.take(np.arange(start, min(stop, len(self))))
        return self.matrix[start:stop].astype(np.float32, copy=False)

    def take(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these rows, shape (len(rows), d)."""
        taken = self.matrix.take(rows, axis=0)
        if not self.is_rounded:
            return taken.astype(np.float32, copy=False)
        vectors: NDArray[np.float32] = taken * self.scales[rows, np.newaxis]
        return vectors

    def products(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """The product of every row with a vector, or the highest of those with several, shape (n,).

        Args:
            vectors: Shape (d,); or (k, d), for which rounded rows are widened once.
        """
        if not self.is_rounded:
            exact: NDArray[np.float32] = self.matrix @ vectors.T
            return exact if exact.ndim == 1 else np.max(exact, axis=1)
        asked = np.atleast_2d(vectors)
        products = np.empty((len(asked), len(self)), np.float32)
        buffer = np.empty((min(len(self), _WIDENED_ROWS), self.matrix.shape[1]), np.float32)
        for start in range(0, len(self), _WIDENED_ROWS):
            part = self.matrix[start : start + _WIDENED_ROWS]
            wide = buffer[: len(part)]
            np.copyto(wide, part)
            # Not as a matrix: BLAS multiplies a few columns slower, and starts threads that wait for busy cores.
            for vector, found in zip(asked, products, strict=True):
                np.dot(wide, vector, out=found[start : start + len(part)])
        highest: NDArray[np.float32] = products[0] if len(asked) == 1 else products.max(axis=0)
        highest *= self.scales
        return highest


def multiply(rows: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Multiply each row with a vector; of several the highest product. Neighbours change nothing."""
    if vectors.ndim == 1:
        products: NDArray[np.float32] = np.einsum("ij,j->i", rows, vectors)
        return products
    highest: NDArray[np.float32] = np.max([np.einsum("ij,j->i", rows, vector) for vector in vectors], axis=0)
    return highest


def concat_rows(parts: Sequence[tuple[Rows, NDArray[np.int64]]]) -> Rows:
    """Copy some rows of each part, given by number, into one matrix; all parts are rounded or none is."""
    first = parts[0][0]
    matrix = np.empty((sum(len(numbers) for _, numbers in parts), first.matrix.shape[1]), first.matrix.dtype)
    start = 0
    for rows, numbers in parts:
        part = slice(start, start := start + len(numbers))
        np.take(rows.matrix, numbers, axis=0, out=matrix[part], mode="clip")
    if not first.is_rounded:
        return Rows(matrix, _EXACT)
    return Rows(matrix, np.concatenate([rows.scales[numbers] for rows, numbers in parts]))

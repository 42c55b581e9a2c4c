"""Postings: where terms occur, as arrays by term, changed tool by tool."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engines.fields import impacts

__all__ = ["Postings", "append", "drop", "in_both", "place"]


class Postings(NamedTuple):
    """Postings of one term: row numbers (intp) and contributions in (0, 1) (float32).

    Rows are of the type that numpy takes as it is: from a smaller one it would make a copy for every look-up.
    """

    rows: NDArray[np.intp]
    impacts: NDArray[np.float32]

    def times(self, factor: float) -> "Postings":
        """The same places, worth less."""
        return Postings(self.rows, self.impacts * factor)


def in_both(a: Postings, b: Postings) -> Postings:
    """The rows that both have, with the lesser of their impacts."""
    rows, at_a, at_b = np.intersect1d(a.rows, b.rows, assume_unique=True, return_indices=True)
    return Postings(rows, np.minimum(a.impacts[at_a], b.impacts[at_b]))


def place(
    ids: NDArray[np.int64], row_of: dict[int, int], freed: Sequence[int], new: Sequence[int]
) -> NDArray[np.int64]:
    """Gives every new id a row, free ones first; extends `row_of` and returns the next `ids`."""
    ids = ids.copy()
    ids[freed] = -1
    free = np.flatnonzero(ids < 0)[: len(new)].tolist()
    rows = free + list(range(len(ids), len(ids) + len(new) - len(free)))
    ids = np.concatenate((ids, np.full(len(new) - len(free), -1, np.int64)))
    ids[rows] = new
    row_of.update(zip(new, rows, strict=True))
    return ids


def drop(postings: dict[str, Postings], documents: Sequence[Document], rows: Sequence[int]) -> None:
    """Takes the rows of `documents` out of the postings of their terms."""
    for term in {term for document in documents for term in impacts(document)}:
        old = postings[term]
        keep = ~np.isin(old.rows, rows)
        if keep.any():
            postings[term] = Postings(old.rows[keep], old.impacts[keep])
        else:
            del postings[term]


def append(postings: dict[str, Postings], documents: Iterable[Document], row_of: Mapping[int, int]) -> None:
    """Adds the terms of `documents` to the postings."""
    fresh: dict[str, tuple[list[int], list[float]]] = {}
    for document in documents:
        row = row_of[document.id]
        for term, impact in impacts(document).items():
            rows, worths = fresh.setdefault(term, ([], []))
            rows.append(row)
            worths.append(impact)
    for term, (new_rows, new_impacts) in fresh.items():
        rows_array, impacts_array = np.array(new_rows, np.intp), np.array(new_impacts, np.float32)
        if (old := postings.get(term)) is not None:
            rows_array = np.concatenate((old.rows, rows_array))
            impacts_array = np.concatenate((old.impacts, impacts_array))
        postings[term] = Postings(rows_array, impacts_array)

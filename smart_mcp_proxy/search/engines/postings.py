"""Postings: where terms occur, as arrays by term, changed tool by tool."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.layered import Layered
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.engines.fields import impacts

Number = TypeVar("Number", np.int32, np.int64)


class Postings(msgspec.Struct, frozen=True, gc=False):
    """Postings of one term: row numbers (intp) and contributions in (0, 1) (float32).

    Rows are of the type that numpy takes as it is: from a smaller one it would make a copy for every look-up. The
    garbage collector passes over them and over what holds them alone: there are some for each term of a catalog.
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


def place(ids: NDArray[np.int64], freed: Sequence[int], new: Sequence[int]) -> tuple[NDArray[np.int64], dict[int, int]]:
    """Give every new id a row, free ones first: the next `ids`, and the rows."""
    ids = ids.copy()
    ids[freed] = -1
    free = np.flatnonzero(ids < 0)[: len(new)].tolist()
    rows = free + list(range(len(ids), len(ids) + len(new) - len(free)))
    ids = np.concatenate((ids, np.full(len(new) - len(free), -1, np.int64)))
    ids[rows] = new
    return ids, dict(zip(new, rows, strict=True))


def fill_column(column: NDArray[Number], size: int, rows: Sequence[int], values: Iterable[int]) -> NDArray[Number]:
    """The column in this size, with values in these rows."""
    wider = np.zeros(size, column.dtype)
    wider[: len(column)] = column
    wider[rows] = list(values)
    return wider


def count_servers(server_of: NDArray[np.int32], ids: NDArray[np.int64]) -> int:
    """The number of servers that have a row."""
    return int(np.count_nonzero(np.bincount(server_of[ids >= 0])))


def drop(
    postings: Mapping[str, Postings], documents: Sequence[Document], rows: Sequence[int], size: int
) -> dict[str, Postings]:
    """The postings of the terms of `documents` without their rows; empty where nothing is left.

    Args:
        postings: By term.
        documents: What leaves.
        rows: Theirs.
        size: Of all rows.
    """
    changed = {}
    is_kept = np.ones(size, np.bool_)
    is_kept[rows] = False
    for term in dict.fromkeys(term for document in documents for term in impacts(document)):
        old = postings[term]
        keep = is_kept[old.rows]
        changed[term] = Postings(old.rows[keep], old.impacts[keep])
    return changed


def append(
    postings: Mapping[str, Postings],
    changed: dict[str, Postings],
    documents: Iterable[Document],
    row_of: Mapping[int, int],
) -> None:
    """Adds the rows of `documents` to the postings that changed.

    Args:
        postings: By term, as they were: where those begin that have not changed yet.
        changed: By term, as they are to be; added to.
        documents: What enters.
        row_of: Their rows by id.
    """
    fresh: dict[str, tuple[list[int], list[float]]] = {}
    for document in documents:
        row = row_of[document.id]
        for term, impact in impacts(document).items():
            rows, worths = fresh.setdefault(term, ([], []))
            rows.append(row)
            worths.append(impact)
    for term, (new_rows, new_impacts) in fresh.items():
        rows_array, impacts_array = np.array(new_rows, np.intp), np.array(new_impacts, np.float32)
        if (old := changed.get(term, postings.get(term))) is not None:
            rows_array = np.concatenate((old.rows, rows_array))
            impacts_array = np.concatenate((old.impacts, impacts_array))
        changed[term] = Postings(rows_array, impacts_array)


def update_postings(postings: Layered[str, Postings], changed: Mapping[str, Postings]) -> Layered[str, Postings]:
    """The next version of all postings; a term that nothing holds any more is not in it."""
    held = {term: each for term, each in changed.items() if len(each.rows)}
    return postings.apply_changes(held, [term for term in changed if term not in held])


def pack_postings(postings: Mapping[str, Postings], order: NDArray[np.intp], size: int) -> Arrays:
    """The postings as a few arrays, for a file.

    Args:
        postings: By term.
        order: The rows in use, in the order in which they are to be numbered.
        size: How many rows there are.
    """
    numbers = np.zeros(size, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    rows, worths = [], []
    for each in postings.values():
        places = numbers[each.rows]
        by_row = np.argsort(places, kind="stable")
        rows.append(places[by_row])
        worths.append(each.impacts[by_row])
    return {
        "terms": np.frombuffer("\n".join(postings).encode(), np.uint8),
        "counts": np.array(list(map(len, rows)), np.int32),
        "rows": np.concatenate(rows or [np.empty(0, np.int32)]),
        "impacts": np.concatenate(worths or [np.empty(0, np.float32)]),
    }


def unpack_postings(arrays: Arrays, kept: NDArray[np.bool_]) -> dict[str, Postings]:
    """The postings that `pack_postings` wrote, of the rows that are `kept`; they keep their numbers."""
    rows, worths, counts = arrays["rows"].astype(np.intp), arrays["impacts"], arrays["counts"]
    if not kept.all():
        is_kept = kept[rows]
        counts = np.bincount(np.repeat(np.arange(len(counts)), counts)[is_kept], minlength=len(counts))
        rows, worths = rows[is_kept], worths[is_kept]
    terms = arrays["terms"].tobytes().decode()
    found, end = {}, 0
    for term, count in zip(terms.split("\n") if terms else (), counts.tolist(), strict=True):
        start, end = end, end + count
        if count:
            found[term] = Postings(rows[start:end], worths[start:end])
    return found

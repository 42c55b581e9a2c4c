"""Order among equals, by what a tool is and not by when it was listed."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document

name_order: Callable[[Document], tuple[str, str, str, str]] = attrgetter("name", "server", "kind", "listed_name")
"""Sort key among equals that people see: by name, then by whose it is."""


def compute_tie_break(document: Document) -> int:
    """Number that decides between equal scores, a checksum of 63 bits.

    It is of what tells a tool from all others. A number is sorted fast, however many are equal, and nobody gains by an
    early letter.
    """
    whose = _whose(document.server, document.kind)
    if document.kind != "tool":
        whose = crc32(_encode_text(document.listed_name), whose)
    return crc32(_encode_text(document.name)) >> 1 << 32 | whose


def cut(
    ids: NDArray[np.int64], scores: NDArray[np.floating], depth: int, documents: Mapping[int, Document]
) -> NDArray[np.int64]:
    """The first `depth` ids of a ranking; ties at the cut go by `compute_tie_break`.

    Args:
        ids: Shape (n,); some may be gone.
        scores: Theirs, falling.
        depth: At least 1.
        documents: By id.
    """
    if len(ids) <= depth or scores[depth - 1] != scores[depth]:
        return ids[:depth]
    equal = np.flatnonzero(scores == scores[depth])
    found = map(documents.get, ids[equal].tolist())
    ties = np.array([-1 if document is None else compute_tie_break(document) for document in found], np.int64)
    ordered = ids.copy()
    ordered[equal] = ids[equal][np.argsort(ties, kind="stable")]
    return ordered[:depth]


@lru_cache(maxsize=4096)
def _whose(server: str, kind: str) -> int:
    """Checksum of what all tools of a server share; remembered: a start asks 100,000 times."""
    return crc32(_encode_text(f"{server}\n{kind}\n"))


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

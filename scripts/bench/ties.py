"""One catalog listed in several orders, and the answers that differ between them."""

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.search.embedding import build_embedding_text
from smart_mcp_proxy.search.engine import Engine
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.engines.fused import FusedEngine
from smart_mcp_proxy.search.text import terms
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

__all__ = ["ENGINES", "Differing", "WordHashes", "differing", "listed_in_orders"]

_DIMENSION = 64
_GONE = 7
"""Every so many tools are first listed under an id that is then gone."""

Fill = Callable[[Sequence[Document]], Engine]


class WordHashes:
    """Embedder that knows words by checksum only: its vectors are equal where the words are."""

    id = "word-hashes"
    dimension = _DIMENSION

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of unit length, one row each."""
        rows = np.zeros((len(texts), _DIMENSION), np.float32)
        for row, text in zip(rows, texts, strict=True):
            np.add.at(row, [zlib.crc32(term.encode("utf-8", "surrogatepass")) % _DIMENSION for term in terms(text)], 1)
            row[0] += 1e-3
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query."""
        return self.embed([text])[0]


class Differing(NamedTuple):
    """Queries asked, and those of which the first hit, the first five and the first ten differ between two orders."""

    asked: int
    first: list[str]
    shown: list[str]
    deep: list[str]


def _hybrid(documents: Sequence[Document]) -> Engine:
    embedder = WordHashes()
    vectors = VectorIndex(_DIMENSION)
    vectors.update([each.id for each in documents], embedder.embed([build_embedding_text(each) for each in documents]))
    return FusedEngine(Bm25fEngine(), vectors, embedder, is_lexical_used=True)


ENGINES: dict[str, Fill] = {"words": lambda documents: Bm25fEngine(), "hybrid": _hybrid}
"""Engines by name, each with the vectors of these documents."""


def listed_in_orders(documents: Sequence[Document], orders: int, fill: Fill, seed: int = 7) -> Iterator[SearchIndex]:
    """Index the same tools in so many orders: as they come, backwards, then shuffled; each has other ids in each."""
    rng = random.Random(seed)
    for at in range(orders):
        listed = list(documents) if at != 1 else list(reversed(documents))
        if at > 1:
            rng.shuffle(listed)
        numbered = [_numbered(document, id) for id, document in enumerate(listed, 1)]
        index = SearchIndex(fill(numbered))
        if at > 1:  # rows of tools that are gone are used again
            index.update([_numbered(each, len(listed) + each.id) for each in numbered[::_GONE]])
            index.update(numbered[1::2], [len(listed) + each.id for each in numbered[::_GONE]])
        index.update(numbered)
        yield index


def _numbered(document: Document, id: int) -> Document:
    return replace(document, id=id)


def differing(documents: Sequence[Document], queries: Sequence[str], orders: int, fill: Fill) -> Differing:
    """Ask all queries of the same tools in so many orders, and compare the answers."""
    found: list[list[tuple[str, ...]]] = []
    for index in listed_in_orders(documents, orders, fill):
        found.append([_names(index, query, limit) for query in queries for limit in (5, 10)])
    first, shown, deep = [], [], []
    for at, query in enumerate(queries):
        fives, tens = ({answers[2 * at + part] for answers in found} for part in (0, 1))
        first += [query] if len({five[:1] for five in fives}) > 1 else []
        shown += [query] if len(fives) > 1 else []
        deep += [query] if len(tens) > 1 else []
    return Differing(len(queries), first, shown, deep)


def _names(index: SearchIndex, query: str, limit: int) -> tuple[str, ...]:
    answer = index.search(query, limit=limit)
    documents = index.documents
    return tuple(
        f"{documents[hit.id].kind} {documents[hit.id].server}:{documents[hit.id].name} {hit.score:.6f}"
        for hit in (*answer.hits, *answer.near_misses)
    )

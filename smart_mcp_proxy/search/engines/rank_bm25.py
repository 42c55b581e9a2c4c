"""The edge file of rank-bm25: its Okapi BM25 as an engine, for those who ask for it."""

import math
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import MissingExtraError
from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search.engine import Fit, Scores, classify_fitness
from smart_mcp_proxy.search.text import terms
from smart_mcp_proxy.search.ties import compute_tie_break

_TEXT_LIMIT_CHARS = 16_000
"""Characters that are read of a definition; 99 of 100 real ones are shorter."""

_QUERY_TERMS = 64
"""The rarest terms of a query that are looked up: rank-bm25 visits every tool for each."""

_LEAST_IDF = 0.1
"""Least weight of a term: in a catalog of a few tools rank-bm25 finds that common words speak against a tool."""

_UNKNOWN_PER = 20
"""A query word that no tool knows weighs `log(1 + tools / 20)`, as in the builtin engine."""

_FLOOR = 1.0
"""Least value of a best hit that is an answer, see `RankBm25Engine.fitness`."""


class _Corpus(msgspec.Struct, frozen=True, dict=True):
    """The documents of one moment, and rank-bm25's model of them, which is built when it is first needed."""

    documents: Mapping[int, Document]

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """The ids, rising."""
        return np.array(sorted(self.documents), np.int64)

    @cached_property
    def ties(self) -> NDArray[np.int64]:
        """The `compute_tie_break` each, in the order of the ids."""
        return np.array([compute_tie_break(self.documents[id]) for id in self.ids.tolist()], np.int64)

    @cached_property
    def model(self) -> Any:
        """An instance of BM25Okapi; None if no document has a term."""
        from rank_bm25 import BM25Okapi

        texts = [_terms(self.documents[id]) for id in self.ids.tolist()]
        if not any(texts):
            return None
        model = BM25Okapi(texts)
        model.idf = {term: max(weight, _LEAST_IDF) for term, weight in model.idf.items()}
        return model

    def weigh(self, query: str) -> dict[str, float]:
        """The query's rarest terms, each once, with their rarity, > 0."""
        unknown = math.log1p(len(self.documents) / _UNKNOWN_PER)
        known: Mapping[str, float] = self.model.idf if self.model else {}
        weights = {term: known.get(term, unknown) for term in terms(query)}
        return dict(sorted(weights.items(), key=lambda pair: -pair[1])[:_QUERY_TERMS])

    def sums(self, weights: Mapping[str, float]) -> NDArray[np.float64]:
        """Sum of the terms in each document as a share of the maximum; shape (n,), in [0, 1)."""
        known = [term for term in weights if term in self.model.idf]
        most = (self.model.k1 + 1) * sum(weights.values())
        sums: NDArray[np.float64] = self.model.get_scores(known) / most
        return sums


class RankBm25Engine:
    """Ranks with rank-bm25 over all words of a definition, split as the builtin engine splits them.

    Every search visits every tool, and the first one after a change builds the whole model anew. A hit's score is the
    cube root of its sum's share in the most that the query's terms could add up to.

    Raises:
        MissingExtraError: rank-bm25 is not installed.
    """

    name = "rank_bm25"
    is_instant = False
    problem: str | None = None

    def __init__(self) -> None:
        try:
            import rank_bm25  # noqa: F401  # only to see whether it is there
        except ImportError as exc:
            raise MissingExtraError(
                "MCPPROXY_BM25_ENGINE=rank_bm25 needs rank-bm25. Install it: pip install rank-bm25",
                hint="MCPPROXY_BM25_ENGINE=builtin, the default, needs nothing.",
            ) from exc
        self._corpus = _Corpus({})
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._corpus.documents)

    def __repr__(self) -> str:
        return f"<RankBm25Engine {len(self)} documents>"

    def update(self, added: Iterable[Document], removed: Iterable[int]) -> None:
        """Makes `added` searchable and forgets `removed`; an added id that is known is replaced."""
        new = {document.id: document for document in added}
        with self._writing:
            dropped = set(removed)
            kept = {id: document for id, document in self._corpus.documents.items() if id not in dropped}
            self._corpus = _Corpus(kept | new)

    def rank(self, query: str, depth: int, allowed: Set[int] | None) -> list[Hit]:
        """At most `depth` hits with a score above 0, best first, equal ones by `compute_tie_break`."""
        return self.scores(query, depth, allowed).hits()

    def scores(self, query: str, depth: int, allowed: Set[int] | None) -> Scores:
        """Rank like `rank`, as arrays."""
        corpus = self._corpus
        weights = corpus.weigh(query)
        if not weights or corpus.model is None:
            return Scores(np.empty(0, np.int64), np.empty(0))
        scores = np.cbrt(corpus.sums(weights))
        rows = np.flatnonzero(scores)
        order = rows[np.lexsort((corpus.ties[rows], -scores[rows]))]
        if allowed is not None:
            order = order[[id in allowed for id in corpus.ids[order].tolist()]]
        order = order[:depth]
        return Scores(corpus.ids[order], scores[order], sum(weights.values()))

    def fit(self, query: str, id: int, allowed: Set[int] | None = None) -> Fit:
        """Fit of a best hit, see `fitness`."""
        return classify_fitness(self.fitness(query, id, allowed))

    def fitness(self, query: str, id: int, allowed: Set[int] | None = None) -> float:
        """Fitness of a hit: evidence and coverage together; 1 is enough.

        Evidence: its sum in units of what it takes to single out one tool of all. Coverage: the share of the query's
        weight that occurs in the tool at all.
        """
        corpus = self._corpus
        document = corpus.documents.get(id)
        if document is None or corpus.model is None:
            return 0.0
        weights = corpus.weigh(query)
        most = sum(weights.values())
        if not most:
            return 0.0
        found = set(_terms(document))
        row = int(np.searchsorted(corpus.ids, id))
        evidence = corpus.sums(weights)[row] * most / math.log1p(len(corpus.documents))
        coverage = sum(weight for term, weight in weights.items() if term in found) / most
        return float(evidence + coverage) / _FLOOR

    def meets(self, query: str, ids: Collection[int]) -> bool:
        """Whether one of these documents holds a word of the query."""
        wanted, documents = terms(query), self._corpus.documents
        return any(_match_terms(wanted, documents[id]) for id in ids if id in documents)

    def explain(
        self, query: str, ids: Collection[int], allowed: Set[int] | None = None
    ) -> Mapping[int, Mapping[str, Any]]:
        """`matched`: query terms found anywhere in the definition; `lexical`: the score."""
        wanted, documents = dict.fromkeys(terms(query)), self._corpus.documents
        scores = {hit.id: hit.score for hit in self.rank(query, max(1, len(ids)), frozenset(ids))}
        return {
            id: {"matched": _match_terms(wanted, documents[id]), "lexical": round(scores.get(id, 0.0), 3)}
            for id in ids
            if id in documents
        }


def _match_terms(wanted: Iterable[str], document: Document) -> Mapping[str, Sequence[str]]:
    found = set(_terms(document))
    matched = [term for term in wanted if term in found]
    return {"definition": matched} if matched else {}


def _terms(document: Document) -> list[str]:
    """The terms of all words of a definition, and of its example questions."""
    parameters = (word for pair in document.parameters for word in pair)
    parts = (document.name, document.server, document.title, document.description, *parameters, *document.examples)
    return terms("\n".join(parts), _TEXT_LIMIT_CHARS)

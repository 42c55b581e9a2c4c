"""The lexical engine: BM25F over the fields of a tool definition, changed in place without a rebuild."""

import math
import threading
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search.background import USUAL_TOOLS, usual_count
from smart_mcp_proxy.search.fields import terms_by_field
from smart_mcp_proxy.search.postings import Postings, append, best_of, drop, in_both, place
from smart_mcp_proxy.search.text import terms
from smart_mcp_proxy.search.top import top_rows
from smart_mcp_proxy.search.variants import COMPOUND, Variant, Vocabulary, joined

__all__ = ["Bm25fEngine"]

_FLOOR = 0.65
"""What a best hit must reach to be an answer, see `Bm25fEngine.fitness`."""

_SINGLED_OUT = math.log(1_000)
"""The evidence, in nats, that picks one tool out of a thousand: the unit of a lead."""

_CROWD = 30
_CROWD_PER_SERVER = 5
"""Where the crowd is: the tool in this place, if each server may fill at most this many places before it, or an even
share of the places where there are few servers. So one server that floods the catalog does not make a crowd."""

_MATCHES_LIMIT = 1_024
"""Query terms of which all that they match is remembered until the next change; an agent's words repeat."""

_DENSE_SHARE = 1 / 8
"""A term that more of the rows hold is faster added as a whole array."""


class _Match(NamedTuple):
    """What one query term finds.

    Attributes:
        weight: The term's rarity (idf), > 0.
        rows: Row numbers where the term or a variant of it occurs (intp); None: `worths` has all rows.
        worths: What it adds to their scores, in [0, weight) (float32).
    """

    weight: float
    rows: NDArray[np.intp] | None
    worths: NDArray[np.float32]


class _Scores(NamedTuple):
    """Of one query: the BM25F sum by row, and the weight of all its terms together, >= each of the sums."""

    sums: NDArray[np.float32]
    total: float


@dataclass(frozen=True, slots=True)
class _State:
    """All that a search reads. Not changed once published; an update builds and publishes the next one.

    Attributes:
        documents: By id.
        row_of: Row number by id.
        ids: Id by row number, int64; free rows hold -1 and occur in no postings.
        postings: By term.
        vocabulary: The terms of the postings.
        servers: How many there are.
        matches: By query term, what it was found to match; a cache.
    """

    documents: Mapping[int, Document]
    row_of: Mapping[int, int]
    ids: NDArray[np.int64]
    postings: Mapping[str, Postings]
    vocabulary: Vocabulary
    servers: int
    matches: dict[str, _Match] = field(default_factory=dict)

    def rarity(self, term: str) -> float:
        """The idf of a term, > 0, in the catalog together with the usual tools: small catalogs know few words."""
        tools = len(self.documents) + USUAL_TOOLS
        holding = usual_count(term) + (len(self.postings[term].rows) if term in self.postings else 0)
        return math.log1p((tools - holding + 0.5) / (holding + 0.5))

    def score(self, query: str) -> _Scores:
        """How well each row answers the query."""
        words = terms(query)
        matches = {term: self._match(term) for term in words}
        for term, compounds in _compounds(words, self.postings).items():
            matches[term] = self._matched(term, [*self.vocabulary.variants(term), *compounds])
        sums = np.zeros(len(self.ids), np.float32)
        for _, rows, worths in matches.values():
            if rows is None:
                sums += worths
            else:
                sums[rows] += worths
        return _Scores(sums, sum(match.weight for match in matches.values()))

    def _match(self, term: str) -> _Match:
        if (match := self.matches.get(term)) is None:
            if len(self.matches) >= _MATCHES_LIMIT:
                self.matches.clear()
            match = self.matches[term] = self._matched(term, self.vocabulary.variants(term))
        return match

    def _matched(self, term: str, variants: Sequence[Variant]) -> _Match:
        """What a term and its variants find; a commoner variant counts for no more than it would by itself."""
        weight = self.rarity(term)
        if term not in self.postings and variants:
            weight = max(self.rarity(name) for names, _ in variants for name in names)
        found = [self.postings[term].times(weight)] if term in self.postings else []
        for names, factor in variants:
            one = self.postings[names[0]] if len(names) == 1 else in_both(*(self.postings[name] for name in names))
            found.append(one.times(factor * min(weight, max(self.rarity(name) for name in names))))
        rows, worths = best_of(found)
        if len(rows) <= _DENSE_SHARE * len(self.ids):
            return _Match(weight, rows.astype(np.intp), worths)
        dense = np.zeros(len(self.ids), np.float32)
        dense[rows] = worths
        return _Match(weight, None, dense)


def _compounds(words: Sequence[str], known: Container[str]) -> dict[str, list[Variant]]:
    """The words of a query that make a known compound with their neighbour, with what may then stand for them."""
    found: dict[str, list[Variant]] = {}
    for pair in pairwise(words):
        for compound in joined(*pair):
            if compound in known:
                for term in pair:
                    found.setdefault(term, []).append(Variant((compound,), COMPOUND))
    return found


class Bm25fEngine:
    """Ranks by BM25F, `sum(idf * tf / (k1 + tf))` with `tf` weighted over the fields.

    A query's word is also met by its synonyms, by a compound written otherwise, and where no tool knows it by a word
    one slip of the pen away, each at a discount.

    A hit's score is the square root of that sum's share in the query's own `sum(idf)`, terms that no tool knows
    included. It lies in [0, 1), ranks as the plain sum does, and is spread like a cosine: a tool with 0.7 of the best
    score has half of the best sum, below which right answers were measured to be rare.

    Safe for threads: readers take one immutable state, writers follow each other under a lock.

    Source: Robertson, Zaragoza and Taylor, "Simple BM25 Extension to Multiple Weighted Fields", 2004.
    """

    name = "bm25f"
    problem: str | None = None

    def __init__(self) -> None:
        self._state = _State({}, {}, np.empty(0, np.int64), {}, Vocabulary({}), 0)
        self._last = (self._state, "", self._state.score(""))
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._state.documents)

    def __repr__(self) -> str:
        return f"<Bm25fEngine {len(self)} documents, {len(self._state.postings)} terms>"

    def update(self, added: Iterable[Document], removed: Iterable[int]) -> None:
        """Makes `added` searchable and forgets `removed`; an added id that is known is replaced."""
        new = {document.id: document for document in added}
        with self._writing:
            old = self._state
            gone = {id for id in (*removed, *new) if id in old.documents}
            documents = {id: document for id, document in old.documents.items() if id not in gone} | new
            row_of = {id: row for id, row in old.row_of.items() if id not in gone}
            ids = place(old.ids, row_of, [old.row_of[id] for id in gone], list(new))
            postings = dict(old.postings)
            drop(postings, [old.documents[id] for id in gone], [old.row_of[id] for id in gone])
            append(postings, new.values(), row_of)
            servers = len({document.server for document in documents.values()})
            self._state = _State(documents, row_of, ids, postings, Vocabulary(postings), servers)

    def rank(self, query: str, depth: int, allowed: Set[int] | None) -> list[Hit]:
        """At most `depth` hits with a score above 0, best first, equal scores by id."""
        state = self._state
        sums, total = self._score(state, query)
        rows = _best(state, sums, depth, allowed)
        scores = np.sqrt(sums[rows] / total) if total else sums[rows]
        return [Hit(id, score) for id, score in zip(state.ids[rows].tolist(), scores.tolist(), strict=True)]

    def fits(self, query: str, id: int, allowed: Set[int] | None = None) -> bool:
        """Whether a best hit is good enough to be an answer, see `fitness`."""
        return self.fitness(query, id, allowed) >= 1

    def fitness(self, query: str, id: int, allowed: Set[int] | None = None) -> float:
        """How well a hit answers the query: its lead and the share of the need it meets, in units of 0.65.

        Lead: how far its BM25F sum is above the crowd's, in units of `log(1000)`, the evidence that picks one tool
        out of a thousand. Words that many tools share raise the crowd as they raise the best, so they lead nowhere.
        Share: the sum's share in the query's weight. So a short query needs its words found, and a long one may miss
        many if what it does find stands out.
        """
        state = self._state
        if id not in state.row_of:
            return 0.0
        sums, total = self._score(state, query)
        own = float(sums[state.row_of[id]])
        if not own:
            return 0.0
        lead = own - _crowd(state, sums, allowed)
        return (lead / _SINGLED_OUT + own / total) / _FLOOR

    def _score(self, state: _State, query: str) -> _Scores:
        """The query's scores, the last ones again if they are the same: `fits` follows `rank`."""
        last_state, last_query, scores = self._last
        if last_state is not state or last_query != query:
            scores = state.score(query)
            self._last = (state, query, scores)
        return scores

    def explain(self, query: str, id: int) -> Mapping[str, Any]:
        """`matched`: the query's terms or their variants found, by field; empty for an unknown id."""
        state = self._state
        document = state.documents.get(id)
        if document is None:
            return {}
        words = terms(query)
        variants = [variant for found in _compounds(words, state.postings).values() for variant in found]
        variants += [variant for term in words for variant in state.vocabulary.variants(term)]
        wanted = list(dict.fromkeys((*words, *(name for names, _ in variants for name in names))))
        matched = {name: [term for term in wanted if term in found] for name, found in terms_by_field(document).items()}
        return {"matched": {name: found for name, found in matched.items() if found}}


def _best(state: _State, sums: NDArray[np.float32], depth: int, allowed: Set[int] | None) -> NDArray[np.int64]:
    """The rows of the first `depth` allowed tools, best first; looks deeper only as far as it must."""
    reach = depth
    while True:
        rows = top_rows(sums, state.ids, reach)
        is_all = len(rows) < reach
        if allowed is not None:
            rows = rows[[id in allowed for id in state.ids[rows].tolist()]]
        if len(rows) >= depth or is_all:
            return rows[:depth]
        reach *= 8


def _crowd(state: _State, sums: NDArray[np.float32], allowed: Set[int] | None) -> float:
    """The sum of the tool in the crowd's place; 0 if there are not as many tools."""
    per_server = max(_CROWD_PER_SERVER, math.ceil(_CROWD / max(1, state.servers)))
    depth = 2 * _CROWD
    while True:
        rows = _best(state, sums, depth, allowed)
        places: Counter[str] = Counter()
        counted = 0
        for row, id in zip(rows.tolist(), state.ids[rows].tolist(), strict=True):
            server = state.documents[id].server
            if places[server] < per_server:
                places[server] += 1
                counted += 1
                if counted == _CROWD:
                    return float(sums[row])
        if len(rows) < depth:
            return 0.0
        depth *= 8

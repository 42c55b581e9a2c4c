"""The engines that rank by meaning: vectors alone, or fused with words."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.layered import Layered
from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search.embedding import Embedder, build_embedding_text
from smart_mcp_proxy.search.engine import LOWER_FLOOR, Fit, LexicalEngine, Scores, classify_fitness, crowd_place
from smart_mcp_proxy.search.text import terms
from smart_mcp_proxy.search.ties import cut, name_order
from smart_mcp_proxy.search.vectors.vectors import VectorIndex

_CANDIDATES = 100
"""Depth to which words and vectors rank for a fusion; 200 changed recall@5 by at most 0.004 on five query sets."""

_COSINES_PER_NAT = 0.05
"""Value of a nat of evidence by words beside a cosine. From 0.03 to 0.05 recall@5 of three query sets moves by 0.003 to
0.015, in both directions, and misspelt queries gain 0.017."""

_COSINES_PER_NAT_OF_STATIC = 0.08
"""The same beside a static encoder, which is less sure: with 0.05 queries of which half is misspelt lose 0.027 of
recall@5 against words alone, with this 0.009, and no set loses more than 0.005."""

_LED = 5
"""First tools that are ordered anew by what the two weights below add to their values: the places of a usual answer.
With eight, recall@5 of one kind of query loses 0.027."""

_PER_NAME_WORD = -0.15
"""Weight of the logarithm of one more than the words of a tool's name: of tools that fit alike the plainer is meant.
Fitted to pairs of right and wrong tools it is -0.15 on one distribution of queries and -0.23 on another; each of the
two fits puts the right tool first more often on the other's queries, too."""

_NAMED_SERVER = 0.15
"""Weight of a query that has all words of the server's name; fitted likewise, 0.23 and 0.12."""

_SENTENCE_WORDS = 4
"""Shorter queries may be the beginning of a name: led too, those without the last word lose 0.031 of recall@1."""

_VALUE_DIGITS = 6
"""Values that differ less are equal, as scores are."""

_NAMES_LIMIT = 8_192
"""Names whose terms are remembered, about 2 MB."""

_STEEPNESS = 1.5
"""A value of 1, a cosine of 0.6 and 10 nats, scores 0.78."""

_CROWD = 20
"""Place, by cosine, of the tool where the crowd is, see `crowd_place`."""

_LEAD_WEIGHT = 2.0
_FITNESS_WEIGHT = 0.66
_LENGTH_WEIGHT = 0.1
"""Weights beside the cosine of the nearest tool: of its lead over the crowd, of words that just fit, and of the
logarithm of the number of terms. The more a request says, the further it is from every tool, the right one included."""

_FLOOR = 1.58
"""Least sum of these for an answer. Measured with real queries: of two sets that the tools cannot answer, 61 % get an
empty answer, of a third one 32 %; three sets that they can answer lose 0.014, 0.014 and 0.013 of recall@5. The weights
are round numbers on a plateau: a lead of 2 to 3, words of 0.66 to 0.9 and a length of 0.05 to 0.15 are within 0.01."""

_LOWER_FLOOR = 1.25
"""From here on a hit may be an answer: three sets that tools can answer lose 0, 0.001 and 0.006 of recall@5 by it."""

_REST_S = 30.0
"""Seconds that an embedder that failed is left alone, in which time words answer at once."""


class _Spread(NamedTuple):
    """Mean and standard deviation of the cosines between tools."""

    mean: float
    deviation: float


_FITTED: Final = _Spread(0.1, 0.1)
"""Spread of all-MiniLM-L6-v2, which weights and floors were fitted to: 0.09 to 0.12 and 0.10 over two catalogs of 4,975
and 2,479 tools."""
_TOOLS: Final = 256
"""Tools that are compared; other samples of as many move the mean by 0.01."""
_LEAST_TOOLS: Final = 8
"""Fewer say nothing of a model."""
_LEAST_DEVIATION: Final = 1e-3
"""Below it all tools are the same to the model."""
_GROWTH: Final = 1.25
"""A catalog that has grown or shrunk by this factor is looked at again."""


class CosineScale:
    """Maps a model's cosines to those that all-MiniLM-L6-v2 has where it finds tools as alike.

    A straight line through the two means, so that the order stays. It is a rough guess: nothing is promised of the
    floors of another model.

    Args:
        vectors: Of the catalog's tools; may still be filled.
    """

    def __init__(self, vectors: VectorIndex) -> None:
        self._vectors = vectors
        self._seen = 0
        self._spread = _FITTED

    def __call__(self, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosines on the other scale; NaN stays NaN."""
        count = len(self._vectors)
        if not self._seen / _GROWTH <= count <= self._seen * _GROWTH:
            self._seen, self._spread = count, self._measure_spread()
        slope = _FITTED.deviation / self._spread.deviation
        scaled: NDArray[np.float32] = np.float32(_FITTED.mean) + (cosines - np.float32(self._spread.mean)) * slope
        return scaled.astype(np.float32)

    def _measure_spread(self) -> _Spread:
        sample = self._vectors.sample(_TOOLS)
        if len(sample) < _LEAST_TOOLS:
            return _FITTED
        between = (sample @ sample.T)[np.triu_indices(len(sample), 1)]
        return _Spread(float(between.mean()), max(_LEAST_DEVIATION, float(between.std())))


class _Candidates(msgspec.Struct, frozen=True):
    """Candidates of words and of vectors for one query, separately.

    Attributes:
        key: Query and allowed ids.
        documents: By id, at that time.
        words: What the lexical engine finds.
        vectors: Of the query and its sentences, shape (n, dimension), n >= 1; None if there are none.
        ids: Of the nearest tools, nearest first, shape (n,); some may be gone.
        cosines: Theirs, shape (n,).
        fitness: How well the words' best hit fits by words; 0 where it is not needed.
    """

    key: tuple[str, Set[int] | None]
    documents: Mapping[int, Document]
    words: Scores
    vectors: NDArray[np.float32] | None
    ids: NDArray[np.int64]
    cosines: NDArray[np.float32]
    fitness: float


class FusedEngine:
    """Ranks by the cosine of query and tool, fused with the score of the words where `is_lexical_used`.

    The value of a tool is its cosine and 0.05 times its evidence by words, a BM25F sum in nats, which is not put in
    relation to the query: the more of a request a tool answers, the more it counts. The cosine is that of the part of
    the query that is nearest to the tool, the whole of it or one of its sentences: that gained 0.05 of recall@5 with
    requests of several sentences. The score is
    `1 - exp(-1.5 * value)`, in [0, 1); so what has 0.7 of the best score has about half of the best value. A tool that
    has no vector yet stands in with its words. Sums were measured to rank better than reciprocal ranks, which trust a
    weak ranking as much as a strong one.

    Where the embedder fails, words alone rank, `problem` says so, and it is left alone for 30 seconds.

    Safe for threads, as its parts are.

    Args:
        lexical: Ranks by words; is kept equal to this engine's documents from now on.
        vectors: Of these documents; is filled by its owner, may lack some, and loses those of tools that change.
        embedder: Made the vectors.
        clock: Monotonic seconds.
        is_lexical_used: Whether words count for tools that have a vector.
        is_rescaled: Whether the embedder's cosines are brought to the scale of all-MiniLM-L6-v2, for which weights and
            floors were measured.
        is_judged_by_words: Whether words say if a hit fits, unless it is near and far ahead: a static encoder ranks
            well and finds something near to any request.
        documents: Those that the lexical engine has already.
    """

    is_instant = False

    def __init__(
        self,
        lexical: LexicalEngine,
        vectors: VectorIndex,
        embedder: Embedder,
        clock: Callable[[], float] = time.monotonic,
        *,
        is_lexical_used: bool,
        is_rescaled: bool = False,
        is_judged_by_words: bool = False,
        documents: Mapping[int, Document] = Layered(),
    ) -> None:
        self.name = "hybrid" if is_lexical_used else "vector"
        self._is_lexical_used = is_lexical_used
        self._lexical = lexical
        self._vectors = vectors
        self._cosines_per_nat = _COSINES_PER_NAT_OF_STATIC if is_judged_by_words else _COSINES_PER_NAT
        self._judge = _fitness_by_words if is_judged_by_words else _fitness
        self._is_led_by_names = is_judged_by_words
        self._scaled = CosineScale(vectors) if is_rescaled else None
        self._embedder = embedder
        self._clock = clock
        self._documents = documents if isinstance(documents, Layered) else Layered(dict(documents))
        self._tools_of = Counter([document.server for document in documents.values()])
        self._last: _Candidates | None = None
        self._writing = threading.Lock()
        self._failure = ""
        self._rest_until_s = -math.inf

    def __len__(self) -> int:
        return len(self._lexical)

    def __repr__(self) -> str:
        return f"<FusedEngine {self.name} {len(self)} documents, {len(self._vectors)} vectors>"

    @property
    def lexical(self) -> LexicalEngine:
        """The part that ranks by words; it has all documents."""
        return self._lexical

    @property
    def problem(self) -> str | None:
        """Why it ranks worse than it should at present, one sentence; None if it does not."""
        if self._failure:
            return f"words alone rank, the query was not embedded: {self._failure}"
        return self._lexical.problem

    def update(self, added: Iterable[Document], removed: Iterable[int]) -> None:
        """Makes `added` searchable and forgets `removed`; a tool that reads otherwise now loses its vector."""
        new = {document.id: document for document in added}
        dropped = set(removed) - new.keys()
        with self._writing:
            old = self._documents
            gone = {id: old[id] for id in (*dropped, *new) if id in old}
            stale = {
                id for id in new.keys() & gone.keys() if build_embedding_text(gone[id]) != build_embedding_text(new[id])
            }
            self._vectors.update((), np.empty((0, self._vectors.dimension), np.float32), stale | dropped)
            self._lexical.update(new.values(), dropped)
            self._documents = old.apply_changes(new, dropped)
            tools_of = self._tools_of.copy()
            tools_of.update([document.server for document in new.values()])
            tools_of.subtract([document.server for document in gone.values()])
            self._tools_of = +tools_of  # without servers that have none left

    def rank(self, query: str, depth: int, allowed: Set[int] | None) -> list[Hit]:
        """At most `depth` hits with a score above 0, best first; ties at the end go by `compute_tie_break`."""
        found = self._last = self._candidates(query, max(depth, _CANDIDATES), allowed)
        if found.vectors is None:
            return found.words.hits()[:depth]
        ids, cosines, by_words = self._side_by_side(found, found.vectors)
        values = self._fuse_values(cosines, by_words, found.words.weight)
        scores = -np.expm1(-_STEEPNESS * values)
        order = np.argsort(-scores, kind="stable")
        documents, ids, scores = found.documents, ids[order], scores[order]
        if self._is_led_by_names and len(query.split()) >= _SENTENCE_WORDS:
            count = min(_LED, int(np.count_nonzero(scores)))
            first = cut(ids, scores, count, documents) if count else ids[:0]
            leading = _lead_by_names(query, first, values[order], documents)
            ids = np.concatenate((leading, ids[~np.isin(ids, first)]))
        best = cut(ids, scores, depth, documents).tolist()
        return [Hit(id, score) for id, score in zip(best, scores.tolist(), strict=False) if score and id in documents]

    def fit(self, query: str, id: int, allowed: Set[int] | None = None) -> Fit:
        """Fit of a best hit: cosine, lead, words and length together, against two floors.

        Cosine and lead are those of the nearest tool, and words are judged by their own best hit: the two need not
        agree on it for the query to be answered. What many tools are as near to is the frame of the request and not
        what it is about, so the lead over the crowd counts most. A tool without a vector is judged by its words.
        """
        found = self._reuse_candidates(query, allowed)
        if id not in found.documents:
            return Fit.NO
        if self._is_left_to_words(found, id):
            return self._lexical.fit(query, id, allowed)
        # The crowd is no nearer than the tool in its place, whichever servers fill the places before it.
        highest = max(0.0, float(found.cosines[_CROWD - 1])) if len(found.cosines) >= _CROWD else 0.0
        at_least = classify_fitness(self._judge(found, highest))
        if at_least is Fit.YES:
            return at_least
        return classify_fitness(self._judge(found, _crowd(found, len(self._tools_of))))

    def fitness(self, query: str, id: int, allowed: Set[int] | None = None) -> float:
        """Fitness of a best hit, see `fit`, with the two floors at 1 and at 0.7."""
        found = self._reuse_candidates(query, allowed)
        if id not in found.documents:
            return 0.0
        if self._is_left_to_words(found, id):
            return self._lexical.fitness(query, id, allowed)
        return self._judge(found, _crowd(found, len(self._tools_of)))

    def _is_left_to_words(self, found: _Candidates, id: int) -> bool:
        """Whether words alone judge a hit: the first vectors may have come since it was looked for any."""
        return found.vectors is None or not len(found.cosines) or id not in self._vectors

    def meets(self, query: str, ids: Collection[int]) -> bool:
        """Whether one of these documents holds a word of the query, or what may stand for one."""
        return self._lexical.meets(query, ids)

    def explain(
        self, query: str, ids: Collection[int], allowed: Set[int] | None = None
    ) -> Mapping[int, Mapping[str, Any]]:
        """`matched`: query terms found, by field; `lexical` and `vector`: the separate scores.

        `lexical` is there where words count, `vector` where there is one, and where both are, `evidence` says what the
        words weigh, in nats. Unknown ids are left out.
        """
        found, matched = self._reuse_candidates(query, allowed), self._lexical.explain(query, ids)
        why = {}
        for id, cosine in zip(ids, self._cosines(found.vectors, ids), strict=True):
            if id not in matched:
                continue
            told = why[id] = dict(matched[id])
            if not (self._is_lexical_used or math.isnan(cosine)):
                del told["lexical"]
            if not math.isnan(cosine):
                told["vector"] = round(cosine, 3)
            if self._is_lexical_used and not math.isnan(cosine):
                told["evidence"] = round(found.words.weight * told["lexical"] ** 3, 1)
        return why

    def _reuse_candidates(self, query: str, allowed: Set[int] | None) -> _Candidates:
        """The last result if it was for this query, else a new one."""
        last = self._last
        if last is not None and last.key == (query, allowed) and last.documents is self._documents:
            return last
        return self._candidates(query, _CANDIDATES, allowed)

    def _candidates(self, query: str, depth: int, allowed: Set[int] | None) -> _Candidates:
        documents, words = self._documents, self._lexical.scores(query, depth, allowed)
        vectors = self._compute_query_vectors(query)
        ids, cosines, fitness = np.empty(0, np.int64), np.empty(0, np.float32), 0.0
        if vectors is not None:
            ids, cosines = self._nearest(vectors, depth, allowed)
            fitness = self._lexical.fitness(query, int(words.ids[0]), allowed) if len(words.ids) else 0.0
        return _Candidates((query, allowed), documents, words, vectors, ids, cosines, fitness)

    def _nearest(
        self, vectors: NDArray[np.float32], depth: int, allowed: Set[int] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The `depth` tools nearest to one of the vectors, nearest first, with their cosines."""
        ids, cosines = self._vectors.search(vectors[0] if len(vectors) == 1 else vectors, depth, allowed)
        ids, cosines = cut(ids, cosines, depth, self._documents), cosines[:depth]
        return ids, cosines if self._scaled is None else self._scaled(cosines)

    def _highest(self, vectors: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """For each tool its cosine to the nearest of the vectors; NaN without a vector of its own."""
        highest = self._vectors.cosines(vectors[0] if len(vectors) == 1 else vectors, ids)
        return highest if self._scaled is None else self._scaled(highest)

    def _side_by_side(
        self, found: _Candidates, vectors: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """All candidates by rising id, with cosine (NaN without a vector) and lexical score."""
        words = found.words
        ids = np.concatenate((found.ids, words.ids))
        by_id = np.argsort(ids, kind="stable")
        ids = ids[by_id]
        cosines = np.concatenate((found.cosines, self._highest(vectors, words.ids)))[by_id].astype(np.float64)
        by_words = np.concatenate((np.zeros(len(found.ids)), words.scores))[by_id]
        # Found by both: the nearest come first, so the words' score stands in the place after.
        again = np.flatnonzero(ids[1:] == ids[:-1]) + 1
        by_words[again - 1] = by_words[again]
        once = np.ones(len(ids), np.bool_)
        once[again] = False
        return ids[once], cosines[once], by_words[once]

    def _cosines(self, vectors: NDArray[np.float32] | None, ids: Collection[int]) -> list[float]:
        """NaN for each id without a vector, and for all while the query has none."""
        if vectors is None:
            return [math.nan] * len(ids)
        cosines: list[float] = self._highest(vectors, np.array(list(ids), np.int64)).tolist()
        return cosines

    def _fuse_values(
        self, cosines: NDArray[np.float64], by_words: NDArray[np.float64], weight: float
    ) -> NDArray[np.float64]:
        """Values, >= 0, of which scores are made; `cosines` are NaN where there is no vector."""
        # Cosine and the root of the share rate a right answer alike, about 0.7 in the middle.
        meaning = np.where(np.isnan(cosines), by_words**1.5, np.minimum(np.maximum(cosines, 0.0), 1.0))
        evidence = weight * by_words**3 if self._is_lexical_used else 0.0
        values: NDArray[np.float64] = meaning + self._cosines_per_nat * evidence
        return values

    def _compute_query_vectors(self, query: str) -> NDArray[np.float32] | None:
        """The vectors of the query and its sentences, shape (n, dimension), n >= 1; None where there are none.

        A query may mean nothing to the embedder; one that failed is asked again after a rest.
        """
        if self._clock() < self._rest_until_s:
            return None
        try:
            vectors = np.atleast_2d(self._embedder.embed_query(query))
        except EmbeddingError as exc:
            self._failure = exc.message
            self._rest_until_s = self._clock() + max(_REST_S, exc.retry_after_s or 0.0)
            return None
        self._failure = ""
        vectors = vectors[vectors.any(axis=1)]
        return vectors if len(vectors) else None


def _lead_by_names(
    query: str, ids: NDArray[np.int64], values: NDArray[np.float64], documents: Mapping[int, Document]
) -> NDArray[np.int64]:
    """Order the first tools of a ranking by their values and names; their scores stay in their places."""
    asked, led = set(terms(query)), []
    for id, value in zip(ids.tolist(), values.tolist(), strict=False):
        if (document := documents.get(id)) is None:
            return ids  # gone meanwhile
        server = _name_terms(document.server)
        named = _NAMED_SERVER if server and asked.issuperset(server) else 0.0
        led_value = value + named + _PER_NAME_WORD * math.log1p(len(_name_terms(document.name)))
        led.append((-round(led_value, _VALUE_DIGITS), *name_order(document), id))
    return np.array([row[-1] for row in sorted(led)], np.int64)


@lru_cache(maxsize=_NAMES_LIMIT)
def _name_terms(name: str) -> tuple[str, ...]:
    return tuple(terms(name))


def _fitness(found: _Candidates, crowd: float) -> float:
    """Fitness of a query whose crowd has this cosine, see `FusedEngine.fit`."""
    nearest = max(0.0, float(found.cosines[0]))
    length = math.log1p(len(set(terms(found.key[0]))))
    lead = nearest - crowd
    evidence = nearest + _LEAD_WEIGHT * lead + _FITNESS_WEIGHT * found.fitness + _LENGTH_WEIGHT * length
    return max(0.0, 1 - (_FLOOR - evidence) * (1 - LOWER_FLOOR) / (_FLOOR - _LOWER_FLOOR))


def _fitness_by_words(found: _Candidates, crowd: float) -> float:
    """Fitness of a query by the words' best hit; or by the nearest tool, where that is near and far ahead."""
    nearest = max(0.0, float(found.cosines[0]))
    return max(found.fitness, nearest + nearest - crowd)


def _crowd(found: _Candidates, servers: int) -> float:
    """Cosine of the tool in the crowd's place among `servers` servers; 0 with too few tools."""
    ranked = map(found.documents.get, found.ids.tolist())
    place = crowd_place([None if document is None else document.server for document in ranked], _CROWD, servers)
    if place is not None:
        return float(found.cosines[place])
    return float(found.cosines[-1]) if len(found.ids) >= _CANDIDATES else 0.0

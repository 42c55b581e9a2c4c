"""The search room's door: keeps the index equal to the definitions it is given and answers queries."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search.engine import Engine
from smart_mcp_proxy.search.naming import NameTable
from smart_mcp_proxy.search.ranking import Selection, annotated, interleave, near_top, select

__all__ = ["Answer", "SearchIndex"]

_DEPTH = 100
_DEEPER = 8
"""How deep the engine ranks, and the factor by which it looks deeper while clones or one server fill the answer."""

_NEAR_MISSES = 3
"""Source: contract.md, "Results and errors"."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found.

    Attributes:
        hits: Best first, scores in [0, 1]; `why` says what matched, by field, and which clones stand behind a hit.
        near_misses: Only where nothing fits: up to 3 tools that came closest.
        total: Tools that could have been found, after all filters.
        left_out: Up to 20 tools that ranked well and are not in `hits`, each with its reason in `why["left_out"]`.
    """

    hits: tuple[Hit, ...] = ()
    near_misses: tuple[Hit, ...] = ()
    total: int = 0
    left_out: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """What is known of the tools besides their ranking; replaced as a whole by an update."""

    documents: Mapping[int, Document] = field(default_factory=dict)
    names: NameTable = field(default_factory=NameTable.empty)


@dataclass(frozen=True, slots=True)
class _Ranking:
    """One query's part of an answer: hits that fit, best first, and the best that do not."""

    fitting: list[Hit]
    others: list[Hit]


class SearchIndex:
    """Finds tools by what they do and by name.

    Safe for threads: searches read immutable snapshots, updates follow each other under a lock. A search that runs
    beside an update may rank by the old state and look up in the new one; tools gone in between are left out.

    Args:
        engine: Empty, and from now on changed through this index only.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._snapshot = _Snapshot()
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._snapshot.documents)

    def __repr__(self) -> str:
        return f"<SearchIndex {len(self)} tools, engine {self._engine.name}>"

    def update(self, added: Iterable[Document], removed: Iterable[int] = ()) -> None:
        """Makes `added` searchable and forgets `removed`; an added id that is known is replaced."""
        new = {document.id: document for document in added}
        dropped = set(removed)
        with self._writing:
            old = self._snapshot
            gone = [old.documents[id] for id in (dropped | new.keys()) & old.documents.keys()]
            documents = {id: document for id, document in old.documents.items() if id not in dropped} | new
            names = old.names.changed(gone, new.values(), {document.server for document in documents.values()})
            self._engine.update(new.values(), dropped)
            self._snapshot = _Snapshot(documents, names)

    def search(
        self,
        query: str,
        *,
        limit: int,
        more_queries: Sequence[str] = (),
        allowed: Set[int] | None = None,
        servers: Collection[str] = (),
    ) -> Answer:
        """The tools that fit `query` or one of `more_queries`: exact names first, then by score.

        Text without a word in it finds nothing. Where nothing fits, the answer says so and names what came closest.

        Args:
            query: Any text; what it costs is bounded.
            limit: Most hits of all queries together, at least 1.
            more_queries: Further parts of the same need; each gets its share of the places.
            allowed: Ids that may appear anywhere in the answer; None for all.
            servers: Only tools of these; empty for all.
        """
        documents, names = self._snapshot.documents, self._snapshot.names
        queries = list(dict.fromkeys((query, *more_queries)))
        if servers:
            inside = {id for id, document in documents.items() if document.server in servers}
            allowed = inside if allowed is None else inside & allowed
        total = len(documents) if allowed is None else len(documents.keys() & allowed)
        exempt = set(servers).union(*(names.servers_in(text) for text in queries))
        if len(names.servers) == 1:
            exempt = {document.server for document in documents.values()}  # nobody to crowd out

        depth = _DEPTH
        while True:
            rankings = [self._rank(text, depth, allowed, documents, names) for text in queries]
            chosen = select(interleave([ranking.fitting for ranking in rankings]), documents, exempt, limit)
            is_all = all(ranking.others or len(ranking.fitting) < depth for ranking in rankings)
            if len(chosen.kept) >= limit or is_all:
                return self._answer(chosen, rankings, queries, total)
            depth *= _DEEPER

    def nearest_names(self, name: str, n: int = 3, *, allowed: Set[int] | None = None) -> list[int]:
        """Up to `n` ids of tools whose name is closest to one that does not exist, best first; none if none is."""
        snapshot = self._snapshot
        return snapshot.names.nearest(name, n, snapshot.documents, allowed)

    def _rank(
        self, query: str, depth: int, allowed: Set[int] | None, documents: Mapping[int, Document], names: NameTable
    ) -> _Ranking:
        named = names.exact(query, allowed)
        exact = [Hit(id, 1.0, {"exact": name}) for id, name in sorted(named.items())]
        ranked = [hit for hit in self._engine.rank(query, depth, allowed) if hit.id in documents]
        fitting: list[Hit] = []
        others = ranked
        if ranked and self._engine.fits(query, ranked[0].id):
            fitting, others = near_top(ranked)
        return _Ranking(
            exact + [hit for hit in fitting if hit.id not in named],
            [hit for hit in others if hit.id not in named][: _NEAR_MISSES * _DEEPER],
        )

    def _answer(self, chosen: Selection, rankings: Sequence[_Ranking], queries: Sequence[str], total: int) -> Answer:
        others = interleave([ranking.others for ranking in rankings])
        near: tuple[Hit, ...] = ()
        if chosen.kept:
            kept = {hit.id for hit in chosen.kept}
            for hit in others:
                if hit.id not in kept:
                    chosen.leave_out(hit, "scores less than 0.7 of the best, or nothing fits its query")
        else:
            best = sorted(others, key=lambda hit: (-hit.score, hit.id))[:_NEAR_MISSES]
            near = tuple(annotated(self._explained(hit, queries), left_out="does not fit well enough") for hit in best)
        hits = tuple(self._explained(hit, queries) for hit in chosen.kept)
        return Answer(hits, near, total, tuple(chosen.left_out))

    def _explained(self, hit: Hit, queries: Sequence[str]) -> Hit:
        return annotated(hit, **self._engine.explain(" ".join(queries), hit.id))

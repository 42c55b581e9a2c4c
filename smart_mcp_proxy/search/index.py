"""Entry of the search room: keeps the index equal to the definitions it is given and answers queries."""

import threading
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import islice

import msgspec
import numpy as np

from smart_mcp_proxy.layered import Layered
from smart_mcp_proxy.models import Document, Hit
from smart_mcp_proxy.search.answer import (
    OTHERS_KEPT,
    Ranking,
    SearchResult,
    build_answer,
    explain_answer,
    is_flooded,
    merge_rankings,
    part_waiting,
    without_stand_ins,
)
from smart_mcp_proxy.search.engine import Arrays, Engine, Fit, Storable
from smart_mcp_proxy.search.languages import detect_language, has_word_of
from smart_mcp_proxy.search.likeness import Likeness, compute_likeness, dump_likenesses, load_likenesses
from smart_mcp_proxy.search.naming import NameTable
from smart_mcp_proxy.search.negation import read_request
from smart_mcp_proxy.search.ranking import Tools, harmless_first, near_top, plain_first, select
from smart_mcp_proxy.search.text import QUERY_LIMIT_CHARS, has_terms, terms

_DEPTH = 32
_DEEPER = 8
"""Depth of a ranking, and the factor by which the engine looks deeper while clones or one server fill the ranking."""

_INSTANT_TOOLS = 20_000
_INSTANT_CHARS = 200
"""Up to here a search by words took 0.35 ms, and 2 ms where all of its words are new and misspelt; handing it over and
back takes 0.2 ms and more."""

_STORED = 2
"""Grows with every change of what is made of texts, terms and their worth, names and likeness: a test holds both."""

_NAMED_ALIKE = 5
_NEARLY = 0.95
"""The score of a tool whose name the query nearly is: above what usual words reach, below an exact name."""

_READ_DEFINITIONS = 200
"""Definitions that say which language they are in; reading them takes 10 ms."""
_FOREIGN_WORDS = 3
"""A request of so many words, none of which is in what was found, is in another language; fewer may be names."""


class _State(msgspec.Struct, frozen=True):
    """All that a search reads; replaced as a whole by an update."""

    engine: Engine
    documents: Layered[int, Document] = msgspec.field(default_factory=Layered)
    likenesses: Layered[int, Likeness] = msgspec.field(default_factory=Layered)
    names: NameTable = msgspec.field(default_factory=NameTable.empty)


class SearchIndex:
    """Finds tools by what they do and by name.

    Safe for threads: searches read immutable states, updates follow each other under a lock. A search that runs
    beside an update may rank by the old state and look up in the new one; tools gone in between are left out.

    Args:
        engine: Empty, and from now on changed through this index only.
    """

    def __init__(self, engine: Engine) -> None:
        self._state = _State(engine)
        self._counted: tuple[Mapping[int, Document], Set[int], int] = ({}, frozenset(), 0)
        self._written: tuple[Mapping[int, Document], str | None] = ({}, None)
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return len(self._state.documents)

    def __repr__(self) -> str:
        return f"<SearchIndex {len(self)} tools, engine {self.engine.name}>"

    @property
    def engine(self) -> Engine:
        """The engine that ranks at present."""
        return self._state.engine

    @property
    def documents(self) -> Mapping[int, Document]:
        """The searchable documents by id; never changed, an update makes new ones."""
        return self._state.documents

    def is_instant(self, query: str, more_queries: Sequence[str] = ()) -> bool:
        """Whether this search is over before another thread would have begun with it."""
        state = self._state
        is_small = len(state.documents) <= _INSTANT_TOOLS and len(query) <= _INSTANT_CHARS
        return is_small and state.engine.is_instant and not more_queries

    def update(self, added: Iterable[Document], removed: Iterable[int] = ()) -> None:
        """Makes `added` searchable and forgets `removed`; an added id that is known is replaced."""
        new = {document.id: document for document in added}
        dropped = set(removed)
        with self._writing:
            old = self._state
            gone = {id: old.documents[id] for id in dropped | new.keys() if id in old.documents}
            documents = old.documents.apply_changes(new, gone)
            likenesses = old.likenesses.apply_changes(
                {id: compute_likeness(document) for id, document in new.items()}, gone
            )
            names = old.names.replace_documents(gone.values(), new.values())
            old.engine.update(new.values(), dropped - new.keys())
            self._state = _State(old.engine, documents, likenesses, names)

    def dump_arrays(self) -> Arrays | None:
        """The index without its documents as arrays, by rising id; None if it is empty or its engine has none."""
        with self._writing:
            state = self._state
            if not isinstance(state.engine, Storable) or not state.documents:
                return None
            ids = np.array(sorted(state.documents), np.int64)
            engine = state.engine.dump_arrays(ids)
        marks = b"".join([state.documents[id].mark for id in ids.tolist()])
        return {
            "kind": np.frombuffer(_kind(state.engine), np.uint8),
            "ids": ids,
            "marks": np.frombuffer(marks, f"V{len(marks) // len(ids)}"),
            **engine,
            **state.names.dump_arrays(),
            **dump_likenesses(state.likenesses, ids, state.documents),
        }

    def restore(self, arrays: Arrays, documents: Mapping[int, Document]) -> None:
        """Makes those of `documents` searchable that are stored as they are, in place of all that were."""
        kind = arrays.get("kind")
        if kind is None or kind.tobytes() != _kind(self.engine):
            return
        marks = dict(zip(arrays["ids"].tolist(), arrays["marks"].tolist(), strict=True))
        known = {id: documents[id] for id, mark in marks.items() if id in documents and documents[id].mark == mark}
        numbered = np.array([id if id in known else -1 for id in marks], np.int64)
        del marks  # before more is read
        with self._writing:
            engine = self._state.engine
            if known and isinstance(engine, Storable):
                engine.restore(arrays, known, numbered)
                names = NameTable.load_arrays(arrays, known)
                likenesses = Layered(load_likenesses(arrays, numbered, known))
                self._state = _State(engine, Layered(known), likenesses, names)

    def use(self, engine: Engine, filled: Mapping[int, Document] | None = None) -> None:
        """Ranks with another engine from now on; searches before and after see one of the two, never none.

        What changed while the engine was filled is brought to it before it serves.

        Args:
            engine: Changed through this index only from now on.
            filled: `documents` as they were when the engine was filled with them; None: it gets all of them now.
        """
        with self._writing:
            documents, held = self._state.documents, filled or {}
            changed = [document for id, document in documents.items() if held.get(id) is not document]
            gone = held.keys() - documents.keys()
            if changed or gone:
                engine.update(changed, gone)
            self._state = msgspec.structs.replace(self._state, engine=engine)

    def search(
        self,
        query: str,
        *,
        limit: int,
        more_queries: Sequence[str] = (),
        allowed: Set[int] | None = None,
        servers: Collection[str] = (),
        explain: bool = False,
        watched: int | None = None,
        waiting: Set[int] = frozenset(),
    ) -> SearchResult:
        """The tools that fit `query` or one of `more_queries`: exact names first, then by score.

        Text without a word in it finds nothing. Where nothing fits, the answer says so and names what came closest.

        Args:
            query: Any text; of a longer one the first 4,000 characters are read.
            limit: Most hits of all queries together, at least 1.
            more_queries: Further parts of the same need; each gets its share of the places.
            allowed: Ids that may appear anywhere in the answer, a set that does not change any more; None for all.
            servers: Only tools of these; empty for all.
            explain: Whether hits say what matched, and the answer what was left out.
            watched: A tool that is named there, if it was left out, however many others were.
            waiting: Ids, of `allowed` if that is given, that rank with the others and are no hits: their places stay
                empty.
        """
        state = self._state
        names = state.names
        queries = list(dict.fromkeys([text[:QUERY_LIMIT_CHARS] for text in (query, *more_queries)]))
        if servers:
            inside = names.find_server_ids(servers, state.documents)
            allowed = inside if allowed is None else inside & allowed
        exempt = set(servers).union(*[names.find_named_servers(text) for text in queries])
        if len(names.counts) == 1:
            exempt.update(names.counts)  # nobody to crowd out
        tools = Tools(state.documents.whole(), state.likenesses.whole(), exempt)
        depth = max(_DEPTH, 2 * limit)
        while True:
            rankings = [_rank(state, text, depth, allowed, tools) for text in queries]
            if waiting:
                rankings = [without_stand_ins(ranking, waiting, tools) for ranking in rankings]
            ranked, missing = part_waiting(merge_rankings(rankings, tools), waiting, limit)
            chosen = select(ranked, tools, limit, explain=explain, watched=watched)
            is_all = all([ranking.others or len(ranking.fitting) < depth for ranking in rankings])  # noqa: C419  (as below)
            if is_all or (len(chosen.kept) >= limit and not any(is_flooded(ranking, tools) for ranking in rankings)):
                break
            depth *= _DEEPER
        total = self._total(state, allowed)
        total -= sum(id in state.documents and (allowed is None or id in allowed) for id in waiting)
        answer = build_answer(chosen, rankings, tools, total, state.engine.problem)
        if missing:
            is_sure = answer.is_sure and (not chosen.kept or "exact" in chosen.kept[0].why)
            answer = msgspec.structs.replace(answer, waiting=missing, is_sure=is_sure)
        if language := self._other_language(state, rankings):
            answer = msgspec.structs.replace(answer, language=language)
        return explain_answer(answer, chosen, rankings, state.engine, allowed) if explain else answer

    def _total(self, state: _State, allowed: Set[int] | None) -> int:
        """Count the tools that can be found; once for a set that is searched again."""
        if allowed is None:
            return len(state.documents)
        documents, counted, total = self._counted
        if documents is not state.documents or counted is not allowed:
            total = state.documents.count(allowed)
            self._counted = (state.documents, allowed, total)
        return total

    def _other_language(self, state: _State, rankings: Sequence[Ranking]) -> str | None:
        """The language of the definitions, if a query that nothing surely fits is not in it."""
        for ranking in rankings:
            if ranking.is_sure and ranking.query.isascii():
                continue
            words = len(set(terms(ranking.wanted)))
            if not words:
                continue
            spoken = detect_language([ranking.query])
            if spoken is None and (words < _FOREIGN_WORDS or _is_met(state, ranking)):
                continue
            written = self._detect_tools_language(state)
            if written in (None, spoken) or (spoken is None and has_word_of(written, ranking.query)):
                continue
            return written
        return None

    def _detect_tools_language(self, state: _State) -> str | None:
        """Find the language of the definitions; once for tools that are searched again."""
        documents, language = self._written
        if documents is not state.documents:
            some = islice(state.documents.values(), 0, None, len(state.documents) // _READ_DEFINITIONS + 1)
            language = detect_language(each.description for each in some)
            self._written = (state.documents, language)
        return language

    def nearest_names(self, name: str, n: int = 3, *, allowed: Set[int] | None = None) -> list[int]:
        """Up to `n` ids of tools with names close to an unknown one, best first."""
        state = self._state
        return state.names.nearest(name, n, state.documents, allowed)


def _kind(engine: Engine) -> bytes:
    """All that decides, besides the texts, what is stored of them."""
    return f"{engine.name} {_STORED} {unicodedata.unidata_version}".encode()


def _rank(state: _State, query: str, depth: int, allowed: Set[int] | None, tools: Tools) -> Ranking:
    named = state.names.exact(query, tools.documents, allowed)
    likenesses = tools.likenesses
    wanted, forbids_destruction = read_request(query)
    ranked = tools.sort_hits([hit for hit in state.engine.rank(wanted, depth, allowed) if hit.id in likenesses])
    if forbids_destruction:
        ranked = harmless_first(ranked, tools)
    fit = state.engine.fit(wanted, ranked[0].id, allowed) if ranked else Fit.NO
    is_answer = fit is not Fit.NO
    if not forbids_destruction:
        ranked = plain_first(ranked, tools)  # the scores stay in their places
    fitting, others = near_top(ranked, tools) if is_answer else ([], ranked)
    exact = tools.sort_hits([Hit(id, 1.0, {"exact": name}) for id, name in named.items()])
    if by_name := exact or _alike(state.names, query, ranked, allowed, tools):
        ids = {hit.id for hit in by_name}
        fitting = by_name + [hit for hit in fitting if hit.id not in ids]
        others = [hit for hit in others if hit.id not in ids]
        fit = Fit.YES
    return Ranking(query, wanted, fitting, others[:OTHERS_KEPT], fit is Fit.YES, forbids_destruction)


def _alike(names: NameTable, query: str, ranked: Sequence[Hit], allowed: Set[int] | None, tools: Tools) -> list[Hit]:
    """Tools that the query names in another spelling; or nearly, where no name found has all its words."""
    documents = tools.documents
    if spelt := names.spelt_otherwise(query, documents, allowed):
        return tools.sort_hits([Hit(id, 1.0, {"named": "in another spelling"}) for id in spelt])
    if len(query.split(maxsplit=1)) != 1:
        return []
    words = set(terms(query))
    found = [documents[hit.id] for hit in ranked[:_NAMED_ALIKE]]
    if words and any(has_terms(f"{document.server} {document.name}", words) for document in found):
        return []
    near = names.nearly_named(query, documents, allowed)
    return [Hit(id, _NEARLY - at / 1_000, {"named": "nearly"}) for at, id in enumerate(near)]


def _is_met(state: _State, ranking: Ranking) -> bool:
    """Whether one of the first tools found holds a word of the query; mostly the very first does."""
    near = [hit.id for hit in (*ranking.fitting, *ranking.others)[:_NAMED_ALIKE]]
    return any(state.engine.meets(ranking.wanted, some) for some in (near[:1], near[1:]) if some)

"""From the rankings of a search's queries to its answer."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any

import msgspec

from smart_mcp_proxy.models import Hit
from smart_mcp_proxy.search.engine import Engine
from smart_mcp_proxy.search.ranking import Selection, Tools, destructive_last, extend_why, interleave

_NEAR_MISSES = 3
"""Source: docs/design/wire-formats.md#answers-to-a-search"""

_WAITING_NAMED = 3
"""Source: docs/design/wire-formats.md#answers-to-a-search"""

OTHERS_KEPT = 8 * _NEAR_MISSES
"""Hits that do not fit and are kept of each ranking."""


class SearchResult(msgspec.Struct, frozen=True):
    """Result of a search.

    Attributes:
        hits: Best first, scores in [0, 1]; `why` names the clones that stand behind a hit, and what matched, if asked.
        near_misses: Only where nothing fits: up to 3 tools that came closest.
        total: Tools that could have been found, after all filters.
        left_out: If asked: up to 20 tools that ranked well and are not in `hits`, each with its reason in
            `why["left_out"]`.
        degraded: Why the ranking is worse than it should be at present; usually empty.
        unanswered: Where something fits: the queries that nothing does, as far as they were read.
        is_sure: Whether a hit fits one of the queries surely, or there is none: else each of them only may.
        language: That of the definitions, by its English name, where a query that nothing surely fits seems to be in
            another one.
        waiting: Up to 3 tools that belong among the hits and wait for approval, best first.
        following: Up to 10 tools that fit as well and come behind the hits, best first.
    """

    hits: tuple[Hit, ...] = ()
    near_misses: tuple[Hit, ...] = ()
    total: int = 0
    left_out: tuple[Hit, ...] = ()
    degraded: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    is_sure: bool = True
    language: str | None = None
    waiting: tuple[Hit, ...] = ()
    following: tuple[Hit, ...] = ()


class Ranking(msgspec.Struct, frozen=True):
    """The ranking of a query, a part of the answer, best first.

    Attributes:
        query: As it was asked.
        wanted: What was ranked by: the query without what it forbids.
        fitting: Those that fit, or only may.
        others: Some of the others.
        is_sure: Whether the best one surely fits.
        forbids_destruction: Whether the query forbids to remove or overwrite anything.
        stand_ins: Destructive tools that fit and are left out because one above them waits for approval.
    """

    query: str
    wanted: str
    fitting: list[Hit]
    others: list[Hit]
    is_sure: bool
    forbids_destruction: bool
    stand_ins: Sequence[Hit] = ()


def is_flooded(ranking: Ranking, tools: Tools) -> bool:
    """Return whether one server fills a ranking, so that fitting tools of others may be missing."""
    half, likenesses = len(ranking.fitting) / 2, tools.likenesses
    if max(Counter([likenesses[hit.id].server for hit in ranking.fitting]).values(), default=0) <= half:
        return False  # as nearly always
    count = Counter([tools.server(hit) for hit in ranking.fitting if not tools.is_named_by_query(hit)])
    return max(count.values(), default=0) > half


def merge_rankings(rankings: Sequence[Ranking], tools: Tools) -> list[Hit]:
    """The hits of all queries in turn.

    What one of them forbids counts for all: they are parts of one need.
    """
    fitting = interleave([ranking.fitting for ranking in rankings])
    if len(rankings) > 1 and any([ranking.forbids_destruction for ranking in rankings]):  # noqa: C419  (a generator is dearer)
        return destructive_last(fitting, tools)
    return fitting


def without_stand_ins(ranking: Ranking, waiting: Set[int], tools: Tools) -> Ranking:
    """Take out of a ranking the destructive tools that would stand where one that waits is missing.

    Not those that the query names. What waits stays among the fitting ones; see `part_waiting`.
    """
    first = next((place for place, hit in enumerate(ranking.fitting) if hit.id in waiting), None)
    others = [hit for hit in ranking.others if hit.id not in waiting]
    if first is None:
        return msgspec.structs.replace(ranking, others=others)

    def may_stay(hit: Hit) -> bool:
        is_named = not hit.why.keys().isdisjoint(("exact", "named"))
        return hit.id in waiting or is_named or not tools.documents[hit.id].is_destructive

    above, below = ranking.fitting[:first], ranking.fitting[first:]
    fitting, left = [*above, *filter(may_stay, below)], [hit for hit in below if not may_stay(hit)]
    return msgspec.structs.replace(ranking, fitting=fitting, others=others, stand_ins=left)


def part_waiting(ranked: Sequence[Hit], waiting: Set[int], limit: int) -> tuple[list[Hit], tuple[Hit, ...]]:
    """The hits of a ranking that may be sent, and of its first `limit` the best of those that wait."""
    if not waiting:
        return list(ranked), ()
    named = tuple([hit for hit in ranked[:limit] if hit.id in waiting][:_WAITING_NAMED])
    return [hit for hit in ranked if hit.id not in waiting], named


def build_answer(
    chosen: Selection, rankings: Sequence[Ranking], tools: Tools, total: int, problem: str | None
) -> SearchResult:
    """The answer with the chosen hits, or with what came closest where there is none."""
    near: tuple[Hit, ...] = ()
    if not chosen.kept:
        others = interleave([ranking.others for ranking in rankings])
        best = tools.sort_hits(others)[:_NEAR_MISSES]
        near = tuple(extend_why(hit, left_out="does not fit well enough") for hit in best)
    unanswered = tuple([ranking.query for ranking in rankings if chosen.kept and not ranking.fitting])
    is_sure = not chosen.kept or any(ranking.is_sure and ranking.fitting for ranking in rankings)
    return SearchResult(
        hits=tuple(chosen.kept),
        near_misses=near,
        total=total,
        degraded=(problem,) if problem else (),
        unanswered=unanswered,
        is_sure=is_sure,
        following=tuple(chosen.following),
    )


def explain_answer(
    answer: SearchResult, chosen: Selection, rankings: Sequence[Ranking], engine: Engine, allowed: Set[int] | None
) -> SearchResult:
    """The answer with what matched in each hit, and what was left out."""
    ranked = [(hit, ranking.wanted) for ranking in rankings for hit in (*ranking.fitting, *ranking.others)]
    asked = {hit.id: query for hit, query in sorted(ranked, key=lambda pair: pair[0].score)}  # the best one stays
    kept = {hit.id for hit in answer.hits}
    for hit in chain.from_iterable(ranking.stand_ins for ranking in rankings):
        if hit.id not in kept:
            chosen.leave_out(
                hit, "is marked destructive, and a tool that waits for approval ranks above it", "stand_in"
            )
    if kept:
        for hit in interleave([ranking.others for ranking in rankings]):
            if hit.id not in kept:
                chosen.leave_out(
                    hit,
                    "scores less than 0.7 of the best (0.6 for its server's tools), or nothing fits its query",
                    "cut",
                )

    why: dict[int, Mapping[str, Any]] = {}
    for query in dict.fromkeys(asked.values()):
        ids = [hit.id for hit in (*answer.hits, *answer.near_misses) if asked[hit.id] == query]
        why |= engine.explain(query, ids, allowed) if ids else {}

    def add_matches(hits: Iterable[Hit]) -> tuple[Hit, ...]:
        return tuple(extend_why(hit, **why.get(hit.id, {})) for hit in hits)

    return msgspec.structs.replace(
        answer,
        hits=add_matches(answer.hits),
        near_misses=add_matches(answer.near_misses),
        left_out=tuple(chosen.left_out),
    )

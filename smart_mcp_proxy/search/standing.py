"""Standing of one tool for a query: place, numbers, and the step that keeps it out."""

from collections.abc import Mapping, Set
from typing import Any

import msgspec

from smart_mcp_proxy.models import Hit, ToolKey
from smart_mcp_proxy.search.answer import SearchResult
from smart_mcp_proxy.search.engine import LOWER_FLOOR, Fit
from smart_mcp_proxy.search.index import SearchIndex
from smart_mcp_proxy.search.negation import read_request
from smart_mcp_proxy.search.ranking import RELATIVE_CUT, SIBLING_CUT, Tools

_DEPTH = 100
"""An engine that fuses words and vectors looks as deep for an answer; from deeper down it has more to say of a tool."""


class ToolStanding(msgspec.Struct, frozen=True):
    """Standing of a tool for a query.

    Attributes:
        verdict: `in_answer`, or the step that decides: `no_match`, `floor`, `clone`, `server_cap`, `stand_in`,
            `limit` or `cut`.
        reason: The same as a sentence.
        place: In the answer, from 1; None if it is not there.
        rank: Among all that match, from 1; None if nothing of the query is in it.
        score: In [0, 1]; that of the answer, if it was named there.
        top: Name of the tool that ranks first; None if none matches.
        top_score: Its score.
        share: The share of the best score that is kept: less for tools of the best one's server.
        cut: The least score that is kept.
        fitness: Of the tool that ranks first, from 0; the two floors are for it.
        why: What matched.
    """

    verdict: str
    reason: str
    place: int | None
    rank: int | None
    score: float
    top: str | None
    top_score: float
    share: float
    cut: float
    fitness: float
    why: Mapping[str, Any]


def find_standing(
    index: SearchIndex, id: int, query: str, answer: SearchResult, limit: int, allowed: Set[int] | None
) -> ToolStanding:
    """Find where a tool stands, and which step decides that.

    Args:
        index: Gave the answer.
        id: The tool's.
        query: The one query of the answer.
        answer: Explained, with this tool watched.
        limit: Of the answer.
        allowed: All that could be found, this tool among them; None for all.
    """
    engine, documents, query = index.engine, index.documents, read_request(query).text
    ranked: list[Hit] = []
    for depth in (_DEPTH, max(_DEPTH, len(documents))):
        known = {hit.id for hit in ranked}  # where an answer ends stays before what only a deeper look finds
        hits = [hit for hit in engine.rank(query, depth, allowed) if hit.id in documents and hit.id not in known]
        ranked += sorted(hits, key=Tools(documents, {}).order)
        rank = next((rank for rank, hit in enumerate(ranked, 1) if hit.id == id), None)
        if rank is not None:
            break
    named = (*answer.hits, *answer.left_out, *answer.near_misses)
    hit = next((hit for hit in named if hit.id == id), ranked[rank - 1] if rank else Hit(id, 0.0))
    top = ranked[0] if ranked else Hit(id, 0.0)
    share = SIBLING_CUT if documents[top.id].server == documents[id].server else RELATIVE_CUT
    found = ToolStanding(
        verdict=hit.why.get("verdict", ""),
        reason=hit.why.get("left_out", ""),
        place=next((place for place, hit in enumerate(answer.hits, 1) if hit.id == id), None),
        rank=rank,
        score=hit.score,
        top=str(ToolKey(documents[top.id].server, documents[top.id].name)) if ranked else None,
        top_score=top.score,
        share=share,
        cut=share * top.score,
        fitness=engine.fitness(query, top.id, allowed),
        why={**engine.explain(query, [id], allowed).get(id, {}), **hit.why},
    )
    is_answered = bool(ranked) and engine.fit(query, top.id, allowed) is not Fit.NO
    verdict, reason = _verdict(found, len(answer.hits), limit, is_answered=is_answered)
    why = {fact: value for fact, value in found.why.items() if fact not in ("verdict", "left_out")}
    return msgspec.structs.replace(found, verdict=verdict, reason=reason, why=why)


def _verdict(found: ToolStanding, hits: int, limit: int, *, is_answered: bool) -> tuple[str, str]:
    """The step that decides, and a sentence about it; `found` has them as far as the search named them."""
    if found.place is not None:
        moved = " Tools that the query names come first, and no server fills the answer."
        is_moved = found.rank is not None and found.place > found.rank
        return "in_answer", f"It is in the answer, at place {found.place} of {hits}.{moved if is_moved else ''}"
    if found.rank is None:
        return "no_match", "Nothing of the query is in it, so its score is 0."
    if not is_answered:
        others = "Only tools that the query names are in the answer" if hits else "Nothing fits the query"
        return "floor", (
            f"{others}: {found.top} ranks first, and its fitness of {found.fitness:.2f} is below the lower floor, "
            f"{LOWER_FLOOR:g}."
        )
    if found.verdict == "clone":
        return "clone", f"It {found.reason}, which stands for it."
    if found.verdict not in ("", "limit", "cut"):
        return found.verdict, f"Left out: {found.reason}."
    if found.score < found.cut:
        return "cut", (
            f"Its score of {found.score:.2f} is below the cut of {found.cut:.2f}, {found.share:g} of the best score: "
            f"{found.top} has {found.top_score:.2f}."
        )
    return "limit", f"It fits, but ranks {found.rank}, and the answer ends at the limit of {limit}."

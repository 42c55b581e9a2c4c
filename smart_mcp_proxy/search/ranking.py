"""From a deep ranking to the answer: who is left out, and why. Pure functions over values."""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any

from smart_mcp_proxy.models import Document, Hit, ToolKey
from smart_mcp_proxy.search.text import terms

__all__ = ["RELATIVE_CUT", "Selection", "interleave", "near_top", "select"]

RELATIVE_CUT = 0.7
"""Share of the best score below which a hit is left out. Source: contract.md, "Search"."""

_PER_SERVER = 5
_CAPPED_PLACES = 15
"""At most 5 tools of one server among the first 15. Source: contract.md, "Search"."""

_CLONE_SHARE = 0.9
"""Share of common description terms (Jaccard) from which two tools of the same name say the same."""

_LEFT_OUT_LIMIT = 20
"""Hits left out that are still named; they are for people asking why."""

_SIGNATURES = 2_048
"""Tools whose terms are remembered, about 6 MB; popular tools come up in every search."""


@dataclass(slots=True)
class Selection:
    """What is kept of a ranking, best first, and what was left out, with the reason in `why["left_out"]`."""

    kept: list[Hit] = field(default_factory=list)
    left_out: list[Hit] = field(default_factory=list)

    def leave_out(self, hit: Hit, reason: str) -> None:
        """Names a hit that is not in the answer, unless enough are named already."""
        if len(self.left_out) < _LEFT_OUT_LIMIT:
            self.left_out.append(annotated(hit, left_out=reason))


def annotated(hit: Hit, **facts: Any) -> Hit:
    """The hit with more to say in its `why`."""
    return Hit(hit.id, hit.score, {**hit.why, **facts})


def near_top(ranked: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """The hits with at least 0.7 of the first one's score, and the rest; `ranked` is best first."""
    cut = next((place for place, hit in enumerate(ranked) if hit.score < RELATIVE_CUT * ranked[0].score), len(ranked))
    return list(ranked[:cut]), list(ranked[cut:])


def interleave(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """One ranking of several: the best of each, then the second of each, and so on; a tool once, at its best score."""
    best: dict[int, Hit] = {}
    for hit in chain.from_iterable(zip_longest(*rankings)):
        if hit is not None and (hit.id not in best or best[hit.id].score < hit.score):
            best[hit.id] = hit  # a known key keeps its place
    return list(best.values())


def select(ranked: Sequence[Hit], documents: Mapping[int, Document], exempt: Set[str], limit: int) -> Selection:
    """The first `limit` tools of a ranking that say something of their own and leave other servers room.

    Near-clones of a tool kept are named in its `why["clones"]`. Of one server at most 5 tools stand among the first
    15; those beyond come after place 15, if the answer reaches that far. Both parts are ordered by falling score,
    then rising id.

    Args:
        ranked: Hits in the order of preference; those with `exact` in their `why` are never left out for another.
        documents: Has every id in `ranked`.
        exempt: Servers that may take any number of places.
        limit: At least 1.
    """
    result = Selection()
    front: list[Hit] = []
    deferred: list[Hit] = []
    clones: dict[int, list[str]] = {}
    per_server: Counter[str] = Counter()
    front_places, enough = min(limit, _CAPPED_PLACES), limit + _LEFT_OUT_LIMIT
    for hit in ranked:
        document = documents[hit.id]
        is_free = "exact" in hit.why or document.server in exempt or per_server[document.server] < _PER_SERVER
        must_wait = len(front) == front_places or not is_free
        if must_wait and len(deferred) == enough:
            if len(front) == front_places:
                break
        elif twin := _twin(hit, front + deferred, documents):
            clones.setdefault(twin.id, []).append(_name(document))
            result.leave_out(hit, f"says the same as {_name(documents[twin.id])}")
        elif must_wait:
            deferred.append(hit)
        else:
            per_server[document.server] += 1
            front.append(hit)
    room = limit - len(front) if len(front) == _CAPPED_PLACES else 0
    kept = sorted(front, key=_order) + sorted(deferred[:room], key=_order)
    result.kept = [annotated(hit, clones=clones[hit.id]) if hit.id in clones else hit for hit in kept]
    for hit in deferred[room:]:
        full = len(kept) >= limit
        result.leave_out(hit, "beyond the limit" if full else f"{_PER_SERVER} tools of its server are above it")
    return result


def _order(hit: Hit) -> tuple[float, int]:
    return -hit.score, hit.id


def _name(document: Document) -> str:
    return str(ToolKey(document.server, document.name))


def _twin(hit: Hit, kept: Sequence[Hit], documents: Mapping[int, Document]) -> Hit | None:
    """The kept hit that says the same; None for an exact name, which was asked for as it is."""
    if "exact" in hit.why:
        return None
    mine = _signature(documents[hit.id])
    return next((other for other in kept if _is_clone(mine, _signature(documents[other.id]))), None)


@dataclass(frozen=True, slots=True)
class _Signature:
    """The terms of a tool's name without numbers, and of its description."""

    name: frozenset[str]
    description: frozenset[str]


@lru_cache(maxsize=_SIGNATURES)
def _signature(document: Document) -> _Signature:
    name = frozenset(term for term in terms(document.name) if not any(map(str.isdigit, term)))
    return _Signature(name, frozenset(terms(document.description)))


def _is_clone(a: _Signature, b: _Signature) -> bool:
    """Whether two tools say the same.

    Their names differ in numbers only and their descriptions hardly, or one name adds words to the other and the
    descriptions hold the same words. `create_x` and `delete_x` are no clones however alike they are described.
    """
    if a.name == b.name:
        common = len(a.description & b.description)
        return common >= _CLONE_SHARE * len(a.description | b.description)
    return bool(a.description) and a.description == b.description and (a.name < b.name or b.name < a.name)

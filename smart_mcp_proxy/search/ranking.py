"""From a deep ranking to the answer: who is left out, and why. Pure functions over values."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain, zip_longest
from operator import sub
from typing import Any

import msgspec

from smart_mcp_proxy.models import Document, Hit, ToolKey
from smart_mcp_proxy.search.likeness import Likeness, is_clone, is_embellished, is_like, is_variant
from smart_mcp_proxy.search.ties import name_order

RELATIVE_CUT = 0.7
"""Share of the best score below which a hit is left out. Source: docs/design/limits.md#search"""

SIBLING_CUT = 0.6
"""The same for tools of the best one's server. From there down to 0.3 recall@5 of three query sets moves by 0.001."""

_PER_SERVER = 5
_CAPPED_PLACES = 15
"""At most 5 tools of one server among the first 15. Source: docs/design/limits.md#search"""

_FIRST_PLACES = 5
"""The places that a usual answer has."""

_LOOK_ALIKES = 3
"""Limit on the first places that one server fills with tools that look like another server's, before that one gets the
last of them; and on those that look like each other, where it fills all places and any other server's tool fits. With
786 queries over 5,000 tools, leaving that one the last place costs no recall; leaving it two costs 0.005."""

_TIE_DIGITS = 6
"""Scores that differ less are equal: the same tool in another row of a matrix has another rounding error."""
_CLOSE = 2 * 10**-_TIE_DIGITS
"""Scores that are further apart are never equal once rounded."""

_SERVERS_PER_CLONE = 2
"""A clone on a second server is kept, so that nobody hides a tool by copying it; on a third it is named only."""

_WAITING = 15
"""Hits beyond the limit that are looked at, for they may look like the ones above them."""

_NEXT_NAMED = 10
"""Hits behind the answer that are named. Source: docs/design/wire-formats.md#answers-to-a-search"""

_LEFT_OUT_LIMIT = 20
"""Hits left out that are still named; they are for people asking why."""


class Tools(msgspec.Struct, frozen=True):
    """The tools that a ranking is about.

    Attributes:
        documents: By id.
        likenesses: By id, of the same tools.
        exempt: Servers that may take any number of places.
    """

    documents: Mapping[int, Document]
    likenesses: Mapping[int, Likeness]
    exempt: Set[str] = frozenset()

    def server(self, hit: Hit) -> str:
        """The server of a hit's tool."""
        return self.likenesses[hit.id].server

    def name(self, hit: Hit) -> str:
        """The canonical name of a hit's tool; the name or URI of what is no tool, as agents use it."""
        document = self.documents[hit.id]
        return str(ToolKey(document.server, document.name)) if document.kind == "tool" else document.listed_name

    def text(self, hit: Hit) -> str:
        """The description of a hit's tool, or its title where it has none."""
        document = self.documents[hit.id]
        return document.description or document.title

    def order(self, hit: Hit) -> tuple[float, str, str, str, str]:
        """Sort key: the best score first, equal ones by name, whenever they were indexed."""
        return -round(hit.score, _TIE_DIGITS), *name_order(self.documents[hit.id])

    def sort_hits(self, hits: Sequence[Hit]) -> list[Hit]:
        """The hits by `order`; those that stand by falling score are compared by name where equal only."""
        if len(hits) < 2:
            return list(hits)
        scores = [hit.score for hit in hits]
        falls = list(map(sub, scores, scores[1:]))
        least = min(falls)
        if least < 0:
            return sorted(hits, key=self.order)
        found = list(hits)
        if least >= _CLOSE:
            return found
        start, documents = 0, self.documents
        for end in (*[at for at, fall in enumerate(falls, 1) if fall >= _CLOSE], len(found)):
            if end - start > 1:
                is_one_score = scores[start] == scores[end - 1]  # as mostly: then names alone decide
                by = (lambda hit: name_order(documents[hit.id])) if is_one_score else self.order
                found[start:end] = sorted(found[start:end], key=by)
            start = end
        return found

    def is_named_by_query(self, hit: Hit) -> bool:
        """Whether the query names the tool or its server: then nothing keeps it from its place."""
        return "exact" in hit.why or self.server(hit) in self.exempt


class Selection(msgspec.Struct):
    """The kept part of a ranking, best first, and the rest with reasons in `why["left_out"]`.

    Attributes:
        kept: The answer.
        left_out: Up to 20 others, if `explain`.
        explain: Whether anybody wants to know what was left out.
        watched: A tool that is named among those left out, however many there are.
        following: Up to 10 hits that come behind the answer, best first.
    """

    explain: bool = True
    watched: int | None = None
    kept: list[Hit] = msgspec.field(default_factory=list)
    following: list[Hit] = msgspec.field(default_factory=list)
    left_out: list[Hit] = msgspec.field(default_factory=list)

    def leave_out(self, hit: Hit, reason: str, verdict: str = "left_out") -> None:
        """Names a hit that is not in the answer, unless nobody asks or enough are named already."""
        if self.explain and (len(self.left_out) < _LEFT_OUT_LIMIT or hit.id == self.watched):
            self.left_out.append(extend_why(hit, left_out=reason, verdict=verdict))


def extend_why(hit: Hit, **facts: Any) -> Hit:
    """The hit with more to say in its `why`."""
    return Hit(hit.id, hit.score, {**hit.why, **facts})


def near_top(ranked: Sequence[Hit], tools: Tools) -> tuple[list[Hit], list[Hit]]:
    """The hits with at least 0.7 of the first one's score, and the rest; `ranked` is best first.

    Of the first one's server, tools with 0.6 of its score are kept, too: they are parts of the same job.
    """
    best = ranked[0].score if ranked else 0.0
    cut = bisect_right(ranked, -RELATIVE_CUT * best, key=lambda hit: -hit.score)
    near, far = list(ranked[:cut]), list(ranked[cut:])
    reach = bisect_right(far, -SIBLING_CUT * best, key=lambda hit: -hit.score)
    if not reach:
        return near, far
    server, likenesses = tools.server(ranked[0]), tools.likenesses
    parts: tuple[list[Hit], list[Hit]] = ([], [])
    for hit in far[:reach]:
        parts[likenesses[hit.id].server != server].append(hit)
    return near + parts[0], parts[1] + far[reach:]


def harmless_first(ranked: Sequence[Hit], tools: Tools) -> list[Hit]:
    """Place the tools marked destructive after all others that come near the best one of these.

    They keep their place in the answer where they fit, for many a tool that only updates something is marked so.
    """
    harmless = [hit for hit in ranked if not tools.documents[hit.id].is_destructive]
    if not harmless or len(harmless) == len(ranked):
        return list(ranked)
    near, far = near_top(harmless, tools)
    below = near[-1].score - 10**-_TIE_DIGITS
    destructive = [
        Hit(hit.id, min(hit.score, below), hit.why) for hit in ranked if tools.documents[hit.id].is_destructive
    ]
    return [*near, *sorted([*destructive, *far], key=tools.order)]


def destructive_last(hits: Sequence[Hit], tools: Tools) -> list[Hit]:
    """Place the tools marked destructive behind all others, below the least of their scores.

    Not those that a query names.
    """
    is_marked = {
        hit.id: tools.documents[hit.id].is_destructive and hit.why.keys().isdisjoint(("exact", "named")) for hit in hits
    }
    others = [hit for hit in hits if not is_marked[hit.id]]
    below = max(0.0, min((hit.score for hit in others), default=1.0) - _CLOSE)
    return [*others, *(Hit(hit.id, min(hit.score, below), hit.why) for hit in hits if is_marked[hit.id])]


def plain_first(ranked: Sequence[Hit], tools: Tools) -> list[Hit]:
    """Swap two servers' tools that are the same but for praise, with their scores.

    So the one that praises itself less stands first, and words of praise gain nothing, whatever the query.
    """
    hits, likeness_of = list(ranked), tools.likenesses
    likenesses = [likeness_of[hit.id] for hit in hits]
    places: dict[str, list[int]] = {mine.bare_name: [] for mine in likenesses if mine.praise}
    named_alike = [place for place, mine in enumerate(likenesses) if mine.bare_name in places] if places else []
    for place in named_alike:
        mine, hit = likenesses[place], hits[place]
        above = places[mine.bare_name]
        for other in above:
            praised = hits[other]
            theirs = tools.likenesses[praised.id]
            if theirs.praise <= mine.praise or not is_embellished(theirs, mine):
                continue
            if not tools.is_named_by_query(praised) and tools.server(praised) != tools.server(hit):
                hits[other] = Hit(hit.id, praised.score, hit.why)
                hits[place] = Hit(praised.id, hit.score, praised.why)
                break
        above.append(place)
    return hits


def interleave(rankings: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Interleave rankings, best of each first; a tool once, at its best score."""
    if len(rankings) == 1:
        return list(rankings[0])
    best: dict[int, Hit] = {}
    for hit in chain.from_iterable(zip_longest(*rankings)):
        if hit is not None and (hit.id not in best or best[hit.id].score < hit.score):
            best[hit.id] = hit  # a known key keeps its place
    return list(best.values())


def select(
    ranked: Sequence[Hit], tools: Tools, limit: int, *, explain: bool = True, watched: int | None = None
) -> Selection:
    """The first `limit` tools of a ranking that say something of their own and leave other servers room.

    - Clones of a tool kept are named in its `why["clones"]`; a clone on a second server is kept as well.
    - Of one server at most 5 tools stand among the first 15; those beyond come after place 15, if the answer reaches
      that far.
    - Where 3 of the first 5 are one server's and look like another server's tool, the last of them gives way to it.
    - Where all of the first 5 are one server's and look like each other, the last gives way to the best tool of
      another server.

    The first 5, the next 10 and the rest are each ordered by falling score, then by name.

    Args:
        ranked: Hits in the order of preference; those with `exact` in their `why` are never left out for another.
        tools: Has every id in `ranked`.
        limit: At least 1.
        explain: Whether to name what was left out.
        watched: A tool to name there in any case.
    """
    result = Selection(explain, watched)
    front, waiting, clones = _seat_hits(ranked, tools, limit, result)
    page, more = _diversify_page(front[:_FIRST_PLACES], [*front[_FIRST_PLACES:], *waiting], tools)
    room = len(front) - len(page)
    late = limit - len(front) if len(front) == _CAPPED_PLACES else 0
    seats = [page, more[:room], more[room : room + late]]
    kept = [hit for part in seats if part for hit in tools.sort_hits(part)]
    result.kept = [
        extend_why(hit, clones=list(map(tools.name, clones[hit.id]))) if hit.id in clones else hit for hit in kept
    ]
    result.following = _select_next(more[room + late :], result.kept, tools)
    for hit in more[room + late :] if explain else ():
        result.leave_out(hit, "beyond the limit", "limit")
    return result


def _select_next(hits: Iterable[Hit], kept: Sequence[Hit], tools: Tools) -> list[Hit]:
    """Select those that come behind an answer; of one server there are no more than in a longer answer."""
    taken = Counter(map(tools.server, kept))
    following: list[Hit] = []
    for hit in hits:
        if len(following) == _NEXT_NAMED:
            break
        is_capped = len(kept) + len(following) < _CAPPED_PLACES and not tools.is_named_by_query(hit)
        if not is_capped or taken[tools.server(hit)] < _PER_SERVER:
            taken[tools.server(hit)] += 1
            following.append(hit)
    return tools.sort_hits(following)


def _seat_hits(
    ranked: Iterable[Hit], tools: Tools, limit: int, result: Selection
) -> tuple[list[Hit], list[Hit], dict[int, list[Hit]]]:
    """Seat the ranked tools: placed, waiting, and the clones that get no place, by id."""
    front: list[Hit] = []
    waiting: list[Hit] = []
    clones: dict[int, list[Hit]] = {}
    groups: dict[str, list[tuple[Hit, Likeness]]] = {}
    per_server: dict[str, int] = {}
    likenesses, explain = tools.likenesses, result.explain
    places, enough = min(limit, _CAPPED_PLACES), limit + _WAITING
    is_full = False
    for hit in ranked:
        if is_full and len(waiting) == enough:
            break
        mine = likenesses[hit.id]
        server = mine.server
        if (group := groups.get(mine.plain_name)) is None:
            group = groups[mine.plain_name] = []
        taken = per_server.get(server, 0)
        is_free = taken < _PER_SERVER or tools.is_named_by_query(hit)
        if group and (twin := _twin(hit, mine, group, tools)):
            clones.setdefault(twin.id, []).append(hit)
            if explain:
                result.leave_out(hit, f"says the same as {tools.name(twin)}", "clone")
        elif is_free and not is_full:
            per_server[server] = taken + 1
            front.append(hit)
            is_full = len(front) == places
            group.append((hit, mine))
        elif not is_free and limit <= _CAPPED_PLACES:
            if explain:
                result.leave_out(hit, f"{_PER_SERVER} tools of its server are above it", "server_cap")
        elif len(waiting) < enough:
            waiting.append(hit)
            group.append((hit, mine))
    return front, waiting, clones


def _twin(hit: Hit, mine: Likeness, kept: Iterable[tuple[Hit, Likeness]], tools: Tools) -> Hit | None:
    """The kept hit behind which this one is only named; None for one that was asked for by its name."""
    if "exact" in hit.why:
        return None
    server, text = mine.server, tools.text(hit)
    first_of: dict[str, Hit] = {}
    for other, theirs in kept:
        is_own, is_one_text = theirs.server == server, tools.text(other) == text
        if is_clone(mine, theirs, is_one_server=is_own, is_one_text=is_one_text):
            if is_own:
                return other
            first_of.setdefault(theirs.server, other)
    return next(iter(first_of.values())) if len(first_of) >= _SERVERS_PER_CLONE else None


def _diversify_page(page: Sequence[Hit], others: Sequence[Hit], tools: Tools) -> tuple[list[Hit], list[Hit]]:
    """Let look-alikes give way on the first page; returns the page and what follows it."""
    first, after = list(page), list(others)
    servers = [tools.server(hit) for hit in first]
    server = max(servers, key=servers.count, default="")
    if servers.count(server) < _LOOK_ALIKES or server in tools.exempt:
        return first, after
    crowd = [(hit, tools.likenesses[hit.id]) for hit in first if tools.server(hit) == server and "exact" not in hit.why]
    is_full = servers.count(server) == len(first)
    for place, hit in enumerate(after):
        if tools.server(hit) == server:
            continue
        mine = tools.likenesses[hit.id]
        giving = [member for member in crowd if is_like(member[1], mine)]
        if len(giving) < _LOOK_ALIKES:
            giving = crowd if is_full and _are_variants(crowd) else []
        is_full = False
        if giving:
            last = giving[-1]
            crowd = [member for member in crowd if member is not last]
            first[first.index(last[0])], after[place] = hit, last[0]
    return first, after


def _are_variants(crowd: Sequence[tuple[Hit, Likeness]]) -> bool:
    """Whether each of one server's tools looks like two others of them at least, by text or by name."""
    return all(sum(is_variant(mine, other) for _, other in crowd) >= _LOOK_ALIKES for _, mine in crowd)

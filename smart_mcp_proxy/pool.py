"""Pool of one client's found tools, kept small by weighted eviction."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from smart_mcp_proxy.models import Hit

_SCORE_WEIGHT = 0.7
_FRESHNESS_WEIGHT = 0.3
_STALE_AFTER_S = 1800.0
"""All three. Source: docs/design/registration.md#eviction"""


def retention(score: float, idle_s: float) -> float:
    """Weight by which a pooled tool is kept; the lowest leaves first.

    `0.7 * score + 0.3 * freshness`, `freshness = 1 - min(1, idle_s / 1800)`.

    Args:
        score: Best search score since the tool entered the pool, in [0, 1].
        idle_s: Seconds on the monotonic clock since it was last retrieved or called, >= 0.

    Returns:
        A weight in [0, 1].

    Source: docs/design/registration.md#eviction
    """
    return _SCORE_WEIGHT * score + _FRESHNESS_WEIGHT * (1 - min(1.0, idle_s / _STALE_AFTER_S))


class PoolChange(msgspec.Struct, frozen=True):
    """Changes by a decision, as tool ids; false without any.

    Attributes:
        added: Entered the pool, in the order of the hits.
        evicted: Left it, weakest first.
    """

    added: tuple[int, ...] = ()
    evicted: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.evicted)


class _Member(msgspec.Struct):
    score: float
    used_s: float


class Pool:
    """Found tools of one session, at most `limit`. Decides only; the caller acts.

    Args:
        limit: Most tools at any time, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._members: dict[int, _Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id_: int) -> bool:
        return id_ in self._members

    def __repr__(self) -> str:
        return f"<Pool {len(self)} of {self.limit} tools>"

    @property
    def ids(self) -> tuple[int, ...]:
        """The pooled tools in the order in which they entered: a list that mostly grows at its end."""
        return tuple(self._members)

    def admit(self, hits: Sequence[Hit], now_s: float) -> PoolChange:
        """Takes in the hits of one search, best first, and evicts what is kept least strongly.

        The first `limit` hits are in the pool afterwards; none of them is evicted for another one.

        Args:
            hits: Best first.
            now_s: Monotonic seconds.
        """
        wanted = {hit.id: hit.score for hit in hits[: self.limit]}
        added = tuple(id_ for id_ in wanted if id_ not in self._members)
        evicted = self._weakest(len(self._members) + len(added) - self.limit, wanted, now_s)
        for id_ in evicted:
            del self._members[id_]
        for id_, score in wanted.items():
            member = self._members.get(id_)
            self._members[id_] = _Member(max(score, member.score) if member else score, now_s)
        return PoolChange(added, evicted)

    def touch(self, id_: int, now_s: float) -> None:
        """Keeps a tool fresh that has just been called; others are ignored."""
        if (member := self._members.get(id_)) is not None:
            member.used_s = now_s

    def drop(self, ids: Iterable[int]) -> PoolChange:
        """Takes out tools that may no longer be seen."""
        return PoolChange(evicted=tuple(id_ for id_ in ids if self._members.pop(id_, None) is not None))

    def _weakest(self, count: int, wanted: Collection[int], now_s: float) -> tuple[int, ...]:
        """The `count` tools to evict; equally weak ones by lower score, then by age in the catalog."""
        candidates = [(id_, member) for id_, member in self._members.items() if id_ not in wanted]

        def strength(candidate: tuple[int, _Member]) -> tuple[float, float, int]:
            id_, member = candidate
            return retention(member.score, max(0.0, now_s - member.used_s)), member.score, id_

        return tuple(id_ for id_, _ in sorted(candidates, key=strength)[: max(0, count)])

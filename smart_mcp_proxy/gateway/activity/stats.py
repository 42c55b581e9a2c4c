"""Statistics of the activity log: what the gateway served, and what it saved."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from smart_mcp_proxy.catalog import ActivityFigures, Catalog, FiguresQuery, Grouping

Bucket = Literal["day", "hour", "none"]
BUCKETS: Final[dict[Bucket, int]] = {"day": 86_400, "hour": 3_600, "none": 0}
"""Seconds of a span of time; without any, figures by time are left out."""
_COUNTS: Final = ("calls", "failed", "tool_errors", "not_sent", "searches", "empty")
GROUPS: Final = 20
GROUPS_LIMIT: Final = 200


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of some searches and calls.

    Attributes:
        calls: Calls of servers' tools, refused ones included.
        failed: Those of them without a good result.
        tool_errors: Those that failed because the tool said so.
        not_sent: Those that never reached their server: refused, not valid, or it was not connected.
        searches: Searches.
        empty: Those of them that found nothing.
        mean_ms: Mean duration of the calls that were sent; null without any.
        slowest_ms: The longest of them; null likewise.
        p50_ms: Half of them took at most so long; null likewise, and where it was not asked for.
        p95_ms: 95 in 100 of them took at most so long; null likewise.
        tokens_sent: Estimated tokens of the answers to searches.
        tokens_spared: Estimated tokens of the whole catalog, once for each conversation that searched.
        tokens_saved: The second less the first.
    """

    calls: int = 0
    failed: int = 0
    tool_errors: int = 0
    not_sent: int = 0
    searches: int = 0
    empty: int = 0
    mean_ms: float | None = None
    slowest_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    tokens_sent: int = 0
    tokens_spared: int = 0
    tokens_saved: int = 0


class GroupFigures(Figures, frozen=True, kw_only=True):
    """Figures of one server, tool, client or outcome.

    Attributes:
        name: Its name.
    """

    name: str


class BucketFigures(Figures, frozen=True, kw_only=True):
    """Figures of one hour or day (UTC), of one group where there are groups.

    Attributes:
        start: Its beginning, ISO 8601 in UTC.
        name: The group's name; empty where there are no groups.
    """

    start: str
    name: str


class Stats(msgspec.Struct, frozen=True):
    """Statistics of the activity log.

    Attributes:
        since: Beginning of the time that they are of, ISO 8601 in UTC; records may go back less far.
        until: Its end.
        by: What they are grouped by.
        bucket: Span of time.
        total: Of everything.
        groups: The largest groups; none where they are grouped by nothing.
        buckets: Of these groups, or of everything, by time; hours and days without records are left out.
    """

    since: str
    until: str
    by: str
    bucket: str
    total: Figures
    groups: list[GroupFigures]
    buckets: list[BucketFigures]


async def stats(
    catalog: Catalog,
    *,
    since_s: float,
    by: Grouping = "none",
    bucket: Bucket = "day",
    limit: int = GROUPS,
    has_latency: bool = False,
    now: Callable[[], float] | None = None,
) -> Stats:
    """Count the searches and calls since a time.

    Args:
        catalog: Keeps the activity log.
        since_s: Seconds since the epoch.
        by: What to group by.
        bucket: Span of time.
        limit: Groups, the largest first.
        has_latency: With percentiles of durations, in all parts that are grouped as `by` says.
        now: Seconds since the epoch; the catalog's if left out.
    """
    everything = FiguresQuery(since_s, (now or catalog.now_s)(), has_latency=has_latency)
    total = await catalog.activity_figures(replace(everything, has_latency=has_latency and by == "none"))
    groups: tuple[ActivityFigures, ...] = ()
    names: tuple[str, ...] | None = None
    if by != "none":
        groups = await catalog.activity_figures(replace(everything, by=by, limit=limit))
        names = tuple(group.name for group in groups)
    spans = replace(everything, by=by, bucket_s=BUCKETS[bucket], names=names)
    over_time = await catalog.activity_figures(spans) if spans.bucket_s else ()
    return Stats(
        since=_iso(since_s),
        until=_iso(everything.until_s),
        by=by,
        bucket=bucket,
        total=Figures(**_build_figures(total[0])) if total else Figures(),
        groups=[GroupFigures(name=group.name, **_build_figures(group)) for group in groups],
        buckets=[BucketFigures(start=_iso(one.start_s), name=one.name, **_build_figures(one)) for one in over_time],
    )


def _build_figures(found: ActivityFigures) -> dict[str, Any]:
    sent = found.calls - found.not_sent
    return {name: getattr(found, name) for name in _COUNTS} | {
        "mean_ms": round(found.total_ms / sent, 3) if sent else None,
        "slowest_ms": round(found.slowest_ms, 3) if sent else None,
        "p50_ms": None if found.p50_ms is None else round(found.p50_ms, 3),
        "p95_ms": None if found.p95_ms is None else round(found.p95_ms, 3),
        "tokens_sent": int(found.tokens_sent),
        "tokens_spared": int(found.tokens_spared),
        "tokens_saved": int(found.tokens_spared - found.tokens_sent),
    }


def _iso(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

"""SQL of the activity log's figures: counted by the database, per span of time and per group."""

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

import msgspec
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Double,
    Integer,
    Select,
    and_,
    case,
    cast,
    func,
    literal,
    or_,
    select,
)

from smart_mcp_proxy.catalog.tables.activity import build_since_condition, in_time
from smart_mcp_proxy.catalog.tables.schema import activity

Grouping = Literal["none", "server", "tool", "client", "outcome"]
GROUPINGS: Final[tuple[Grouping, ...]] = get_args(Grouping)

_GOOD: Final = ("ok", "input_required")
_CALL_MARK: Final = '{"variant":%'
"""Beginning of the detail of a tool's call; prompts, resources and scripts are calls in the log, too."""


class ActivityFigures(msgspec.Struct, frozen=True):
    """Figures of some records.

    Attributes:
        start_s: Beginning of their span of time, in seconds since the epoch; of all of them 0.
        name: Their group; empty where there are no groups.
        calls: Calls of servers' tools, refused ones included.
        tool_errors: Those of them that the tool said failed.
        not_sent: Those that never reached the server: refused, not valid, or not connected.
        failed: Those without a good result, the former two included.
        searches: Searches.
        empty: Those of them that found nothing.
        total_ms: Duration of the calls that were sent, together.
        slowest_ms: The longest of them.
        tokens_sent: Estimated tokens of the answers to searches.
        tokens_spared: Estimated tokens of the catalogs that conversations were not sent whole.
        p50_ms: Half of the calls that were sent took at most so long; None where it was not asked for, or without any.
        p95_ms: The same of 95 in 100.
    """

    start_s: float
    name: str
    calls: int
    tool_errors: int
    not_sent: int
    failed: int
    searches: int
    empty: int
    total_ms: float
    slowest_ms: float
    tokens_sent: int
    tokens_spared: int
    p50_ms: float | None = None
    p95_ms: float | None = None


class FiguresQuery(msgspec.Struct, frozen=True):
    """Choice of the records that are counted, and of those counted together.

    Attributes:
        since_s: Only from then on, in seconds since the epoch.
        until_s: Only before then.
        by: What they are grouped by; `server` and `tool` leave searches out.
        bucket_s: Length of a span of time, which begins at a multiple of it; 0 takes all together.
        names: Only these groups; None for all.
        limit: Only so many, the largest; None for all.
        has_latency: With percentiles of durations, which takes three times as long.
    """

    since_s: float
    until_s: float
    by: Grouping = "none"
    bucket_s: int = 0
    names: tuple[str, ...] | None = None
    limit: int | None = None
    has_latency: bool = False


def figures(connection: Connection, wanted: FiguresQuery) -> tuple[ActivityFigures, ...]:
    """Figures of searches and calls, in order of time and then of size."""
    is_sqlite = connection.dialect.name == "sqlite"
    start: ColumnElement[Any] = literal(0)
    if wanted.bucket_s:
        spans = activity.c.at_s / wanted.bucket_s
        # A cast rounds on PostgreSQL, and SQLite may lack floor().
        start = (cast(spans, Integer) if is_sqlite else func.floor(spans)) * wanted.bucket_s
    columns = (start.label("start_s"), _GROUPS[wanted.by].label("name"), *_sums(is_sqlite=is_sqlite))
    query = (
        _apply_figures_filter(select(*columns), wanted)
        .where(build_since_condition(connection, wanted.since_s))
        .group_by("start_s", "name")
    )
    size = (_count(_IS_CALL) + _count(_IS_SEARCH)).desc()
    with in_time(connection):
        rows = connection.execute(query.order_by("start_s", size, "name").limit(wanted.limit)).all()
        took = _select_percentiles(connection, wanted, start) if wanted.has_latency else {}
    return tuple(
        ActivityFigures(float(row.start_s), *row[1:], *took.get((row.start_s, row.name), (None, None))) for row in rows
    )


def _select_percentiles(
    connection: Connection, wanted: FiguresQuery, start: ColumnElement[Any]
) -> Mapping[tuple[Any, str], tuple[float, float]]:
    """The 50th and the 95th percentile of the calls that were sent, by span of time and group."""
    name, took = _GROUPS[wanted.by], activity.c.duration_ms
    rank = func.cume_dist().over(partition_by=[start, name], order_by=took)
    columns = (start.label("start_s"), name.label("name"), took.label("took"), rank.label("rank"))
    calls = _apply_figures_filter(select(*columns), wanted)
    ranked = calls.where(build_since_condition(connection, wanted.since_s), _WAS_SENT).subquery()
    parts = (func.min(case((ranked.c.rank >= share, ranked.c.took))) for share in _PERCENTILES)
    rows = connection.execute(select(ranked.c.start_s, ranked.c.name, *parts).group_by(ranked.c.start_s, ranked.c.name))
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def _apply_figures_filter(query: Select[Any], wanted: FiguresQuery) -> Select[Any]:
    is_tool_call = and_(_IS_CALL, activity.c.detail.like(_CALL_MARK))
    query = query.where(activity.c.at_s < wanted.until_s)
    if wanted.by in ("server", "tool"):
        query = query.where(is_tool_call, activity.c.server != "")
    else:
        query = query.where(or_(is_tool_call, _IS_SEARCH))
    return query if wanted.names is None else query.where(_GROUPS[wanted.by].in_(wanted.names))


_IS_CALL = activity.c.kind == "call"
_IS_SEARCH = activity.c.kind == "search"
_WAS_SENT = and_(_IS_CALL, activity.c.delivery != "not_sent")
_PERCENTILES: Final = (0.5, 0.95)
_GROUPS: Final[Mapping[Grouping, ColumnElement[Any]]] = {
    "none": literal(""),
    "server": activity.c.server,
    "tool": activity.c.server + ":" + activity.c.tool,  # not the subject: it may be what somebody wrote
    "client": activity.c.principal,
    "outcome": activity.c.outcome,
}


def _count(*conditions: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((and_(*conditions), 1), else_=0))


def _sums(*, is_sqlite: bool) -> list[ColumnElement[Any]]:
    duration_ms = case((_WAS_SENT, activity.c.duration_ms), else_=0.0)
    return [
        _count(_IS_CALL),
        _count(_IS_CALL, activity.c.outcome == "tool_error"),
        _count(_IS_CALL, activity.c.delivery == "not_sent"),
        _count(_IS_CALL, activity.c.outcome.not_in(_GOOD)),
        _count(_IS_SEARCH),
        _count(_IS_SEARCH, activity.c.outcome == "empty"),
        func.sum(duration_ms),
        func.max(duration_ms),
        _tokens("sent", is_sqlite=is_sqlite),
        _tokens("spared", is_sqlite=is_sqlite),
    ]


def _tokens(kind: str, *, is_sqlite: bool) -> ColumnElement[Any]:
    found: ColumnElement[Any]
    if is_sqlite:
        found = func.json_extract(activity.c.detail, f"$.tokens.{kind}")
    else:
        found = cast(cast(activity.c.detail, JSON)["tokens"][kind].as_string(), Double)
    counted = func.coalesce(func.sum(case((_IS_SEARCH, found), else_=0)), 0)
    return cast(counted, Integer) if is_sqlite else counted

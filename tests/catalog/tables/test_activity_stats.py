"""Figures of the activity log, counted by each kind of store."""

from typing import Any

import pytest
from store_places import OpenCatalog

from smart_mcp_proxy.catalog import FiguresQuery
from smart_mcp_proxy.gateway.activity.stats import Figures, stats
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

DAY_S = 86_400
NOON_S = 1_700_049_600.0
"""12:00 of a day in UTC."""


def call(tool: str, outcome: str = "ok", at_s: float = NOON_S, ms: float = 10.0, **fields: Any) -> Activity:
    server, _, name = tool.partition(":")
    made: Any = Activity
    record: Activity = made(
        "call", fields.pop("principal", "ann"), tool, outcome, ms, at_s, {"variant": "read"}, **fields
    )
    return record if not name else Activity(**{**_members(record), "server": server, "tool": name})


def _members(record: Activity) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def search(at_s: float = NOON_S, *, sent: int, spared: int, outcome: str = "ok", who: str = "ann") -> Activity:
    detail = {"tools": ["a:x"], "tokens": {"sent": sent, "spared": spared}}
    return Activity("search", who, "q\x00{}\"'", outcome, 2.0, at_s, detail)


RECORDS = [
    call("a:x", ms=10.0),
    call("a:x", ms=30.0, at_s=NOON_S + 3_600),
    call("a:y", "tool_error", ms=20.0),
    call("b:x", "quarantined", ms=5_000.0, delivery="not_sent", principal="bob"),
    call("a:x", "upstream_timeout", ms=60.0, delivery="unknown", at_s=NOON_S - DAY_S),
    call("made up by an agent", "tool_not_found", delivery="not_sent"),
    search(sent=100, spared=1_000),
    search(sent=50, spared=0, outcome="empty", at_s=NOON_S + 60),
    search(sent=70, spared=2_000, at_s=NOON_S - DAY_S, who="bob"),
    # Of a person, and of a gateway that did not count yet.
    Activity("search", "local", "mine", "ok", 1.0, NOON_S, {"tools": []}),
    # In the log, but neither calls of tools nor searches.
    Activity("call", "ann", "a:prompts/get:p", "ok", 1.0, NOON_S, {"method": "prompts/get"}, server="a"),
    Activity("call", "ann", "code_execution", "ok", 1.0, NOON_S, {"language": "python", "calls": 2}),
    Activity("session", "ann", "client", "ok", 0.0, NOON_S),
]


async def test_everything_is_counted_once(open_catalog: OpenCatalog) -> None:
    """Calls of tools, refused ones included; what was never sent does not count for the durations."""
    async with open_catalog() as catalog:
        await catalog.append_activity(RECORDS)
        found = await stats(catalog, since_s=0.0, now=lambda: NOON_S + DAY_S)
    assert found.total == Figures(
        calls=6,
        failed=4,
        tool_errors=1,
        not_sent=2,
        searches=4,
        empty=1,
        mean_ms=30.0,
        slowest_ms=60.0,
        tokens_sent=220,
        tokens_spared=3_000,
        tokens_saved=2_780,
    )
    assert [(one.start, one.calls, one.searches, one.tokens_saved) for one in found.buckets] == [
        ("2023-11-14T00:00:00Z", 1, 1, 1_930),
        ("2023-11-15T00:00:00Z", 5, 3, 850),
    ]


async def test_percentiles_are_of_the_calls_that_were_sent(open_catalog: OpenCatalog) -> None:
    """In all, by time and by group, where they are asked for; none where nothing was sent."""
    many = [call("c:x", ms=float(number + 1), at_s=NOON_S + number) for number in range(100)]
    async with open_catalog() as catalog:
        await catalog.append_activity([*RECORDS, *many])
        now = {"now": lambda: NOON_S + DAY_S}
        found = await stats(catalog, since_s=NOON_S - 60, bucket="hour", has_latency=True, **now)
        assert [(one.p50_ms, one.p95_ms) for one in (found.total, *found.buckets)] == [
            (49.0, 95.0),
            (49.0, 95.0),
            (30.0, 30.0),
        ]
        groups = (await stats(catalog, since_s=NOON_S - 60, by="server", bucket="none", has_latency=True, **now)).groups
        assert {one.name: (one.p50_ms, one.p95_ms) for one in groups} == {
            "a": (20.0, 30.0),
            "b": (None, None),
            "c": (50.0, 95.0),
        }
        assert (await stats(catalog, since_s=0.0, **now)).total.p50_ms is None


async def test_groups_are_the_largest_and_hold_no_name_that_somebody_made_up(open_catalog: OpenCatalog) -> None:
    """By server, tool, client and outcome; each bucket is of one of the groups."""
    async with open_catalog() as catalog:
        await catalog.append_activity(RECORDS)

        async def names(by: Any, limit: int = 20) -> dict[str, int]:
            found = await stats(catalog, since_s=0.0, by=by, bucket="hour", limit=limit, now=lambda: NOON_S + DAY_S)
            assert {one.name for one in found.buckets} == {one.name for one in found.groups}
            for group in found.groups:
                assert sum(one.calls for one in found.buckets if one.name == group.name) == group.calls
            return {one.name: one.calls + one.searches for one in found.groups}

        assert await names("server") == {"a": 4, "b": 1}
        assert await names("tool") == {"a:x": 3, "a:y": 1, "b:x": 1}
        assert await names("tool", limit=1) == {"a:x": 3}
        assert await names("client") == {"ann": 7, "bob": 2, "local": 1}
        outcomes = {"ok": 5, "empty": 1, "quarantined": 1, "tool_error": 1, "tool_not_found": 1, "upstream_timeout": 1}
        assert await names("outcome") == outcomes


async def test_hours_begin_with_the_hour_and_a_time_has_two_ends(open_catalog: OpenCatalog) -> None:
    """A record of the last second before an hour is of that hour: nothing is rounded."""
    async with open_catalog() as catalog:
        await catalog.append_activity([call("a:x", at_s=NOON_S + second) for second in (-0.5, 0, 3_599.9, 3_600)])
        hours = await catalog.activity_figures(FiguresQuery(NOON_S - DAY_S, NOON_S + DAY_S, bucket_s=3_600))
        assert [(one.start_s - NOON_S, one.calls) for one in hours] == [(-3_600, 1), (0, 2), (3_600, 1)]
        within = await catalog.activity_figures(FiguresQuery(NOON_S, NOON_S + 3_600))
        assert [one.calls for one in within] == [2]
        assert await catalog.activity_figures(FiguresQuery(0, 1)) == ()

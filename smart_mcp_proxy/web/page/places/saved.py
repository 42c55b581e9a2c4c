"""Saved: the tokens that agents were spared, and what was served, over time."""

from datetime import datetime
from typing import Final, NamedTuple

from starlette.responses import Response

from smart_mcp_proxy.web.page.plot import build_bar_plot
from smart_mcp_proxy.web.page.visit import PageRoute, PageVisit


class _Span(NamedTuple):
    since: str
    bucket: str
    span_s: int
    spans: int
    words: str


SPANS: Final = {
    "day": _Span("24h", "hour", 3_600, 24, "24 hours"),
    "week": _Span("7d", "day", 86_400, 7, "7 days"),
    "month": _Span("30d", "day", 86_400, 30, "30 days"),
}
GROUPS: Final = ("server", "tool", "client")
SHOWN: Final = 20


async def _show_savings(visit: PageVisit) -> Response:
    name = visit.read_parameter("span") if visit.read_parameter("span") in SPANS else "day"
    by = visit.read_parameter("by") if visit.read_parameter("by") in GROUPS else GROUPS[0]
    span = SPANS[name]
    wanted = {"since": span.since, "bucket": span.bucket}
    found = await visit.ask("GET", "stats", wanted)
    groups = (await visit.ask("GET", "stats", wanted | {"by": by, "limit": SHOWN}))["groups"]
    until = datetime.fromisoformat(found["until"])
    plot = build_bar_plot(found["buckets"], "tokens_saved", until=until, span_s=span.span_s, count=span.spans)
    return await visit.page(
        "saved.html", spans=SPANS, name=name, by=by, groups=groups, kinds=GROUPS, found=found, plot=plot
    )


PLACES: Final = (PageRoute("GET", "/saved", _show_savings),)

"""Saved: the tokens that agents were spared, and what was served, over time."""

from datetime import datetime
from typing import Final, NamedTuple

from starlette.responses import Response

from smart_mcp_proxy.web.page.place import Place
from smart_mcp_proxy.web.page.plot import bars_of
from smart_mcp_proxy.web.page.visit import Visit

__all__ = ["PLACES"]


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


async def _show(visit: Visit) -> Response:
    name = visit.asked("span") if visit.asked("span") in SPANS else "day"
    by = visit.asked("by") if visit.asked("by") in GROUPS else GROUPS[0]
    span = SPANS[name]
    wanted = {"since": span.since, "bucket": span.bucket}
    found = await visit.ask("GET", "stats", wanted)
    groups = (await visit.ask("GET", "stats", wanted | {"by": by, "limit": SHOWN}))["groups"]
    until = datetime.fromisoformat(found["until"])
    plot = bars_of(found["buckets"], "tokens_saved", until=until, span_s=span.span_s, count=span.spans)
    return await visit.page(
        "saved.html", spans=SPANS, name=name, by=by, groups=groups, kinds=GROUPS, found=found, plot=plot
    )


PLACES: Final = (Place("GET", "/saved", _show),)

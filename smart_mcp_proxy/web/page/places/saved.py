"""Saved: the tokens that agents were spared, and what was served, over time."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from smart_mcp_proxy.web.page.visit import PageRoute, PageVisit

WIDTH: Final = 960.0
HEIGHT: Final = 240.0
_LEFT: Final = 80.0
"""Room for the numbers of the lines."""
_RIGHT: Final = 24.0
"""Room for half of the last name."""
_BOTTOM: Final = 24.0
_TOP: Final = 12.0
_GAP: Final = 0.2
"""Share of a bar's place that stays empty."""
_LINES: Final = 4
_LABELS: Final = 8


class Bar(NamedTuple):
    """Bar of a span of time: where it is drawn, its value, and its label where there is room."""

    x: float
    y: float
    width: float
    height: float
    value: float
    start: str
    label: str


class GridLine(NamedTuple):
    """A line across the plot, at a round value."""

    y: float
    value: float


class Plot(NamedTuple):
    """A plot's numbers."""

    bars: Sequence[Bar]
    lines: Sequence[GridLine]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = _LEFT


def build_bar_plot(
    found: Sequence[Mapping[str, Any]], member: str, *, until: datetime, span_s: int, count: int
) -> Plot:
    """A bar for each of the last spans of time, those without records included.

    Args:
        found: Spans with records: `start`, ISO 8601, and figures.
        member: The figure that is drawn; less than nothing is drawn as nothing.
        until: The last moment.
        span_s: Length of a span.
        count: How many there are.
    """
    values = {datetime.fromisoformat(each["start"]).timestamp(): float(each[member]) for each in found}
    last = until.timestamp() // span_s * span_s
    starts = [last - span_s * back for back in reversed(range(count))]
    most = _round_above(max([values.get(start, 0.0) for start in starts], default=0.0))
    room, place = HEIGHT - _TOP - _BOTTOM, (WIDTH - _LEFT - _RIGHT) / count
    bars = []
    for number, start in enumerate(starts):
        value = values.get(start, 0.0)
        height = room * max(0.0, value) / most
        at = datetime.fromtimestamp(start, UTC)
        is_named = (count - 1 - number) % max(1, math.ceil(count / _LABELS)) == 0
        label = at.strftime("%H:%M" if span_s < timedelta(days=1).total_seconds() else "%b %d") if is_named else ""
        bars.append(
            Bar(
                x=round(_LEFT + place * (number + _GAP / 2), 1),
                y=round(_TOP + room - height, 1),
                width=round(place * (1 - _GAP), 1),
                height=round(height, 1),
                value=value,
                start=at.isoformat(timespec="minutes"),
                label=label,
            )
        )
    lines = [GridLine(round(_TOP + room * (1 - step / _LINES), 1), most * step / _LINES) for step in range(_LINES + 1)]
    return Plot(bars, lines)


def _round_above(value: float) -> float:
    """The least of 1, 2, 4, 10, 20, 40, ... that is not below a value."""
    if value <= 1:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * factor for factor in (1, 2, 4, 10) if size * factor >= value)


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

"""Plots over time, as the numbers of which a template draws SVG."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

WIDTH: Final = 480.0
HEIGHT: Final = 160.0
SPARK: Final = (96.0, 20.0)
"""Width and height of a line beside a name."""
_LEFT: Final = 64.0
"""Room for the numbers of the lines."""
_RIGHT: Final = 24.0
"""Room for half of the last name."""
_BOTTOM: Final = 24.0
_TOP: Final = 12.0
_GAP: Final = 0.2
"""Share of a bar's place that stays empty."""
_LINES: Final = 4
_DASH: Final = 10.0
"""Width of a point between two gaps, as the first hour of a gateway is."""
_LABELS: Final = 6


class Span(NamedTuple):
    """A time to look back over, and the spans into which it is divided.

    Attributes:
        since: As the operations take it.
        bucket: Likewise.
        span_s: Length of a span.
        spans: Number of spans.
        words: For people.
    """

    since: str
    bucket: str
    span_s: int
    spans: int
    words: str


SPANS: Final = {
    "day": Span("24h", "hour", 3_600, 24, "24 hours"),
    "week": Span("7d", "day", 86_400, 7, "7 days"),
    "month": Span("30d", "day", 86_400, 30, "30 days"),
}


class Bar(NamedTuple):
    """Bar of a span of time: where it is drawn, its value, and its label where there is room.

    `part` is the height of the part of it that is another colour.
    """

    x: float
    y: float
    width: float
    height: float
    part: float
    value: float
    start: str
    label: str


class GridLine(NamedTuple):
    """A line across the plot, at a round value."""

    y: float
    value: float


class Plot(NamedTuple):
    """A plot's numbers: bars, or curves, each as the path of an SVG element."""

    bars: Sequence[Bar]
    lines: Sequence[GridLine]
    curves: Sequence[str] = ()
    width: float = WIDTH
    height: float = HEIGHT
    left: float = _LEFT


def build_bar_plot(
    found: Sequence[Mapping[str, Any]], member: str, *, until: datetime, span: Span, part: str = ""
) -> Plot:
    """A bar for each of the last spans of time, those without records included.

    Args:
        found: Spans with records: `start`, ISO 8601, and figures.
        member: The figure that is drawn; less than nothing is drawn as nothing.
        until: The last moment.
        span: The time that is looked back over.
        part: Another figure, a part of the first, drawn in it.
    """
    starts = list_starts(until, span)
    values = [value or 0.0 for value in collect_values(found, member, starts)]
    parts = [value or 0.0 for value in collect_values(found, part, starts)] if part else [0.0] * len(values)
    most = max(_LINES, _round_above(max(values, default=0.0)))  # below that its lines would have no whole numbers
    return Plot(_build_bars(values, parts, starts, most, span), _build_grid(most))


def build_curve_plot(
    found: Sequence[Mapping[str, Any]], members: Sequence[str], *, until: datetime, span: Span
) -> Plot:
    """A curve for each figure, with gaps where there is none; bars without height hold the labels."""
    starts = list_starts(until, span)
    values = [collect_values(found, member, starts) for member in members]
    most = _round_above(max((value for each in values for value in each if value is not None), default=0.0))
    bars = _build_bars([0.0] * len(starts), [0.0] * len(starts), starts, most, span)
    places = [bar.x + bar.width / 2 for bar in bars]
    curves = [_draw_path(places, _place_heights(each, most, HEIGHT - _TOP - _BOTTOM, _TOP)) for each in values]
    return Plot(bars, _build_grid(most), curves)


def build_sparkline(values: Sequence[float | None], most: float) -> str:
    """The path of a small curve; empty for one value, which is no curve and stands beside it as a number."""
    width, height = SPARK
    if len(values) - values.count(None) < 2:
        return ""
    step = (width - 2) / max(1, len(values) - 1)
    places = [1 + step * number for number in range(len(values))]
    return _draw_path(places, _place_heights(values, most or 1.0, height - 2, 1))


def list_starts(until: datetime, span: Span) -> list[float]:
    """Beginnings of the last spans of time, in seconds since the epoch."""
    last = until.timestamp() // span.span_s * span.span_s
    return [last - span.span_s * back for back in reversed(range(span.spans))]


def collect_values(found: Iterable[Mapping[str, Any]], member: str, starts: Sequence[float]) -> list[float | None]:
    """A figure of each span of time; None where there is no record of it."""
    values = {datetime.fromisoformat(each["start"]).timestamp(): each[member] for each in found}
    return [values.get(start) for start in starts]


def _build_bars(
    values: Sequence[float], parts: Sequence[float], starts: Sequence[float], most: float, span: Span
) -> list[Bar]:
    room, place = HEIGHT - _TOP - _BOTTOM, (WIDTH - _LEFT - _RIGHT) / len(starts)
    bars = []
    for number, (start, value, part) in enumerate(zip(starts, values, parts, strict=True)):
        height = room * max(0.0, value) / most
        at = datetime.fromtimestamp(start, UTC)
        is_named = (len(starts) - 1 - number) % math.ceil(len(starts) / _LABELS) == 0
        label = at.strftime("%H:%M" if span.span_s < timedelta(days=1).total_seconds() else "%b %d") if is_named else ""
        bars.append(
            Bar(
                x=round(_LEFT + place * (number + _GAP / 2), 1),
                y=round(_TOP + room - height, 1),
                width=round(place * (1 - _GAP), 1),
                height=round(height, 1),
                part=round(room * max(0.0, part) / most, 1),
                value=value,
                start=at.isoformat(timespec="minutes"),
                label=label,
            )
        )
    return bars


def _build_grid(most: float) -> list[GridLine]:
    room = HEIGHT - _TOP - _BOTTOM
    return [GridLine(round(_TOP + room * (1 - step / _LINES), 1), most * step / _LINES) for step in range(_LINES + 1)]


def _place_heights(values: Sequence[float | None], most: float, room: float, top: float) -> list[float | None]:
    """Distances from the top at which values are drawn."""
    return [None if value is None else top + room * (1 - value / most) for value in values]


def _draw_path(places: Sequence[float], heights: Sequence[float | None]) -> str:
    """A path through points, with gaps; a point between two gaps is a dash, which can be seen."""
    path, points = [], [None, *heights, None]
    for x, before, y, after in zip(places, points, heights, points[2:], strict=False):
        if y is not None and before is None and after is None:
            path.append(f"M{x - _DASH / 2:.1f} {y:.1f}h{_DASH:g}")
        elif y is not None:
            path.append(f"{'M' if before is None else 'L'}{x:.1f} {y:.1f}")
    return "".join(path)


def _round_above(value: float) -> float:
    """The least of 1, 2, 4, 10, 20, 40, ... that is not below a value."""
    if value <= 1:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * factor for factor in (1, 2, 4, 10) if size * factor >= value)

"""The plots over time."""

import re
from datetime import UTC, datetime

from smart_mcp_proxy.web.page.plots import HEIGHT, SPANS, WIDTH, build_bar_plot, build_curve_plot, build_sparkline

UNTIL = datetime(2026, 11, 25, 18, 40, tzinfo=UTC)
HOURS = SPANS["day"]._replace(spans=4)


def test_each_span_has_its_bar_with_records_or_without() -> None:
    """In their order, side by side, as high as their values, a part in another colour; the last one is of now."""
    found = [
        {"start": "2026-11-25T16:00:00Z", "saved": 300, "lost": 100},
        {"start": "2026-11-25T18:00:00Z", "saved": 150, "lost": 0},
    ]
    plot = build_bar_plot(found, "saved", part="lost", until=UNTIL, span=HOURS)
    assert [bar.value for bar in plot.bars] == [0, 300, 0, 150]
    assert [bar.label for bar in plot.bars] == ["15:00", "16:00", "17:00", "18:00"]
    assert all(one.x + one.width < other.x for one, other in zip(plot.bars, plot.bars[1:], strict=False))
    assert round(plot.bars[1].height / plot.bars[3].height, 1) == 2 and plot.bars[0].height == 0
    assert round(plot.bars[1].height / plot.bars[1].part, 1) == 3 and plot.bars[3].part == 0
    assert plot.bars[-1].x + plot.bars[-1].width <= WIDTH and all(0 <= bar.y <= HEIGHT for bar in plot.bars)
    assert [line.value for line in plot.lines] == [0, 100, 200, 300, 400]


def test_what_is_before_the_first_span_is_left_out_and_a_loss_is_drawn_as_nothing() -> None:
    """Nothing to draw is no failure."""
    found = [{"start": "2026-11-20T00:00:00Z", "saved": 9_000}, {"start": "2026-11-25T00:00:00Z", "saved": -50}]
    plot = build_bar_plot(found, "saved", until=UNTIL, span=SPANS["week"]._replace(spans=3))
    assert [(bar.value, bar.height) for bar in plot.bars] == [(0, 0), (0, 0), (-50, 0)]
    assert plot.bars[-1].label == "Nov 25"
    many = build_bar_plot([], "saved", until=UNTIL, span=HOURS._replace(spans=168))
    assert len(many.bars) == 168 and sum(bool(bar.label) for bar in many.bars) <= 8


def test_a_curve_has_a_gap_where_nothing_was_measured() -> None:
    """A value between two gaps is a dash; all curves of a plot have the same scale."""
    found = [
        {"start": "2026-11-25T15:00:00Z", "p50": 10.0, "p95": 40.0},
        {"start": "2026-11-25T17:00:00Z", "p50": 20.0, "p95": 40.0},
        {"start": "2026-11-25T18:00:00Z", "p50": None, "p95": 40.0},
    ]
    half, most = build_curve_plot(found, ("p50", "p95"), until=UNTIL, span=HOURS).curves
    assert half.count("M") == 2 and "L" not in half
    assert most.count("M") == 2 and most.count("L") == 1
    assert half.count("h10") == 2 and most.count("h10") == 1  # a line without length is a speck that nobody sees
    assert min(float(y) for y in re.findall(r" ([\d.]+)h", half)) > 12.0
    assert build_sparkline([0, 2, None, 4], 4).count("M") == 2
    assert build_sparkline([None, 4, None], 4) == ""  # a speck beside its number
    assert build_sparkline([], 0) == "" and "nan" not in build_sparkline([0, 0], 0)

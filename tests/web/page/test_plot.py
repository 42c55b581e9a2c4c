"""The plot of bars over time."""

from datetime import UTC, datetime

from smart_mcp_proxy.web.page.places.saved import HEIGHT, WIDTH, build_bar_plot

UNTIL = datetime(2026, 11, 25, 18, 40, tzinfo=UTC)


def test_each_span_has_its_bar_with_records_or_without() -> None:
    """In their order, side by side, as high as their values; the last one is of now."""
    found = [{"start": "2026-11-25T16:00:00Z", "saved": 300}, {"start": "2026-11-25T18:00:00Z", "saved": 150}]
    plot = build_bar_plot(found, "saved", until=UNTIL, span_s=3_600, count=4)
    assert [bar.value for bar in plot.bars] == [0, 300, 0, 150]
    assert [bar.label for bar in plot.bars] == ["15:00", "16:00", "17:00", "18:00"]
    assert all(one.x + one.width < other.x for one, other in zip(plot.bars, plot.bars[1:], strict=False))
    assert round(plot.bars[1].height / plot.bars[3].height, 1) == 2 and plot.bars[0].height == 0
    assert plot.bars[-1].x + plot.bars[-1].width <= WIDTH and all(0 <= bar.y <= HEIGHT for bar in plot.bars)
    assert [line.value for line in plot.lines] == [0, 100, 200, 300, 400]


def test_what_is_before_the_first_span_is_left_out_and_a_loss_is_drawn_as_nothing() -> None:
    """Nothing to draw is no failure."""
    found = [{"start": "2026-11-20T00:00:00Z", "saved": 9_000}, {"start": "2026-11-25T00:00:00Z", "saved": -50}]
    plot = build_bar_plot(found, "saved", until=UNTIL, span_s=86_400, count=3)
    assert [(bar.value, bar.height) for bar in plot.bars] == [(0, 0), (0, 0), (-50, 0)]
    assert plot.bars[-1].label == "Nov 25"
    many = build_bar_plot([], "saved", until=UNTIL, span_s=3_600, count=168)
    assert len(many.bars) == 168 and sum(bool(bar.label) for bar in many.bars) <= 8

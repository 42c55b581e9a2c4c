"""Tables of an evaluation, for terminals and as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from smart_mcp_proxy.cli.support.output import clean, plural, say, show, table
from smart_mcp_proxy.cli.support.tables import Table
from smart_mcp_proxy.evaluation import MEASURES, Difference, MacroMeans, NothingFits, Replay, Summary


def figures_json(
    summaries: Sequence[Summary], differences: Sequence[Difference], *, tools: int, is_raw: bool
) -> dict[str, Any]:
    """All figures as one object; shares are fractions, not percent."""
    return {
        "path": "raw" if is_raw else "product",
        "tools": tools,
        "systems": [_summary_json(summary) for summary in summaries],
        "differences": [
            {
                "measure": difference.measure,
                "system": difference.system,
                "baseline": difference.baseline,
                "mean": _round_figure(difference.interval.mean),
                "interval_95": [_round_figure(difference.interval.low), _round_figure(difference.interval.high)],
            }
            for difference in differences
        ],
    }


def show_figures(summaries: Sequence[Summary], differences: Sequence[Difference], *, tools: int, is_raw: bool) -> None:
    """Writes the figures to stdout and the remarks to stderr."""
    for place, summary in enumerate(summaries):
        if place:
            show("")
        path = "the engine alone" if is_raw else "what an agent gets"
        show(f"{summary.system}: {path}, {plural(tools, 'tool')}")
        _show_summary(summary)
    if differences:
        show("")
        show(_differences_table(differences))
    say(
        "Figures are means of the means of each source and style. Tokens are an estimate: UTF-8 bytes / 4.", style="dim"
    )


def replay_json(replay: Replay, *, tools: int) -> dict[str, Any]:
    """A replay as one object; `changes` has the queries with another answer."""
    before, after = replay.recall or (None, None)
    return {
        "baseline": replay.baseline,
        "system": replay.system,
        "tools": tools,
        "queries": replay.queries,
        "unchanged": _round_figure(replay.share_unchanged),
        "overlap@5": _round_figure(replay.overlap),
        "empty": dict(zip(("before", "after"), replay.empty, strict=True)),
        "recall@5": {"before": before and _round_figure(before), "after": after and _round_figure(after)},
        "gold": dict(replay.known),
        "changes": [
            {**change._asdict(), "came": change.came, "went": change.went, "moved": dict(change.rank_changes)}
            for change in replay.changes
        ],
        "degraded": list(replay.problems),
    }


def show_replay(replay: Replay, *, tools: int) -> None:
    """Writes the changed answers and the figures to stdout and the remarks to stderr."""
    show(f"{replay.baseline} to {replay.system}: {_queries(replay.queries)} of the log, {plural(tools, 'tool')}")
    if replay.changes:
        rows = [
            [
                change.query,
                f"{len(change.before)} to {len(change.after)}",
                ", ".join(change.came),
                ", ".join(change.went),
                ", ".join(f"{name} {was} to {now}" for name, (was, now) in change.rank_changes.items()),
            ]
            for change in replay.changes
        ]
        show(table(["query", "tools", "came", "went", "moved"], rows))
    show(
        f"Unchanged: {replay.share_unchanged:.1%}. Mean overlap@5: {replay.overlap:.3f}. "
        f"Answered with nothing: {replay.empty[0]} before, {replay.empty[1]} after."
    )
    if replay.recall is not None:
        by_call, by_file = replay.known["calls"], replay.known["file"]
        show(
            f"recall@5 of {_queries(by_call + by_file)} with a known tool ({by_call} by calls that followed, {by_file} "
            f"by the file): {replay.recall[0]:.3f} before, {replay.recall[1]:.3f} after."
        )
        if by_call:
            say(
                "A call can only follow what was shown then: such recall favours the setting of that time.", style="dim"
            )
    for problem in replay.problems:
        say(clean(problem), style="yellow")


def _summary_json(summary: Summary) -> dict[str, Any]:
    return {
        "system": summary.system,
        "overall": _figures_json(summary.overall),
        "styles": {style: _figures_json(figures) for style, figures in summary.styles.items()},
        "strata": [
            {"source": source, "style": style, **(_figures_json(figures) or {})}
            for (source, style), figures in summary.strata.items()
        ],
        "servers": _figures_json(summary.servers),
        "unanswerable": _figures_json(summary.unanswerable),
        "shares": {name: _round_figure(share) for name, share in summary.shares.items()},
        "nothing_fits": [
            {**row._asdict(), "empty": _round_figure(row.empty), "low": _round_figure(row.low)}
            for row in summary.nothing_fits
        ],
        "tools_sent": _round_figure(summary.tools_sent),
        "tokens": _round_figure(summary.tokens),
        "latency_ms": {"p50": _round_figure(summary.p50_ms), "p95": _round_figure(summary.p95_ms)},
        "degraded": list(summary.problems),
    }


def _figures_json(figures: MacroMeans | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    return {"queries": figures.queries, **{name: _round_figure(value) for name, value in figures.values.items()}}


def _round_figure(value: float) -> float:
    return round(value, 4)


def _show_summary(summary: Summary) -> None:
    if summary.overall is not None:
        show(_measures_table(summary.overall, summary.styles))
        shares = ", ".join(f"{name} {share:.3f}" for name, share in summary.shares.items())
        show(f"Each of these queries counted once: {shares}")
    if summary.servers is not None:
        found = ", ".join(f"{name} {value:.3f}" for name, value in summary.servers.values.items())
        show(f"Any tool of the right server, {_queries(summary.servers.queries)}: {found}")
    if summary.unanswerable is not None:
        empty, low = (f"{summary.unanswerable.values[name]:.3f}" for name in ("empty", "low"))
        asked = _queries(summary.unanswerable.queries)
        show(f"No tool is right, {asked}: answered with nothing {empty}, with low confidence {low}")
    if summary.nothing_fits:
        show(_tabulate_nothing_fits(summary.nothing_fits))
    show(
        f"An answer: {summary.tools_sent:.2f} tools, {summary.tokens:.0f} tokens; "
        f"p50 {summary.p50_ms:.2f} ms, p95 {summary.p95_ms:.2f} ms"
    )
    for problem in summary.problems:
        say(clean(f"{summary.system}: {problem}"), style="yellow")


def _measures_table(overall: MacroMeans, styles: Mapping[str, MacroMeans]) -> Table:
    rows = [("all", overall)]
    if len(styles) > 1:
        rows += [(style or "(no style)", figures) for style, figures in styles.items()]
    return table(
        ["style", "queries#", *(f"{name}#" for name in MEASURES)],
        [
            [style, f"{figures.queries:,}", *(f"{figures.values[name]:.3f}" for name in MEASURES)]
            for style, figures in rows
        ],
    )


def _tabulate_nothing_fits(rows: Sequence[NothingFits]) -> Table:
    return table(
        ["nothing fits: queries of", "among tools", "tools#", "queries#", "empty#", "low#"],
        [
            [row.source, row.pool, f"{row.tools:,}", f"{row.queries:,}", f"{row.empty:.3f}", f"{row.low:.3f}"]
            for row in rows
        ],
    )


def _differences_table(differences: Sequence[Difference]) -> Table:
    return table(
        ["gain", "over", "measure", "mean#", "95 % interval#"],
        [
            [
                difference.system,
                difference.baseline,
                difference.measure,
                f"{difference.interval.mean:+.3f}",
                f"{difference.interval.low:+.3f} .. {difference.interval.high:+.3f}",
            ]
            for difference in differences
        ],
    )


def _queries(count: int) -> str:
    return f"{count:,} {'query' if count == 1 else 'queries'}"

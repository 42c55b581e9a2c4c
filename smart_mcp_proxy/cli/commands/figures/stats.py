"""`mcpproxy stats`: what the gateway served and what it saved."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.support.api import open_running, tell_other_gateway
from smart_mcp_proxy.cli.support.failure import next_step
from smart_mcp_proxy.cli.support.output import console, plural, say, show, show_json, table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.telemetry import printable

if TYPE_CHECKING:
    from smart_mcp_proxy.settings import Settings

By = Literal["none", "server", "tool", "client", "outcome"]
Bucket = Literal["day", "hour"]
_STEP = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_PLAIN: Final = "     ####"
"""Bar where the terminal's encoding has no blocks."""
_WIDEST: Final = 4
"""Characters of one column, its gap included."""
_MOST_SPANS = 2_000
"""Drawn; more would be added up anyway."""

app = App(
    name="stats",
    help_epilogue="""\
Tokens saved are estimated: the definitions of all tools, once for each
conversation that searched, less what the answers to searches took. Days and
hours are in UTC.

Examples:
  mcpproxy stats --plot
  mcpproxy stats --by tool --since 30d
  mcpproxy stats --by client --bucket hour --since 24h --json""",
)


@app.default
async def show_stats(
    *,
    by: By = "none",
    bucket: Bucket = "day",
    since: str = "7d",
    limit: Annotated[int, Parameter(name=["--limit", "-n"], validator=Number(gte=1, lte=200))] = 20,
    plot: bool = False,
    json: bool = False,
) -> None:
    """See what the gateway served and saved.

    Args:
        by: Group by server, tool, client (on whose behalf) or outcome.
        bucket: Span of time of a row where nothing is grouped, and of a column of --plot: day or hour.
        since: Only from then on: a time such as 2026-11-21T08:00, or how long ago: 30m, 2h, 7d (7d).
        limit: Number of groups, the largest first, 1 to 200 (20).
        plot: Draw calls and saved tokens over time.
        json: Print one object, as REST answers it.
    """
    with next_step("mcpproxy stats --help"):
        found = await _read(open_settings(), by, bucket, since, limit)
    if json:
        show_json(found)
        return
    if plot:
        _plot(found, bucket)
    rows = found["buckets"] if by == "none" else found["groups"]
    if rows:
        first = bucket if by == "none" else by
        shown = [*rows, {**found["total"], "name": "total"}]
        cells = [_cells(row, bucket) for row in shown]
        # Searches are not for one server or tool.
        width = 1 + len(_HEADINGS) - (_OF_SEARCHES if by in ("server", "tool") else 0)
        show(table([first, *_HEADINGS][:width], [row[:width] for row in cells]))
    total = found["total"]
    served, saved = plural(total["calls"], "call"), plural(total["tokens_saved"], "token")
    say(f"Since {found['since']}: {served}; about {saved} saved.", style="dim")


_HEADINGS = ("calls#", "failed#", "not sent#", "mean ms#", "slowest ms#", "searches#", "tokens saved#")
_OF_SEARCHES = 2
"""Headings at the end that are about searches."""


def _cells(row: Mapping[str, Any], bucket: Bucket) -> list[str]:
    name = row.get("name") or (_moment(row["start"], bucket) if "start" in row else "")
    return [
        printable(name) or "(unknown)",
        f"{row['calls']:,}",
        f"{row['failed']:,}",
        f"{row['not_sent']:,}",
        _ms(row["mean_ms"]),
        _ms(row["slowest_ms"]),
        f"{row['searches']:,}",
        f"{row['tokens_saved']:,}",
    ]


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _moment(start: str, bucket: Bucket) -> str:
    return start[:10] if bucket == "day" else f"{start[:10]} {start[11:16]}"


async def _read(settings: "Settings", by: By, bucket: Bucket, since: str, limit: int) -> dict[str, Any]:
    """The figures of the running gateway; without one those of the database."""
    async with open_running(settings) as running:
        if running is not None:
            return await running.stats({"by": by, "bucket": bucket, "since": since, "limit": str(limit)})
    # Here and not above: a running gateway is asked without importing one.
    import msgspec

    from smart_mcp_proxy.catalog import open_catalog
    from smart_mcp_proxy.gateway.activity.activity_log import recover
    from smart_mcp_proxy.gateway.activity.records import moment_s
    from smart_mcp_proxy.gateway.activity.stats import stats

    tell_other_gateway(settings)
    moment_s(since)  # before anything is opened: it may be none
    async with open_catalog(settings) as catalog:
        await recover(catalog, settings.data_dir)
        figures = await stats(catalog, since_s=moment_s(since, catalog.now_s), by=by, bucket=bucket, limit=limit)
        found: dict[str, Any] = msgspec.to_builtins(figures)
    return found


def _plot(found: Mapping[str, Any], bucket: Bucket) -> None:
    """Draws calls and saved tokens of all groups together."""
    spans = list(_spans(found["buckets"], bucket))
    if not spans:
        return
    to_people = console(sys.stdout)
    is_plain = not (to_people.encoding or "").lower().startswith("utf")
    for title, member in (("calls", "calls"), ("tokens saved, estimated", "tokens_saved")):
        values = [sum(row[member] for row in rows) for _, rows in spans]
        show(f"{title} per {bucket} (UTC), {_moment(spans[0][0], bucket)} to {_moment(spans[-1][0], bucket)}")
        show("\n".join(draw_columns(values, width=to_people.width, is_plain=is_plain)) + "\n")


def _spans(rows: list[dict[str, Any]], bucket: Bucket) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every span of time from the first one with records to the last, and its rows."""
    by_start: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_start.setdefault(row["start"], []).append(row)
    if not by_start:
        return
    moment, last = (datetime.fromisoformat(start) for start in (min(by_start), max(by_start)))
    for _ in range(_MOST_SPANS):
        start = moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        yield start, by_start.get(start, [])
        if moment >= last:
            return
        moment += _STEP[bucket]


def draw_columns(values: Sequence[float], *, width: int, height: int = 8, is_plain: bool = False) -> list[str]:
    """Draw values as columns, from left to right; the scale stands at the left.

    Args:
        values: In their order; below 0 counts as 0. Where there are more than characters, neighbours are added up.
        width: Characters of a line.
        height: Lines.
        is_plain: Whether ASCII alone is used.

    Returns:
        The lines, without blanks at their ends.
    """
    top = max(values, default=0)
    label_chars = max(len(_abbreviate(top)), 1)
    room = max(8, width - label_chars - 2)
    heights = _bin_values([max(0.0, float(value)) for value in values], room)
    top = max(heights, default=0.0)
    label_chars = len(_abbreviate(top))
    share = max(1, min(_WIDEST, room // max(1, len(heights))))
    blocks = _PLAIN if is_plain else _EIGHTHS
    lines = []
    for row in range(height, 0, -1):
        cells = [_draw_cell(value / top * height - (row - 1) if top else 0.0, blocks) for value in heights]
        drawn = "".join((cell * max(1, share - 1)).ljust(share) for cell in cells)
        label = _abbreviate(top) if row == height else "0" if row == 1 else ""
        lines.append(f"{label:>{label_chars}} {'|' if is_plain else '│'}{drawn}".rstrip())
    return lines


def _draw_cell(eighths: float, blocks: str) -> str:
    """Return one row's part of a column; a value above 0 always shows."""
    full = max(0.0, min(1.0, eighths))
    return blocks[min(8, round(full * 8)) or (1 if full > 0 else 0)]


def _bin_values(values: list[float], room: int) -> list[float]:
    """At most `room` values: neighbours together where there are more."""
    size = -(-len(values) // room) or 1
    return [sum(values[start : start + size]) for start in range(0, len(values), size)]


def _abbreviate(value: float) -> str:
    """`950`, `12k`, `3.4M`."""
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= least:
            return f"{value / least:.3g}{unit}"
    return f"{value:.3g}"

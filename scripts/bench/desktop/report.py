"""Tables in Markdown, and what was promised beside what was measured."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bench.desktop.rows import Row
from bench.desktop.ways import EARLIER

__all__ = ["build_goal", "markdown", "start_goals", "start_markdown"]

Medians = Mapping[tuple[int, str], Mapping[str, float]]
_HEAD = [
    "clients", "way", "processes + servers", "RSS MB", "+ servers", "PSS MB", "+ servers", "CPU s", "first search s",
    "slowest", "last tool s", "next client: search s", "last tool s", "CPU s", "RSS MB", "PSS MB",
]  # fmt: skip
_RATIOS = (
    # Of five clients, by way: a share of what a gateway for each takes.
    ("memory (PSS)", "joined, gateway running", ("own_pss_mb", "servers_pss_mb"), 0.25),
    ("memory (RSS)", "joined, gateway running", ("own_rss_mb", "servers_rss_mb"), 0.25),
    ("processor time", "joined, from nothing", ("cpu_s",), 0.22),
    ("first search", "joined, gateway running", ("first_search_s",), 0.08),
    ("first search", "joined, from nothing", ("first_search_s",), 0.15),
    ("last tool", "joined, gateway running", ("last_tool_s",), 0.2),
    ("last tool", "joined, from nothing", ("last_tool_s",), 0.2),
)
_DOOR_MB = 12.0
_DOOR_S = 0.1


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is the head; all but the first two columns are numbers."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join(["", lines[0], rule, *lines[1:]])


def start_markdown(title: str, medians: Medians) -> str:
    """The rows by number of clients."""
    rows = [_HEAD]
    for (count, way), row in medians.items():
        rows.append([
            str(count), way, f"{row['processes']:.0f} + {row['servers']:.0f}",
            *(f"{row[name]:,.0f}" for name in ("own_rss_mb", "servers_rss_mb", "own_pss_mb", "servers_pss_mb")),
            *(f"{row[name]:.2f}" for name in ("cpu_s", "first_search_s", "slowest_search_s", "last_tool_s")),
            *(f"{row[name]:.2f}" for name in ("next_search_s", "next_last_tool_s", "next_cpu_s")),
            *(f"{row[name]:.1f}" for name in ("next_rss_mb", "next_pss_mb")),
        ])  # fmt: skip
    return f"\n{title}\n{markdown(rows)}"


def build_goal(what: str, amount: float, limit: float, *, is_least: bool = False) -> dict[str, Any]:
    """What was promised, and whether it holds."""
    is_kept = amount >= limit if is_least else amount <= limit
    sign = ">=" if is_least else "<="
    return {"what": what, "amount": amount, "limit": f"{sign} {limit:g}", "verdict": "kept" if is_kept else "missed"}


def start_goals(rows: Mapping[tuple[int, str], Sequence[Row]], count: int = 5) -> list[dict[str, Any]]:
    """Ratios to a gateway for each of five clients, each of one round, and what one door weighs."""
    goals = []
    for base, (what, way, names, limit) in product(("alone", EARLIER), _RATIOS):
        pairs = zip(rows.get((count, way), ()), rows.get((count, base), ()), strict=False)
        if shares := [_add_up(row, names) / _add_up(other, names) for row, other in pairs]:
            goals.append(build_goal(f"{count} clients, {way}: {what} / {base}", statistics.median(shares), limit))
    if ones := rows.get((1, "joined, gateway running")):
        door_mb = statistics.median(row.door_mb for row in ones)
        goals.append(build_goal("door: MB resident", door_mb, _DOOR_MB))
        search_s = statistics.median(row.first_search_s for row in ones)
        goals.append(build_goal("door: s to its first search", search_s, _DOOR_S))
    return goals


def _add_up(row: Row, names: Sequence[str]) -> float:
    return float(sum(getattr(row, name) for name in names))

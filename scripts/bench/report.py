"""Tables for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

__all__ = ["Cost", "aligned", "calls_table", "profile_table", "startup_table"]

SHOWN_MODULES = 12
SHOWN_FUNCTIONS = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the table.

    Attributes:
        what: In words.
        amounts: Measured once or several times.
        unit: Of the amounts and the limit.
        limit: The median is to be at most this; None where nothing was promised.
    """

    what: str
    amounts: list[float]
    unit: str
    limit: float | None = None

    def cells(self) -> list[str]:
        """The line."""
        limit = "" if self.limit is None else f"{self.limit:g}"
        amount = round(median(self.amounts), 2)  # as it is shown
        verdict = "" if self.limit is None else "kept" if amount <= self.limit else "missed"
        extent = f"{min(self.amounts):.2f} .. {max(self.amounts):.2f}" if len(self.amounts) > 1 else ""
        return [self.what, f"{amount:.2f}", self.unit, limit, verdict, extent]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The rows as columns: the first from the left, the others from the right; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = (
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  " + "  ".join((first, *others)))
    return "\n".join(lines)


def calls_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """One transport and era: latency, throughput, cost and big results of each candidate.

    All calls carry a progress token, as those of most clients do, but for the columns that say otherwise. `added` is
    the median latency beyond the direct call's.
    """
    direct = rows["direct"]
    if "failure" in direct:
        return f"{title}: the direct calls failed: {direct['failure']}\n"
    callers = list(direct.get("calls_per_s", {}))
    sizes = list(direct.get("sizes_p50_ms", {}))
    head = ["", "p50 ms", "p95", "p99", "added", "ratio", *(f"{count} callers/s" for count in callers)]
    head += ["no token: added", f"{callers[-1]} callers/s"] if callers else []
    head += ["CPU ms/call", "calls/core s", "MB idle", "peak", *(f"{size} ms" for size in sizes), "ratios"]
    table = [head]
    notes = []
    for name, row in rows.items():
        if "failure" in row:
            notes.append(f"  {name} failed: {row['failure']}")
            continue
        table.append(_calls_row(name, row, direct, callers, sizes))
        if row["client_cpu_share"] > 0.9:
            notes.append(f"  {name}: the load client was busy for {row['client_cpu_share']:.0%} of a flood's time")
    return "\n".join([f"{title} (median of the rounds)", aligned(table), *notes, ""])


def _calls_row(
    name: str, row: Mapping[str, Any], direct: Mapping[str, Any], callers: Sequence[str], sizes: Sequence[str]
) -> list[str]:
    is_direct = name == "direct"
    cells = [name, *(f"{row[key]:.3f}" for key in ("p50_ms", "p95_ms", "p99_ms"))]
    added = () if is_direct else (f"{row['added_p50_ms']:+.3f}", f"{row['p50_ms'] / direct['p50_ms']:.1f}x")
    cells += added or ["", ""]
    cells += [f"{row['calls_per_s'][count]:,.0f}" for count in callers]
    plain = row["without_token"]
    cells += ["" if is_direct else f"{plain['added_p50_ms']:+.3f}", f"{plain['calls_per_s'][callers[-1]]:,.0f}"]
    cpu_ms = row["cpu_ms_per_call"].get(f"{callers[-1]} callers", 0.0)
    cells += [f"{cpu_ms:.3f}", f"{1000 / cpu_ms:,.0f}"] if cpu_ms else ["", ""]
    cells += ["", ""] if is_direct else [f"{row['idle_mb']:.0f}", f"{row['peak_mb']:.0f}"]
    cells += [f"{row['sizes_p50_ms'][size]:.3f}" for size in sizes]
    cells.append("" if is_direct else " / ".join(f"{row['sizes_ratio'][size]:.1f}" for size in sizes))
    return cells


def startup_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Seconds from the spawn."""
    labels = {"cold": "ours, empty data directory", "stored": "ours, stored catalog", "proxy": "create_proxy"}
    table = [["", "upstreams", "initialize s", "last server answers s"]]
    for row in rows:
        table.append(
            [labels[row["kind"]], str(row["upstreams"]), f"{row['initialize_s']:.2f}", f"{row['last_server_s']:.2f}"]
        )
    return "\n".join(
        ["start-up, raw stdio upstreams (seconds from the spawn, median of the rounds)", aligned(table), ""]
    )


def profile_table(title: str, profile: Mapping[str, Any]) -> str:
    """Where the gateway's CPU time goes."""
    per_call = profile["cpu_s"] / profile["calls"] * 1000
    lines = [f"{title}: {profile['calls_per_s']:,.0f} calls/s, {per_call:.3f} ms of CPU per call"]
    for label, key, shown in (
        ("by the innermost caller outside the standard library and anyio", "owners", SHOWN_MODULES),
        ("by module, own time", "modules", SHOWN_MODULES),
        ("by function, own time", "functions", SHOWN_FUNCTIONS),
        ("by function, with what it calls", "inclusive", 2 * SHOWN_FUNCTIONS),
    ):
        lines.append(f"  {label}")
        lines += [f"    {share:6.1%}  {name}" for name, share in profile[key][:shown]]
    return "\n".join([*lines, ""])

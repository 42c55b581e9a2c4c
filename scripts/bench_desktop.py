"""Measures what several clients on one machine cost: a gateway each, one for all, and two peers, in one run.

Rows: 1, 2, 5 and 10 clients that start at the same moment, in front of 10 servers with 20 tools each; the ways take
turns, each figure is the median of the rounds, and each ratio that of the rounds' ratios. `alone` is `mcpproxy serve
--alone`, a gateway for each client; `joined` is `mcpproxy serve`, with the shared gateway running or with nothing
running; `earlier` is `serve` of another build of ours, such as 94e5bc46, which shared no gateway, in a home of its own.
All of ours start from a stored catalog. RSS counts shared pages for each process, PSS divides them. Processor time is
that of all processes, servers included, until every client has had an answer of every server. `--calls` measures calls
through the door instead, beside a gateway of one client. Linux alone. Results go to bench-desktop.json and
bench-desktop.md as well.

    python scripts/bench_desktop.py --rounds 3 --mcp-hub PATH --mcp-compressor PATH
    python scripts/bench_desktop.py --rounds 3 --weight sdk --clients 5 --earlier PATH
    python scripts/bench_desktop.py --calls
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.desktop.calls import calls_goals, calls_markdown, measure_calls
from bench.desktop.client import start_all
from bench.desktop.report import markdown, start_goals, start_markdown
from bench.desktop.rows import Row, measure_row, median_row
from bench.desktop.tree import adopt_orphans, end_all
from bench.desktop.ways import EARLIER, PEERS, Place, Way, build_earlier, find_ways, make_place

OUTPUT = Path("bench-desktop")
_END_S = 15.0


def main() -> None:
    options = parsed()
    if sys.platform != "linux":
        raise SystemExit("this measures by /proc, which only Linux has")
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="bench-desktop-") as name:
        folder = Path(name)
        found = measured_calls(folder, options) if options.calls else measured_starts(folder, options)
    found |= {"load": os.getloadavg(), "cores": os.cpu_count(), "python": platform.python_version()}
    options.output.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join([*found["notes"], *found["tables"]])
    options.output.with_suffix(".md").write_text(text + "\n")
    print(text)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 5, 10])
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument("--weight", choices=["raw", "sdk"], default="raw", help="servers of 10 MB or of 80 MB each")
    parser.add_argument("--only", nargs="+", help="ways whose names begin so")
    parser.add_argument("--earlier", metavar="PATH", help="program mcpproxy of an earlier build")
    parser.add_argument("--mcp-hub", metavar="PATH", help="program of the npm package mcp-hub, mcp-remote beside it")
    parser.add_argument("--mcp-compressor", metavar="PATH", help="program of the PyPI package mcp-compressor")
    parser.add_argument("--calls", action="store_true", help="measure calls instead of starts")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measure of calls")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the results, with .json and .md")
    return parser.parse_args()


def measured_starts(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    ways, notes = find_ways({name: getattr(options, name.replace("-", "_")) for name in PEERS})
    if options.earlier:
        ways.append(build_earlier(options.earlier))
    if options.only:
        ways = [way for way in ways if way.name.startswith(tuple(options.only))]
    homes = {way.name: "earlier" if way.name == EARLIER else "home" for way in ways}
    made = {home: make_place(folder / home, options.weight, options.servers) for home in set(homes.values())}
    places = {name: made[home] for name, home in homes.items()}
    prepare(ways, places)
    rows: dict[tuple[int, str], list[Row]] = {}
    for turn in range(options.rounds):
        for count in options.clients:
            for way in ways:
                began = time.perf_counter()
                rows.setdefault((count, way.name), []).append(measure_row(way, places[way.name], count))
                spent = time.perf_counter() - began
                print(f"round {turn + 1}: {count} x {way.name}: {spent:.1f} s", file=sys.stderr)
    medians = {key: median_row(each) for key, each in rows.items()}
    goals = start_goals(rows)
    title = f"{options.servers} {options.weight} servers of 20 tools, medians of {options.rounds} rounds"
    return {
        "notes": notes,
        "rows": [{"clients": count, "way": way, **row} for (count, way), row in medians.items()],
        "goals": goals,
        "tables": [start_markdown(title, medians), goals_table(goals)],
    }


def prepare(ways: Sequence[Way], places: Mapping[str, Place]) -> None:
    """One start of each build stores its catalog and compiles what is imported."""
    for way in ways:
        if way.name in ("alone", EARLIER):
            place = places[way.name]
            clients, _ = start_all(1, way.command, place.environ, place.log, way.dialect(), place.servers)
            for client in clients:
                client.close()
            end_all(_END_S)


def measured_calls(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    rows = measure_calls(folder, options.rounds, options.seconds)
    goals = calls_goals(rows)
    return {"notes": [], "rows": rows, "goals": goals, "tables": [calls_markdown(rows), goals_table(goals)]}


def goals_table(goals: Sequence[Mapping[str, Any]]) -> str:
    lines = [["goal", "measured", "limit", "verdict"]]
    lines += [[goal["what"], f"{goal['amount']:.3g}", goal["limit"], goal["verdict"]] for goal in goals]
    return markdown(lines) if goals else ""


if __name__ == "__main__":
    main()

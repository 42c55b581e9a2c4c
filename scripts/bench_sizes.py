"""Measures what a catalog's size costs: starts, memory and kinds of queries at 1,000, 10,000 and 100,000 tools.

Starts are from a stored catalog, over HTTP; processor time and resident memory are the gateway's alone, at `/readyz`,
when all servers are listed again, when freed memory has been given back, and after searches. Queries are asked of the
index, and what they took is their thread's processor time; with --beside the package of another checkout answers them
in turn.

    python scripts/bench_sizes.py --beside ../before --hybrid
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.query_kinds import ENGINES, KINDS
from bench.report import aligned
from bench.search_data import grow, read_queries, read_rows, write_rows
from bench.sized_start import Catalog, Start
from bench.sized_vectors import store_vectors

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden_search"
SIZES = (1_000, 10_000, 100_000)
HYBRID_SIZE = 10_000
MOMENTS = ("ready", "listed", "settled", "searched")
EMBED_HELP = "also measure starts with HYBRID, the first and the next, with so many tools to embed; 5,000 take minutes"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path, nargs="?", default=GOLDEN / "tools.jsonl", help="default: the golden set")
    parser.add_argument("queries", type=Path, nargs="?", default=GOLDEN / "queries.jsonl")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3, help="starts and runs of the queries; medians are shown")
    parser.add_argument("--count", type=int, default=300, help="queries of each kind")
    parser.add_argument("--beside", type=Path, help="a checkout whose search is measured in turn with this one's")
    parser.add_argument("--queries-only", action="store_true", help="measure no starts")
    parser.add_argument("--hybrid", action="store_true", help=f"also HYBRID's memory at {HYBRID_SIZE:,} tools")
    parser.add_argument("--embed", type=int, nargs="+", default=(), metavar="TOOLS", help=EMBED_HELP)
    return parser.parse_args()


def asked(root: Path, tools: Path, options: argparse.Namespace, engine: str) -> dict[str, dict[str, float]]:
    """Times of the kinds of queries with the package in `root`."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "bench.query_kinds", str(tools), str(options.queries.resolve())]
    done = subprocess.run(
        [*command, str(options.count), *([engine] if engine != "words" else [])],
        cwd=ROOT / "scripts",
        env=environ,
        stdout=subprocess.PIPE,
        check=True,
    )
    times: dict[str, dict[str, float]] = json.loads(done.stdout)
    return times


def searches(options: argparse.Namespace) -> list[str]:
    """Labelled queries that a gateway is asked, so many as of each kind."""
    return [row["query"] for row in read_queries(options.queries)][: options.count]


def measured(size: int, options: argparse.Namespace, folder: Path) -> tuple[list[Start], dict[str, list[Any]]]:
    """Warm starts, and by engine and checkout the times of the queries; turn by turn."""
    tools = folder / "tools.jsonl"
    write_rows(tools, grow(list(read_rows(options.tools)), size))
    ways = {engine: (ROOT, engine) for engine in ENGINES}
    ways |= {"words beside": (options.beside.resolve(), "words")} if options.beside else {}
    starts: list[Start] = []
    times: dict[str, list[Any]] = {name: [] for name in ways}
    catalog = None if options.queries_only else Catalog(read_rows(tools), folder)
    if catalog is not None:
        catalog.start()
    for _ in range(options.rounds):
        if catalog is not None:
            starts.append(catalog.start(queries=searches(options)))
        for name, (root, engine) in ways.items():
            times[name].append(asked(root, tools, options, engine))
    return starts, times


def started(starts: Sequence[Start]) -> list[str]:
    """The cells of a table of starts."""
    median = {key: statistics.median(start[key] for start in starts) for key in starts[0]}
    seconds = [f"{median[f'ready{unit}']:.2f}" for unit in ("_s", "_cpu_s")]
    return [*seconds, *(f"{median[f'{moment}_mb']:.0f}" for moment in MOMENTS)]


def embedded(size: int, options: argparse.Namespace, folder: Path) -> list[list[str]]:
    """A first start with HYBRID, which embeds, and one from what it stored, as rows of a table."""
    catalog = Catalog(grow(list(read_rows(options.tools)), size), folder)
    starts = {which: catalog.start("HYBRID") for which in ("first", "next")}
    keys = ("ready_s", "ready_cpu_s", "embedded_s", "embedded_cpu_s")
    return [
        [f"{size:,} {which}", *(f"{start[key]:.2f}" for key in keys), f"{start['embedded_mb']:.0f}"]
        for which, start in starts.items()
    ]


def took(times: Sequence[Any], kind: str) -> str:
    p50, p99 = (statistics.median(each[kind][key] for each in times) for key in ("p50_ms", "p99_ms"))
    return f"{p50:.2f} / {p99:.2f}"


def main() -> None:
    options = parsed()
    starts = [["tools", "ready s", "CPU s", *(f"MB {moment}" for moment in MOMENTS)]]
    queries = [["tools, ranked by", *KINDS, "bytes a tool", "first ms"]]
    with tempfile.TemporaryDirectory(prefix="bench-sizes-", ignore_cleanup_errors=True) as name:
        for size in options.sizes:
            folder = Path(name) / str(size)
            folder.mkdir()
            found, times = measured(size, options, folder)
            starts += [[f"{size:,}", *started(found)]] if found else []
            for which, each in times.items():
                row = [f"{size:,} {which}", *(took(each, kind) for kind in KINDS)]
                of_index = [one.get("index", {}) for one in each]
                memory, first = (
                    statistics.median(one.get(key, 0) for one in of_index) for key in ("memory_mb", "first_ms")
                )
                queries.append([*row, f"{memory * 1e6 / size:,.0f}", f"{first:.1f}"])
        if options.hybrid:
            folder = Path(name) / "hybrid"
            folder.mkdir()
            catalog = Catalog(grow(list(read_rows(options.tools)), HYBRID_SIZE), folder)
            catalog.start()
            asyncio.run(store_vectors(catalog.data_dir))
            found = [catalog.start("HYBRID", searches(options)) for _ in range(options.rounds + 1)][1:]
            starts.append([f"{HYBRID_SIZE:,} HYBRID", *started(found)])
        vectors = [["tools", "ready s", "CPU s", "embedded s", "CPU s", "MB"]]
        for size in options.embed:
            folder = Path(name) / f"embed{size}"
            folder.mkdir()
            vectors += embedded(size, options, folder)
    print(f"medians of {options.rounds}; load {os.getloadavg()[0]:.1f}")
    if not options.queries_only or options.hybrid:
        print(f"\nstarts from a stored catalog\n{aligned(starts)}")
    if options.embed:
        print(f"\nstarts with HYBRID, which make a vector of each tool\n{aligned(vectors)}")
    print(f"\nqueries of the index, CPU ms p50 / p99 of {options.count} each, medians of {options.rounds}")
    print(aligned(queries))


if __name__ == "__main__":
    main()

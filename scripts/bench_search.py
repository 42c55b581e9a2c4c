"""Measures search beside other engines: quality on given tools and queries, cost from 1,000 to 100,000 tools, and
what a search costs an agent through the gateway. Every candidate runs in a process of its own.

Recall at one and at five tools is set against the default's, with the 95 % interval of a paired bootstrap over the
kinds of queries; --set adds further tools and queries to this part.

TOOLS: JSON lines with server, name, description, input_schema. QUERIES: JSON lines with id, query, gold (`server:tool`
each), alt (equally right tools by gold), source, style; queries without gold are left out. Quality is the mean of the
means over (source, style). The larger catalogs are copies with 15 % of the descriptions' words and half of the names
changed. Times are those of this machine at this moment: compare them within one run.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.report import aligned
from bench.search_candidates import CANDIDATES, OURS, PEERS, WITH_MINILM
from bench.search_data import grow, judge, name_of, read_queries, read_rows, stratum_of, write_rows
from bench.targets import TargetError
from bench.wire import BadReplyError

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden_search"
OUTPUT = Path("bench-search.json")
SIZES = (1_000, 10_000, 100_000)
QUICK_SIZES = (1_000,)
GATEWAY_SIZE = 10_000
GATEWAY_QUERIES = 20
PEERS_HOME = ROOT / ".cache" / "peers"
PEERS_PACKAGES = ("smart-mcp-proxy==0.3.1", "fastmcp>=2.8,<3", "bm25s")
GROWTH_QUERIES_S = 15.0
"""How long a candidate is asked at each size; the slow ones get through fewer queries."""

CHILD_S = 600.0
TOO_SLOW = {"smart-mcp-proxy 0.3.1": 10_000, WITH_MINILM: 5_000}
"""Most tools that a candidate is given: one compares each new text with all earlier ones, the other embeds."""

NO_QUALITY = frozenset({"faiss flat, 384 random", "ours, HYBRID without encoder"})


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path, nargs="?", default=GOLDEN / "tools.jsonl", help="default: the golden set")
    parser.add_argument("queries", type=Path, nargs="?", default=GOLDEN / "queries.jsonl")
    parser.add_argument(
        "--set", type=Path, nargs=2, action="append", default=[], metavar=("TOOLS", "QUERIES"), help="also judge these"
    )
    parser.add_argument("--peers", action="store_true", help=f"install {', '.join(PEERS_PACKAGES)} apart and measure")
    parser.add_argument("--quick", action="store_true", help="a smoke run: our own candidates, 1,000 tools, no gateway")
    parser.add_argument("--only", choices=("quality", "growth", "gateway"))
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default {OUTPUT}")
    return parser.parse_args()


def peers_python() -> Path:
    """The interpreter of the peers' own environment, made if need be."""
    python = PEERS_HOME / "bin" / "python"
    if not python.exists():
        venv.create(PEERS_HOME, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS_PACKAGES], check=True)
    return python


def run_candidate(candidate: str, tools: Path, queries: Path, limit_s: float, python: Path) -> dict[str, Any]:
    """What the child reports; `failure` says in a sentence why there is nothing."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    files = [str(tools.resolve()), str(queries.resolve())]
    command = [str(python), "-m", "bench.search_child", candidate, *files, str(limit_s)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT / "scripts", env=environ, timeout=CHILD_S, check=True
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"no end after {CHILD_S:g} s"}
    except subprocess.CalledProcessError as exc:
        return {"failure": (exc.stderr.strip().splitlines() or ["it failed"])[-1]}
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"failure": report["missing"]} if "missing" in report else report


def measure_all(
    tools: Path, queries: Path, size: int, limit_s: float, pythons: Mapping[str, Path]
) -> dict[str, dict[str, Any]]:
    """Every candidate's report, by name; who is left out or fails is said at once."""
    reports = {}
    for candidate, python in pythons.items():
        if size > TOO_SLOW.get(candidate, size):
            print(f"  {candidate}: left out at {size:,} tools", flush=True)
            continue
        report = run_candidate(candidate, tools, queries, limit_s, python)
        if "failure" in report:
            print(f"  {candidate}: skipped, {report['failure']}", flush=True)
        else:
            reports[candidate] = report
    return reports


def measure_quality(tools: Path, queries: Path, pythons: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    from smart_mcp_proxy.evaluation.metrics import bootstrap_difference  # two seconds as well

    names = list(map(name_of, read_rows(tools)))
    asked = read_queries(queries)
    print(f"quality: {len(names):,} tools, {len(asked):,} queries, five tools asked for", flush=True)
    able = {candidate: python for candidate, python in pythons.items() if candidate not in NO_QUALITY}
    rows = {}
    table = [["", "R@1", "R@5", "nDCG@5", "empty", "tools", "p50 ms", "p95 ms"]]
    table[0] += [f"R@1 against {OURS}", "R@5 against it"]
    strata, default = list(map(stratum_of, asked)), None
    for candidate, report in measure_all(tools, queries, len(names), CHILD_S, able).items():
        found = [[names[place] for place in places] for places in report.pop("found")]
        rows[candidate] = report | judge(asked, found)
        table.append([candidate, *(f"{rows[candidate][key]:.4f}" for key in ("first", "recall", "ndcg", "empty"))])
        table[-1] += [f"{rows[candidate][key]:.2f}" for key in ("tools", "p50_ms", "p95_ms")]
        measured = {key: rows[candidate].pop(key) for key in ("firsts", "recalls")}
        default = measured if candidate == OURS else default
        for key, values in measured.items():
            if default is not None and candidate != OURS:
                gain = rows[candidate][f"{key}_against_default"] = bootstrap_difference(default[key], values, strata)
                table[-1].append(f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
            else:
                table[-1].append("")
    print(aligned(table), end="\n\n", flush=True)
    return rows


def measure_growth(
    tools: Path, queries: Path, sizes: Sequence[int], pythons: Mapping[str, Path], folder: Path
) -> dict[str, dict[str, Any]]:
    rows = list(read_rows(tools))
    sized = {}
    for size in sizes:
        grown = folder / f"tools-{size}.jsonl"
        write_rows(grown, grow(rows, size))
        print(f"growth: {size:,} tools", flush=True)
        reports = measure_all(grown, queries, size, GROWTH_QUERIES_S, pythons)
        table = [["", "build s", "memory MB", "p50 ms", "p95 ms", "p50 CPU ms", "20 changed ms", "queries"]]
        for candidate, report in reports.items():
            del report["found"]
            table.append([candidate, f"{report['build_s']:.2f}", f"{report['memory_mb']:.0f}"])
            table[-1] += [f"{report[key]:.3f}" for key in ("p50_ms", "p95_ms", "cpu_p50_ms")]
            table[-1].append(f"{report['change_ms']:.1f}")
            table[-1].append(str(report["asked"]))
        sized[str(size)] = reports
        print(aligned(table), end="\n\n", flush=True)
    return sized


def measure_agent(tools: Path, queries: Path, folder: Path) -> dict[str, Any]:
    from bench.gateway_search import measure_gateway  # two seconds, which no other part needs

    grown = folder / "tools-gateway.jsonl"
    write_rows(grown, grow(list(read_rows(tools)), GATEWAY_SIZE))
    asked = [row["query"] for row in read_queries(queries)]
    gateway = measure_gateway(
        grown, GATEWAY_SIZE, asked[:: max(1, len(asked) // GATEWAY_QUERIES)][:GATEWAY_QUERIES], folder
    )
    print(f"through it over stdio, {gateway['tools']:,} tools, {gateway['listed_s']:.1f} s until all are searchable")
    sizes = f"({gateway['search_bytes']:,.0f} bytes)", f"({gateway['describe_bytes']:,} bytes)"
    table = [["", f"retrieve_tools ms {sizes[0]}", f"describe_tool ms {sizes[1]}", "ratio"]]
    for label, key in (("raw client", "raw"), ("FastMCP's client", "client")):
        row = gateway[key]
        table.append([label, f"{row['search_p50_ms']:.3f}", f"{row['describe_p50_ms']:.3f}", f"{row['ratio']:.2f}"])
    print(aligned(table), end="\n\n")
    return gateway


def run(options: argparse.Namespace, folder: Path) -> None:
    peers = peers_python() if options.peers else PEERS_HOME / "bin" / "python"
    pythons = {
        candidate: peers if candidate in PEERS else Path(sys.executable)
        for candidate in CANDIDATES
        if (candidate not in PEERS or peers.exists()) and (not options.quick or candidate.startswith("ours"))
    }
    for candidate in sorted(PEERS - pythons.keys()):
        print(f"{candidate}: skipped, it is installed by --peers")
    report: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
    }
    print(f"cores {report['cores']}, load {report['load'][0]:.2f}", end="\n\n", flush=True)
    if options.only in (None, "quality"):
        report["quality"] = measure_quality(options.tools, options.queries, pythons)
        report["sets"] = {f"{tools}": measure_quality(tools, queries, pythons) for tools, queries in options.set}
    if options.only in (None, "growth"):
        sizes = QUICK_SIZES if options.quick else SIZES
        report["growth"] = measure_growth(options.tools, options.queries, sizes, pythons, folder)
    if options.only == "gateway" or (options.only is None and not options.quick):
        report["gateway"] = measure_agent(options.tools, options.queries, folder)
    options.output.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


def main() -> int:
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        try:
            run(options, Path(folder))
        except (TargetError, BadReplyError, TimeoutError) as exc:
            print(f"The benchmark ended early: {exc}")
            return 1
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())

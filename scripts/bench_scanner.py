"""Measures the scanner: what it flags for review of attacks and of honest tools, and what a definition costs it.

The scanner did not learn from the held-out, the unseen and the fresh sets. The rules for side steps were written with
an eye on the sets of that name, whose attacks have one author; the late ones came in four rounds (the number of a
kind), each written before the rules had seen it. Tools of your own (JSON lines with `server`, `name`, `description`,
`input_schema`) are taken for honest ones. Costs are processor time of one thread, the best
of the rounds for each definition.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.search_data import read_rows

from smart_mcp_proxy.policy.scanner import scan

SETS = Path(__file__).parent.parent / "tests" / "policy" / "scanner_set"
PARTS = ("", "held_out_", "unseen_", "fresh_", "side_steps_", "side_steps_held_", "side_steps_late_")
LABELLED = tuple(f"{of}{label}" for of in PARTS for label in ("malicious", "benign"))
ROUNDS = 3
WARM_UP = 300
"""Definitions read before the clock runs: patterns and word tables fill their caches."""

Row = Mapping[str, Any]


def main() -> None:
    arguments = _parsed()
    sets = {name: list(read_rows(SETS / f"{name}.jsonl")) for name in LABELLED}
    sets |= {path.name: [_labelled(row) for row in read_rows(path)] for path in arguments.tools}
    found = {name: _flagged(rows) for name, rows in sets.items()}
    costs = {name: _costs_ms(rows, arguments.rounds) for name, rows in sets.items()}
    if arguments.json:
        print(json.dumps({name: {**found[name], **costs[name]} for name in sets}))
        return
    for name in sets:
        kinds = ", ".join(f"{kind} {count}" for kind, count in found[name]["kinds"].items())
        flagged, total = found[name]["flagged"], found[name]["total"]
        print(f"{name}: {flagged} of {total} flagged for review ({flagged / total:.2%})")
        print(f"  {kinds}")
        print("  processor time, ms: " + ", ".join(f"{part} {value:.2f}" for part, value in costs[name].items()))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", type=Path, help="JSON lines of tools taken for honest ones")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _labelled(row: Row) -> Row:
    definition = {"name": row["name"], "description": row.get("description") or ""}
    definition["inputSchema"] = row.get("input_schema") or {}
    return {"kind": row.get("source") or "tools", "server": row["server"], "definition": definition}


def _flagged(rows: Sequence[Row]) -> dict[str, Any]:
    total, flagged = Counter[str](), Counter[str]()
    for row in rows:
        total[row["kind"]] += 1
        findings = scan(row["server"], row["definition"])
        flagged[row["kind"]] += any(finding.severity == "review" for finding in findings)
    kinds = {kind: f"{flagged[kind]}/{count}" for kind, count in total.items()}
    return {"flagged": sum(flagged.values()), "total": len(rows), "kinds": kinds}


def _costs_ms(rows: Sequence[Row], rounds: int) -> dict[str, float]:
    for row in rows[:WARM_UP]:
        scan(row["server"], row["definition"])
    best = [float("inf")] * len(rows)
    for _ in range(rounds):
        for place, row in enumerate(rows):
            began_ns = time.thread_time_ns()
            scan(row["server"], row["definition"])
            best[place] = min(best[place], (time.thread_time_ns() - began_ns) / 1e6)
    best.sort()
    at = {f"p{percent}": best[int(len(best) * percent / 100)] for percent in (50, 95, 99)}
    return {**at, "worst": best[-1], "mean": sum(best) / len(best)}


if __name__ == "__main__":
    main()

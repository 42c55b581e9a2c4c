"""Measures calls through the gateway against direct calls and FastMCP's `create_proxy`, in one run.

A relay that passes bytes on and looks at none shows what any process in between costs on this machine at this moment.

All candidates stand in front of the same raw upstream and are driven by the same raw load client; the rounds alternate
between them. Calls carry a progress token, another one each, as those of most clients do; the same without one stands
beside it. The front's transport and era are the upstream's. Quote ratios and added milliseconds: absolute times are
those of this machine at this moment. Results go to bench-calls.json as well.
"""

import argparse
import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.measure import FULL, QUICK, Plan, run_profile, run_rounds
from bench.report import calls_table, profile_table, startup_table
from bench.startup import HUNG, measure_startup
from bench.targets import Bench, TargetError, Transport
from bench.wire import BadReplyError, Era

OUTPUT = Path("bench-calls.json")
TRANSPORTS: tuple[Transport, ...] = ("stdio", "http")
ERAS: tuple[Era, ...] = ("handshake", "modern")
UPSTREAM_COUNTS = (1, 10, 50)
QUICK_UPSTREAM_COUNTS = (10,)
PROFILE_S = 4.0
PROFILE_SIZES = {"small": 40, "1 MB": 1_000_000}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=(*TRANSPORTS, "start"), help="one transport, or the start-up alone")
    parser.add_argument("--era", choices=ERAS)
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round, fewer levels")
    parser.add_argument("--skip-proxy", action="store_true", help="leave FastMCP's create_proxy out")
    parser.add_argument("--profile", action="store_true", help="show where our gateway spends its CPU time instead")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default {OUTPUT}")
    return parser.parse_args()


def machine() -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)),
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "fastmcp": version("fastmcp"),
        "mcp": version("mcp"),
    }


def combinations(options: argparse.Namespace) -> list[tuple[Transport, Era]]:
    return [
        (transport, era)
        for transport in TRANSPORTS
        for era in ERAS
        if options.only in (None, transport) and options.era in (None, era)
    ]


def run_calls(
    pairs: Sequence[tuple[Transport, Era]], plan: Plan, folder: Path, names: list[str]
) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    for transport, era in pairs:
        title = f"{transport}, {era} era"
        with Bench(transport, era, folder, names) as targets:
            readings = run_rounds(targets, plan)
        base = readings["direct"]
        results[title] = {name: own.summary(None if own is base else base) for name, own in readings.items()}
        print(calls_table(title, results[title]), flush=True)
    return results


def run_profiles(pairs: Sequence[tuple[Transport, Era]], folder: Path) -> None:
    for transport, era in pairs:
        with Bench(transport, era, folder, ["ours"], is_profiled=True) as [target]:
            for label, size in PROFILE_SIZES.items():
                profile = run_profile(target, size, PROFILE_S)
                print(profile_table(f"{transport}, {era} era, {label} results", profile), flush=True)


def run(options: argparse.Namespace, folder: Path) -> int:
    """The exit status: 1 if direct calls or our gateway failed."""
    pairs = combinations(options)
    if options.profile:
        run_profiles(pairs, folder)
        return 0
    plan = QUICK if options.quick else FULL
    if options.rounds:
        plan = replace(plan, rounds=options.rounds)
    before = machine()
    print(", ".join(f"{key} {value}" for key, value in before.items()), end="\n\n", flush=True)
    names = ["direct", "relay", "ours", *([] if options.skip_proxy else ["proxy"])]
    calls = run_calls(pairs, plan, folder, names)
    startup = []
    if options.only in (None, "start"):
        counts = QUICK_UPSTREAM_COUNTS if options.quick else UPSTREAM_COUNTS
        startup = measure_startup(counts, plan.rounds, folder, has_proxy=not options.skip_proxy)
        print(startup_table(startup), flush=True)
    after = machine()
    print(f"load at the end {after['load']}")
    report = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "plan": asdict(plan),
        "machine": {**before, "load_at_end": after["load"]},
        "calls": calls,
        "startup": startup,
    }
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    return int(any("failure" in rows[name] for rows in calls.values() for name in ("direct", "ours")))


def main() -> int:
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        try:
            return run(options, Path(folder))
        except (TargetError, BadReplyError, *HUNG) as exc:
            print(f"The benchmark ended early: {exc}")
            return 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(main())

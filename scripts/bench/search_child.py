"""Measures one candidate in a process of its own, so that its memory is its own; prints one JSON object.

Usage: python -m bench.search_child CANDIDATE TOOLS.jsonl QUERIES.jsonl LIMIT_S
"""

import gc
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.process import memory_kb
from bench.search_candidates import CANDIDATES
from bench.search_data import LIMIT, read_queries, read_rows

CHANGED = 20
_WARM_UP = 5


def measure(candidate: str, tools: Path, queries: list[str], limit_s: float) -> dict[str, Any]:
    """Build seconds, memory, query times and the time until a change of twenty tools is searchable.

    Queries run until all were asked or `limit_s` is over. Memory is what the process grew by, with everything that
    the candidate keeps of the tools' texts, and what it imports.
    """
    make = CANDIDATES[candidate]
    make(itertools.islice(read_rows(tools), 10)).find("warm up", LIMIT)  # imports are not part of the build
    gc.collect()
    before_kb = memory_kb(os.getpid())
    start = time.perf_counter()
    found_by = make(read_rows(tools))
    built_s = time.perf_counter() - start
    for text in queries[:_WARM_UP]:
        found_by.find(text, LIMIT)
    gc.collect()
    memory_mb = (memory_kb(os.getpid()) - before_kb) / 1024
    found, spent_ms, worked_ms = [], [], []
    end = time.perf_counter() + limit_s
    for text in queries:
        start, worked = time.perf_counter(), time.process_time()
        found.append(list(found_by.find(text, LIMIT)))
        worked_ms.append((time.process_time() - worked) * 1000)
        spent_ms.append((time.perf_counter() - start) * 1000)
        if time.perf_counter() > end:
            break
    rows = dict(enumerate(itertools.islice(read_rows(tools), CHANGED)))
    changed = {place: {**row, "description": f"{row['description']} changed"} for place, row in rows.items()}
    start = time.perf_counter()
    found_by.change(changed)
    found_by.find(queries[0], LIMIT)
    change_ms = (time.perf_counter() - start) * 1000
    p50_ms, p95_ms = np.percentile(spent_ms, [50, 95])
    times = {"p50_ms": float(p50_ms), "p95_ms": float(p95_ms), "cpu_p50_ms": float(np.median(worked_ms))}
    times |= {"change_ms": change_ms, "asked": len(spent_ms)}
    return {"build_s": built_s, "memory_mb": memory_mb, **times, "found": found}


def main() -> None:
    candidate, tools, queries, limit_s = sys.argv[1:]
    try:
        report = measure(candidate, Path(tools), [row["query"] for row in read_queries(Path(queries))], float(limit_s))
    except ImportError as exc:
        report = {"missing": str(exc)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()

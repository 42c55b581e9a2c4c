"""The gateway's command line, with a note of the longest collection of each generation.

Any session that has nothing to do makes room for a new one, however short a time it has been idle.

Usage: timed_gateway.py FILE WORDS...; FILE is written when the gateway ends. What the start collects is not counted.
"""

import gc
import json
import sys
import time
from pathlib import Path
from typing import Any

from smart_mcp_proxy.cli import main
from smart_mcp_proxy.fastmcp_compat.http import sessions as http_sessions
from smart_mcp_proxy.web.collector import THRESHOLDS

longest = [{"times": 0, "cpu_ms": 0.0, "wall_ms": 0.0} for _ in range(3)]
begun = [0.0, 0.0]


def heard(phase: str, info: dict[str, Any]) -> None:
    """A collection begins or ends."""
    if phase == "start":
        begun[:] = time.thread_time(), time.perf_counter()
        return
    cpu_ms, wall_ms = (time.thread_time() - begun[0]) * 1e3, (time.perf_counter() - begun[1]) * 1e3
    if gc.get_threshold() != THRESHOLDS:  # not served yet
        return
    of = longest[info["generation"]]
    of.update(times=of["times"] + 1, cpu_ms=max(of["cpu_ms"], cpu_ms), wall_ms=max(of["wall_ms"], wall_ms))


if __name__ == "__main__":
    file, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
    gc.callbacks.append(heard)
    http_sessions.IDLE_S = 0.0  # type: ignore[misc]  # 25,000 clients come within minutes
    try:
        main()
    finally:
        gc.callbacks.remove(heard)
        file.write_text(json.dumps(longest))

"""`mcpproxy stop`: the end of the gateway in the background."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.support.output import say, show_json, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ProxyError

app = App(
    name="stop",
    help_epilogue="""\
Calls under way are answered first. A client that is still there starts another
gateway as soon as it asks for something.

Examples:
  mcpproxy stop""",
)
_LOOK_S = 0.05
_WAIT_S = 20.0
"""Calls under way get 10 s, servers some more to end."""


@app.default
async def stop(*, json: bool = False) -> int:
    """Stop the gateway in the background, once calls under way are answered.

    Args:
        json: Print {"stopped": [process ids]}.
    """
    # Here and not above: it takes a quarter of a second, which --help is spared.
    from smart_mcp_proxy.cli.support.api import find_running_gateways, find_silent_gateways, tell_other_gateway

    settings = open_settings()
    running = [found for _, found in await find_running_gateways(settings.data_dir)]
    silent = await to_thread.run_sync(find_silent_gateways, settings.data_dir, running)
    pids = [int(found["pid"]) for found in running if found.get("keep_alive_s") is not None]
    for found in running:
        if found["pid"] not in pids:
            warn(f"Process {found['pid']} serves HTTP, or one client alone, and is left as it is.")
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    if left := await to_thread.run_sync(wait_ended, pids, _WAIT_S):
        raise ProxyError(f"Process {left[0]} has not ended in {_WAIT_S:g} s.", hint=f"End it: kill -9 {left[0]}")
    if silent:
        raise silent[0]
    if json:
        show_json({"stopped": pids})
    elif pids:
        say(f"Stopped process {', '.join(map(str, pids))}.")
    else:
        if not running:
            tell_other_gateway(settings)
        say(f"No gateway runs in the background on {settings.data_dir}.")
    return 0


def wait_ended(pids: list[int], limit_s: float) -> list[int]:
    """Wait for these processes, which are no children; returns those that go on."""
    until_s = time.monotonic() + limit_s
    while (left := [pid for pid in pids if _is_alive(pid)]) and time.monotonic() < until_s:
        time.sleep(_LOOK_S)
    return left


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:  # it has just ended, or this is no Linux
        return True
    return state != "Z"  # ended, in a container whose first process takes note of no end

"""`mcpproxy status`: the gateways that run, and the clients that share them."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.support.output import plural, say, show, show_json, table, warn
from smart_mcp_proxy.cli.support.start import open_settings

app = App(
    name="status",
    help_epilogue="""\
Clients that start `mcpproxy serve` share one gateway, which runs in the
background and ends some minutes after the last of them has left.

Examples:
  mcpproxy status
  mcpproxy status --json""",
)


@app.default
async def status(*, json: bool = False) -> int:
    """Show the gateways that run, and the clients that share them.

    Args:
        json: Print {"gateways": [...]}; the exit status is 1 where none runs.
    """
    # Here and not above: it takes a quarter of a second, which --help is spared.
    from smart_mcp_proxy.cli.support.api import find_running_gateways, find_silent_gateways, tell_other_gateway

    settings = open_settings()
    running = [found for _, found in await find_running_gateways(settings.data_dir)]
    silent = await to_thread.run_sync(find_silent_gateways, settings.data_dir, running)
    for error in silent:
        warn(f"{error} {error.hint}")
    if json:
        show_json({"gateways": [_pick(each) for each in running]})
    elif not running and not silent:
        tell_other_gateway(settings)
        say(f"No gateway runs on {settings.data_dir}. A client starts one; so does: mcpproxy serve --http")
    for each in () if json else running:
        _show_gateway(each)
    return 0 if running else 1


def _pick(found: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("pid", "version", "is_settled", "tools", "servers", "joined", "keep_alive_s", "sessions", "clients")
    return {key: found.get(key) for key in keys}


def _show_gateway(found: Mapping[str, Any]) -> None:
    states = Counter(server["state"] for server in found["servers"])
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "none"
    show(f"Gateway  process {found['pid']}, mcpproxy {found['version']}: {describe_end(found)}")
    show(f"Servers  {counted}; {plural(found['tools'], 'tool')}")
    joined = found.get("joined", ())  # a gateway of an earlier version has none
    if joined:
        rows = [(each["name"] or "(not said yet)", str(each["pid"]), each["directory"], _age(each)) for each in joined]
        show(table(("Client", "Process", "Directory", "Joined"), rows))
    elif found.get("keep_alive_s") is not None:
        show("Clients  none")


def describe_end(found: Mapping[str, Any]) -> str:
    """When a gateway ends, in words."""
    keep_alive_s = found.get("keep_alive_s")
    if keep_alive_s is None:
        return "ends with its client" if found.get("transport") == "stdio" else "runs until it is stopped"
    return f"in the background, ends {keep_alive_s:g} s after its last client has left"


def _age(client: Mapping[str, Any]) -> str:
    minutes = (time.time() - client["since_s"]) / 60
    return "just now" if minutes < 1 else f"{minutes:.0f} min ago" if minutes < 120 else f"{minutes / 60:.0f} h ago"

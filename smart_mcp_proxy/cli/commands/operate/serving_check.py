"""A gateway that is opened to see whether its servers can be used."""

from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.cli.commands.operate.serving import load_server_file
from smart_mcp_proxy.cli.support.local_gateway import open_local_api
from smart_mcp_proxy.cli.support.one_start import start_environment
from smart_mcp_proxy.cli.support.output import say, show_json
from smart_mcp_proxy.cli.support.render import format_waiting_hint
from smart_mcp_proxy.cli.support.report import show_report, summarize
from smart_mcp_proxy.cli.support.wait_ready import longest_start_s, settle
from smart_mcp_proxy.gateway import open_gateway
from smart_mcp_proxy.settings import Settings


async def check(settings: Settings, *, passthrough: str | None = None, as_json: bool = False) -> int:
    """Connects and lists every server, reports, and ends; returns 0 if all of them can be used, else 1.

    A tool that waits for approval cannot be used.

    Raises:
        ConfigError: The configuration as a whole, or the data directory, cannot be used.
    """
    file = await load_server_file(settings, is_logged=False)
    async with open_gateway(
        settings, file.servers, environ=start_environment(settings), passthrough=passthrough, serves=False
    ) as gateway:
        gateway.start_upstreams()
        await settle(gateway, longest_start_s(file.servers.values()))
        async with open_local_api(gateway) as api:
            summary = await summarize(api)
    problems = [problem for problem in file.problems if problem.severity == "error"]
    unfit = [server["name"] for server in summary["servers"] if not _is_fit(server)]
    waiting = list(filter(None, map(format_waiting_hint, summary["servers"])))
    is_ok = bool(file.usable) and not (unfit or problems or waiting)
    if as_json:
        facts = [{"server": one.server, "message": one.message, "severity": one.severity} for one in file.problems]
        show_json({"ok": is_ok, "config": file.source, **summary, "problems": facts})
        return 0 if is_ok else 1
    show_report(summary, None, to_stdout=True)
    for problem in file.problems:
        if problem.severity == "error" and problem.server in file.servers:
            continue  # the server's row says it
        say(f"{problem.severity}: {problem}")
    say("All servers can be used." if is_ok else "Not everything can be used.")
    if not is_ok:
        say("Next: mcpproxy approve" if waiting and not (unfit or problems) else "Next: mcpproxy doctor")
    return 0 if is_ok else 1


def _is_fit(server: Mapping[str, Any]) -> bool:
    """Whether all that a server lists can be used, or its user wants none of it."""
    return server["state"] == "disabled" or (server["state"] == "ready" and server["severity"] in ("", "note"))

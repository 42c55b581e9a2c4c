"""`mcpproxy` alone: an overview for a person at a terminal, the gateway for a client that starts it."""

import asyncio
import sys
from collections import Counter
from pathlib import Path

from smart_mcp_proxy import __version__
from smart_mcp_proxy.cli.commands.operate.serve import greet_anew, serve_settings
from smart_mcp_proxy.cli.support.loop import run
from smart_mcp_proxy.cli.support.output import clean, console, format_waiting_count, plural, show
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.cli.support.tables import wrap_text
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.servers import ServerFile, load_configured_servers
from smart_mcp_proxy.settings import Settings


def run_without_command() -> int:
    """Shows the overview if stdin is a terminal, else serves; returns the exit status."""
    if not sys.stdin.isatty():
        settings = open_settings(is_serving=True)
        greet_anew(settings, is_whole=True)
        return run(serve_settings(settings))
    for line in asyncio.run(_overview(open_settings())):
        for piece in wrap_text(clean(line), console(sys.stdout).width):
            show(piece)
    return 0


async def _overview(settings: Settings) -> list[str]:
    # Here and not above: a client that starts the gateway waits for its first answer, and needs neither.
    from smart_mcp_proxy.cli.support.api import find_running_gateways

    lines = [f"mcpproxy {__version__}: one search tool in front of all your MCP servers", ""]
    running = await find_running_gateways(settings.data_dir)
    try:
        file = load_configured_servers(settings, Path.cwd())
    except ProxyError as error:
        return [*lines, f"Config   {error}", "", *_next("doctor", "demo")]
    if file.source:
        lines.append(f"Config   {file.source}: {plural(len(file.servers), 'server')}")
    else:
        lines.append(f"Config   none: neither ./mcp_config.json nor {settings.data_dir / 'mcp_config.json'} exists")
    lines += [f"         {problem}" for problem in file.problems if file.source]
    for _, status in running:
        states = Counter(server["state"] for server in status["servers"])
        counted = ", ".join(f"{count} {state}" for state, count in states.most_common()) or "no servers"
        lines.append(f"Running  process {status['pid']}: {counted}; {plural(status['tools'], 'tool')}")
        if count := sum(server.get("waiting", 0) for server in status["servers"]):
            lines.append(f"         {format_waiting_count(count)}: mcpproxy approve")
    if not running:
        known = await _count_stored_tools(settings, file)
        lines += ["Running  no gateway on this data directory", f"Catalog  {plural(known, 'tool')} known"]
    clients = _clients(settings)
    steps = ("search", "serve", "doctor") if file.servers else ("demo", "config")
    return [*lines, *clients, "", *_next(*(("init",) if clients else ()), *steps)]


def _clients(settings: Settings) -> list[str]:
    """Lines about the servers that other programs' files name."""
    # Here and not above: see _overview.
    from smart_mcp_proxy.cli.commands.operate.client_summary import summarize_clients

    users, project, _ = summarize_clients(settings, Path.cwd())
    found = [sentence for sentence in (users, project) if sentence]
    return [f"{'' if place else 'Clients':<8} {sentence}" for place, sentence in enumerate(found)]


async def _count_stored_tools(settings: Settings, file: ServerFile) -> int:
    """Count the stored tools of the configured servers; creates nothing."""
    # Here and not above: see _overview.
    from smart_mcp_proxy.catalog import DATABASE_NAME, open_catalog

    if settings.database_url is None and not (settings.data_dir / DATABASE_NAME).is_file():
        return 0
    async with open_catalog(settings) as catalog:
        return sum(record.key.server in file.servers for record in catalog.snapshot.by_id.values())


_STEPS = {
    "demo": ('mcpproxy demo "mix two colors"', "try a search on bundled servers, nothing to set up"),
    "init": ("mcpproxy init", "look at the servers of your clients, take over those you want"),
    "config": ("mcpproxy config path", "which server file is used"),
    "search": ('mcpproxy search "what you need"', "what an agent would find"),
    "serve": ("mcpproxy serve --http", "one endpoint for all your servers"),
    "doctor": ("mcpproxy doctor", "check the whole set-up"),
}


def _next(*steps: str) -> list[str]:
    chosen = [_STEPS[step] for step in steps]
    lines = [f"{command:<34} # {purpose}" for command, purpose in chosen]
    return [f"{'Next' if place == 0 else '':<8} {line}" for place, line in enumerate(lines)]

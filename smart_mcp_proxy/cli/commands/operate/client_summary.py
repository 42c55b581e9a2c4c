"""Servers of MCP clients that the gateway does not have, in a sentence."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smart_mcp_proxy.cli.support.output import plural
from smart_mcp_proxy.client_files import Places, find_servers
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.servers import ServerEdits
from smart_mcp_proxy.settings import Settings, environment

ClientSummary = tuple[str, str, list[str]]
"""Sentences about the user's own files and about those of the project, each empty without a server; and problems."""


def summarize_clients(settings: Settings, cwd: Path) -> ClientSummary:
    """The servers that clients have and the gateway does not. Reads files."""
    try:
        own: Mapping[str, Any] = {} if settings.config_json is not None else ServerEdits(settings, cwd).read().entries
    except ProxyError:
        own = {}  # whoever reads the server file says what is wrong with it
    finding = find_servers(Places(environment(), cwd), own)
    new = [server for server in finding.servers if server.standing == "new"]
    project = [server for server in finding.servers if server.scope == "project" and server.standing == "project"]
    counts = Counter(server.places[0].partition(",")[0] for server in new)
    listed = ", ".join(f"{title} {count}" for title, count in counts.items())
    users = (
        f"{plural(len(new), 'server')} of your clients {'is' if len(new) == 1 else 'are'} not here ({listed})"
        if new
        else ""
    )
    files = ", ".join(dict.fromkeys(str(server.path) for server in project))
    names = (
        f"{plural(len(project), 'server')} in files of this project, perhaps a stranger's: {files}" if project else ""
    )
    return users, names, finding.problems

"""Servers added to the server file, by the running gateway where there is one."""

from pathlib import Path
from typing import Any

from anyio import to_thread

from smart_mcp_proxy.cli.support.api import open_running
from smart_mcp_proxy.cli.support.output import plural
from smart_mcp_proxy.servers import ServerEdits
from smart_mcp_proxy.settings import Settings


async def import_server_text(settings: Settings, text: str) -> dict[str, Any]:
    """Add the servers of a text; returns those added, why others were skipped, and the file's revision.

    Raises:
        ProxyError: The text names no servers, or they cannot be written.
    """
    async with open_running(settings) as running:
        if running is not None:
            done: dict[str, Any] = await running.manage("POST", "servers/import", {"text": text})
            return done
    found = await to_thread.run_sync(ServerEdits(settings, Path.cwd()).import_text, text, "operator")
    return {
        "added": list(found.added),
        "skipped": dict(found.skipped),
        "quarantined": found.is_quarantined,
        "message": f"Added {plural(len(found.added), 'server')}.",
        "revision": found.revision,
    }

"""A change to the servers: made by the running gateway, else in the file, and told."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anyio import to_thread

from smart_mcp_proxy.cli.support.api import open_running
from smart_mcp_proxy.cli.support.output import clean, say, show_json, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.servers import ServerEdit, ServerEdits


async def change_servers(
    method: str, path: str, body: Mapping[str, Any] | None, on_file: Callable[[ServerEdits], ServerEdit]
) -> dict[str, Any]:
    """Apply a change: by the running gateway, in force at once, else in the file."""
    settings = open_settings()
    async with open_running(settings) as running:
        if running is not None:
            done: dict[str, Any] = await running.manage(method, path, body)
            return done
    edit = await to_thread.run_sync(on_file, ServerEdits(settings, Path.cwd()))
    outcome = "is removed" if edit.entry is None else "is saved" if edit.changed else "is as it was"
    return {
        "name": edit.name,
        "state": "removed" if edit.entry is None else None,
        "changed": list(edit.changed),
        "quarantined": edit.is_quarantined,
        "message": f"Server '{edit.name}' {outcome}.",
        "revision": edit.revision,
        "config": edit.entry,
        "warnings": list(edit.warnings),
    }


def report_change(done: Mapping[str, Any], *, as_json: bool) -> None:
    """Tells what was done: as one object, else in words."""
    if as_json:
        show_json(done)
        return
    for warning in done["warnings"]:
        warn(warning)
    changed = f" Fields: {', '.join(done['changed'])}." if done["changed"] and done["config"] is not None else ""
    say(clean(f"{done['message']}{changed}"))

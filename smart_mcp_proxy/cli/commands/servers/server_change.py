"""Changes to the servers: made by the running gateway, else in the file, and told."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import anyio
from anyio import to_thread

from smart_mcp_proxy.cli.support.access import open_at_rest
from smart_mcp_proxy.cli.support.api import Api, open_running, read_servers
from smart_mcp_proxy.cli.support.output import clean, plural, say, show_json, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.models import PENDING_STATES, ServerState, ServerStatus
from smart_mcp_proxy.servers import ServerEdit, ServerEdits, require_named
from smart_mcp_proxy.settings import Settings

_SETTLE_S = 30.0
_LOOK_S = 0.2
_LEFT_ALONE = frozenset({ServerState.DISABLED, ServerState.QUARANTINED, ServerState.NEEDS_ENV})
"""States in which a server is not even tried."""


async def change_servers(
    method: str, path: str, body: Mapping[str, Any] | None, on_file: Callable[[ServerEdits], ServerEdit]
) -> dict[str, Any]:
    """Apply a change: by the running gateway, in force at once, else in the file."""
    settings = open_settings()
    async with open_running(settings) as running:
        if running is not None:
            return await running.manage(method, path, body)
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


async def import_server_text(settings: Settings, text: str) -> dict[str, Any]:
    """Add the servers of a text; returns those added, why others were skipped, and the file's revision.

    Raises:
        ProxyError: The text names no servers, or they cannot be written.
    """
    async with open_running(settings) as running:
        if running is not None:
            return await running.manage("POST", "servers/import", {"text": text})
    found = await to_thread.run_sync(ServerEdits(settings, Path.cwd()).import_text, text, "operator")
    return {
        "added": list(found.added),
        "skipped": dict(found.skipped),
        "quarantined": found.is_quarantined,
        "message": f"Added {plural(len(found.added), 'server')}.",
        "revision": found.revision,
    }


async def read_server(name: str) -> dict[str, Any]:
    """A server as the running gateway has it, else as the file has it and without a state.

    Raises:
        ServerNotFoundError: There is none of that name.
    """
    async with open_at_rest(open_settings()) as api:
        shown = await api.manage("GET", server_path(name))
    return shown if api.origin == "running" else shown | {"state": None}


async def patch_entry(name: str, patch: Mapping[str, Any], revision: str | None = None) -> dict[str, Any]:
    """Merge a change into a server's entry."""
    body = {"config": patch, "revision": revision}
    return await change_servers(
        "PATCH", server_path(name), body, lambda edits: edits.patch(name, patch, "operator", based_on=revision)
    )


class OneStart(NamedTuple):
    """Outcome of one start of a server: its last lines, its state, and whether it was tried at all."""

    lines: list[str]
    status: ServerStatus
    is_tried: bool


async def start_once(settings: Settings, name: str, count: int) -> OneStart:
    """Start a configured server once, where no gateway runs.

    Raises:
        ServerNotFoundError: There is none of that name.
    """
    # Here and not above: a running gateway answers before this is imported.
    from smart_mcp_proxy.cli.support.one_start import read_start_log

    servers = await read_servers(settings)
    require_named(name, servers)
    async with open_at_rest(settings) as api:
        listed = (await api.status())["servers"]
    mode = next(each["isolation"] for each in listed if each["name"] == name)
    lines, status = await read_start_log(settings, servers[name], mode, count)
    return OneStart(lines, status, status.state not in _LEFT_ALONE and servers[name].refusal is None)


async def wait_settled(running: Api, name: str) -> dict[str, Any]:
    """A server of a running gateway once it is ready or has failed, or after some seconds."""
    end_s = time.monotonic() + _SETTLE_S
    while True:
        rows: list[dict[str, Any]] = (await running.status())["servers"]
        found = next((row for row in rows if row["name"] == name), None)
        if found is None:
            require_named(name, {row["name"]: row for row in rows})
        elif found["state"] not in PENDING_STATES or time.monotonic() > end_s:
            return found
        await anyio.sleep(_LOOK_S)


def server_path(name: str) -> str:
    """Place of a server in REST."""
    return f"servers/{quote(name, safe='')}"


def report_change(done: Mapping[str, Any], *, as_json: bool) -> None:
    """Tells what was done: as one object, else in words."""
    if as_json:
        show_json(done)
        return
    for warning in done["warnings"]:
        warn(warning)
    changed = f" Fields: {', '.join(done['changed'])}." if done["changed"] and done["config"] is not None else ""
    say(clean(f"{done['message']}{changed}"))

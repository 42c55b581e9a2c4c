"""`mcpproxy server add|remove|patch|...`: changes through a running gateway or in the file."""

import json as json_text
import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

from anyio import to_thread
from cyclopts import App, Parameter

from smart_mcp_proxy.cli.commands.servers.server_add import ADD_EXAMPLES, add_server
from smart_mcp_proxy.cli.commands.servers.server_change import (
    change_servers,
    import_server_text,
    patch_entry,
    read_server,
    report_change,
    server_path,
)
from smart_mcp_proxy.cli.commands.servers.server_isolation import (
    ALLOW_EXAMPLES,
    ISOLATE_EXAMPLES,
    allow_server,
    isolate_servers,
)
from smart_mcp_proxy.cli.support.arguments import parse_json_object, parse_pairs
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, require_agreed
from smart_mcp_proxy.cli.support.output import clean, plural, say, show, show_json, warn
from smart_mcp_proxy.cli.support.render import say_isolation
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import FILE_LIMIT_BYTES, ServerEdit, ServerEdits, warnings_about

_TEXTS = ("env.", "headers.")
"""Beginnings of keys whose values are text, also where they look like numbers."""


def add_edits(app: App) -> None:
    """Adds the commands that change servers to `mcpproxy server`."""
    for command, name, example in (
        (show_server, "show", "mcpproxy server show github"),
        (add_server, "add", ADD_EXAMPLES),
        (patch_server, "patch", _PATCH_EXAMPLES),
        (remove_server, "remove", "mcpproxy server remove github"),
        (enable_server, "enable", "mcpproxy server enable github"),
        (disable_server, "disable", "mcpproxy server disable github"),
        (approve_server, "approve", _APPROVE_EXAMPLES),
        (isolate_servers, "isolate", ISOLATE_EXAMPLES),
        (allow_server, "allow", ALLOW_EXAMPLES),
        (restart_server, "restart", "mcpproxy server restart github"),
        (refresh_server, "refresh", "mcpproxy server refresh github"),
        (import_servers, "import", "mcpproxy server import ~/.cursor/mcp.json\n  mcpproxy server import - < servers"),
    ):
        app.command(command, name=name, help_epilogue=f"Examples:\n  {example}")


_APPROVE_EXAMPLES = """\
mcpproxy server approve github
  mcpproxy server show github
  mcpproxy server approve github --yes --revision sha256:..."""
_PATCH_EXAMPLES = """\
mcpproxy server patch github timeout=30000 env.LEVEL=debug
  mcpproxy server patch github env.LEVEL=null
  mcpproxy server patch github --input-json '{"args": ["-y", "server-github@2"]}'"""


async def show_server(name: str, /, *, json: bool = False) -> None:
    """Show a server's entry, and its state if a gateway runs.

    Secrets are hidden; but of a server that waits for your approval you see in full what would run.

    Args:
        name: Server name.
        json: Print it as one object.
    """
    shown = await read_server(name)
    if json:
        show_json(shown)
        return
    if shown["state"] is not None:
        say(clean(f"{shown['state']}, {plural(shown['tools'], 'tool')}. {shown['error']} {shown['hint']}").rstrip())
    show(_format_config(shown["config"]))
    _warn_about(shown["config"])
    say_isolation(shown)
    if shown["config"].get("quarantined") is True and shown["revision"]:
        command = f"mcpproxy server approve {shell_word(name)} --yes --revision {shown['revision']}"
        say(f"Approve it as shown: {command}")


async def patch_server(
    name: str, /, *fields: str, input_json: str | None = None, revision: str | None = None, json: bool = False
) -> None:
    """Change fields of a server's entry and leave the others as they are.

    Args:
        name: Server name.
        fields: FIELD=VALUE, with dots where it is inside another; null removes it.
        input_json: The change as a JSON object, merged into the entry: null removes, lists replace.
        revision: Fail if the server file has another revision by now, as `show --json` and others name it.
        json: Print what was done as one object.
    """
    if bool(fields) == (input_json is not None):
        raise UsageError("Say what to change, either as FIELD=VALUE or with --input-json.")
    patch = parse_json_object(input_json) if input_json is not None else _build_patch(parse_pairs(fields))
    report_change(await patch_entry(name, patch, revision), as_json=json)


async def remove_server(name: str, /, *, json: bool = False) -> None:
    """Remove a server from the server file.

    Args:
        name: Server name.
        json: Print what was done as one object.
    """
    report_change(
        await change_servers("DELETE", server_path(name), None, lambda edits: edits.remove(name, "operator")),
        as_json=json,
    )


async def enable_server(name: str, /, *, json: bool = False) -> None:
    """Let a disabled server run again.

    Args:
        name: Server name.
        json: Print what was done as one object.
    """
    await _switch(name, is_enabled=True, as_json=json)


async def disable_server(name: str, /, *, json: bool = False) -> None:
    """Stop a server and leave it out until it is enabled.

    Args:
        name: Server name.
        json: Print what was done as one object.
    """
    await _switch(name, is_enabled=False, as_json=json)


async def approve_server(name: str, /, *, yes: bool = False, revision: str | None = None, json: bool = False) -> None:
    """Let a server run that somebody else added or changed.

    The tools of its first list are agreed to with it. Where "trust" in its entry, or MCPPROXY_TRUST, is "scan", those
    in which the scanner finds something wait for `mcpproxy approve`; so does, in any case, a tool that later calls
    itself less dangerous than before.

    Args:
        name: Server name.
        yes: Do not ask first; takes the revision of what was looked at.
        revision: Fail if the server file has another revision by now than the one that `server show` named.
        json: Print what was done as one object.
    """
    if yes and revision is None:
        raise add_next_step(
            UsageError(
                "--yes approves what you have looked at, and needs its --revision.",
                hint="Look at the entry first; the command for it is printed below.",
            ),
            f"mcpproxy server show {shell_word(name)}",
        )
    shown = await read_server(name)
    if not yes:
        say(_format_config(shown["config"]))
    _warn_about(shown["config"])
    say_isolation(shown)
    if not yes:
        require_agreed(
            f"Let the gateway start and use '{name}' as it is shown above?",
            "approves",
            f"mcpproxy server show {shell_word(name)}",
            "Look at the server first; below what is shown stands the command that does not ask.",
        )
        revision = revision or shown["revision"] or None  # what is approved is what was shown
    path = f"{server_path(name)}/approve" + (f"?revision={quote(revision)}" if revision else "")
    done = await change_servers(
        "POST", path, None, lambda edits: edits.approve_server(name, "operator", based_on=revision)
    )
    report_change(done, as_json=json)


async def restart_server(name: str, /, *, json: bool = False) -> None:
    """Connect a server of the running gateway anew.

    Args:
        name: Server name.
        json: Print what was done as one object.
    """
    report_change(await change_servers("POST", f"{server_path(name)}/restart", None, _needs_gateway), as_json=json)


async def refresh_server(name: str, /, *, json: bool = False) -> None:
    """List a server's tools again, in the running gateway.

    Args:
        name: Server name.
        json: Print what was done as one object.
    """
    report_change(await change_servers("POST", f"{server_path(name)}/refresh", None, _needs_gateway), as_json=json)


async def import_servers(file: Annotated[str, Parameter(allow_leading_hyphen=True)], /, *, json: bool = False) -> None:
    """Add the servers of another client's configuration.

    Args:
        file: Its path, `-` for standard input.
        json: Print {"added", "skipped"} and more.
    """
    text = await to_thread.run_sync(_read_text_file, file)
    done = await import_server_text(open_settings(), text)
    if json:
        show_json(done)
        return
    for name, reason in done["skipped"].items():
        warn(f"{name}: {reason}")
    say(clean(f"Added {plural(len(done['added']), 'server')}: {', '.join(done['added']) or 'none'}."))


# --- the parts of these


def _warn_about(config: Mapping[str, Any]) -> None:
    for warning in warnings_about(config):
        warn(warning)


def _format_config(config: Mapping[str, Any]) -> str:
    """As JSON in which no character is hidden: two entries that look alike are alike."""
    text = json_text.dumps(config, indent=2, ensure_ascii=False)
    return "".join(char if char.isprintable() or char == "\n" else json_text.dumps(char)[1:-1] for char in text)


async def _switch(name: str, *, is_enabled: bool, as_json: bool) -> None:
    path = f"{server_path(name)}/{'enable' if is_enabled else 'disable'}"
    done = await change_servers("POST", path, None, lambda edits: edits.switch(name, "operator", is_enabled=is_enabled))
    report_change(done, as_json=as_json)


def _needs_gateway(edits: ServerEdits) -> ServerEdit:
    raise add_next_step(
        RequestError("No gateway runs on this data directory.", hint="A start reads and connects all servers."),
        "mcpproxy serve",
    )


def _build_patch(pairs: Mapping[str, str]) -> dict[str, Any]:
    """`env.A` as `{"env": {"A": ...}}`; values are JSON where they can be read as such."""
    patch: dict[str, Any] = {}
    for path, text in pairs.items():
        # What is inside env and headers is a name of its own, dots included.
        steps = path.split(".", 1) if path.startswith(_TEXTS) else path.split(".")
        inner = patch
        for step in steps[:-1]:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{path!r} is inside a field that is given as well.", hint="Give one of them.")
        if steps[-1] in inner:
            raise UsageError(f"{path!r} is given, and a field inside it as well.", hint="Give one of them.")
        inner[steps[-1]] = _value(path, text)
    return patch


def _value(path: str, text: str) -> Any:
    try:
        value = json_text.loads(text)
    except ValueError:
        return text
    return text if path.startswith(_TEXTS) and value is not None else value


def _read_text_file(file: str) -> str:
    try:
        if file == "-":
            text = sys.stdin.read(FILE_LIMIT_BYTES + 1)
        else:
            # Not `Path.expanduser`, which fails where it knows no such user; then the path itself is not found.
            with open(os.path.expanduser(file), encoding="utf-8-sig") as stream:
                text = stream.read(FILE_LIMIT_BYTES + 1)
    except (OSError, UnicodeDecodeError) as exc:
        reason = (exc.strerror or exc) if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{file} cannot be read: {reason}.", hint="Give the path of a server list.") from exc
    if len(text) > FILE_LIMIT_BYTES:
        raise UsageError(f"{file} is larger than {FILE_LIMIT_BYTES} bytes.", hint="Give the path of a server list.")
    return text

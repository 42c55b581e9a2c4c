"""A server of a registry: what it would run and need is shown, then it is added in quarantine."""

import json as json_text
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from smart_mcp_proxy.cli.commands.servers.registry_api import open_registry
from smart_mcp_proxy.cli.commands.servers.server_change import change_servers, report_change
from smart_mcp_proxy.cli.support.failure import next_step, require_agreed
from smart_mcp_proxy.cli.support.output import clean, indent_lines, say, show, show_json, table, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import RefusedError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.registry import Given, Listing, Need, Plan, plan_entry
from smart_mcp_proxy.servers import warnings_about
from smart_mcp_proxy.settings import environment

if TYPE_CHECKING:
    from smart_mcp_proxy.cli.commands.servers.server_add import FromRegistry

_NAME_CHARS: Final = 64
_UNFIT: Final = re.compile(r"\.{2,}|_{2,}|[^A-Za-z0-9._-]")
_SOURCES: Final = {"default": "default", "publisher": "fixed", "given": "given", "left_out": "not set"}


async def add_listed(
    name: str | None, wanted: "FromRegistry", given: Given, more: Mapping[str, Any], *, as_json: bool
) -> None:
    """Adds a server as its registry lists it, in quarantine, after it was shown and agreed to.

    Args:
        name: For the server file; the end of its full name if left out.
        wanted: Which one, and how far to go.
        given: The user's values, by option.
        more: Further keys of its entry.
        as_json: Print one object; without `--yes` nothing is changed.

    Raises:
        ProxyError: It cannot be found, used or added, or the user does not want it.
    """
    assert wanted.registry is not None
    settings = open_settings()
    with next_step("mcpproxy server add --help"):
        async with open_registry(settings, environment()) as registry:
            listing = await registry.fetch_listing(wanted.registry, wanted.version or "latest")
        _require_standing(listing, takes_deprecated=wanted.deprecated)
        plan = plan_entry(listing.server, given, wanted.pick)
    chosen_name = name or _short_name(listing.server.name)
    warnings = [*plan.remarks, *warnings_about(plan.shown)]
    if not as_json:
        _show_plan(chosen_name, listing, plan, warnings)
    done: dict[str, Any] | None = None
    if wanted.yes and not wanted.dry_run:
        done = await _add_server(chosen_name, plan, more)
    elif not as_json and not wanted.dry_run:
        command = f"mcpproxy server add {shell_word(chosen_name)} --registry {shell_word(wanted.registry)} --yes"
        require_agreed("Add it?", "adds a server", command)
        done = await _add_server(chosen_name, plan, more)
    if as_json:
        show_json(_as_object(chosen_name, listing, plan, warnings, done))
    elif done is not None:
        report_change(done | {"warnings": []}, as_json=False)  # they stand above
        say(f"Next: mcpproxy server show {shell_word(chosen_name)}")
    else:
        say("Nothing is changed.")


async def _add_server(name: str, plan: Plan, more: Mapping[str, Any]) -> dict[str, Any]:
    entry = {**plan.entry, **more}
    body = {"name": name, "config": entry}
    return await change_servers("POST", "servers", body, lambda edits: edits.add(name, entry, "operator"))


def _require_standing(listing: Listing, *, takes_deprecated: bool) -> None:
    """Passes for a version that its registry still stands by.

    Raises:
        RefusedError: It was deleted, or is deprecated and nobody said to take it all the same.
    """
    standing, server = listing.standing, listing.server
    words = indent_lines(clean(standing.status_message or "It does not say why."))
    if standing.status == "deleted":
        raise RefusedError(
            f"'{server.name}' {server.version} was deleted from the registry. {words}",
            hint="A deleted server may be harmful. Use another version (--version) or another server.",
            code="server_deleted",
        )
    if standing.status == "deprecated" and not takes_deprecated:
        raise RefusedError(
            f"'{server.name}' {server.version} is deprecated. {words}",
            hint="Use what its publisher advises, or say --deprecated to take it all the same.",
            code="server_deprecated",
        )


def _short_name(full: str) -> str:
    """The end of a full name, as the name of a server of ours."""
    return _UNFIT.sub("-", full.rpartition("/")[2]).strip("-._")[:_NAME_CHARS] or "server"


def _show_plan(name: str, listing: Listing, plan: Plan, warnings: Iterable[str]) -> None:
    server = listing.server
    say(clean(indent_lines(f"{server.name} {server.version}: {' '.join(server.description.split())}")))
    pages = [server.repository.url if server.repository else "", server.website_url or ""]
    if where := " ".join(filter(None, pages)):
        say(clean(indent_lines(f"From: {where}")))
    if listing.standing.status != "active":
        warn(indent_lines(f"It is {listing.standing.status}. {listing.standing.status_message or ''}".rstrip()))
    if len(plan.offers) > 1:
        rows = [
            [str(one.number), one.kind, one.what, one.problem or ("chosen" if one.number == plan.chosen else "")]
            for one in plan.offers
        ]
        say("Choices (--pick NUMBER):")
        show(table(["##", "kind", "what", "remarks"], rows))
    deed = "run this program on your machine" if "command" in plan.entry else "send requests to this address"
    say(f"It would {deed}:")
    show(_format_command_line(plan.shown))
    if plan.needs:
        say("It takes:")
        show(table(["name", "as", "value", "needed", "words"], [_row(need) for need in plan.needs]))
    for warning in warnings:
        warn(indent_lines(warning))
    say(clean(f"It is added as '{name}', in quarantine: it is not started until you approve it."))


def _format_command_line(shown: Mapping[str, Any]) -> str:
    """Command line or address, with every character that is not plain written out."""
    if "url" in shown:
        return _plain(shown["url"])
    return " ".join(_plain(shell_word(word)) for word in (shown["command"], *shown["args"]))


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else json_text.dumps(char)[1:-1] for char in text)


def _row(need: Need) -> list[str]:
    where = f"${{{need.variable}}}" if need.variable else _SOURCES[need.source]
    value = "a secret" if need.is_secret and not need.value else need.value
    if need.choices:
        value = f"{value} (one of {', '.join(need.choices)})".strip()
    return [need.name, need.kind, value, "required" if need.is_required else "", f"{where}. {need.description}".strip()]


def _as_object(
    name: str, listing: Listing, plan: Plan, warnings: list[str], done: Mapping[str, Any] | None
) -> dict[str, Any]:
    server = listing.server
    return {
        "name": name,
        "registry_name": server.name,
        "version": server.version,
        "description": server.description,
        "status": listing.standing.status,
        "offers": msgspec.to_builtins(plan.offers),
        "chosen": plan.chosen,
        "config": plan.shown,
        "needs": msgspec.to_builtins(plan.needs),
        "warnings": warnings,
        "added": done is not None,
        "revision": done["revision"] if done is not None else "",
    }

"""Switching servers off and on: the entry itself says when it was an agent that switched a server off."""

from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.servers.dialects import off_keys
from smart_mcp_proxy.servers.entry import BY_AGENT
from smart_mcp_proxy.servers.jsonc import JsonObject
from smart_mcp_proxy.servers.load import parse_named


def is_off(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether a server is not started: disabled, or not to be used at all."""
    try:
        return parse_named(name, JsonObject(list(entry.items())))[0].disabled
    except ConfigError:
        return True


def extend_switch_patch(entry: Mapping[str, Any], patch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The patch, which takes out the keys of other programs as well where it switches a server on."""
    is_on = ("disabled" in patch and not patch["disabled"]) or patch.get("enabled") is True
    foreign = [key for key in off_keys(entry) if key not in ("disabled", "enabled")] if is_on else []
    return {**dict.fromkeys(foreign), **patch}


def is_enabled_anew(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a change starts a server that its user had switched off, or that could not be used."""
    return is_off(name, old) and not is_off(name, new) and not _was_agents_switch(name, old)


def mark_agents_switch(name: str, old: Mapping[str, Any], new: dict[str, Any]) -> None:
    """Record in an entry who keeps it switched off, its user or an agent."""
    if new.get("disabled") == BY_AGENT and old.get("disabled") != BY_AGENT:
        new["disabled"] = True  # the mark is ours to set
    if not is_off(name, old) and new.get("disabled") is True:
        new["disabled"] = BY_AGENT


def _was_agents_switch(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether an agent's switch is all that keeps the server off."""
    others = {key: value for key, value in entry.items() if key != "disabled"}
    return entry.get("disabled") == BY_AGENT and not is_off(name, others)

"""Profiles: named parts of the catalog, as the server file's top-level `profiles` describes them."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from smart_mcp_proxy.servers.config import Problem, Profile

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A profile's name is a part of an address."""
_KEYS = ("servers", "tools", "pin")


def parse_profiles(raw: Mapping[str, Any], servers: Collection[str]) -> tuple[dict[str, Profile], list[Problem]]:
    """The profiles that can be used, by name, and what is wrong with the others.

    Args:
        raw: The top-level `profiles` as written.
        servers: Names of the servers that are configured.
    """
    profiles: dict[str, Profile] = {}
    problems: list[Problem] = []
    for name, entry in raw.items():
        fault = _fault(name, entry)
        if fault:
            problems.append(Problem(None, f"Profile {name!r} {fault}", severity="error"))
            continue
        profiles[name] = Profile(name, **{key: tuple(entry.get(key, ())) for key in _KEYS})
        problems += _warnings(profiles[name], servers)
    return profiles, problems


def _fault(name: str, entry: Any) -> str:
    """Fault of a profile, empty without one: half understood, it would show too much."""
    if not _NAME.fullmatch(name):
        return "has a name that is no part of an address. Use letters, digits, '.', '_' and '-', at most 64."
    if not isinstance(entry, dict):
        return 'is not an object. Write it as NAME: {"servers": [...], "tools": [...], "pin": [...]}.'
    for key, value in entry.items():
        if key not in _KEYS:
            return f"has a key that is not known: {key!r}. Known: {', '.join(_KEYS)}."
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return f"has {key!r} that is not a list of strings."
    return ""


def _warnings(profile: Profile, servers: Collection[str]) -> list[Problem]:
    unknown = ", ".join(repr(server) for server in profile.servers if server not in servers)
    if not unknown:
        return []
    return [Problem(None, f"Profile {profile.name!r} names servers that are not configured: {unknown}.")]

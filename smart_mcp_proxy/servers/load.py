"""Finds and reads a server file in any of the shapes that clients write, each entry on its own."""

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from smart_mcp_proxy.conditions import CONDITIONS
from smart_mcp_proxy.desktop.places import open_folder_mark
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.models import CallVariant
from smart_mcp_proxy.names import visible_name
from smart_mcp_proxy.servers.config import Problem, Profile, ServerConfig, ServerFile
from smart_mcp_proxy.servers.dialects import ADDRESS_KEYS, SECTIONS, URL_KEYS
from smart_mcp_proxy.servers.entry import parse_entry
from smart_mcp_proxy.servers.jsonc import JsonObject, parse_jsonc
from smart_mcp_proxy.settings import Settings

CONFIG_NAME = "mcp_config.json"
FILE_LIMIT_BYTES = 50 * 1024 * 1024
"""No list of servers is this long; a log or a dump given by mistake is.

Source: docs/design/limits.md#configuration-files"""

_INLINE_SOURCE = "MCPPROXY_CONFIG_JSON"
_TOP_LEVEL = frozenset({*SECTIONS, "profiles", "$schema"})
_EXAMPLE = (
    "Take over the servers of your MCP clients with mcpproxy init, or write a file: "
    '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'
)

_RESTRICTING: Mapping[str, tuple[bool, str]] = {
    "read_only_mode": (True, "MCPPROXY_READ_ONLY=true"),
    "disable_management": (True, "MCPPROXY_MANAGE=false"),
    "allow_server_add": (False, "MCPPROXY_ALLOW_SERVER_ADD=false"),
    "allow_server_remove": (False, "MCPPROXY_ALLOW_SERVER_REMOVE=false"),
}
"""Top-level keys of mcpproxy-go that close something, with the value that does and the setting that does it here."""
_FOREIGN_SETTINGS = frozenset(
    {
        *_RESTRICTING,
        *("listen", "data_dir", "top_k", "tools_limit", "tool_response_limit", "call_tool_timeout", "api_key"),
        *("enable_tray", "tray_endpoint", "enable_socket", "logging", "debug_search", "enable_prompts", "environment"),
        *("check_server_repo", "quarantine_enabled", "registries", "features", "tls", "telemetry", "tokenizer"),
    }
)
_PROFILE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""A profile's name is a part of an address."""
_PROFILE_LISTS = ("servers", "tools", "pin", "groups")
_PROFILE_KEYS = (*_PROFILE_LISTS, "access")
_Pairs = list[tuple[str, Any]]


def find_config(settings: Settings, cwd: Path) -> Path | None:
    """Find the server file: the configured one, else of working or data directory, else None.

    Raises:
        ConfigError: A file is configured and does not exist, or that of the working directory may be a server's work.

    Source: docs/design/protocol-surface.md#configuration
    """
    if settings.config_path is not None:
        path = cwd / settings.config_path
        if not os.path.lexists(path):
            raise ConfigError(
                f"MCPPROXY_CONFIG_PATH is '{settings.config_path}'. There is no such file.",
                hint="Correct the path, or unset it to use ./mcp_config.json or the data directory's.",
            )
        return path
    candidates = (cwd / CONFIG_NAME, settings.data_dir / CONFIG_NAME)
    if os.path.lexists(candidates[0]) and os.path.exists(open_folder_mark(str(settings.data_dir), str(cwd))):
        raise ConfigError(
            f"'{candidates[0]}' is not read: a server in the sandbox could write it while another file was in use.",
            hint="Read it. If it is yours, name it: mcpproxy serve --config mcp_config.json. Else remove it.",
        )
    return next((path for path in candidates if os.path.lexists(path)), None)


def list_guarded_places(settings: Settings, cwd: Path) -> tuple[Path, ...]:
    """List what decides about servers and approvals, so that no server may reach it.

    Raises:
        ConfigError: A server file is configured and does not exist.
    """
    file = find_config(settings, cwd) if settings.config_json is None else None
    secrets = (getattr(settings, name) for name in type(settings).model_fields if name.endswith("_file"))
    return (settings.data_dir, *(Path(each) for each in (file, *secrets) if each is not None))


def is_guarded(path: Path, guarded: Iterable[Path]) -> bool:
    """Whether a path is, or is in, one of these places."""
    return any(path.resolve().is_relative_to(place.resolve()) for place in guarded)


def load_configured_servers(settings: Settings, cwd: Path) -> ServerFile:
    """Read the servers of these settings: inline, else from the file found, else none and a hint.

    Raises:
        ConfigError: The configuration cannot be read as a whole.
    """
    if settings.config_json is not None:
        return load_servers(settings.config_json, kept=_list_enforced_keys(settings))
    if path := find_config(settings, cwd):
        return load_servers(path, kept=_list_enforced_keys(settings))
    problem = Problem(
        None, f"No server file: neither {cwd / CONFIG_NAME} nor {settings.data_dir / CONFIG_NAME} exists.", _EXAMPLE
    )
    return ServerFile({}, (problem,))


def load_servers(source: Path | str, *, kept: Collection[str] = ()) -> ServerFile:
    """Read the servers of a file (a path) or inline JSON (a text), with problems of single ones.

    Reads a file of up to 50 MB: run it in a thread where an event loop is running.

    Args:
        source: The file, or its content.
        kept: Keys of mcpproxy-go that restrict, and that the gateway's own settings keep already.

    Raises:
        ConfigError: It cannot be read as a whole. The message names file, line and column, and no content.
    """
    if isinstance(source, str):
        label, data = _INLINE_SOURCE, source.encode("utf-8", "surrogatepass")
    else:
        label, data = str(source), _read(source)
    document = parse_jsonc(data, label)
    _require_kept(document, label, kept)
    pairs, profiles, problems = _sections(document, label)
    servers: dict[str, ServerConfig] = {}
    for name, raw in pairs:
        try:
            servers[name], warnings = parse_named(name, raw)
        except ConfigError as exc:
            seen = visible_name(name)
            warnings = [Problem(seen, exc.message, exc.hint, "error")]
            servers.setdefault(seen, _build_refused_server(seen, raw, exc))
        problems += warnings
    problems += _look_alikes(servers)
    if not pairs:
        problems.append(Problem(None, f"{label} names no servers.", _EXAMPLE))
    parsed, more = parse_profiles(profiles, servers)
    return ServerFile(servers, tuple(problems + more), label, parsed)


def _build_refused_server(name: str, raw: Any, error: ConfigError) -> ServerConfig:
    """The server of an entry that cannot be used: it is listed with the cause, and never connected."""
    entry: Mapping[str, Any] = raw if isinstance(raw, JsonObject) else {}
    has_url = any(key in entry for key in URL_KEYS)
    return ServerConfig(
        name,
        "http" if has_url and "command" not in entry else "stdio",
        disabled=bool(entry.get("disabled")),
        quarantined=bool(entry.get("quarantined")),
        refusal=(error.message, error.hint),
        raw=entry,
    )


def _list_enforced_keys(settings: Settings) -> set[str]:
    """Restricting keys of mcpproxy-go whose settings of ours restrict as much."""
    held = {
        "read_only_mode": settings.read_only,
        "disable_management": not settings.manage,
        "allow_server_add": settings.read_only or not settings.manage or not settings.allow_server_add,
        "allow_server_remove": settings.read_only or not settings.manage or not settings.allow_server_remove,
    }
    return {key for key, is_held in held.items() if is_held}


def _require_kept(document: Any, label: str, kept: Collection[str]) -> None:
    """Passes unless the file restricts, in words of mcpproxy-go, what is open here.

    Raises:
        ConfigError: It does; to ignore that would open what its user has closed.

    Source: docs/design/protocol-surface.md#what-an-entry-asks-for-and-cannot-get
    """
    if not isinstance(document, JsonObject):
        return
    for key, (value, instead) in _RESTRICTING.items():
        if document.get(key) is value and key not in kept:
            written = "true" if value else "false"
            raise ConfigError(
                f"{label} says '{key}': {written}, a setting of mcpproxy-go that is no part of this file here.",
                hint=f"Set {instead}, which does the same; the key may then stay.",
            )


def extract_named_entries(document: Any, label: str) -> dict[str, Any]:
    """The servers of a parsed file as they were written, by name, in any of its shapes.

    Raises:
        ConfigError: It is no list of servers.
    """
    pairs, _, _ = _sections(document, label)
    return dict(pairs)


def find_section_key(document: Mapping[str, Any]) -> str | None:
    """Key under which a file has its servers; None at the top level, or without any."""
    return next((key for key in SECTIONS if key in document and not is_entry(document[key])), None)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:  # not by its size: a pipe is a file too
            data = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as exc:
        hint = "Correct the path." if isinstance(exc, FileNotFoundError) else "Check what it is and who may read it."
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", hint=hint) from exc
    if len(data) > FILE_LIMIT_BYTES:
        raise ConfigError(f"{path} is larger than {FILE_LIMIT_BYTES} bytes.", hint="Give the path of a server list.")
    return data


def _sections(document: Any, label: str) -> tuple[_Pairs, Mapping[str, Any], list[Problem]]:
    """Names with their entries, profiles, and what is wrong with the file around them."""
    if isinstance(document, list):
        pairs, problems = _index_list_entries(document, label)
        return pairs, {}, problems
    if not isinstance(document, JsonObject):
        raise ConfigError(
            f"{label}, line 1, column 1: the file is not a JSON object.", hint='Write at least: {"mcpServers": {}}'
        )
    problems = _report_repeated_keys(document.duplicates, f"the top level of {label}")
    profiles = document.get("profiles")
    if profiles is not None and not isinstance(profiles, dict):
        problems.append(Problem(None, "'profiles' is not an object and is left out.", "Write it as NAME: {...}."))
        profiles = None
    sections = [key for key in SECTIONS if key in document and not is_entry(document[key])]
    if not sections:
        pairs = [(key, value) for key, value in document.items() if is_entry(value)]
        strangers = [key for key in document if key not in _TOP_LEVEL and not is_entry(document[key])]
        return pairs, profiles or {}, problems + _strangers(strangers)
    section = document[sections[0]]
    strangers = [key for key in document if key not in _TOP_LEVEL or key in sections[1:]]
    problems += _strangers(strangers)
    if isinstance(section, list):
        pairs, more = _index_list_entries(section, label)
        return pairs, profiles or {}, problems + more
    if not isinstance(section, JsonObject):
        raise ConfigError(
            f"{label}: '{sections[0]}' is neither an object nor a list.", hint="Write it as NAME: {...} pairs."
        )
    return list(section.items()), profiles or {}, problems + _twice(section.duplicates)


def is_entry(value: Any) -> bool:
    """Whether this describes a server, so that a map of them needs no heading."""
    return isinstance(value, dict) and any(isinstance(value.get(key), str) for key in ADDRESS_KEYS)


def _index_list_entries(entries: list[Any], label: str) -> tuple[_Pairs, list[Problem]]:
    """A list's entries by the names they carry."""
    pairs: _Pairs = []
    problems = []
    for position, entry in enumerate(entries, start=1):
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str):
            pairs.append((name, entry))
        else:
            message = f"Entry {position} of the list in {label} has no name."
            problems.append(Problem(None, message, 'Give it one: "name": "...".', "error"))
    counted = Counter(name for name, _ in pairs)
    repeated = [name for name, times in counted.items() if times > 1]
    return list(dict(pairs).items()), problems + _twice(repeated)


def parse_named(name: str, raw: Any) -> tuple[ServerConfig, list[Problem]]:
    """The server that a named entry describes, and warnings about it.

    Raises:
        ConfigError: Name or entry cannot be used.
    """
    if ":" in name:
        raise _wrong_name("entry_colon", name)
    if not name.strip() or not name.isprintable():
        raise _wrong_name("entry_unseen", name)
    if not isinstance(raw, JsonObject):
        raise ConfigError(f"Server {name!r} is not described by an object.", hint="Write it as {...}.")
    config, problems = parse_entry(name, raw)
    return config, _report_repeated_keys(raw.duplicates, f"server {name!r}", name) + problems


def _wrong_name(condition: str, name: str) -> ConfigError:
    row = CONDITIONS[condition]
    return ConfigError(row.message(name=name), hint=row.hint)


def _twice(names: Iterable[str]) -> list[Problem]:
    return [
        Problem(name, f"Server {name!r} is defined more than once; the last definition counts.", "Remove the others.")
        for name in names
    ]


def _report_repeated_keys(keys: Iterable[str], where: str, server: str | None = None) -> list[Problem]:
    return [Problem(server, f"The key {key!r} is repeated in {where}; the last one counts.") for key in keys]


def _strangers(keys: list[str]) -> list[Problem]:
    if not keys:
        return []
    listed = ", ".join(repr(key) for key in keys)
    hint = 'Servers belong under "mcpServers".'
    if not _FOREIGN_SETTINGS.isdisjoint(keys):
        hint = "Settings are variables here, not a part of this file: mcpproxy config show --origin"
    return [Problem(None, f"Top-level keys without effect: {listed}.", hint)]


def _look_alikes(servers: Iterable[str]) -> list[Problem]:
    """Warnings about names that differ in their case alone; both are kept."""
    seen: dict[str, str] = {}
    problems = []
    for name in servers:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            message = f"Servers {other!r} and {name!r} differ only in upper and lower case."
            problems.append(Problem(name, message, "Rename one of them: both are easily taken for the other."))
    return problems


def parse_profiles(raw: Mapping[str, Any], servers: Collection[str]) -> tuple[dict[str, Profile], list[Problem]]:
    """The profiles that can be used, by name, and what is wrong with the others.

    Args:
        raw: The top-level `profiles` as written.
        servers: Names of the servers that are configured.
    """
    profiles: dict[str, Profile] = {}
    problems: list[Problem] = []
    for name, entry in raw.items():
        fault = _find_profile_fault(name, entry)
        if fault:
            problems.append(Problem(None, f"Profile {name!r} {fault}", severity="error"))
            continue
        lists: dict[str, Any] = {key: tuple(entry.get(key, ())) for key in _PROFILE_LISTS}
        words: dict[str, Any] = {key: entry[key] for key in _PROFILE_KEYS if key in entry and key not in lists}
        profiles[name] = Profile(name, **lists, **words)
        problems += _warn_of_unknown_servers(profiles[name], servers)
    return profiles, problems


def _find_profile_fault(name: str, entry: Any) -> str:
    """Fault of a profile, empty without one: half understood, it would show too much."""
    if not re.fullmatch(_PROFILE_NAME, name):
        return "has a name that is no part of an address. Use letters, digits, '.', '_' and '-', at most 64."
    if not isinstance(entry, dict):
        return 'is not an object. Write it as NAME: {"servers": [...], "tools": [...], "pin": [...]}.'
    for key, value in entry.items():
        if key not in _PROFILE_KEYS:
            return f"has a key that is not known: {key!r}. Known: {', '.join(_PROFILE_KEYS)}."
        if key not in _PROFILE_LISTS:
            if value not in (known := get_args(CallVariant)):
                return f"has an access that is not known. Known: {', '.join(known)}."
        elif not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return f"has {key!r} that is not a list of strings."
    return ""


def _warn_of_unknown_servers(profile: Profile, servers: Collection[str]) -> list[Problem]:
    unknown = ", ".join(repr(server) for server in profile.servers if server not in servers)
    if not unknown:
        return []
    return [Problem(None, f"Profile {profile.name!r} names servers that are not configured: {unknown}.")]

"""Reads one entry of a server file, in the words of every client that writes such entries."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.models import Transport, Trust
from smart_mcp_proxy.servers.config import (
    STDIO_INIT_S,
    ConnectionKind,
    Problem,
    ProcessLimits,
    ServerConfig,
    ServerLimits,
    ToolFilter,
)
from smart_mcp_proxy.servers.dialects import (
    CLIENT_KEYS,
    EXCLUDE_KEYS,
    HTTP_URL_KEYS,
    INCLUDE_KEYS,
    SANDBOX_KEYS,
    TRANSPORT_NAMES,
    URL_KEYS,
    is_switch,
    off_keys,
)
from smart_mcp_proxy.servers.fields import EntryReader, check_headers, check_url
from smart_mcp_proxy.servers.isolation import read_isolation, refuse_foreign_sandbox
from smart_mcp_proxy.servers.oauth import OAUTH_KEYS, read_oauth

BY_AGENT = "by agent"
"""Value of `disabled` where an agent has disabled a server, so that an agent may enable it again."""

_KNOWN_KEYS = CLIENT_KEYS | {
    *("timeout", "limits", "tools", "pin", "inherit", "oauth", "enabled"),
    *("quarantined", "trust", "approvals", "connection", "input_requests", "shared", "proxy", "isolation", "allow"),
}
_PROCESS_LIMIT_KEYS = frozenset(ProcessLimits.__struct_fields__)
_LIMIT_KEYS = frozenset(ServerLimits.__struct_fields__) | _PROCESS_LIMIT_KEYS
_FILTER_KEYS = frozenset(ToolFilter.__struct_fields__)

_Word = TypeVar("_Word", bound=str)

_SUSPICIOUS_TIMEOUT_MS = 1000
"""Some clients count this key in seconds; a smaller value is most likely one of theirs."""


def parse_entry(name: str, raw: Mapping[str, Any]) -> tuple[ServerConfig, list[Problem]]:
    """The server that an entry describes, and warnings about it.

    Args:
        name: The name it is configured under.
        raw: The entry as it was written; placeholders stay as they are.

    Raises:
        ConfigError: The entry cannot be used. The message names server and field, and no value.
    """
    entry = EntryReader(name, raw)
    refuse_foreign_sandbox(raw, SANDBOX_KEYS, name)
    unknown = _unknown(entry)
    command, url = entry.text("command"), _url(entry)
    transport = _transport(entry, command, url, unknown)
    if entry.flag("proxy", default=False) and transport == "stdio":
        raise ConfigError(
            f"Server {name!r}: Proxy is only supported for 'url' type MCP servers, got 'stdio'.",
            hint="Remove 'proxy' from it.",
        )
    timeout_ms = entry.integer("timeout", at_least=1)
    config = ServerConfig(
        name=name,
        transport=transport,
        command=command,
        args=entry.texts("args"),
        env=_env(entry),
        cwd=entry.text("cwd") or entry.text("working_dir") or None,
        url=url,
        headers=_headers(entry),
        timeout_ms=timeout_ms,
        limits=_limits(entry, timeout_ms, transport),
        process_limits=_process_limits(entry),
        tools=_tools(entry),
        pin=entry.texts("pin"),
        inherit=entry.texts("inherit"),
        oauth=_oauth(entry),
        proxy=entry.flag("proxy", default=False),
        disabled=_is_disabled(entry),
        quarantined=entry.flag("quarantined", default=False),
        approvals=entry.integer("approvals", at_least=1) or 1,
        trust=_choice(entry, "trust", get_args(Trust)),
        connection=_connection(entry, transport),
        input_requests=entry.flag("input_requests", default=False),
        shared=entry.flag("shared", default=True),
        isolation=read_isolation(entry),
        unknown=unknown,
        raw=raw,
    )
    return config, _warnings(name, unknown, timeout_ms)


def _warnings(name: str, unknown: Mapping[str, Any], timeout_ms: int | None) -> list[Problem]:
    problems = []
    if unknown:
        keys = ", ".join(repr(key) for key in unknown)
        likely = [match for key in unknown for match in get_close_matches(key, _KNOWN_KEYS, n=1, cutoff=0.8)]
        advice = f"Did you mean {', '.join(map(repr, likely))}?" if likely else "They have no effect here."
        problems.append(Problem(name, f"Server {name!r} has keys that are not known: {keys}.", advice))
    if timeout_ms is not None and timeout_ms < _SUSPICIOUS_TIMEOUT_MS:
        problems.append(
            Problem(name, f"Server {name!r} has a timeout of {timeout_ms} milliseconds.", "Seconds times 1000 here.")
        )
    return problems


def _unknown(entry: EntryReader) -> dict[str, Any]:
    """Keys without a meaning here, those inside `limits`, `tools` and `oauth` with their path."""
    unknown = {key: value for key, value in entry.values.items() if key not in _KNOWN_KEYS and not is_switch(key)}
    for key, known in (("limits", _LIMIT_KEYS), ("tools", _FILTER_KEYS), ("oauth", OAUTH_KEYS)):
        inner = entry.values.get(key)
        if isinstance(inner, dict):
            unknown.update({f"{key}.{name}": value for name, value in inner.items() if name not in known})
    return unknown


def _url(entry: EntryReader) -> str:
    given = {key: entry.text(key) for key in URL_KEYS if entry.text(key)}
    if len(set(given.values())) > 1:
        raise ConfigError(f"Server {entry.server!r} has different {' and '.join(given)}.", hint="Keep one of them.")
    url = next(iter(given.values()), "")
    # An address that starts with a variable can only be judged when that is known.
    if url and not url.startswith("${"):
        check_url(entry.server, url)
    return url


def _transport(entry: EntryReader, command: str, url: str, unknown: Mapping[str, Any]) -> Transport:
    """The transport that `type` names or the address implies.

    Source: docs/servers.md#fields-of-an-entry
    """
    if command and url:
        raise ConfigError(f"Server {entry.server!r} has both 'command' and 'url'.", hint="Keep one of them.")
    if not command and not url:
        instead = f" (its unknown keys: {', '.join(unknown)})" if unknown else ""
        raise ConfigError(
            f"Server {entry.server!r} has neither 'command' nor 'url'{instead}.",
            hint="Give it 'command' to start a program, or 'url' to reach a running server.",
        )
    written = entry.text("type") or entry.text("transport") or entry.text("protocol")
    written = "" if written.lower() == "auto" else written
    kind = written.lower().replace("-", "").replace("_", "")
    if kind and kind not in TRANSPORT_NAMES:
        raise ConfigError(
            f"Server {entry.server!r} has the type {written!r}.",
            hint="Expected one of stdio, http, streamable-http, sse, url.",
        )
    named = TRANSPORT_NAMES.get(kind)
    if kind and (kind == "stdio") != bool(command):
        has = "a 'command'" if command else "a 'url'"
        raise ConfigError(f"Server {entry.server!r} is of type {written!r} but has {has}.", hint="Correct one of them.")
    if command:
        return "stdio"
    if named:
        return named
    is_sse = HTTP_URL_KEYS.isdisjoint(entry.values) and urlsplit(url).path.rstrip("/").endswith("/sse")
    return "sse" if is_sse else "http"


def _env(entry: EntryReader) -> dict[str, str]:
    env = entry.text_map("env")
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise ConfigError(f"Server {entry.server!r}: {name!r} under 'env' is not a variable's name.")
    return env


def _headers(entry: EntryReader) -> dict[str, str]:
    headers = entry.text_map("headers")
    token = entry.text("authorization_token")
    if token and any(name.lower() == "authorization" for name in headers):
        raise ConfigError(
            f"Server {entry.server!r} has both 'authorization_token' and an Authorization header.",
            hint="Keep one of them.",
        )
    if token:
        headers["Authorization"] = f"Bearer {token}"
    check_headers(entry.server, headers)
    return headers


def _limits(entry: EntryReader, timeout_ms: int | None, transport: Transport) -> ServerLimits:
    given = EntryReader(entry.server, entry.read_object("limits"), "limits.")
    found: dict[str, Any] = {
        "call_s": timeout_ms / 1000 if timeout_ms else given.number("call_s"),
        "init_s": given.number("init_s") or _startup_s(entry) or (STDIO_INIT_S if transport == "stdio" else None),
        "queue": given.integer("queue", at_least=0),
    }
    found |= {key: given.number(key) for key in ("calls_per_s", "list_s", "call_max_s", "client_idle_s")}
    found |= {key: given.integer(key, at_least=1) for key in ("burst", "in_flight", "client_connections")}
    return ServerLimits(**{key: value for key, value in found.items() if value is not None})


def _process_limits(entry: EntryReader) -> ProcessLimits:
    given = EntryReader(entry.server, entry.read_object("limits"), "limits.")
    return ProcessLimits(**{key: given.integer(key, at_least=1) for key in _PROCESS_LIMIT_KEYS})


def _startup_s(entry: EntryReader) -> float | None:
    """Seconds that a start may take in the words of Codex, which knows two keys for it."""
    milliseconds = entry.number("startup_timeout_ms")
    return entry.number("startup_timeout_sec") or (milliseconds / 1000 if milliseconds else None)


def _tools(entry: EntryReader) -> ToolFilter:
    """The filter of `tools`, of other programs' lists, or else of `tool_configuration`."""
    foreign = [key for key in (*INCLUDE_KEYS, *EXCLUDE_KEYS) if entry.values.get(key) is not None]
    if foreign and any(entry.values.get(key) is not None for key in ("tools", "tool_configuration")):
        raise ConfigError(
            f"Server {entry.server!r} says twice which tools are used: {foreign[0]!r} and 'tools'.",
            hint='Keep \'tools\': {"include": [...], "exclude": [...]}.',
        )
    if foreign:
        return _foreign_filter(entry, foreign)
    if isinstance(entry.values.get("tools"), list):
        return ToolFilter(include=entry.texts("tools"))
    if entry.values.get("tools") is not None:
        given = EntryReader(entry.server, entry.read_object("tools"), "tools.")
        include = given.texts("include") if given.values.get("include") is not None else ("*",)
        return ToolFilter(include, given.texts("exclude"))
    given = EntryReader(entry.server, entry.read_object("tool_configuration"), "tool_configuration.")
    if not given.flag("enabled", default=True):
        return ToolFilter(include=())
    if given.values.get("allowed_tools") is None:
        return ToolFilter()
    return ToolFilter(include=tuple(_exactly(tool) for tool in given.texts("allowed_tools")))


def _foreign_filter(entry: EntryReader, keys: Sequence[str]) -> ToolFilter:
    """The filter of lists of plain names; of several that allow, a tool has to be in each."""
    allowed = [frozenset(entry.texts(key)) for key in keys if key in INCLUDE_KEYS]
    names = sorted(frozenset.intersection(*allowed)) if allowed else None
    include = ("*",) if names is None else tuple(map(_exactly, names))
    exclude = tuple(_exactly(tool) for key in keys if key in EXCLUDE_KEYS for tool in entry.texts(key))
    return ToolFilter(include, exclude)


def _exactly(tool: str) -> str:
    """A glob that matches this name alone."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in tool)


def _is_disabled(entry: EntryReader) -> bool:
    if entry.values.get("disabled") == BY_AGENT:
        return True
    for key in ("disabled", "enabled"):
        entry.flag(key, default=False)  # our own words are not guessed at
    return bool(off_keys(entry.values))


def _choice(entry: EntryReader, key: str, choices: Sequence[_Word]) -> _Word | None:
    """The one of these words that stands under a key, in any case."""
    written = entry.text(key).lower()
    found = next((word for word in choices if word == written), None)
    if written and found is None:
        raise ConfigError(
            f"Server {entry.server!r}: {key!r} is {written!r:.40}.", hint=f"Expected one of {', '.join(choices)}."
        )
    return found


def _connection(entry: EntryReader, transport: Transport) -> ConnectionKind:
    found: ConnectionKind = _choice(entry, "connection", get_args(ConnectionKind)) or "shared"
    if found == "per_client" and transport == "sse":
        raise ConfigError(
            f"Server {entry.server!r}: 'connection' is 'per_client', which is not available over SSE.",
            hint="Reach it over streamable HTTP or stdio, or leave 'connection' out.",
        )
    return found


def _oauth(entry: EntryReader) -> Mapping[str, Any] | None:
    asked = entry.values.get("oauth")
    if asked is None or asked is False:
        return None
    if asked is not True and not isinstance(asked, dict):
        raise entry.wrong("oauth", asked, "true, false or an object")
    options = {} if asked is True else asked
    read_oauth(entry.server, options)
    if (options.get("per_user") or options.get("exchange")) and entry.text("command"):
        raise ConfigError(
            f"Server {entry.server!r} is a program, which nobody signs in to: 'oauth' asks each person to.",
            hint="Take 'per_user' and 'exchange' out, or give the server's url instead of a command.",
        )
    if any(name.lower() == "authorization" for name in _headers(entry)):
        raise ConfigError(
            f"Server {entry.server!r} has both 'oauth' and an Authorization header or token.", hint="Keep one of them."
        )
    return options

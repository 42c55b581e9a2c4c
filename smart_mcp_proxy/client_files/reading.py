"""Entries of the clients' files as entries of our own server file."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from smart_mcp_proxy.client_files.clients import KnownClient
from smart_mcp_proxy.client_files.variables import KeyringSecret, Translation
from smart_mcp_proxy.servers.dialects import is_switch, off_keys

_URL_KEYS = ("url", "serverUrl", "httpUrl", "uri", "baseUrl")
_HTTP_TYPES = frozenset({"http", "streamablehttp"})
_NO_SERVERS = frozenset({"builtin", "platform", "frontend", "inline_python"})
"""Kinds of Goose's extensions that are parts of Goose."""
_IN_SECONDS = frozenset({"goose", "cline", "crush", "mcpc"})
"""Clients whose `timeout` counts seconds."""
_OTHER_TIMEOUTS = frozenset({"opencode", "kilo"})
"""Clients whose `timeout` is not that of a call."""
_ALLOWED = ("includeTools", "enabled_tools", "available_tools")
_DENIED = ("excludeTools", "disabled_tools", "disabledTools")
_WITHOUT_MEANING = frozenset(
    {
        *("name", "description", "type", "transport", "source", "bundled", "id", "display_name", "gallery", "version"),
        *("alwaysLoad", "alwaysLoadTools", "deferTools"),
        *("timeout", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec"),
        *("command", "cmd", "args", "cwd", "envFile", "env_keys", "env_vars", "env_http_headers", "tools"),
        *("bearer_token_env_var", "apiKey", "requestOptions", *_URL_KEYS, *_ALLOWED, *_DENIED),
    }
)
"""Keys that are read below, or say nothing that could be lost."""
_ENV_FILE_BYTES = 64 * 1024


class Translated(msgspec.Struct, frozen=True):
    """An entry in our own words.

    Attributes:
        entry: The entry.
        questions: Values that belong into the keyring.
        lost: What could not be taken over, in words; no values.
    """

    entry: Mapping[str, Any]
    questions: tuple[KeyringSecret, ...] = ()
    lost: tuple[str, ...] = ()


def translate_entry(
    client: KnownClient, name: str, raw: Any, asked: Mapping[str, Mapping[str, Any]], *, folder: Path | None
) -> Translated | None:
    """Return an entry of a client in our words; None where it describes no server.

    Args:
        client: Whose words it is written in.
        name: Name of the server.
        raw: The entry.
        asked: The questions of the client's file, by id.
        folder: Where relative paths of files with variables begin; None where such files must not be read.
    """
    if not isinstance(raw, Mapping) or str(raw.get("type")) in _NO_SERVERS:
        return None
    words = Translation(client, name, asked)
    entry = _program(client, raw, words) or _address(client, raw, words)
    if not entry:
        return None
    entry |= _environment(client, raw, words, folder)
    if isinstance(raw.get("cwd"), str):
        entry["cwd"] = words.text(raw["cwd"])
    if off_keys(raw):
        entry["disabled"] = True
    entry |= _timeouts(client, raw)
    entry |= _tools(raw)
    known = _WITHOUT_MEANING | {client.env_key, client.headers_key, "env", "headers"}
    for key in raw:
        if key not in known and not is_switch(key):
            words.lose(f"{str(key)[:40]!r}")
    return Translated(entry, tuple(words.questions.values()), tuple(words.lost))


def _program(client: KnownClient, raw: Mapping[str, Any], words: Translation) -> dict[str, Any]:
    command: Any = raw.get(client.command_key, raw.get("command"))
    args: Any = raw.get("args")
    if isinstance(command, Mapping):  # Zed's earlier form
        command, args = command.get("path"), command.get("args")
    if isinstance(command, list):
        command, args = (command[0] if command else None), command[1:]
    if not isinstance(command, str) or not command:
        return {}
    entry: dict[str, Any] = {"command": words.text(command)}
    if args:
        entry["args"] = words.texts(args)
    return entry


def _address(client: KnownClient, raw: Mapping[str, Any], words: Translation) -> dict[str, Any]:
    key = next((key for key in _URL_KEYS if isinstance(raw.get(key), str) and raw[key]), None)
    if key is None:
        return {}
    entry: dict[str, Any] = {"url": words.text(raw[key])}
    kind = str(raw.get("type", raw.get("transport", ""))).lower().replace("-", "").replace("_", "")
    if key == "httpUrl" or kind in _HTTP_TYPES:
        entry["type"] = "http"
    elif kind == "sse":
        entry["type"] = "sse"
    options = _coerce_mapping(raw.get("requestOptions"))
    headers = {
        **_coerce_mapping(words.texts(options.pop("headers", None))),
        **_coerce_mapping(words.texts(raw.get("headers"))),
        **_coerce_mapping(words.texts(raw.get(client.headers_key))),
    }
    for header, variable in _coerce_mapping(raw.get("env_http_headers")).items():
        headers[header] = f"${{env:{variable}}}"
    if isinstance(variable := raw.get("bearer_token_env_var"), str):
        headers["Authorization"] = f"Bearer ${{env:{variable}}}"
    if options:
        words.lose("'requestOptions'")
    if isinstance(key_text := raw.get("apiKey"), str):
        headers["Authorization"] = f"Bearer {words.text(key_text)}"
    if headers:
        entry["headers"] = headers
    return entry


def _environment(
    client: KnownClient, raw: Mapping[str, Any], words: Translation, folder: Path | None
) -> dict[str, Any]:
    """The variables of a program, those of a file and of the client's own keyring included."""
    command = raw.get("command")
    inner = command.get("env") if isinstance(command, Mapping) else None
    env = {**_from_file(raw.get("envFile"), words, folder)}
    env |= {
        **_coerce_mapping(words.texts(inner)),
        **_coerce_mapping(words.texts(raw.get(client.env_key, raw.get("env")))),
    }
    for name in _names(raw.get("env_keys")):
        if name not in env:
            env[name] = words.ask(name, name)
    entry: dict[str, Any] = {"env": env} if env else {}
    if inherited := _names(raw.get("env_vars")):
        entry["inherit"] = inherited
    return entry


def _from_file(written: Any, words: Translation, folder: Path | None) -> dict[str, str]:
    """Variables of a file, whose values go into the keyring."""
    if not isinstance(written, str) or not written:
        return {}
    place = written.replace("${workspaceFolder}", ".").replace("${userHome}", "~")
    path = None if folder is None or "${" in place else (folder / Path(place).expanduser())
    try:
        text = "" if path is None else path.read_bytes()[:_ENV_FILE_BYTES].decode("utf-8")
    except (OSError, RuntimeError, ValueError):
        path, text = None, ""
    if path is None:
        words.lose("'envFile', which is not read here")
        return {}
    env = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if equals and name.isidentifier():
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            env[name] = words.ask(name, name, value)
    return env


def _timeouts(client: KnownClient, raw: Mapping[str, Any]) -> dict[str, Any]:
    value, factor = raw.get("tool_timeout_sec"), 1000
    if value is None and client.name not in _OTHER_TIMEOUTS:
        value, factor = raw.get("timeout"), 1000 if client.name in _IN_SECONDS else 1
    entry: dict[str, Any] = {"timeout": int(value * factor)} if _is_positive(value) else {}
    for key, seconds in (("startup_timeout_sec", 1), ("startup_timeout_ms", 1 / 1000)):
        if "limits" not in entry and _is_positive(value := raw.get(key)):
            entry["limits"] = {"init_s": value * seconds}
    return entry


def _is_positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _tools(raw: Mapping[str, Any]) -> dict[str, Any]:
    include = [name for key in (*_ALLOWED, "tools") for name in _names(raw.get(key))]
    exclude = [name for key in _DENIED for name in _names(raw.get(key))]
    found: dict[str, list[str]] = {}
    if include and "*" not in include:
        found["include"] = include
    if exclude:
        found["exclude"] = exclude
    return {"tools": found} if found else {}


def _names(value: Any) -> list[str]:
    """The names of a list, in which each is a text or an object with one."""
    listed = value if isinstance(value, list) else []
    named = [each.get("name") if isinstance(each, Mapping) else each for each in listed]
    return [each for each in named if isinstance(each, str) and each]


def _coerce_mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}

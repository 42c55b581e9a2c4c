"""Refusals of a sandbox, as programs word them."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Final, Literal, NamedTuple

from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.servers.load import is_guarded
from smart_mcp_proxy.upstream.confinement.limits import hint_limit

_REFUSED: Final = (
    r"(?i)EACCES|EPERM|EROFS|permission denied|operation not permitted|read-only file system|access denied"
)
_PLACE: Final = r"""["'`](/[^"'`]+)["'`]|(?<![\w/.:~-])(/[^\s"'`:,;()]+)"""
_CHANGES: Final = (
    r"(?i)EROFS|read-only|mkdir|rmdir|unlink|rename|creat|writ|truncate|link|chmod|copyfile|touch|lock|\.log\b"
)
"""In a line about something that was to be changed."""
_NETWORK: Final = r"(?i)\bEAI_AGAIN\b|\bENOTFOUND\b|name resolution|dns error|socket|connect\b|network"

_OWN_PROCESS: Final = (
    r"duckdb::InternalException|uv_resident_set_memory|/proc/self/|Failed to create CoreCLR, HRESULT: 0x8007000E|"
    r"' ended with signal 6\.$"
)
"""DuckDB, .NET, and programs of Node that watch their memory, end without these, and do not name the place: in a Rust
program DuckDB aborts without a word."""
_ENGINE: Final = r"(?i)docker\.errors\.DockerException|Docker daemon|docker\.sock|no podman implementation available"
_UNNAMED: Final = r"^\s+at .*(?:\bThreadStream\b|/thread-stream/)"
"""A program of Node whose log file may not be opened: pino's thread ends, and what it says then names no file."""
_SHARED: Final = (".cache", ".config", ".local", ".local/bin", ".local/share", ".local/state", ".ssh")
_DEEP: Final = 3
"""Parts of a path below a folder of the system's root."""
_SYSTEM_ERROR: Final = r"\b(?:EACCES|EPERM|EROFS)\b|\[Errno (?:1|13|30)\]"
"""As Node and Python name what the system refuses; other refusals may be those of a service behind the server."""
_HOST: Final = r"mcpproxy refused a connection to ([\w.*:\[\]-]+), which allow.network does not list"
"""Written by the gateway among a server's lines."""


class SandboxRefusal(NamedTuple):
    """Something that a program says it was refused.

    Attributes:
        line: As it was written.
        path: Empty where the line names none.
        access: The access that it lacks, as far as the line tells.
    """

    line: str
    path: str
    access: Literal["read", "write"]


def find_refusals(lines: Iterable[str]) -> list[SandboxRefusal]:
    """Find lines that speak of a refusal, of several about one path the first."""
    found: dict[str, SandboxRefusal] = {}
    for line in lines:
        if not re.search(_REFUSED, line):
            continue
        place = re.search(_PLACE, line)
        path = (place[1] or place[2]) if place else ""
        changes = re.search(_CHANGES, line) or (path and not Path(path).exists())
        found.setdefault(path or line, SandboxRefusal(line, path, "write" if changes else "read"))
    return [*found.values()]


def suggest_allowance(server: str, refusal: SandboxRefusal, guarded: Iterable[Path]) -> str:
    """Suggest the command that allows what was refused; empty where none does.

    Args:
        server: Its name.
        refusal: What it says.
        guarded: What no server reaches.
    """
    if not refusal.path or is_guarded(path := Path(refusal.path), guarded):
        return ""
    first, folder = "", path.parent
    if refusal.access == "write" and not os.path.exists(path):  # only what is there can be allowed
        if not os.path.isdir(folder):
            first, path = f"mkdir -p {shell_word(str(folder))} && ", folder
        elif len(folder.parts) < _DEEP or folder in _list_shared_folders():
            first = f"{'mkdir' if 'mkdir' in refusal.line else 'touch'} {shell_word(refusal.path)} && "
        else:
            path = folder
    return f"{first}mcpproxy server allow {shell_word(server)} --{refusal.access} {shell_word(str(path))}"


def _list_shared_folders() -> set[Path]:
    """Folders that hold what all programs have: none is opened for the sake of one file."""
    home = Path.home()
    return {home, *home.parents, Path(gettempdir()), Path("/var/tmp"), *(home / name for name in _SHARED)}


def hint_refused_call(config: ServerConfig, message: str, guarded: Iterable[Path] = ()) -> str:
    """Hint on what the system refused a call, by the message of its error; empty where that does not tell."""
    return hint_refusal(config, (message,), guarded=guarded) if re.search(_SYSTEM_ERROR, message) else ""


def hint_refusal(config: ServerConfig, lines: Sequence[str], failure: str = "", guarded: Iterable[Path] = ()) -> str:
    """Hint on what the system refused a server; empty where nothing it wrote tells.

    Args:
        config: The server.
        lines: The last ones that it wrote.
        failure: Of its start or connection, as users see it.
        guarded: What no server reaches.
    """
    if met := hint_limit(config, lines):
        return met
    if config.isolation.mode != "sandbox":
        return ""
    if any(re.search(_ENGINE, line) for line in lines):
        rights = f"mcpproxy server patch {shell_word(config.name)} isolation=none"
        return f" It drives containers, by which it could do anything here, so no sandbox lets it do so: {rights}"
    command = f"mcpproxy server allow {shell_word(config.name)}"
    if any(re.search(_OWN_PROCESS, line) for line in (*lines, failure)):
        return f" It runs in a sandbox that keeps figures of its own process from it: {command} --read /proc"
    refusals = find_refusals(lines)
    named = next((each for each in reversed(refusals) if each.path), None)
    if named is not None:
        if (held := config.isolation.allow) and named.path in held.read:
            named = named._replace(access="write")  # reading it was not enough
        allowed = suggest_allowance(config.name, named, guarded) or "no server may reach that"
        return f" It runs in a sandbox that keeps it from {named.path}: {allowed}"
    allow = config.isolation.allow
    if allow is not None and allow.network is not True:
        if host := next(filter(None, (re.match(_HOST, line) for line in reversed(lines))), None):
            return f" It runs in a sandbox that keeps it from {host[1]}: {command} --network {shell_word(host[1])}"
        if any(re.search(_NETWORK, line) for line in lines):
            kept = "whose hosts are reached through HTTPS_PROXY alone" if allow.network else "without a network"
            return f" It runs in a sandbox {kept}: {command} --network on"
    is_likely = refusals or any(re.search(_UNNAMED, line) for line in lines)
    return f" It runs in a sandbox, which may be why: {command} --help" if is_likely else ""

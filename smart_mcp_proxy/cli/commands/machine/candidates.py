"""Words that a shell may complete: commands, options, and stored names of servers and tools."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from cyclopts import App

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.names import DATABASE_NAME, shell_word
from smart_mcp_proxy.servers import load_configured_servers
from smart_mcp_proxy.settings import Settings, environment, load_settings

_SERVERS, _TOOLS = "servers", "tools"
_NAMES: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("call",): (_TOOLS,),
    ("check",): (_TOOLS,),
    ("block",): (_TOOLS,),
    ("approve",): (_SERVERS, _TOOLS),
    ("scan",): (_SERVERS,),
    ("login",): (_SERVERS,),
    ("tool", "show"): (_TOOLS,),
    ("tool", "forget"): (_TOOLS,),
    **{
        ("server", verb): (_SERVERS,)
        for verb in (
            *("show", "patch", "remove", "enable", "disable", "approve", "restart", "refresh"),
            *("logs", "login", "logout", "isolate", "allow"),
        )
    },
}
"""Names that a command takes as its first words, by the command."""
_OPTION_NAMES = {"--server": _SERVERS, "--passthrough": _SERVERS, "--tool": _TOOLS, "--why-not": _TOOLS}
_MOST = 2_000
"""Beyond so many names a shell only asks whether to show them all."""


def candidates(grammar: App, words: Sequence[str]) -> list[str]:
    """Words that may stand in the place of the last one; starts nothing and writes nothing.

    Args:
        grammar: All commands.
        words: The words so far, without the program's name.
    """
    *before, begun = words or ("",)
    found = {
        word for word in _list_candidates(grammar, before, begun) if word.startswith(begun) and shell_word(word) == word
    }
    return sorted(found)[:_MOST]


def _list_candidates(grammar: App, before: Sequence[str], begun: str) -> Iterable[str]:
    known = [name for name in grammar if not name.startswith("-")]
    if not before:
        return ["--help", "--version"] if begun.startswith("-") else known
    if before[0] not in known:
        return []
    if before[-1] in _OPTION_NAMES:
        return _load_names(_OPTION_NAMES[before[-1]])
    command, path = grammar[before[0]], [before[0]]
    while (rest := before[len(path) :]) and rest[0] in _subcommands(command):
        command = command[rest[0]]
        path.append(rest[0])
    if begun.startswith("-"):
        return _options(command)
    if command.default_command is None or (len(path) == len(before) and _subcommands(command)):
        return _subcommands(command)
    return [name for kind in _NAMES.get(tuple(path), ()) for name in _load_names(kind)]


def _subcommands(command: App) -> list[str]:
    return [name for name in command if not name.startswith("-") and command[name].show]


def _options(command: App) -> list[str]:
    if command.default_command is None:
        return ["--help"]
    names = [name for argument in command.assemble_argument_collection() for name in argument.names]
    return ["--help", *(name for name in names if name.startswith("--") and not name.startswith("--no-"))]


def _load_names(kind: str) -> list[str]:
    try:
        settings = load_settings(environment())
        servers = list(load_configured_servers(settings, Path.cwd()).servers)
    except ProxyError:
        return []  # a shell shows no errors
    return servers if kind == _SERVERS else _tools(settings, servers)


def _tools(settings: Settings, servers: Sequence[str]) -> list[str]:
    """Stored tools of the configured servers.

    Read without the catalog's own code, whose import takes a second of which the shell waits at each press of the key.
    """
    file = settings.data_dir / DATABASE_NAME
    if settings.database_url is not None or not file.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=0.5)) as connection:
            rows = connection.execute("SELECT server_name, name FROM tools").fetchall()
    except sqlite3.Error:
        return []
    known = set(servers)
    return [f"{server}:{name}" for server, name in rows if server in known]

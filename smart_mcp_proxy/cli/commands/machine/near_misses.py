"""Commands typed out of habit or by guess, and the ones that do it here."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

from smart_mcp_proxy.names import shell_word

_ALONE = {
    "add": "server add NAME -- COMMAND",
    "ps": "server list",
    "ls": "server list",
    "list": "server list",
    "servers": "server list",
    "status": "server list",
    "logs": "server logs NAME",
    "log": "server logs NAME",
    "remove": "server remove NAME",
    "rm": "server remove NAME",
    "delete": "server remove NAME",
    "enable": "server enable NAME",
    "disable": "server disable NAME",
    "restart": "server restart NAME",
    "reload": "server restart NAME",
    "refresh": "server refresh NAME",
    "inspect": "server show NAME",
    "show": "server show NAME",
    "import": "server import FILE",
    "setup": "init",
    "sync": "init",
    "discover": "init",
    "migrate": "init",
    "start": "serve --http",
    "run": "serve --http",
    "up": "serve --http",
    "daemon": "service install",
    "install": "service install",
    "stop": "service uninstall",
    "uninstall": "service uninstall",
    "tools": "tool list",
    "describe": "tool show NAME",
    "find": "search WORDS",
    "query": "search WORDS",
    "retrieve_tools": "search WORDS",
    "exec": "call NAME",
    "invoke": "call NAME",
    "auth": "login",
    "signin": "login",
    "logout": "server logout NAME",
    "secret": "config show",
    "secrets": "config show",
    "settings": "config show",
    "env": "config show",
    "profile": "config show",
    "security": "scan",
    "quarantine": "approve --list",
    "review": "approve --list",
    "trust": "approve --list",
    "preflight": "check TOOL",
    "validate": "serve --check",
    "test": "serve --check",
    "diagnose": "doctor",
    "health": "doctor",
    "debug": "doctor",
    "history": "activity list",
    "tail": "activity watch",
    "watch": "activity watch",
    "backup": "data backup FILE",
    "restore": "data restore FILE",
    "export": "activity export",
    "benchmark": "eval QUERIES",
    "upgrade": "--version",
    "update": "--version",
    "version": "--version",
    "tui": "--help",
}
"""Words that name one thing to do; NAME and the like are for the person to fill in."""

_CALLS = frozenset({"tool", "tool-read", "tool-write", "tool-destructive"})
"""What mcpproxy-go writes after `call`."""
_COMMON_VERBS = {"ls": "list", "get": "show", "info": "show", "inspect": "show"}
_VERBS: Mapping[str, Mapping[str, str]] = {
    "server": _COMMON_VERBS
    | {"status": "list", "rm": "remove", "delete": "remove", "add-json": "import", "edit": "patch", "update": "patch"}
    | {"start": "enable", "stop": "disable", "auth": "login", "log": "logs"},
    "tool": {**_COMMON_VERBS, "describe": "show"},
    "token": {"ls": "list", "add": "create", "rm": "revoke", "delete": "revoke", "remove": "revoke"},
    "activity": {"ls": "list", "log": "list", "tail": "watch", "get": "show"},
    "config": {"ls": "show", "list": "show", "get": "show", "file": "path"},
    "service": {"start": "install", "enable": "install", "stop": "uninstall", "disable": "uninstall"},
}
"""Verbs that a noun has under another name, those of mcpproxy-go's `upstream` among them."""
_FORMS = re.compile(r"(?P<option>--(output|format|out)|-o)(?P<value>=.*)?|-o(json|yaml)")
"""Options of other programs that choose how a result is written."""
_OF_SERVE = frozenset(
    {"--http", "--sse", "--host", "--port", "--workers", "--config", "--passthrough", "--profile", "--check"}
)
"""Options that lead to `serve` where no command is typed."""
_NOT_GUESSED = frozenset({"restore", "stop", "uninstall"})
"""What these lead to changes too much to be suggested for a word that only looks like one of them."""


def guess_command(words: Sequence[str], known: Collection[str]) -> str:
    """The command that `words` seem to want, without the program's name; empty if none is close.

    Args:
        words: As typed.
        known: The commands that there are, which are never near misses.
    """
    word = words[0].lower() if words else ""
    if word.startswith("-"):
        return _behind_command(words, known)
    if word == "help":
        return shlex.join([*words[1:2], "--help"])
    if word == "upstream":
        return " ".join(["server", *_of_upstream(words[1:])])
    if word == "call" and len(words) > 1 and words[1].lower() in _CALLS:
        return _translate_call(words[2:])
    if word in known:
        verb = _VERBS.get(word, {}).get(words[1].lower()) if len(words) > 1 else None
        return shlex.join([word, verb, *words[2:]]) if verb else ""
    if word == "auth" and (server := _option(words, "server")):
        return f"login {shell_word(server)}"
    if word in _ALONE:
        return _fill_placeholder(_ALONE[word], words[1:])
    near = get_close_matches(word, {*known, *_ALONE} - _NOT_GUESSED, n=1, cutoff=0.75)
    return "" if not near else near[0] if near[0] in known else _ALONE[near[0]]


def with_json(words: Sequence[str]) -> list[str]:
    """The words with `--json` in the place of other programs' `--output json`; as they are without one."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*kept, word, *rest]
        found = _FORMS.fullmatch(word)
        if found and found["option"] and not found["value"]:
            next(rest, None)
        kept += ["--json"] * ("--json" not in kept) if found else [word]
    return kept


def _behind_command(words: Sequence[str], known: Collection[str]) -> str:
    """Options in front of a command, behind it; empty where there is none."""
    if words[0] in ("-v", "-V"):
        return "--version"
    words = with_json(words)
    place = next((place for place, word in enumerate(words) if word in known), 0)
    if place:
        return shlex.join([*words[place:], *words[:place]])
    return shlex.join(["serve", *words]) if words[0].partition("=")[0] in _OF_SERVE else ""


def _of_upstream(words: Sequence[str]) -> list[str]:
    verb = words[0].lower() if words else "list"
    if verb == "tools":
        return ["list"]
    return [_VERBS["server"].get(verb, verb), *map(shell_word, words[1:])]


def _translate_call(words: Sequence[str]) -> str:
    """`call tool-read --tool-name=s:t --json_args={}` of mcpproxy-go as ours."""
    names = [word for word in words if not word.startswith("-")]
    name = _option(words, "tool-name") or (names[0] if names else "NAME")
    given = _option(words, "json_args") or _option(words, "json-args") or _option(words, "args")
    return f"call {name if name == 'NAME' else shell_word(name)}" + (
        f" --input-json {shell_word(given)}" if given else ""
    )


def _option(words: Sequence[str], name: str) -> str:
    """The value of `--name=value` or `--name value`; empty without one."""
    for place, word in enumerate(words):
        option, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and option == name:
            return value if equals else "".join(words[place + 1 : place + 2])
    return ""


def _fill_placeholder(command: str, rest: Sequence[str]) -> str:
    """The command with the person's own words in the place of what is to be filled in."""
    given = [shell_word(word) for word in rest if not word.startswith("-")]
    verb, _, place = command.rpartition(" ")
    if not place.isupper() or not given:
        return command
    return f"{verb} {' '.join(given)}" if command != _ALONE["add"] else command.replace("NAME", given[0])

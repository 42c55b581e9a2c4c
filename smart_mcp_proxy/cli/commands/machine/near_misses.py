"""Commands typed out of habit or by guess, and the ones that do it here."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

from smart_mcp_proxy.names import shell_word

_WORDS = {
    "server add NAME -- COMMAND": ("add",),
    "server list": ("ps", "ls", "list", "servers"),
    "server logs NAME": ("logs", "log"),
    "server remove NAME": ("remove", "rm", "delete"),
    "server enable NAME": ("enable",),
    "server disable NAME": ("disable",),
    "server restart NAME": ("restart", "reload"),
    "server refresh NAME": ("refresh",),
    "server show NAME": ("inspect", "show"),
    "server import FILE": ("import",),
    "init": ("setup", "sync", "discover", "migrate"),
    "serve --http": ("start", "run", "up"),
    "stop": ("halt", "kill", "quit", "shutdown", "down"),
    "service install": ("daemon", "install"),
    "service uninstall": ("uninstall",),
    "tool list": ("tools",),
    "tool show NAME": ("describe",),
    "search WORDS": ("find", "query", "retrieve_tools"),
    "call NAME": ("exec", "invoke"),
    "login": ("auth", "signin"),
    "server logout NAME": ("logout",),
    "config show": ("secret", "secrets", "settings", "env", "profile"),
    "scan": ("security",),
    "approve --list": ("quarantine", "review", "trust"),
    "check TOOL": ("preflight",),
    "serve --check": ("validate", "test"),
    "doctor": ("diagnose", "health", "debug"),
    "activity list": ("history",),
    "activity watch": ("tail", "watch"),
    "data backup FILE": ("backup",),
    "data restore FILE": ("restore",),
    "activity export": ("export",),
    "eval QUERIES": ("benchmark",),
    "--version": ("version",),
    "--help": ("tui",),
}
"""Words of habit by the command that does what they name; NAME and the like are for the person to fill in."""
_ALONE = {word: command for command, words in _WORDS.items() for word in words}

UPGRADES = frozenset({"upgrade", "update", "self-update"})
"""Words of habit for what no command here does."""

_CALLS = frozenset({"tool", "tool-read", "tool-write", "tool-destructive"})
"""Words that mcpproxy-go writes after `call`."""
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
    {"--http", "--sse", "--host", "--port", "--workers", "--config", "--passthrough", "--profile", "--check", "--alone"}
)
"""Options that lead to `serve` where no command is typed."""
_NOT_GUESSED = frozenset({"restore", "stop", "uninstall"})
"""Words whose commands change too much to be suggested for a word that only looks like one of them."""


def guess_command(words: Sequence[str], known: Collection[str]) -> str:
    """The command that `words` seem to want, without the program's name; empty if none is close.

    Args:
        words: As typed.
        known: The commands that there are, which are never near misses.
    """
    word = words[0].lower() if words else ""
    if word.startswith("-"):
        return _move_options_last(words, known)
    if word == "help":
        return shlex.join([*words[1:2], "--help"])
    if word == "upstream":
        return " ".join(["server", *_translate_upstream(words[1:])])
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
    if not near:
        return ""
    return near[0] if near[0] in known else _ALONE[near[0]]


def explain_upgrade(prefix: str) -> str:
    """Say how this program is brought up to date: by whatever has installed it.

    Args:
        prefix: The folder of the Python that it is installed in, as `sys.prefix`.
    """
    known = (("/uv/tools/", "uv tool upgrade smart-mcp-proxy"), ("/pipx/", "pipx upgrade smart-mcp-proxy"))
    by_hand = f"{shell_word(f'{prefix}/bin/python')} -m pip install --upgrade PATH_OF_CHECKOUT_OR_WHEEL"
    return f"It is upgraded by what installed it: {next((words for part, words in known if part in prefix), by_hand)}"


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


def _move_options_last(words: Sequence[str], known: Collection[str]) -> str:
    """The words with leading options moved behind the command; empty where there are none."""
    if words[0] in ("-v", "-V"):
        return "--version"
    words = with_json(words)
    place = next((place for place, word in enumerate(words) if word in known), 0)
    if place:
        return shlex.join([*words[place:], *words[:place]])
    return shlex.join(["serve", *words]) if words[0].partition("=")[0] in _OF_SERVE else ""


def _translate_upstream(words: Sequence[str]) -> list[str]:
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
    head, _, placeholder = command.rpartition(" ")
    if not placeholder.isupper() or not given:
        return command
    if command == _ALONE["add"]:  # what follows the name is a command line or an address, which nobody gave yet
        return command.replace("NAME", given[0])
    return f"{head} {' '.join(given)}"

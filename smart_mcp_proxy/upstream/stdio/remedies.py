"""Causes of a program's end that have a known remedy, recognised by what it wrote.

A row of `_CAUSES` is the evidence and the words for the remedy; the first row that fits counts. Names and addresses are
taken over from what a stranger's program wrote, so each is held to the characters that such a name has.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerConfig, describe_missing
from smart_mcp_proxy.telemetry import redact
from smart_mcp_proxy.upstream.confinement.refusals import hint_refusal
from smart_mcp_proxy.upstream.protocol.server_log import ServerLog
from smart_mcp_proxy.upstream.stdio.inheritance import network_hint

_REQUIREMENT: Final = "mcp<2"
_LEFT_OUT: Final = (
    r"No module named '?mcp\.|cannot import name '\w+' from '?mcp[.' ]|module 'mcp(?:\.[\w.]+)?' has no attribute|"
    r"'(?:Server|FastMCP|RequestContext|ServerSession)' object has no attribute|"
    r"\b(?:Server|FastMCP)\.\w+\(\) got an unexpected"
)
"""Words of Python where something of version 1 is not there any more.

Source: https://py.sdk.modelcontextprotocol.io/v2/migration/
"""
_BROUGHT_ALONG: Final = r"No module named '(?:httpx|httpx_sse)'"
"""The same of packages that came with version 1 and were never asked for."""
_WITH: Final = ("--with", _REQUIREMENT)
_LAST_LINES: Final = 40
"""Last lines that are read of what the server wrote: what it says of a refused access stands among them."""

_MOST_NAMES: Final = 4
_LACKED: Final = (
    r"(?i)\b(?:required|missing|requires?|must (?:be|set|provide)|unset|please (?:set|provide|specify)|needs?|KeyError|"
    r"(?:is|are|was|were|not) (?:not )?(?:set|provided|found|configured|defined|specified|given|present|empty)|"
    r"undefined)\b"
)
_VARIABLE: Final = r"(?<![\w/.$<-])\$?\{?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b(?![/\\(]|\.\w)"
_NO_VARIABLE: Final = r"(?:ERR|SELF_SIGNED|UNABLE_TO|DEPTH_ZERO|HTTP)_|.*_NOT_FOUND$"
"""Codes of errors, which are written alike."""
_CHOICE: Final = r"(?i)\b(?:either|one of|or)\b"
_OPTION: Final = (
    r"(?i)(?:required option|arguments (?:are required|were not provided):|"
    r"missing (?:required )?(?:option|argument|flag)s?:?|required flag\(s\)|requires? the) ['\"`]?(--?[a-z][\w-]*)"
)
_PYTHON: Final = (
    r"does not satisfy Python\s*>=?\s*(3\.\d+)",
    r"requires a different Python: [\d.]+ not in '>=\s*(3\.\d+)",
    r"Requires-Python [>~]=\s*(3\.\d+)",
    r"newer than PyO3's maximum supported version \((3\.\d+)\)",
)
_PYTHON_SINCE: Final = {
    "3.11": (
        r"No module named 'tomllib'|'asyncio' has no attribute '(?:timeout|TaskGroup|Runner)'|"
        r"import name '(?:Self|StrEnum|UTC|assert_never|NotRequired|LiteralString)' from '(?:typing|enum|datetime)'"
    ),
    "3.12": r"import name '(?:override|TypeAliasType|batched|Buffer)' from '(?:typing|itertools|collections)",
    "3.13": r"import name '(?:TypeIs|ReadOnly|deprecated)' from '(?:typing|warnings)'",
}
"""By version: what Python says of things that it has since then. Source: https://docs.python.org/3/whatsnew/"""
_NODE: Final = (
    r"EBADENGINE\s+required: \{[^}]*node: '[^'\d]*(\d+)",
    r"(?i)\b(?:requires?|needs?) Node(?:\.js)?\s*(?:version )?[>=v^~ ]*(\d+)",
)
_NODE_SINCE: Final = {
    "20": r"\b(?:File|CustomEvent|crypto) is not defined",
    "22": (
        r"provide an export named '(?:enableCompileCache|glob|styleText|registerHooks)'|Promise\.withResolvers is not|"
        r"built-in module: node:sqlite|markAsUncloneable is not|\bWebSocket is not defined|\bERR_REQUIRE_ESM\b"
    ),
    "24": r"\bURLPattern is not defined|RegExp\.escape is not a function",
}
"""Likewise of Node.js. Source: https://nodejs.org/en/blog/release"""
_LIBRARY: Final = (
    r"\b(lib[\w.+-]+?\.so[\d.]*): cannot open shared object|no library called \"(?:lib)?([\w.+-]+)\"|"
    r"cannot load library '(lib[\w.+-]+)|(?:failed|unable) to find (lib\w+)"
)
_NOT_BUILT: Final = r"\bPackage ([\w.+-]+) was not found in the pkg-config search path"
_LIBRARIES: Final = {
    "libGL.so": "libgl1",
    "libcairo": "libcairo2",
    "libglib-2.0": "libglib2.0-0",
    "libgobject-2.0": "libglib2.0-0",
    "libgomp": "libgomp1",
    "libmagic": "libmagic1",
    "libnss3": "libnss3",
    "libodbc": "unixodbc",
    "libpango-1.0": "libpango-1.0-0",
    "libportaudio": "libportaudio2",
    "libpq": "libpq5",
    "libsecret-1": "libsecret-1-0",
    "libsndfile": "libsndfile1",
    "libusb-1.0": "libusb-1.0-0",
    "libzbar": "libzbar0",
}
"""Packages of Debian by the beginning of the library that they bring."""
_PLATFORMS: Final = (
    (r'notsup Unsupported platform for \S+ wanted \{"os":\[?"darwin', "runs on macOS only"),
    (r'notsup Unsupported platform for \S+ wanted \{"os":\[?"win32', "runs on Windows only"),
    (r"notsup Unsupported platform\b", "is not made for this system"),
    (r"No module named '(?:AppKit|Foundation|Quartz|objc|EventKit)'", "runs on macOS only"),
    (r"No module named '(?:winreg|win32\w*|pywintypes|msvcrt|_winapi)'", "runs on Windows only"),
    (r"(?i)\b(?:only (?:runs on|works on|available on|supports)|requires) macos\b", "runs on macOS only"),
    (r"(?i)\b(?:only (?:runs on|works on|available on|supports)|requires) windows\b", "runs on Windows only"),
    (r"Exec format error|cannot execute binary file", "was built for another kind of processor or system"),
    (r"no wheels with a matching (?:platform|Python ABI)", "has no build for this system"),
)
_MISSING_PACKAGE: Final = (
    r"npm error 404 .*could not be found|E404|was not found in the package registry|could not determine executable"
)
_SCRIPT_FAILED: Final = (
    r"npm (?:ERR!|error) path \S*[/\\]node_modules[/\\].*\n(?:npm .*\n)?npm (?:ERR!|error) command (?:sh|cmd)"
)
_FAILED: Final = r" ended with exit code [1-9]\d*\.$"
"""Failure where nothing was written that says why."""
_PACKAGE: Final = r"(?:@[a-z0-9][\w.-]*/)?[a-z0-9][\w.-]*"
_DEPRECATED: Final = rf"npm warn deprecated ({_PACKAGE})@\S+: (.*)"
_ADDRESS: Final = r"(https://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:/[\w-]+)*/(?:mcp|sse))(?![\w/.-]*[\w/-])"
_IS_ELSEWHERE: Final = r"(?i)\b(?:moved|remote|hosted|deprecated|instead)\b"
_NEW_NAME: Final = (
    r"\b(?:renamed|moved|migrated?|replaced|superseded|use|switch|favou?r)\b(?: \w+){0,4} ['\"`]?"
    r"(@[a-z0-9][\w.-]*/[a-z0-9][\w.-]*\w|(?<=['\"`])[a-z0-9]+(?:-[a-z0-9]+)+)"
)


class Ended(NamedTuple):
    """A program's end.

    Attributes:
        config: Its server, not expanded.
        said: The reason that it wrote, empty for none.
        written: Its lines since the last start.
    """

    config: ServerConfig
    said: str
    written: Sequence[str]

    @property
    def program(self) -> str:
        """The name of its command."""
        return PurePath(self.config.command or "").name.removesuffix(".exe").removesuffix(".cmd")

    def patch(self, before: str, *changes: str) -> str:
        """Words that end with the command by which its entry is changed.

        Without the command where it would write what is shown in place of a secret.
        """
        if any(redact(change) != change for change in changes):
            return f"{before}. Change it in its entry: mcpproxy server show {shell_word(self.config.name)}"
        return f"{before}: mcpproxy server patch {' '.join(map(shell_word, (self.config.name, *changes)))}"

    def replace_args(self, before: str, args: Sequence[str]) -> str:
        """The same for other arguments."""
        return self.patch(before, f"args={json.dumps(args, ensure_ascii=False)}")


def find_remedy(config: ServerConfig, said: str, written: Sequence[str]) -> str:
    """The remedy for a program's end; empty where its cause is not known.

    Args:
        config: The server, not expanded.
        said: The reason that it wrote, empty for none.
        written: Its lines since the last start, oldest first, secrets hidden.
    """
    if config.transport != "stdio":
        return ""
    ended = Ended(config, said, written)
    return next(filter(None, (name_remedy(ended) for name_remedy in _CAUSES)), "")


def _use_older_sdk(ended: Ended) -> str:
    """The command that has a server started with version 1 of the SDK."""
    config, said = ended.config, ended.said
    if any(_REQUIREMENT in arg for arg in config.args):
        return ""
    args = _with_older(Path(config.command or "").name, config.args)
    if not re.search(_LEFT_OUT, said) and not (args and re.search(_BROUGHT_ALONG, said)):
        return ""
    why = "It was written for version 1 of the MCP SDK for Python and got version 2."
    if not args:
        return f"{why} Install version 1 where it runs: pip install {shell_word(_REQUIREMENT)}"
    change = f"args={json.dumps(args, ensure_ascii=False)}"
    if redact(change) != change:  # a command that writes "[hidden]" into the entry is worse than none
        return f'{why} Put "--with", "{_REQUIREMENT}" in front of the package in its args.'
    return f"{why} Start it with version 1: mcpproxy server patch {shell_word(config.name)} {shell_word(change)}"


def _with_older(program: str, args: Sequence[str]) -> list[str]:
    """Arguments with which uv installs version 1; empty for another program."""
    program = program.removesuffix(".exe")
    if program == "uvx":
        return [*_WITH, *args]
    if program == "uv" and "run" in args:
        at = args.index("run") + 1
        return [*args[:at], *_WITH, *args[at:]]
    return []


def _pass_variables(ended: Ended) -> str:
    if not re.search(_LACKED, ended.said):
        return ""
    given = {*ended.config.env, *ended.config.inherit}
    names = [name for name in dict.fromkeys(re.findall(_VARIABLE, ended.said)) if not re.match(_NO_VARIABLE, name)]
    names = [name for name in names if name not in given][:_MOST_NAMES]
    if not names:
        return ""
    is_choice = len(names) > 1 and re.search(_CHOICE, ended.said) is not None
    asked = f"It asks for {(' or ' if is_choice else ', ').join(names)}, which its entry does not give"
    passed = [f"env.{name}=${{{name}}}" for name in names[: 1 if is_choice else None]]
    return ended.patch(f"{asked}. Set it where the gateway starts, and pass it on", *passed)


def _add_option(ended: Ended) -> str:
    found = re.search(_OPTION, ended.said)
    if not found or found[1] in ended.config.args:
        return ""
    entry = f"mcpproxy server show {shell_word(ended.config.name)}"
    return f"It asks for the option {found[1]}: put it into its args, with a value where it takes one: {entry}"


def _use_other_python(ended: Ended) -> str:
    version = _find_version(_PYTHON, _PYTHON_SINCE, ended)
    args = list(ended.config.args)
    if not version or any(arg.startswith(("--python", "-p")) for arg in args):
        return ""
    why = f"It needs Python {version}"
    if ended.program == "uvx":
        return ended.replace_args(why, ["--python", version, *args])
    if ended.program == "uv" and "run" in args:
        at = args.index("run") + 1
        return ended.replace_args(why, [*args[:at], "--python", version, *args[at:]])
    return f"{why}: install that version, and name its interpreter as the command."


def _use_other_node(ended: Ended) -> str:
    version = _find_version(_NODE, _NODE_SINCE, ended)
    args = ended.config.args
    if not version or any(arg.startswith("node@") for arg in args):
        return ""
    why = f"It needs Node.js {version} or later"
    if ended.program != "npx" or (npx := shutil.which("npx")) is None:
        return f"{why}: install it, or give the path of such a one as the command."
    return ended.replace_args(
        f"{why}, which npx can bring for this server alone", ["-y", f"node@{version}", npx, *args]
    )


def _find_version(asked: Sequence[str], since: Mapping[str, str], ended: Ended) -> str:
    """The version that a program, or who installs it, asks for; or the first that has what it missed."""
    for version, pattern in since.items():
        if re.search(pattern, ended.said):
            return version
    text = "\n".join((ended.said, *ended.written))
    found = next(filter(None, (re.search(pattern, text) for pattern in asked)), None)
    return found[1] if found else ""


def _install_library(ended: Ended) -> str:
    if found := re.search(_LIBRARY, ended.said):
        name = next(filter(None, found.groups()))
        name = name if name.startswith("lib") else f"lib{name}"
        package = next((package for start, package in _LIBRARIES.items() if name.startswith(start)), "")
        debian = f" (Debian, Ubuntu: apt install {package})" if package else ""
        return f"The system lacks the library {name}: install it where the server runs{debian}."
    if found := re.search(_NOT_BUILT, "\n".join(ended.written)):
        name = found[1] if found[1].startswith("lib") else f"lib{found[1]}"
        return f"A part of it cannot be built without {name}: install it (Debian, Ubuntu: apt install {name}-dev)."
    if found := re.search(r"version `(GLIBC(?:XX)?_[\d.]+)' not found", ended.said):
        return f"It was built for a newer system (with {found[1]}): run it in a container, or an older version of it."
    if "Executable doesn't exist at" in ended.said:
        return "It drives a browser that is not installed. Install it once with: npx playwright install --with-deps"
    return ""


def _skip_scripts(ended: Ended) -> str:
    if ended.program != "npx" or "npm_config_ignore_scripts" in ended.config.env:
        return ""
    if not re.search(_SCRIPT_FAILED, "\n".join(ended.written)):
        return ""
    why = "A script that runs when it is installed fails. Many programs do without: leave such scripts out"
    return ended.patch(why, "env.npm_config_ignore_scripts=true")


def _show_scripts(ended: Ended, failure: str) -> str:
    if ended.program != "npx" or ended.said or not re.search(_FAILED, failure):
        return ""
    why = (
        "npx is silent where a script that runs at an installation fails. Have it show what such scripts write "
        "(npm_config_ignore_scripts=true leaves them out)"
    )
    return ended.patch(why, "env.npm_config_foreground_scripts=true")


def _leave_out(ended: Ended) -> str:
    text = "\n".join((ended.said, *ended.written))
    only = next((only for pattern, only in _PLATFORMS if re.search(pattern, text)), "")
    return f"It {only}. To leave it out here: mcpproxy server disable {shell_word(ended.config.name)}" if only else ""


def _use_new_name(ended: Ended) -> str:
    packages = {re.sub(r"(?<=.)@[^/]*$", "", arg): at for at, arg in enumerate(ended.config.args)}
    notices = [each for line in ended.written if (each := re.match(_DEPRECATED, line)) and each[1] in packages]
    for name, text in [*((found[1], found[2]) for found in notices), ("", ended.said)]:
        if (found := re.search(_ADDRESS, text)) and re.search(_IS_ELSEWHERE, text):
            return ended.patch("Its makers serve it at an address now", f"url={found[1]}", "command=null", "args=null")
        if name and (found := re.search(_NEW_NAME, text)):
            args = [found[1] if at == packages[name] else arg for at, arg in enumerate(ended.config.args)]
            return ended.replace_args(f"Its makers call it {found[1]} now", args)
    return ""


def _correct_package(ended: Ended) -> str:
    if not re.search(_MISSING_PACKAGE, ended.said):
        return ""
    entry = f"mcpproxy server show {shell_word(ended.config.name)}"
    return (
        f"No program of this name is published, or not any more: look for its present name, and correct args: {entry}"
    )


_CAUSES: Final[tuple[Callable[[Ended], str], ...]] = (
    _use_older_sdk,
    _use_new_name,
    _use_other_node,
    _use_other_python,
    _install_library,
    _pass_variables,
    _add_option,
    _leave_out,
    _skip_scripts,
    _correct_package,
)


def extend_hint(
    hint: str,
    config: ServerConfig,
    environ: Mapping[str, str],
    written: ServerLog,
    failure: str,
    guarded: Iterable[Path] = (),
) -> str:
    """Return the hint of a failed start or connection with all that is known of its cause.

    Args:
        hint: Of the failure itself; a remedy for what the server wrote takes its place.
        config: Of the server.
        environ: The gateway's environment.
        written: By the server.
        failure: As users see it.
        guarded: What no server reaches.
    """
    said, lines = written.reason(), written.last_connection()
    remedy = find_remedy(config, said, lines) or _show_scripts(Ended(config, said, lines), failure)
    seen = remedy or hint + network_hint(environ, config, failure)
    known = describe_missing(config.command, config.args, {*config.env, *config.inherit})
    refused = hint_refusal(config, written.last(_LAST_LINES), failure, guarded)
    return " ".join(filter(None, (known, seen + refused)))

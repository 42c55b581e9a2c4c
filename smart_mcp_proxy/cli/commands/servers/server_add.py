"""`mcpproxy server add`: a server by its command or address, or as a registry lists it."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from smart_mcp_proxy.cli.commands.servers.server_change import change_servers, report_change, start_once, wait_settled
from smart_mcp_proxy.cli.support.api import open_running
from smart_mcp_proxy.cli.support.arguments import parse_headers, parse_pairs
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.output import say, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.models import PENDING_STATES, ServerState
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import describe_known

ADD_EXAMPLES: Final = """\
mcpproxy server add time -- uvx mcp-server-time
  mcpproxy server add github --env 'TOKEN=${env:GITHUB_TOKEN}' -- npx -y server-github
  mcpproxy server add docs --url https://example.com/mcp --header 'Authorization: Bearer ${env:DOCS_TOKEN}'
  mcpproxy server add --registry io.github.somebody/weather --dry-run
  mcpproxy server add weather --registry io.github.somebody/weather --version 1.0.2 --env UNITS=celsius --yes"""
_OF_A_SHELL: Final = re.compile(r"\|\|?|&&?|;|[<>]|`|\$\(|\$[a-zA-Z_]\w*|\n|^\s*[a-zA-Z_]\w*=")
"""Signs that lead from one program to another, to a file, to what a program says or to a variable, or set one."""
_ADDRESS: Final = ("http://", "https://")
_Repeated = Annotated[list[str] | None, Parameter(negative=())]


@dataclass(frozen=True, slots=True)
class More:
    """Further keys of a server's entry.

    Attributes:
        cwd: Its working directory.
        type_: http or sse, where the address does not say it.
        timeout: Milliseconds until a call is given up.
        no_try: Do not start it once afterwards, as is done on a terminal.
    """

    cwd: str | None = None
    type_: Annotated[str | None, Parameter(name="--type")] = None
    timeout: int | None = None
    no_try: bool = False


@dataclass(frozen=True, slots=True)
class FromRegistry:
    """A server that a registry lists; it is added in quarantine.

    Attributes:
        registry: Full name there, such as io.github.somebody/weather (see MCPPROXY_REGISTRY_URL).
        version: The version to add; the latest if left out.
        pick: Number of the package or address to use, as --dry-run shows them.
        set_: NAME=VALUE for an argument, or for a part of one or of the address; may be repeated.
        deprecated: Take it though its publisher advises against it.
        dry_run: Show what would run and what it needs, and change nothing.
        yes: Do not ask first.
    """

    registry: str | None = None
    version: Annotated[str | None, Parameter(name="--version")] = None
    pick: int | None = None
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=(), allow_leading_hyphen=True)] = None
    deprecated: bool = False
    dry_run: bool = False
    yes: bool = False


_BY_HAND: Final = FromRegistry()
_NOTHING_MORE: Final = More()


async def add_server(
    name: str | None = None,
    /,
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    url: str | None = None,
    header: _Repeated = None,
    env: _Repeated = None,
    more: Annotated[More, Parameter(name="*")] = _NOTHING_MORE,
    listed: Annotated[FromRegistry, Parameter(name="*")] = _BY_HAND,
    json: bool = False,
) -> None:
    """Add a server: a command to start, after `--`, the address of one that runs, or one of a registry.

    Args:
        name: Server name; of one of a registry the end of its full name if left out.
        command: Program and its arguments.
        url: Address of a server that runs elsewhere.
        header: 'NAME: VALUE' to send with every request; may be repeated.
        env: NAME=VALUE for the program; may be repeated.
        more: Other keys of its entry.
        listed: A server that a registry lists.
        json: Print what was done as one object.
    """
    if listed.registry is not None:
        if command or url or more.type_:
            raise UsageError("--registry is given, and a command or an address as well.", hint="Use one of them.")
        # Here and not above: HTTP is of no use to a server that is written down by hand.
        from smart_mcp_proxy.cli.commands.servers.server_registry import add_listed

        keys = {key: value for key, value in (("cwd", more.cwd), ("timeout", more.timeout)) if value is not None}
        sets = _pairs("--set", listed.set_)
        given = {"--env": _pairs("--env", env), "--header": _header_pairs(header), "--set": sets}
        await add_listed(name, listed, given, keys, as_json=json)
        return
    if listed != _BY_HAND:
        options = "--version, --pick, --set, --deprecated, --dry-run and --yes"
        raise UsageError(f"{options} belong to --registry.", hint="Name a server of a registry, or leave them out.")
    if name is not None and name.casefold().startswith(_ADDRESS):
        hint = f"Write: mcpproxy server add NAME --url {shell_word(name)}"
        raise UsageError(f"{name!r} is an address; a server needs a name as well.", hint=hint)
    if name is None or not (command or url):
        hint = f"Write: mcpproxy server add {shell_word(name or 'NAME')} -- COMMAND, or --url ADDRESS instead."
        raise UsageError("A server needs a name, and a command or an address.", hint=hint)
    if command and command[0].casefold().startswith(_ADDRESS):
        hint = f"Write: mcpproxy server add {shell_word(name)} --url ADDRESS"
        raise UsageError(f"The command of server '{name}' is an address.", hint=hint)
    command = _split_line(name, command)
    if command and command[0].startswith("-"):
        hint = f"Write: mcpproxy server add {shell_word(name)} -- COMMAND; its own options follow it."
        raise UsageError(f"There is no option '{command[0]}', and it is no command.", hint=hint)
    entry: dict[str, Any] = {"command": command[0] if command else None, "args": list(command[1:]) or None}
    entry |= {"url": url, "type": more.type_, "cwd": more.cwd, "timeout": more.timeout}
    entry |= {"env": _variables(env) if env else None, "headers": parse_headers(header) if header else None}
    entry = {key: value for key, value in entry.items() if value is not None}
    body = {"name": name, "config": entry}
    done = await change_servers("POST", "servers", body, lambda edits: edits.add(name, entry, "operator"))
    report_change(done, as_json=json)
    if not json:
        await _follow_up(name, entry, may_try=not (more.no_try or done["quarantined"]))


def _split_line(name: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """Split a command that came as one text, and show how.

    Raises:
        UsageError: Only a shell could carry it out.
    """
    if len(command) != 1 or not any(map(str.isspace, command[0].strip())) or Path(command[0]).exists():
        return command
    line = command[0]
    if found := _OF_A_SHELL.search(line):
        hint = f"No shell reads it. If one is to: mcpproxy server add {shell_word(name)} -- sh -c {shell_word(line)}"
        raise UsageError(f"The command of server '{name}' holds '{found[0]}', which only a shell knows.", hint=hint)
    try:
        words = tuple(shlex.split(line))
    except ValueError as exc:
        hint = f"Write its words apart: mcpproxy server add {shell_word(name)} -- PROGRAM ARGUMENT..."
        raise UsageError(f"The command of server '{name}' cannot be split into words: {exc}.", hint=hint) from exc
    say(f"Read as {len(words)} words: {shlex.join(words)}")
    return words


async def _follow_up(name: str, entry: dict[str, Any], *, may_try: bool) -> None:
    """Say what is known of a server that was just added, and on a terminal whether it starts."""
    if "command" in entry and (known := describe_known(entry["command"], entry.get("args", ()), entry.get("env", ()))):
        say(known)
    if may_try and sys.stdin.isatty():
        await _try_once(name)


async def _try_once(name: str) -> None:
    """Say whether a server that was just added starts; it stays added however that ends."""
    say("Trying it once. A first start may take minutes, to fetch its package; Ctrl-C ends the wait, nothing else.")
    settings = open_settings()
    async with open_running(settings) as running:
        if running is None:
            status = (await start_once(settings, name, 0)).status
            state, error, hint = str(status.state), status.error, status.hint
        else:
            found = await wait_settled(running, name)
            state, error, hint = found["state"], found["error"], found["hint"]
    if state == ServerState.READY:
        say(f"It starts: {name} is ready.", style="green")
        return
    outcome = "is not up yet" if state in PENDING_STATES else "does not start"
    warn(f"It is saved, and {outcome} ({state}). {error} {hint}".rstrip())
    # What was never started has written no log.
    say(f"Next: mcpproxy server {'show' if state.startswith('needs_') else 'logs'} {shell_word(name)}")


def _variables(written: list[str]) -> dict[str, str]:
    for number, pair in enumerate(written, 1):
        if pair.find("=") < 1:  # perhaps a value alone, which is not repeated
            raise UsageError(f"--env number {number} has no name and value.", hint="Write it as NAME=VALUE.")
    return parse_pairs(written)


def _pairs(option: str, written: list[str] | None) -> dict[str, list[str]]:
    """NAME=VALUE, each name with all its values in their order."""
    found: dict[str, list[str]] = {}
    for number, pair in enumerate(written or (), 1):
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} number {number} has no name and value.", hint="Write it as NAME=VALUE.")
        found.setdefault(name, []).append(value)
    return found


def _header_pairs(written: list[str] | None) -> dict[str, list[str]]:
    return {name: [value] for name, value in parse_headers(written or []).items()}

"""`mcpproxy init`: the servers of all clients in one table; those chosen go into the server file."""

import json as json_text
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.commands.servers.server_change import import_server_text
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, ask_line
from smart_mcp_proxy.cli.support.output import plural, say, show, show_json, table, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.names import shell_word
from smart_mcp_proxy.servers import ServerEdits

if TYPE_CHECKING:
    from smart_mcp_proxy.client_files import FoundServer, ImportCandidates
    from smart_mcp_proxy.settings import Settings

app = App(
    name="init",
    help_epilogue="""\
Reads the files of the clients that are known and starts no server. Servers of
projects are shown, taken by name or number alone, and wait in quarantine then:
they may be a stranger's. Those that mean the folder of their client, and second
ones of a name, are taken by choice alone, too.

Examples:
  mcpproxy init
  mcpproxy init --dry-run
  mcpproxy init --yes
  mcpproxy init github 4 7-9               these, as --dry-run numbers them
  mcpproxy init --json""",
)

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_CAN_BE_TAKEN = ("new", "project", "workspace", "differs")


@app.default
async def init(*wanted: str, yes: bool = False, dry_run: bool = False, json: bool = False) -> int:
    """Find the servers that your MCP clients have, and take over those you want.

    Args:
        wanted: Names, or numbers as --dry-run shows them, of servers to take over without a question.
        yes: Take every server of your own files that is new, without a question.
        dry_run: Show what there is and change nothing.
        json: Print what was found as one object; without --yes or names nothing is changed.
    """
    if wanted and yes:
        raise UsageError("Servers are named, and --yes is given.", hint="Use one of the two.")
    settings = open_settings()
    finding = await to_thread.run_sync(_find_client_servers, settings)
    is_looking = dry_run or (json and not yes and not wanted)
    if not json:
        _show_servers(finding)
    takeable = [server for server in finding.servers if server.standing in _CAN_BE_TAKEN]
    chosen: list[FoundServer] = []
    if wanted or (takeable and not is_looking):
        chosen = _select(wanted or ("all",), finding.servers) if wanted or yes else _ask_selection(finding.servers)
    done: dict[str, Any] = {"added": [], "skipped": {}}
    if chosen and not dry_run:
        done = await import_server_text(settings, _as_text(chosen, _store_secrets(settings, chosen, may_ask=not yes)))
    if json:
        found = [_as_object(server, number) for number, server in enumerate(finding.servers, 1)]
        show_json({"servers": found, "problems": finding.problems, "added": done["added"], "skipped": done["skipped"]})
        return 0
    if is_looking:
        _tell_choice(takeable)
    else:
        _tell(settings, done, chosen, _describe_left_out(finding.servers, chosen))
    return 0


def _find_client_servers(settings: "Settings") -> "ImportCandidates":
    # Here and not above: reading all those languages takes a while that a mistyped word need not wait for.
    from smart_mcp_proxy.cli.commands.servers.client_choice import places_here
    from smart_mcp_proxy.client_files import find_servers

    own = {} if settings.config_json is not None else ServerEdits(settings, Path.cwd()).read().entries
    return find_servers(places_here(), own)


def _show_servers(finding: "ImportCandidates") -> None:
    for problem in finding.problems:
        warn(problem)
    if not finding.servers:
        return
    rows = []
    for number, server in enumerate(finding.servers, start=1):
        lost = f"not taken over: {', '.join(server.translated.lost)}" if server.translated.lost else ""
        remarks = "; ".join(filter(None, (server.remark, lost)))
        mark = str(number) if server.standing in _CAN_BE_TAKEN else ""
        rows.append([mark, server.name, ", ".join(server.places), server.transport, ", ".join(server.needs), remarks])
    show(table(["##", "server", "from", "transport", "needs", "remarks"], rows))


def _ask_selection(servers: "list[FoundServer]") -> "list[FoundServer]":
    """The servers that the user chooses.

    Raises:
        UsageError: There is nobody to ask, or the answer cannot be understood.
        ProxyError: None is chosen.
    """
    if not sys.stdin.isatty():
        raise add_next_step(
            UsageError("This asks what to take over, and there is no terminal to ask on."), "mcpproxy init --yes"
        )
    numbers = "names, or numbers such as 1 3-5"
    answer = ask_line(f"Take over which? all (those that the remarks do not except), none, {numbers} [all]")
    words = answer.replace(",", " ").split()
    if words in (["none"], ["no"], ["n"]) or not answer:
        raise ProxyError("Nothing is changed.", code="cancelled")
    return _select(["all"] if words in ([], ["y"], ["yes"]) else words, servers)


def _select(words: Iterable[str], servers: "list[FoundServer]") -> "list[FoundServer]":
    """The servers of these names and numbers; `all` are those that are new.

    Raises:
        UsageError: A word means none of them, or more than one server has a name.
    """
    chosen: dict[int, FoundServer] = {}
    takeable = {number: one for number, one in enumerate(servers, 1) if one.standing in _CAN_BE_TAKEN}
    for word in words:
        if word == "all":
            found = [number for number, one in takeable.items() if one.standing == "new"]
        elif match := _RANGE.fullmatch(word):
            found = [number for number in _numbers(match, len(servers)) if number in takeable]
        else:
            found = [number for number, one in takeable.items() if word in (one.name, *_names_of_twin(one))]
            if not found:
                raise _refuse(f"No server that can be taken over is called {word!r}.")
        chosen |= {number: takeable[number] for number in found}
    names = [one.name for one in chosen.values()]
    if twins := [number for number, one in chosen.items() if names.count(one.name) > 1]:
        numbers = " or ".join(map(str, twins))
        raise _refuse(f"{len(twins)} of these servers have one name, {chosen[twins[0]].name!r}: take {numbers}.")
    return [chosen[number] for number in sorted(chosen)]


def _names_of_twin(server: "FoundServer") -> Iterator[str]:
    """Yield its name with each client that has it, which no other server of its name shares."""
    return (f"{server.name} of {place}" for place in server.places)


def _numbers(match: re.Match[str], last: int) -> Iterable[int]:
    first, end = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= end <= last:
        raise _refuse(f"{match[0]!r} is not one of the numbers 1 to {last}.")
    return range(first, end + 1)


def _refuse(message: str) -> UsageError:
    return add_next_step(UsageError(message, hint="Nothing is changed."), "mcpproxy init --dry-run")


def _store_secrets(settings: "Settings", chosen: "list[FoundServer]", *, may_ask: bool) -> dict[str, str]:
    # Here and not above: see _find_client_servers.
    from smart_mcp_proxy.cli.commands.servers.init_secrets import store_secrets

    questions = {question.name: question for server in chosen for question in server.translated.questions}
    is_person = may_ask and sys.stdin.isatty()
    return store_secrets(questions, settings.data_dir, may_ask=is_person) if questions else {}


def _as_text(chosen: "list[FoundServer]", references: Mapping[str, str]) -> str:
    """A server file with the chosen ones; secrets that the keyring has not are referred to elsewhere."""
    entries: dict[str, Any] = {}
    for server in chosen:
        quarantine = {"quarantined": True} if server.is_project else {}
        entries[server.name] = {**server.translated.entry, **quarantine}
    text = json_text.dumps({"mcpServers": entries})
    for name, reference in references.items():
        text = text.replace(f"${{keyring:{name}}}", json_text.dumps(reference)[1:-1])
    return text


def _as_object(server: "FoundServer", number: int) -> dict[str, Any]:
    return {
        "number": number,
        "name": server.name,
        "from": server.places,
        "path": str(server.path),
        "project": server.is_project,
        "transport": server.transport,
        "standing": server.standing,
        "remark": server.remark,
        "needs": list(server.needs),
        "lost": list(server.translated.lost),
    }


def _tell_choice(takeable: "list[FoundServer]") -> None:
    """Say how many servers would be taken over, and how many by choice alone."""
    count = sum(server.standing == "new" for server in takeable)
    by_choice = f", and {len(takeable) - count} only by name or number" if len(takeable) > count else ""
    say(f"{plural(count, 'server')} can be taken over{by_choice}. Nothing is changed.")
    say("Next: mcpproxy init" if takeable else "Next: mcpproxy server add NAME -- COMMAND")


def _tell(settings: "Settings", done: Mapping[str, Any], chosen: "list[FoundServer]", left_out: Iterable[str]) -> None:
    for name, reason in done["skipped"].items():
        warn(f"{name}: {reason}")
    if chosen:
        path = ServerEdits(settings, Path.cwd()).read().path
        say(f"Added {plural(len(done['added']), 'server')} to {path}: {', '.join(done['added']) or 'none'}.")
    else:
        say("There is nothing new to take over.")
    for line in left_out:
        say(line)
    if waiting := [server.name for server in chosen if server.is_project and server.name in done["added"]]:
        say(f"In quarantine until you approve them: {', '.join(waiting)} (mcpproxy server approve NAME)")
    say("Next: mcpproxy connect --all --move" if chosen else "Next: mcpproxy connect")


def _describe_left_out(servers: "list[FoundServer]", chosen: "list[FoundServer]") -> Iterable[str]:
    """Yield a line for each that was excepted: the reason, and the command that takes it over."""
    taken = {server.name for server in chosen}
    for server in servers:
        if server in chosen or server.standing not in ("project", "workspace", "differs"):
            continue
        # Never its number: those of the next table are others.
        command = f"mcpproxy init {shell_word(server.name)}"
        if server.name in taken:
            twin = next(_names_of_twin(server))
            command = f"mcpproxy server remove {shell_word(server.name)} && mcpproxy init {shell_word(twin)}"
        yield f"Left out: {server.name} of {server.places[0]}, {server.remark}. Add it: {command}"

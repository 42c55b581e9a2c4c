"""`mcpproxy init`: the servers of all clients in one table; those chosen go into the server file."""

import getpass
import json as json_text
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.commands.servers.server_change import import_server_text
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step
from smart_mcp_proxy.cli.support.output import clean, plural, say, show, show_json, table, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ConfigError, ProxyError
from smart_mcp_proxy.servers import ServerEdits

if TYPE_CHECKING:
    from smart_mcp_proxy.client_files import FoundServer, ImportCandidates
    from smart_mcp_proxy.settings import Settings

app = App(
    name="init",
    help_epilogue="""\
Reads the files of the clients that are known and starts no server. Files of
the project in this folder may be a stranger's: their servers are shown, never
taken by --yes, and wait in quarantine when they are chosen.

Examples:
  mcpproxy init
  mcpproxy init --dry-run
  mcpproxy init --yes
  mcpproxy init --json""",
)

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_CAN_BE_TAKEN = ("new", "project")


@app.default
async def init(*, yes: bool = False, dry_run: bool = False, json: bool = False) -> int:
    """Find the servers that your MCP clients have, and take over those you want.

    Args:
        yes: Take every server of your own files that is new, without a question.
        dry_run: Show what there is and change nothing.
        json: Print what was found as one object; without --yes nothing is changed.
    """
    settings = open_settings()
    finding = await to_thread.run_sync(_find_client_servers, settings)
    is_looking = dry_run or (json and not yes)
    if not json:
        _show_servers(finding)
    takeable = [server for server in finding.servers if server.standing in _CAN_BE_TAKEN]
    chosen: list[FoundServer] = []
    if takeable and not is_looking:
        chosen = [server for server in takeable if server.standing == "new"] if yes else _ask_selection(finding.servers)
    done: dict[str, Any] = {"added": [], "skipped": {}}
    if chosen:
        await to_thread.run_sync(_store_secrets, chosen, not yes)
        done = await import_server_text(settings, _as_text(chosen))
    if json:
        found = [_as_object(server) for server in finding.servers]
        added, skipped = done["added"], done["skipped"]
        show_json({"servers": found, "problems": finding.problems, "added": added, "skipped": skipped})
        return 0
    _tell(settings, done, chosen, is_looking=is_looking, count=len(takeable))
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
        places = ", ".join(server.places)
        rows.append([mark, server.name, places, server.transport, ", ".join(server.needs), remarks])
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
    say("Take over which? all (without projects), none, or numbers such as 1 3-5 [all]")
    answer = sys.stdin.readline()
    words = answer.replace(",", " ").split()
    if words in (["none"], ["no"], ["n"]) or not answer:
        raise ProxyError("Nothing is changed.", code="cancelled")
    if words in ([], ["all"], ["y"], ["yes"]):
        return [server for server in servers if server.standing == "new"]
    numbers = {number for word in words for number in _numbers(word, len(servers))}
    return [server for at, server in enumerate(servers, 1) if at in numbers and server.standing in _CAN_BE_TAKEN]


def _numbers(word: str, last: int) -> Iterable[int]:
    found = _RANGE.fullmatch(word)
    first = int(found[1]) if found else 0
    end = int(found[2] or found[1]) if found else 0
    if not 1 <= first <= end <= last:
        raise add_next_step(
            UsageError(f"{word!r} is not one of the numbers 1 to {last}.", hint="Nothing is changed."), "mcpproxy init"
        )
    return range(first, end + 1)


def _store_secrets(chosen: "list[FoundServer]", may_ask: bool) -> None:
    """Put into the keyring what the clients' files hold, and what the user is asked for."""
    # Here and not above: see _find_client_servers.
    from smart_mcp_proxy.secrets.keyring_edge import KEYRING_SERVICE, read_keyring_secret, store_secret

    questions = {question.name: question for server in chosen for question in server.translated.questions}
    for question in questions.values():
        value = question.value
        try:
            if value is None and read_keyring_secret(question.name):
                continue
            if value is None and may_ask:
                asked = f"{clean(question.words)} (stored in the keyring as {question.name}): "
                value = getpass.getpass(asked, stream=sys.stderr)  # not shown
            if value:
                store_secret(question.name, value)
                continue
        except ConfigError as error:
            warn(f"{question.name} is not stored: {error}")
            continue
        say(f"{question.name} is not set. Store it: keyring set {KEYRING_SERVICE} {question.name}")


def _as_text(chosen: "list[FoundServer]") -> str:
    entries: dict[str, Any] = {}
    for server in chosen:
        quarantine = {"quarantined": True} if server.is_project else {}
        entries.setdefault(server.name, {**server.translated.entry, **quarantine})
    return json_text.dumps({"mcpServers": entries})


def _as_object(server: "FoundServer") -> dict[str, Any]:
    return {
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


def _tell(
    settings: "Settings", done: dict[str, Any], chosen: "list[FoundServer]", *, is_looking: bool, count: int
) -> None:
    for name, reason in done["skipped"].items():
        warn(f"{name}: {reason}")
    if is_looking:
        say(f"{plural(count, 'server')} can be taken over. Nothing is changed.")
        say("Next: mcpproxy init" if count else "Next: mcpproxy server add NAME -- COMMAND")
        return
    if not count:
        say("There is nothing new to take over.")
        say("Next: mcpproxy connect")
        return
    path = ServerEdits(settings, Path.cwd()).read().path
    say(clean(f"Added {plural(len(done['added']), 'server')} to {path}: {', '.join(done['added']) or 'none'}."))
    waiting = [server.name for server in chosen if server.is_project and server.name in done["added"]]
    if waiting:
        say(clean(f"In quarantine until you approve them: {', '.join(waiting)} (mcpproxy server approve NAME)"))
    say("Next: mcpproxy connect --all --move")

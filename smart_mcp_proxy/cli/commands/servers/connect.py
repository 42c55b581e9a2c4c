"""`mcpproxy connect`: our entry in the clients' files, shown first, then written."""

import json as json_text
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anyio import to_thread
from cyclopts import App, Parameter

from smart_mcp_proxy.cli.support.arguments import parse_address
from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, report
from smart_mcp_proxy.cli.support.output import clean, plural, say, show, show_json, table, warn
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.desktop.spelling import explain_passing
from smart_mcp_proxy.errors import ConfigError, ConflictError, ProxyError
from smart_mcp_proxy.servers import ServerEdits

if TYPE_CHECKING:
    from smart_mcp_proxy.client_files import ClientFile, Door, KnownClient, Planned
    from smart_mcp_proxy.settings import Settings

app = App(
    name="connect",
    help_epilogue="""\
Shows the difference and writes nothing, until --write is given. Values that
belong to other entries are hidden in it. A copy of the file stays beside it,
and `mcpproxy disconnect` puts it back. On a terminal it then waits for the
client's first call, until Ctrl-C; --no-wait leaves that out.

Examples:
  mcpproxy connect                      the clients known, and which are connected
  mcpproxy connect cursor               what would be changed
  mcpproxy connect cursor --write
  mcpproxy connect --all --write --move
  mcpproxy connect claude-code --project --http""",
)


@dataclass(frozen=True, slots=True)
class _Wish:
    """The change that is asked for, the same for each client.

    Attributes:
        door: How it reaches the gateway.
        is_project: Whether the project's file is meant.
        moves: Whether servers that were taken over leave the client's file.
        writes: Whether it is done, and not only shown.
    """

    door: "Door"
    is_project: bool
    moves: bool
    writes: bool


@dataclass(slots=True)
class _Outcome:
    """Result for one client.

    Attributes:
        client: Its name.
        path: Its file.
        status: would_change, changed, unchanged or failed.
        diff: What is changed, secrets hidden.
        backup: Copy of what was there.
        moved: Servers that leave the file.
        passed: Variables that its entry lets through, where the client would withhold them.
        error: What went wrong.
    """

    client: "KnownClient"
    path: str
    status: str = "unchanged"
    diff: str = ""
    backup: str = ""
    moved: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    error: ProxyError | None = None


@app.default
async def connect(  # noqa: PLR0913  (one parameter per flag)
    *clients: str,
    all_: Annotated[bool, Parameter(name="--all")] = False,
    project: bool = False,
    http: bool = False,
    stdio: bool = False,
    url: str | None = None,
    move: bool = False,
    write: bool = False,
    no_wait: bool = False,
    json: bool = False,
) -> int:
    """Make MCP clients use the gateway.

    Args:
        clients: Their names; without any, the clients that are known are listed.
        all_: All clients that are installed here.
        project: The file in this folder instead of the user's.
        http: Use a gateway that runs: start it with mcpproxy serve --http.
        stdio: Let the client start the gateway; this is the default.
        url: Use the gateway at this address.
        move: Take servers that the gateway has as well out of the client's file.
        write: Do it.
        no_wait: Do not wait for the first call.
        json: Print a list of objects.
    """
    if stdio and (http or url):
        raise UsageError("--stdio and an address are both given.", hint="Use one of the two.")
    if url is not None:
        parse_address(url)
    settings = open_settings()
    # Here and not above: reading all those languages takes a while that a mistyped word need not wait for.
    from smart_mcp_proxy.cli.commands.servers.client_choice import choose_door, places_here, select_clients

    places = places_here()
    chosen = select_clients(clients, places, is_all=all_, is_project=project)
    if not chosen and (write or move or project or http or url):
        raise add_next_step(
            UsageError("No client is named.", hint="Name them, or use --all for those that are here."),
            "mcpproxy connect",
        )
    if not chosen:
        return await to_thread.run_sync(_list_clients, json)
    door = choose_door(settings, is_http=http or (settings.transport != "stdio" and not stdio), url=url)
    wish = _Wish(door, project, move, write)
    outcomes = [await to_thread.run_sync(_connect_client, settings, client, wish) for client in chosen]
    if json:
        show_json([_as_object(outcome) for outcome in outcomes])
    else:
        for outcome in outcomes:
            _tell(outcome)
        _tell_next(outcomes, ["--all"] if all_ else clients, wish)
        if passing := explain_passing(sys.prefix):
            warn(passing)
        changed = [outcome.client for outcome in outcomes if outcome.status == "changed"]
        is_watched = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        if changed and not no_wait and is_watched:
            await _wait_for_call(settings, changed, door)
    return 1 if any(outcome.error for outcome in outcomes) else 0


async def _wait_for_call(settings: "Settings", clients: list["KnownClient"], door: "Door") -> None:
    # Here and not above: it loads what looks into the log, which takes longer than all the rest.
    from smart_mcp_proxy.cli.commands.servers.first_call import is_seen_here, show_first_call

    if is_seen_here(door):
        await show_first_call(settings, clients)


def _connect_client(settings: "Settings", client: "KnownClient", wish: _Wish) -> _Outcome:
    """Show or make the change of one client; its failure does not stop the others."""
    from smart_mcp_proxy.cli.commands.servers.client_choice import client_path, places_here
    from smart_mcp_proxy.client_files import Records, read_client_file, write

    places = places_here()
    outcome = _Outcome(client, "")
    try:
        path = client_path(client, places, is_project=wish.is_project)
        outcome.path = str(path)
        file = read_client_file(client, path, inside=places.project if wish.is_project else None)
        planned, outcome.moved = _plan_change(settings, file, wish)
        if not planned.is_change:
            return outcome
        outcome.diff = _diff(planned, wish)
        records = Records(settings.data_dir)
        record, seen = records.load(file.path), _servers_digest(file)
        if not wish.writes:
            outcome.status = "would_change"
            with suppress(ConfigError):  # without the note it can be looked at all the same
                records.note_shown(file.path, seen)
            return outcome
        if record.shown and record.shown != seen:
            records.note_shown(file.path, seen)
            raise ConflictError(
                f"The servers in {path} were changed after their difference was shown; nothing is written.",
                hint="Look at the difference again, then repeat the command.",
            )
        backup = write(planned, records)
        outcome.backup = str(backup or "")
        outcome.passed = wish.door.variables if client.passes else ()
        outcome.status = "changed"
    except ProxyError as error:
        error.add_note(f"mcpproxy connect {client.name}{_flag(wish)}")
        outcome.status, outcome.error = "failed", error
    return outcome


def _plan_change(settings: "Settings", file: "ClientFile", wish: _Wish) -> tuple["Planned", tuple[str, ...]]:
    """The change, and the servers that leave the file with it."""
    from smart_mcp_proxy.client_files import OUR_NAME, our_entry, plan, same_as_ours

    moved: tuple[str, ...] = ()
    if wish.moves:
        moved = same_as_ours(file, ServerEdits(settings, Path.cwd()).read().entries)
    changes: dict[str, Mapping[str, Any] | None] = dict.fromkeys(moved)
    return plan(file, {**changes, OUR_NAME: our_entry(file.client, wish.door)}), moved


def _diff(planned: "Planned", wish: _Wish) -> str:
    from smart_mcp_proxy.client_files import OUR_NAME, build_masked_diff, our_entry
    from smart_mcp_proxy.client_files.texts import parse

    file = planned.file
    after = parse(planned.after, file.client.text_format, str(file.path))
    shown = {OUR_NAME: our_entry(file.client, wish.door)}
    return build_masked_diff(file.text, planned.after, (file.document, after), shown, str(file.path))


def _servers_digest(file: "ClientFile") -> str:
    """Fingerprint of the servers alone: some clients write other things into the file all the time."""
    from smart_mcp_proxy.client_files import digest

    return digest(json_text.dumps(file.entries, sort_keys=True, default=str).encode("utf-8", "surrogatepass"))


def _list_clients(as_json: bool) -> int:
    """Show every known client, its file, and whether it is connected."""
    from smart_mcp_proxy.cli.commands.servers.client_choice import places_here
    from smart_mcp_proxy.client_files import KNOWN_CLIENTS, OUR_NAME, read_client_file

    places = places_here()
    found = []
    problems = []
    for client in KNOWN_CLIENTS:
        path = places.user_file(client)
        state, servers = ("not found", 0) if not places.is_installed(client) else ("not connected", 0)
        try:
            entries = read_client_file(client, path).entries
            servers = len(entries) - (OUR_NAME in entries)
            state = "connected" if OUR_NAME in entries else state
        except ProxyError as error:
            state = "cannot be read"
            problems.append(f"{client.title}: {error}")
        found.append(
            {"client": client.name, "title": client.title, "path": str(path), "state": state, "servers": servers}
        )
    if as_json:
        show_json(found)
        return 0
    rows = [[str(row["client"]), clean(str(row["state"])), str(row["servers"]), str(row["path"])] for row in found]
    show(table(["client", "state", "servers#", "file"], rows))
    for problem in problems:
        warn(problem)
    say("Next: mcpproxy connect --all")
    return 0


def _as_object(outcome: _Outcome) -> dict[str, Any]:
    return {
        "client": outcome.client.name,
        "path": outcome.path,
        "status": outcome.status,
        "diff": outcome.diff,
        "backup": outcome.backup or None,
        "moved": list(outcome.moved),
        "error": outcome.error.to_dict() if outcome.error else None,
    }


def _tell(outcome: _Outcome) -> None:
    title = outcome.client.title
    if outcome.error is not None:
        say(f"{title}:")
        report(outcome.error, as_json=False)
    elif outcome.status == "unchanged":
        say(f"{title} is connected already: {outcome.path}")
    elif outcome.status == "would_change":
        show(outcome.diff)
    else:
        kept = f" The file as it was: {outcome.backup}" if outcome.backup else ""
        say(f"{title} is connected: {outcome.path}.{kept}")
        if outcome.passed:
            say(f"  It lets variables of yours through, which the server file names: {', '.join(outcome.passed)}")
        if outcome.moved:
            say(f"  Taken out, as the gateway has them: {clean(', '.join(outcome.moved))}")
        say(f"  {outcome.client.restart} to use it.")


def _flag(wish: _Wish) -> str:
    return " --project" if wish.is_project else ""


def _tell_next(outcomes: list[_Outcome], words: Iterable[str], wish: _Wish) -> None:
    waiting = [outcome for outcome in outcomes if outcome.status == "would_change"]
    if waiting:
        say(f"Nothing is written yet: {plural(len(waiting), 'file')} would be changed. Repeat it with --write.")
    if any(outcome.status == "changed" for outcome in outcomes):
        say(f"Undo: mcpproxy disconnect {' '.join(words)}{_flag(wish)}")

"""`mcpproxy disconnect`: the clients' files as they were, or at least without our entry."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anyio import to_thread
from cyclopts import App, Parameter

from smart_mcp_proxy.cli.support.failure import UsageError, add_next_step, report
from smart_mcp_proxy.cli.support.output import say, show_json
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.errors import ProxyError

if TYPE_CHECKING:
    from smart_mcp_proxy.client_files import KnownClient
    from smart_mcp_proxy.settings import Settings

app = App(
    name="disconnect",
    help_epilogue="""\
Where nothing else changed since, the file is put back byte by byte, moved
servers included; else our entry alone is taken out.

Examples:
  mcpproxy disconnect cursor
  mcpproxy disconnect claude-code --project
  mcpproxy disconnect --all""",
)

_WORDS = {
    "restored": "is as it was before",
    "removed": "is without the gateway now; everything else in it stays as it is",
    "unchanged": "was not connected",
}


@app.default
async def disconnect(
    *clients: str, all_: Annotated[bool, Parameter(name="--all")] = False, project: bool = False, json: bool = False
) -> int:
    """Take the gateway out of MCP clients again.

    Args:
        clients: Their names.
        all_: All clients that are installed here.
        project: The file in this folder instead of the user's.
        json: Print a list of objects.
    """
    settings = open_settings()
    # Here and not above: see connect.
    from smart_mcp_proxy.cli.commands.servers.client_choice import places_here, select_clients

    chosen = select_clients(clients, places_here(), is_all=all_, is_project=project)
    if not chosen and not all_:
        raise add_next_step(UsageError("No client is named.", hint="Name them, or use --all."), "mcpproxy connect")
    done = [await to_thread.run_sync(_disconnect_client, settings, client, project) for client in chosen]
    if json:
        show_json([{**one, "error": one["error"].to_dict() if one["error"] else None} for one in done])
    else:
        for client, one in zip(chosen, done, strict=True):
            _tell(client, one)
    return 1 if any(one["error"] for one in done) else 0


def _disconnect_client(settings: "Settings", client: "KnownClient", is_project: bool) -> dict[str, Any]:
    """Undo what was done to one client; its failure does not stop the others."""
    from smart_mcp_proxy.cli.commands.servers.client_choice import client_path, places_here
    from smart_mcp_proxy.client_files import Records, forget_unfinished, read_client_file, restore_file

    places = places_here()
    done: dict[str, Any] = {"client": client.name, "path": "", "status": "unchanged", "backup": None, "error": None}
    try:
        path = client_path(client, places, is_project=is_project)
        done["path"] = str(path)
        file = read_client_file(client, path, inside=places.project if is_project else None)
        records = Records(settings.data_dir)
        record = records.load(file.path)
        if restore_file(file, records):
            done["status"] = "restored"
        elif _remove_entry(file, records):
            done["status"] = "removed"
            done["backup"] = record.backup if record.backup and Path(record.backup).exists() else None
        else:
            forget_unfinished(file, records)
    except ProxyError as error:
        error.add_note(f"mcpproxy disconnect {client.name}{' --project' if is_project else ''}")
        done["status"], done["error"] = "failed", error
    return done


def _remove_entry(file: Any, records: Any) -> bool:
    """Take our entry alone out of a file; False where it has none."""
    from smart_mcp_proxy.client_files import OUR_NAME, plan, take_out

    planned = plan(file, {OUR_NAME: None})
    if file.data is None or not planned.is_change:
        return False
    take_out(planned, records)
    return True


def _tell(client: "KnownClient", done: dict[str, Any]) -> None:
    if done["error"] is not None:
        say(f"{client.title}:")
        report(done["error"], as_json=False)
        return
    say(f"{client.title}: {done['path']} {_WORDS[done['status']]}.")
    if done["backup"]:
        say(f"  It was changed by something else since. The file as it was: {done['backup']}")

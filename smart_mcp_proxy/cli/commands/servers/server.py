"""`mcpproxy server`: the configured servers, what they log, and changes to them."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.commands.servers.server_edit import add_edits
from smart_mcp_proxy.cli.commands.servers.server_login import add_login_commands
from smart_mcp_proxy.cli.support.access import open_api, open_at_rest
from smart_mcp_proxy.cli.support.api import open_running, read_servers
from smart_mcp_proxy.cli.support.output import clean, indent_lines, say, show, show_json
from smart_mcp_proxy.cli.support.render import servers_table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.servers import require_named

if TYPE_CHECKING:
    from smart_mcp_proxy.settings import Settings

_LEFT_ALONE = frozenset({ServerState.DISABLED, ServerState.QUARANTINED, ServerState.NEEDS_ENV})
"""States in which a server is not even tried."""

app = App(
    name="server",
    help_epilogue="""\
Examples:
  mcpproxy server list
  mcpproxy server add time -- uvx mcp-server-time
  mcpproxy server logs github -n 20""",
)

add_edits(app)
add_login_commands(app)


@app.command(name="list", help_epilogue="Examples:\n  mcpproxy server list --json")
async def list_servers(*, json: bool = False) -> None:
    """List the configured servers with state and number of tools.

    Args:
        json: Print a list of objects.
    """
    async with open_api(open_settings(), lists_refused=True) as api:
        servers = (await api.status())["servers"]
    if json:
        show_json(servers)
    else:
        show(servers_table(servers))


@app.command(name="logs", help_epilogue="Examples:\n  mcpproxy server logs github -n 200")
async def show_logs(
    name: str,
    /,
    *,
    lines: Annotated[int, Parameter(name=["--lines", "-n"], validator=Number(gte=1, lte=1000))] = 50,
    json: bool = False,
) -> None:
    """Show the last lines that a server wrote to stderr, or sent as log messages.

    Without a running gateway the server is started once for them, and stopped again.

    Args:
        name: Server name.
        lines: Number of lines, 1 to 1000 (50).
        json: Print {"server", "lines"}.
    """
    settings = open_settings()
    async with open_running(settings) as running:
        if running is None:
            found, told = await _of_one_start(settings, name, lines)
        else:
            found = await running.logs(name, lines)
            state = next(server for server in (await running.status())["servers"] if server["name"] == name)
            told = f"Server '{name}' ({state['state']}) has written nothing. {state['error']}" if not found else ""
    if json:
        show_json({"server": name, "lines": found})
    else:
        for line in found:
            show(clean(line))
    if told:
        say(indent_lines(clean(told)).rstrip())


async def _of_one_start(settings: "Settings", name: str, count: int) -> tuple[list[str], str]:
    """A server's last lines where no gateway runs, and where they come from."""
    # Here and not above: a running gateway answers before this is imported.
    from smart_mcp_proxy.cli.support.one_start import read_start_log

    servers = await read_servers(settings)
    require_named(name, servers)
    async with open_at_rest(settings) as api:
        listed = (await api.status())["servers"]
    mode = next(each["isolation"] for each in listed if each["name"] == name)
    found, status = await read_start_log(settings, servers[name], mode, count)
    if status.state in _LEFT_ALONE or servers[name].refusal is not None:
        return found, f"No gateway runs, and server '{name}' was not started: it is {status.state}. {status.error}"
    outcome = "It was ready, and is ended again." if status.state is ServerState.READY else status.error
    wrote = "" if found else " It has written nothing."
    told = f"No gateway runs, so server '{name}' was tried once for this, just now ({status.state}). {outcome}"
    return found, told + wrote

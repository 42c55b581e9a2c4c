"""`mcpproxy server`: the configured servers, what they log, and changes to them."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.commands.servers.server_change import start_once
from smart_mcp_proxy.cli.commands.servers.server_edit import add_edits
from smart_mcp_proxy.cli.commands.servers.server_login import add_login_commands
from smart_mcp_proxy.cli.support.access import open_api
from smart_mcp_proxy.cli.support.api import open_running
from smart_mcp_proxy.cli.support.output import clean, indent_lines, say, show, show_json
from smart_mcp_proxy.cli.support.render import servers_table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.models import ServerState

if TYPE_CHECKING:
    from smart_mcp_proxy.settings import Settings

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
    found, status, is_tried = await start_once(settings, name, count)
    if not is_tried:
        return found, f"No gateway runs, and server '{name}' was not started: it is {status.state}. {status.error}"
    outcome = "It was ready, and is ended again." if status.state is ServerState.READY else status.error
    wrote = "" if found else " It has written nothing."
    told = f"No gateway runs, so server '{name}' was tried once for this, just now ({status.state}). {outcome}"
    return found, told + wrote

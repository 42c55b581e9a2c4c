"""`mcpproxy server`: the configured servers, what they log, and changes to them."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.api import PENDING_STATES, open_api
from smart_mcp_proxy.cli.output import clean, say, show, show_json
from smart_mcp_proxy.cli.render import servers_table
from smart_mcp_proxy.cli.server_edit import add_edits
from smart_mcp_proxy.cli.server_login import add_sign_in
from smart_mcp_proxy.cli.start import open_settings

if TYPE_CHECKING:
    from smart_mcp_proxy.gateway import Gateway

__all__ = ["app"]

app = App(
    name="server",
    help="List servers, add and change them, read what they log.",
    help_epilogue="""\
Examples:
  mcpproxy server list
  mcpproxy server add time -- uvx mcp-server-time
  mcpproxy server logs github -n 20""",
)

add_edits(app)
add_sign_in(app)


@app.command(name="list", help_epilogue="Examples:\n  mcpproxy server list --json")
async def list_servers(*, json: bool = False) -> None:
    """List the configured servers with state and number of tools.

    Args:
        json: Print a list of objects.
    """
    async with open_api(open_settings()) as api:
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

    Args:
        name: Server name.
        lines: Number of lines, 1 to 1000 (50).
        json: Print {"server", "lines"}.
    """

    def has_answered(gateway: "Gateway") -> bool:
        upstream = gateway.fleet.get(name)
        return upstream is None or upstream.status.state not in PENDING_STATES

    async with open_api(open_settings(), only=name, is_enough=has_answered) as api:
        found = await api.logs(name, lines)
        state = next(server for server in (await api.status())["servers"] if server["name"] == name)
    if json:
        show_json({"server": name, "lines": found})
        return
    for line in found:
        show(clean(line))
    if not found:
        say(clean(f"Server '{name}' ({state['state']}) has written nothing. {state['error']}").rstrip())

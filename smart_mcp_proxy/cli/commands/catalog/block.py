"""`mcpproxy block`: keeps a tool from agents, whatever its definition becomes."""

from cyclopts import App

from smart_mcp_proxy.cli.support.access import open_api
from smart_mcp_proxy.cli.support.output import say, show_json
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.telemetry import printable

app = App(
    name="block",
    help_epilogue="""\
A blocked tool is not found, listed or called by any agent, also when its
definition changes. Lift it with --undo (what you approved before is approved
again), or approve the definition of today: mcpproxy approve SERVER:TOOL

Examples:
  mcpproxy block github:delete_repository
  mcpproxy block github:delete_repository --undo""",
)


@app.default
async def block(name: str, /, *, undo: bool = False, fresh: bool = False, json: bool = False) -> None:
    """Keep a tool from agents, whatever its definition becomes.

    Args:
        name: SERVER:TOOL, or the name under which it is listed.
        undo: Lift the block.
        fresh: Connect to the servers first instead of trusting the stored catalog.
        json: Print the tool's full name as an object.
    """
    async with open_api(open_settings(), is_stored_enough=lambda _: not fresh) as api:
        found = await (api.unblock(name) if undo else api.block(name))
    if json:
        show_json({"name": found, "is_blocked": not undo})
        return
    say(f"{'No longer blocked' if undo else 'Blocked'}: {printable(found)}")

"""`mcpproxy config`: the settings in force, and where the servers come from."""

from pathlib import Path

from cyclopts import App

from smart_mcp_proxy.cli.support.output import say, show, show_json, table
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.servers import find_config
from smart_mcp_proxy.settings import environment, origins

app = App(
    name="config",
    help_epilogue="""\
Examples:
  mcpproxy config show --origin
  mcpproxy config path""",
)


@app.command(name="show", help_epilogue="Examples:\n  mcpproxy config show --origin")
def show_settings(*, origin: bool = False, json: bool = False) -> None:
    """Show every setting with its value; secrets are hidden.

    Args:
        origin: Say where each value comes from, and what it is for.
        json: Print a list of objects.
    """
    found = origins(open_settings(), environment())
    if json:
        facts = ({"variable": one.setting.variable, "value": one.value, "origin": one.origin} for one in found)
        show_json([fact | {"help": one.setting.help} for fact, one in zip(facts, found, strict=True)])
    elif origin:
        rows = [[one.setting.variable, one.value, one.origin, one.setting.help] for one in found]
        show(table(["variable", "value", "from", "what it is for"], rows))
    else:
        show(table(["variable", "value"], [[one.setting.variable, one.value] for one in found]))


@app.command(name="path", help_epilogue='Examples:\n  cat "$(mcpproxy config path)"')
def show_path(*, json: bool = False) -> int:
    """Show the file that the servers come from; the exit status is 1 if there is none.

    Args:
        json: Print {"path"}; null if there is none.
    """
    settings = open_settings()
    path = find_config(settings, Path.cwd()) if settings.config_json is None else None
    if json:
        show_json({"path": None if path is None else str(path)})
    elif path is not None:
        show(str(path))
    elif settings.config_json is not None:
        say("The servers come from MCPPROXY_CONFIG_JSON, not from a file.")
    else:
        say(f"There is no server file. Write one at {settings.data_dir / 'mcp_config.json'},")
        say("or take over the servers that your MCP clients have:")
        say("Next: mcpproxy init")
    return 0 if path is not None else 1

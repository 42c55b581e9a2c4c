"""`mcpproxy ui`: a link that opens the page of a running gateway, once."""

import webbrowser
from typing import Any

from anyio import to_thread
from cyclopts import App

from smart_mcp_proxy.cli.support.api import open_each_running
from smart_mcp_proxy.cli.support.failure import next_step
from smart_mcp_proxy.cli.support.output import say, show, show_json
from smart_mcp_proxy.cli.support.start import has_desktop, open_settings
from smart_mcp_proxy.desktop.spelling import spell_command
from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.listening import describe_gateway, find_other_gateway

app = App(
    name="ui",
    help_epilogue="""\
The link lets one browser in, once, and ends after five minutes. The page has
your own rights, as this command line has.

Examples:
  mcpproxy ui
  mcpproxy ui --print-url""",
)


@app.default
async def ui(*, print_url: bool = False, json: bool = False) -> None:
    """Open the page on which you see and decide what the gateway does.

    Args:
        print_url: Print the link instead of opening it.
        json: Print {"url", "expires_in_s"} instead of opening it.
    """
    with next_step("mcpproxy serve --http"):
        link = await _link(open_settings())
    if json:
        show_json(link)
    elif print_url or not has_desktop() or not await to_thread.run_sync(webbrowser.open, link["url"]):
        show(link["url"])
        say(f"It works once, in the next {link['expires_in_s'] / 60:.0f} minutes.", style="dim")
    else:
        say("Opened in your browser. If nothing came up: mcpproxy ui --print-url")


async def _link(settings: Settings) -> dict[str, Any]:
    """A link to the newest gateway that serves HTTP.

    Raises:
        ProxyError: None does.
    """
    problem = ProxyError(f"No gateway runs on {settings.data_dir}.", hint="Start one.", code="page_not_served")
    if holder := find_other_gateway(settings.port, settings.data_dir):
        problem = ProxyError(
            f"{problem.message} Port {settings.port} is taken. {describe_gateway(holder)}", code="page_not_served"
        )
        problem.add_note(spell_command("ui", data_dir=holder.data_dir))
    async with open_each_running(settings) as gateways:
        for api in gateways:
            try:
                return await api.page_link()
            except ProxyError as error:
                if error.error_code != "page_not_served":
                    raise
                problem = error
    raise problem

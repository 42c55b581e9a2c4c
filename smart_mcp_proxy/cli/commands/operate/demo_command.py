"""`mcpproxy demo`: a first look, with the bundled servers and without a trace left behind."""

import shlex
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from json import dumps
from typing import TYPE_CHECKING, Any

from cyclopts import App

from smart_mcp_proxy.cli.commands.catalog.call import result_lines
from smart_mcp_proxy.cli.support.api import Api, read_servers
from smart_mcp_proxy.cli.support.arguments import parse_pairs
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.output import plural, say, show, show_json
from smart_mcp_proxy.cli.support.render import hits_table, search_remarks, servers_table, tokens_line
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.demo import DEMO_NAMES, demo_servers

if TYPE_CHECKING:
    from smart_mcp_proxy.settings import Settings

app = App(
    name="demo",
    help_epilogue="""\
Nothing is kept: the catalog is in a temporary folder.

Examples:
  mcpproxy demo
  mcpproxy demo "which tool mixes two colors"
  mcpproxy demo --serve""",
)

_SEARCHES = ("add a task to my to-do list", "how many days between two dates")
_CALL = 'todo:add_task title="Try mcpproxy with my own servers" priority=high'


@app.default
async def demo(query: str | None = None, /, *, serve: bool = False, json: bool = False) -> int:
    """Try a search on bundled sample servers, without network or configuration.

    Args:
        query: What a tool should do, in words; without it, a short tour.
        serve: Serve the sample servers over HTTP instead, for a client of yours.
        json: Print the answer to the query, or the servers without one, as JSON.
    """
    if serve and query is not None:
        raise UsageError("A query and --serve do not go together.", hint="Leave one of them out.")
    with tempfile.TemporaryDirectory(prefix="mcpproxy-demo-") as folder:
        flags: dict[str, Any] = {
            "data_dir": folder,
            "config_json": dumps({"mcpServers": demo_servers()}),
            "transport": "streamable-http",
        }
        if serve:
            from smart_mcp_proxy.cli.commands.operate.serve import serve_settings

            return await serve_settings(open_settings(is_serving=True, log_level="WARNING", **flags), as_json=json)
        settings = open_settings(**flags)
        if query is None and not json:
            say(f"Starting {len(DEMO_NAMES)} small MCP servers that come with mcpproxy ...")
        async with _open_demo_api(settings) as api:
            if json:
                show_json(await (api.status() if query is None else api.search(query, explain=True)))
            else:
                await (_tour(api) if query is None else _answer(api, query))
    return 0


@asynccontextmanager
async def _open_demo_api(settings: "Settings") -> AsyncIterator[Api]:
    # Here and not above: importing the gateway takes a second, and the command line is parsed before it.
    from smart_mcp_proxy.cli.support.local_gateway import open_own

    servers = await read_servers(settings)
    async with open_own(settings, servers, is_stored_enough=lambda _: False, is_enough=lambda _: False) as api:
        yield api


async def _answer(api: Api, query: str) -> None:
    answer = await api.search(query, explain=True)
    if answer["tools"]:
        show(hits_table(answer, is_explained=True))
    for remark in search_remarks(answer, is_stored=False):
        say(remark)
    say(tokens_line(answer))


async def _tour(api: Api) -> None:
    status = await api.status()
    show(servers_table(status["servers"]))
    tools, tokens = plural(status["tools"], "tool"), f"{status['catalog_tokens']:,}"
    show(f"\nListing all {tools} would cost an agent about {tokens} tokens, each time it starts. It searches instead:")
    for query in _SEARCHES:
        show(f'\n$ mcpproxy search "{query}" --why')
        await _answer(api, query)
    name, *arguments = shlex.split(_CALL)
    show(f"\nWhat was found can be called, through the same gateway:\n\n$ mcpproxy call {_CALL}")
    for line in result_lines(await api.call(name, parse_pairs(arguments))):
        show(line)
    show('\nNext: mcpproxy demo "in your own words"   search these servers')
    show("      mcpproxy demo --serve               connect your own client to them")
    show("      mcpproxy serve --http               serve your own servers, from ./mcp_config.json")

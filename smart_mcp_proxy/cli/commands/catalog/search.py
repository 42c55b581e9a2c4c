"""`mcpproxy search`: what an agent would find."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.support.access import open_api
from smart_mcp_proxy.cli.support.output import say, show, show_json
from smart_mcp_proxy.cli.support.render import hits_table, search_remarks, tokens_line
from smart_mcp_proxy.cli.support.start import open_settings

if TYPE_CHECKING:
    from smart_mcp_proxy.gateway import Gateway

__all__ = ["app", "has_tools"]

app = App(
    name="search",
    help_epilogue="""\
A running gateway of the same data directory answers. Without one the stored
catalog does, and if that is empty the servers are connected first.

Examples:
  mcpproxy search "create an issue"
  mcpproxy search "read a file" --limit 3 --why
  mcpproxy search "send a message" --server slack --server mail --json""",
)


def has_tools(gateway: "Gateway") -> bool:
    """Whether the stored catalog has anything to say."""
    return bool(gateway.visible.records())


@app.default
async def search(
    query: str,
    /,
    *,
    limit: Annotated[int | None, Parameter(validator=Number(gte=1, lte=50))] = None,
    server: tuple[str, ...] = (),
    detail: Literal["compact", "full"] = "compact",
    why: bool = False,
    fresh: bool = False,
    json: bool = False,
) -> None:
    """Find tools by what they do.

    Args:
        query: What the tool should do, in words, or its name.
        limit: Number of tools, 1 to 50 (MCPPROXY_TOP_K).
        server: Only tools of this server; may be repeated.
        detail: With --json: signatures and first sentences, or whole definitions.
        why: Say what matched.
        fresh: Connect to the servers first instead of trusting the stored catalog.
        json: Print the answer as an agent gets it.
    """
    stored_will_do = (lambda _: False) if fresh else has_tools
    async with open_api(open_settings(), is_stored_enough=stored_will_do) as api:
        answer = await api.search(query, limit=limit, detail=detail, servers=server, explain=why)
    if json:
        show_json(answer)
        return
    if answer["tools"]:
        show(hits_table(answer, is_explained=why))
    for remark in search_remarks(answer, is_stored=api.origin == "stored"):
        say(remark)
    say(tokens_line(answer))

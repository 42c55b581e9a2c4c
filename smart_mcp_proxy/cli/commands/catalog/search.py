"""`mcpproxy search`: what an agent would find."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from cyclopts import App, Parameter
from cyclopts.validators import Number

from smart_mcp_proxy.cli.support.access import open_api
from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.output import say, show, show_json, table
from smart_mcp_proxy.cli.support.render import (
    build_standing_rows,
    build_waiting_remarks,
    hits_table,
    search_remarks,
    tabulate_all_hits,
    tokens_line,
)
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.models import ItemKind
from smart_mcp_proxy.telemetry import printable

if TYPE_CHECKING:
    from smart_mcp_proxy.gateway import Gateway


@dataclass(frozen=True, slots=True)
class View:
    """Whose view of the tools is asked for, and what is explained of it.

    Attributes:
        profile: As an agent of this profile of the server file.
        why: Say what matched.
        why_not: Say instead where this tool stands (SERVER:TOOL or its listed name), and what keeps it out.
    """

    profile: str | None = None
    why: bool = False
    why_not: str | None = None


WHOLE_VIEW = View()

app = App(
    name="search",
    help_epilogue="""\
A running gateway of the same data directory answers. Without one the stored
catalog does, and if that is empty the servers are connected first.

--why-not NAME says what keeps a tool from the answer: the first of the server
file, a profile, an approval, --server, and the steps of the search:
  no_match    nothing of the query is in it
  floor       nothing fits: the best tool's fitness is below the lower floor
  cut         it scores less than 0.7 of the best tool
  clone       a tool above it says the same
  server_cap  5 tools of its server are above it
  stand_in    it is destructive, and a tool that waits for approval is above it
  limit       it fits, but others do better; with a higher --limit it comes in
  size        the answer has no room for it

Examples:
  mcpproxy search "create an issue"
  mcpproxy search "read a file" --limit 3 --why
  mcpproxy search "create an issue" --why-not github:create_issue
  mcpproxy search "review a change" --types prompt,resource
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
    types: str = "",
    detail: Literal["compact", "full"] = "compact",
    view: Annotated[View, Parameter(name="*")] = WHOLE_VIEW,
    fresh: bool = False,
    json: bool = False,
) -> None:
    """Find tools by what they do.

    Args:
        query: What the tool should do, in words, or its name.
        limit: Number of tools, 1 to 50 (MCPPROXY_TOP_K).
        server: Only tools of this server; may be repeated.
        types: What to find, separated by commas: tool, prompt, resource, resource_template (tools).
        detail: With --json: signatures and first sentences, or whole definitions.
        view: The eyes to see with, and what to say of it.
        fresh: Connect to the servers first instead of trusting the stored catalog.
        json: Print the answer as an agent gets it, or where the tool stands.
    """
    asked = _types(types)
    stored_will_do = (lambda _: False) if fresh else has_tools
    async with open_api(open_settings(), is_stored_enough=stored_will_do) as api:
        answer = await api.search(
            query,
            limit=limit,
            detail=detail,
            servers=server,
            profile=view.profile,
            explain=view.why,
            types=asked,
            why_not=view.why_not,
        )
    if json:
        show_json(answer)
        return
    if view.why_not is not None:
        show(f"{printable(answer['name'])}: {answer['verdict']}. {answer['reason']}")
        if rows := build_standing_rows(answer):
            show(table(["figure", "value"], rows))
        return
    for remark in build_waiting_remarks(answer):
        say(remark, style="yellow")
    if answer.get("found"):
        show(tabulate_all_hits(answer, is_explained=view.why))
    elif answer["tools"] and "found" not in answer:
        show(hits_table(answer, is_explained=view.why))
    for remark in search_remarks(answer, is_stored=api.origin == "stored"):
        say(remark)
    say(tokens_line(answer))


def _types(text: str) -> list[str]:
    """The types named in a text.

    Raises:
        UsageError: One of them is none.
    """
    named = [part.strip() for part in text.split(",") if part.strip()]
    if unknown := [name for name in named if name not in get_args(ItemKind)]:
        raise UsageError(f"--types names {unknown[0][:40]!r}.", hint=f"Known: {', '.join(get_args(ItemKind))}.")
    return named

"""`mcpproxy eval`: how good the answers are, on queries whose right tools are known."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from smart_mcp_proxy.cli.support.failure import UsageError
from smart_mcp_proxy.cli.support.start import open_settings
from smart_mcp_proxy.plugins import EMBEDDERS_GROUP, is_plugin
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.settings.choices import list_choices


@dataclass(frozen=True, slots=True)
class Sources:
    """Parts of the files, by where their lines come from.

    Attributes:
        source: Only queries of this source; may be repeated.
        only_source: Search only tools of this source; may be repeated.
        without_source: Leave out the tools of this source; may be repeated.
    """

    source: tuple[str, ...] = ()
    only_source: tuple[str, ...] = ()
    without_source: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Systems:
    """Ways to rank.

    Attributes:
        embedder: AUTO, BM25, RANK_BM25, HF, OPENAI or HYBRID (MCPPROXY_EMBEDDER).
        compare: Several of them, as in BM25,HYBRID: what each gains over the first.
    """

    embedder: str | None = None
    compare: str | None = None

    def names(self) -> tuple[str, ...]:
        """The systems that are named; none for the one of the settings."""
        if self.embedder and self.compare:
            raise UsageError("--embedder and --compare are both given.", hint="Name all systems in --compare.")
        if self.compare:
            return _names(self.compare)
        return (_system("--embedder", self.embedder),) if self.embedder else ()


ALL_SOURCES = Sources()
OWN_SYSTEM = Systems()

app = App(
    name="eval",
    help_epilogue="""\
QUERIES has one JSON object a line; "gold" lists the right tools:
  {"id": "q1", "query": "report a bug", "gold": ["github:create_issue"]}
  {"id": "q2", "query": "book a flight", "gold": []}
No gold means that nothing fits. Optional: "alt" {right tool: [equally right
ones]}; "source" and "style", by which the figures are averaged; "server"
instead of "gold" where any tool of one server is right.
TOOLS has "server", "name", "description", "input_schema" a line, and
optionally "source".

Measured is what an agent gets: at most 5 tools, 10 for recall@10 and MRR, and
those in "more" as well for "named", the recall of all that an answer names.
Where tools and queries carry sources, the queries of each are also asked
where their right tools are not. "empty" and "low" are the shares that were
answered with nothing, which is right there, and with low confidence.

--replay needs no QUERIES: it asks what agents asked, as the activity log has it
(secrets masked, cut to 500 characters, each query once, without the filters and
limit of that time), of the present setting and of the one in --embedder, or of
those in --compare. It shows which tools come, go and move. Right is a tool that
a search had found and the same session called within ten minutes, with success;
such a tool was shown then, so its recall favours the setting of that time.
QUERIES says better what is right, for logged queries with the same text.

Examples:
  mcpproxy eval --replay --embedder HYBRID
  mcpproxy eval queries.jsonl
  mcpproxy eval queries.jsonl --tools tools.jsonl --compare BM25,HYBRID
  mcpproxy eval queries.jsonl --tools tools.jsonl --only-source acme
  mcpproxy eval queries.jsonl --rankings rankings.jsonl --json > figures.json""",
)


@app.default
async def evaluate(
    queries: Path | None = None,
    /,
    *,
    tools: Path | None = None,
    systems: Annotated[Systems, Parameter(name="*")] = OWN_SYSTEM,
    replay: bool = False,
    sources: Annotated[Sources, Parameter(name="*")] = ALL_SOURCES,
    rankings: Path | None = None,
    raw: bool = False,
    json: bool = False,
) -> None:
    """Measure how good the answers are.

    Args:
        queries: Queries with their right tools; with --replay, right tools of logged queries.
        tools: Search these instead of the tools in the data directory.
        systems: What ranks.
        replay: Ask the queries of the activity log instead, and show how the answers of another system differ.
        sources: What is left of both files.
        rankings: Write what was found for each query to this file.
        raw: Measure the engine alone: no exact names first, no floor, no cut.
        json: Print the figures as one object.
    """
    names = systems.names()
    if queries is None and not replay:
        raise UsageError("QUERIES is missing.", hint="Name a file of queries, or ask those of the log with --replay.")
    settings = open_settings()
    # Here and not above: a mistyped option is answered without waiting for the gateway.
    from smart_mcp_proxy.cli.commands.catalog.eval_command import Choice, measure

    await measure(
        Choice(
            queries=queries,
            tools=tools,
            systems=names,
            query_sources=frozenset(sources.source),
            only_sources=frozenset(sources.only_source),
            without_sources=frozenset(sources.without_source),
            rankings=rankings,
            is_raw=raw,
            is_replay=replay,
        ),
        settings,
        as_json=json,
    )


def _names(text: str) -> tuple[str, ...]:
    """The systems of a comma-separated list, at least two."""
    names = tuple(dict.fromkeys(_system("--compare", name) for name in text.split(",") if name.strip()))
    if len(names) < 2:
        raise UsageError(f"--compare is {text!r}.", hint="Name at least two, as in BM25,HYBRID.")
    return names


def _system(option: str, text: str) -> str:
    """The name of a system: one of MCPPROXY_EMBEDDER's values, or the other engine that ranks by words."""
    known = (*list_choices(Settings.model_fields["embedder"]), "RANK_BM25")
    name = next((each for each in known if each == text.strip().upper()), text.strip())
    if name not in known and not is_plugin(EMBEDDERS_GROUP, name):
        raise UsageError(f"{option} names {name!r}.", hint=f"Known: {', '.join(known)}.")
    return name

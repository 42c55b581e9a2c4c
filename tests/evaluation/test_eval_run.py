"""Asking the queries of an evaluation, and what is made of the answers."""

from collections.abc import Set
from dataclasses import replace

import pytest

from smart_mcp_proxy.evaluation import (
    EvaluationRun,
    LabelledQuery,
    LabelledTool,
    OnStep,
    System,
    ToolCorpus,
    compare,
    pool_of_tools,
    run_queries,
    run_unanswerable,
    summarize,
)
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

BM25 = System("BM25", Settings())


def tool(server: str, name: str, description: str, source: str = "", **definition: object) -> LabelledTool:
    """A tool as a file describes it."""
    whole = {"name": name, "description": description, "inputSchema": {"type": "object"}, **definition}
    return LabelledTool(ToolKey(server, name), whole, source)


def query(text: str, *gold: str, **members: str) -> LabelledQuery:
    """A query with its right tools."""
    return LabelledQuery(text, text, tuple(frozenset({name}) for name in gold), **members)


def pool(*tools: LabelledTool) -> ToolCorpus:
    """A catalog of these tools."""
    return pool_of_tools(tools, 60)


def silent(label: str, done: int, total: int) -> None:
    """Nobody looks."""


TOOLS = (
    tool("github", "create_issue", "Create an issue in a repository", "code"),
    tool("github", "merge_pull_request", "Merge a pull request", "code"),
    tool("maps", "geocode", "Convert an address into coordinates", "places"),
    tool("maps", "weather", "Forecast of the weather in a city", "places"),
)


async def test_a_query_gets_what_an_agent_would_get() -> None:
    """The answer of the same search with at most 5 tools, its size and the time it took."""
    many = [tool("files", f"copy_{word}", f"Copy {word} {word}s to a folder") for word in "abcdefgh"]
    others = [tool(f"s{place}", f"move_{word}", f"Copy or move {word}") for place, word in enumerate("ijklmn")]
    tools = pool(*many, *others)
    asked = query("copy something to a folder", "files:copy_a")
    index = SearchIndex((await BM25.build(tools)).engine)
    index.update(tools.documents())
    name = {record.id: str(record.key) for record in tools.records}
    (outcome,) = (await run_queries(BM25, [asked], tools, silent)).outcomes
    expected = index.search(asked.text, limit=5), index.search(asked.text, limit=10)
    assert [name[hit.id] for hit in expected[0].hits] == list(outcome.shown)
    assert [name[hit.id] for hit in expected[1].hits] == list(outcome.ranked)
    assert [hit.score for hit in expected[1].hits] == list(outcome.scores)
    assert outcome.latency_ms > 0


async def test_tokens_count_what_is_sent() -> None:
    """A long parameter list makes an answer dearer; an answer with nothing is cheap."""
    schema = {"type": "object", "properties": {f"parameter_{number}": {"type": "string"} for number in range(40)}}
    rich = tool("github", "create_issue", "Create an issue in a repository", inputSchema=schema)
    asked = [query("create an issue", "github:create_issue"), query("bake bread")]
    plain, nothing = (await run_queries(BM25, asked, pool(*TOOLS), silent)).outcomes
    dear, _ = (await run_queries(BM25, asked, pool(rich, *TOOLS[1:]), silent)).outcomes
    assert nothing.shown == ()
    assert nothing.tokens < 20 < plain.tokens < dear.tokens - 150


async def test_raw_is_the_engine_without_a_floor() -> None:
    """A word in common is enough for the engine; an answer leaves out what is far below the best."""
    asked = [query("create a new issue in the repository of the city", "github:create_issue")]
    (product,) = (await run_queries(BM25, asked, pool(*TOOLS), silent)).outcomes
    (raw,) = (await run_queries(BM25, asked, pool(*TOOLS), silent, is_raw=True)).outcomes
    assert product.shown == ("github:create_issue",)
    assert raw.shown == ("github:create_issue", "maps:weather")


async def test_queries_are_asked_where_their_right_tools_are_not() -> None:
    """For each source of queries and tools: all other tools, and those of each other such source."""
    extra = tool("demo", "make_issue", "Create an issue in a tracker", "elsewhere")
    asked = [
        query("create an issue in a repository", "github:create_issue", source="code"),
        query("merge a pull request", "github:merge_pull_request", source="code"),
        query("weather forecast", "maps:weather", source="places"),
        query("anything", source="unheard of"),
    ]
    rows = await run_unanswerable(BM25, asked, pool(*TOOLS, extra), silent)
    assert [tuple(row) for row in rows] == [
        ("code", "without code", 3, 2, 0.5, 0.0),
        ("places", "without places", 3, 1, 1.0, 0.0),
        ("code", "only places", 2, 2, 1.0, 0.0),
        ("places", "only code", 2, 1, 1.0, 0.0),
    ]


async def test_where_all_tools_have_one_source_nothing_is_asked_without_it() -> None:
    """No tools can answer nothing, and vectors of none have no dimension."""
    asked = [query("merge a pull request", "github:merge_pull_request", source="code")]
    assert await run_unanswerable(BM25, asked, pool(*TOOLS[:2]), silent) == ()


async def test_progress_is_told_up_to_the_end() -> None:
    """The last step is the whole."""
    steps: list[tuple[str, int, int]] = []
    await run_queries(BM25, [query(f"{word} issue") for word in "abcdefghijklmnopqrst"], pool(*TOOLS), _into(steps))
    assert steps == [("Asking BM25", 16, 20), ("Asking BM25", 20, 20)]


def _into(steps: list[tuple[str, int, int]]) -> OnStep:
    return lambda label, done, total: steps.append((label, done, total))


async def test_figures_are_kept_apart_by_what_is_right() -> None:
    """Tools, any tool of a server, nothing: each kind of query has its own figures."""
    asked = [
        query("create an issue", "github:create_issue", source="a", style="terse"),
        query("merge a pull request", "maps:weather", source="a", style="terse"),
        query("merge pull request", "github:merge_pull_request", source="b", style="long"),
        LabelledQuery("s", "convert an address", server="maps"),
        LabelledQuery("t", "convert an address into coordinates", server="github"),
        query("bake bread"),
    ]
    summary = summarize(await run_queries(BM25, asked, pool(*TOOLS), silent))
    assert summary.overall is not None
    assert (summary.overall.queries, summary.overall.values["recall@5"]) == (3, 0.75)
    assert summary.styles["terse"].values["recall@1"] == 0.5
    assert summary.strata["b", "long"].values["MRR"] == 1.0
    assert summary.servers is not None
    assert summary.servers.values == {"hit@1": 0.5, "hit@5": 0.5, "empty": 0.0}
    assert summary.unanswerable == (1, {"empty": 1.0, "low": 0.0})
    assert 0 < summary.p50_ms <= summary.p95_ms


async def test_a_difference_is_what_the_second_system_gains() -> None:
    """Of two queries one is lost when a tool is missing."""
    asked = [query("create an issue", "github:create_issue"), query("weather in a city", "maps:weather")]
    all_tools = await run_queries(BM25, asked, pool(*TOOLS), silent)
    fewer = replace(await run_queries(BM25, asked, pool(*TOOLS[1:]), silent), system="less")
    recall, ndcg = compare(all_tools, fewer)
    assert (recall.measure, recall.system, recall.baseline, recall.interval.mean) == ("recall@5", "less", "BM25", -0.5)
    assert (recall.interval.low, recall.interval.high) == (-1.0, 0.0)
    assert ndcg.interval.mean == -0.5
    assert compare(EvaluationRun("a", ()), EvaluationRun("b", ())) == ()


def test_a_pool_holds_tools_as_a_catalog_does() -> None:
    """Unique listed names, the definition in the order it was sent, digests, hints and documents."""
    hints = {"readOnlyHint": True, "title": "x"}
    made = pool(tool("a", "b__c", "", annotations=hints), tool("a__b", "c", "Does it", "src"))
    first, second = made.records
    assert first.listed_name != second.listed_name
    assert first.annotations == {"readOnlyHint": True}
    assert second.raw == b'{"name":"c","description":"Does it","inputSchema":{"type":"object"}}'
    assert second.digest.startswith("sha256:")
    assert [document.description for document in made.documents()] == ["", "Does it"]
    assert made.sources == {"src"}


@pytest.mark.parametrize(
    ("only", "without", "left"),
    [({"code"}, set(), 2), (set(), {"code"}, 2), ({"code", "places"}, {"places"}, 2), ({"x"}, set(), 0)],
)
def test_a_pool_can_be_cut_by_source(only: Set[str], without: Set[str], left: int) -> None:
    """Only some sources, or all but some."""
    made = pool(*TOOLS)
    made = made.only(only) if only else made
    assert len(made.without(without).records) == left


async def test_answers_of_low_confidence_are_counted_apart_from_empty_ones() -> None:
    """Each query once, whatever its style, and as a mean of its styles' means; also where no tool is right."""
    asked = [
        query("create an issue in a repository", "github:create_issue", source="code", style="a"),
        query("merge a pull request", "github:merge_pull_request", source="code", style="a"),
        query("create something for the kitchen", "github:create_issue", source="code", style="b"),
        query("create something for the garden"),
    ]
    run = await run_queries(BM25, asked, pool(*TOOLS), silent)
    assert [outcome.is_unsure for outcome in run.outcomes] == [False, False, True, True]
    summary = summarize(run)
    assert summary.shares == pytest.approx({"empty": 0, "low": 1 / 3})
    assert summary.overall is not None
    assert summary.overall.values["low"] == 0.5
    assert summary.unanswerable == (1, {"empty": 0.0, "low": 1.0})
    foreign = [query("create something for the kitchen", "maps:weather", source="places")]
    (row,) = await run_unanswerable(BM25, foreign, pool(*TOOLS), silent)
    assert (row.pool, row.empty, row.low) == ("without places", 0.0, 1.0)

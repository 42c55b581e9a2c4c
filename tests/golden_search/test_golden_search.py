"""The golden set: real tools and queries written for them, and how much of it search must find.

Bounds are what was measured less one or two queries of the style (0.03 to 0.09), so that a change that loses several
fails, and one that trades one for another does not. Raise them when search gets better.
"""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.evaluation import (
    LabelledQuery,
    Summary,
    System,
    ToolCorpus,
    pool_of_tools,
    prepare_vectors,
    read_queries,
    read_tools,
    run_queries,
    summarize,
)
from smart_mcp_proxy.search.embedders import open_embedder
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
NAME_LIMIT = 60

LEXICAL = {"exact": 1.0, "terse": 0.94, "paraphrase": 0.41, "step": 0.91, "task": 0.60, "typo": 0.80, "cjk": 0.75}
LEXICAL_EMPTY = 0.47
"""Least recall@5 by style, and least share of unanswerable queries that get an empty answer: words alone. The floor is
set where it costs answerable queries next to nothing; what is between it and the upper one is said to be uncertain."""
HYBRID = {"exact": 1.0, "terse": 0.97, "paraphrase": 0.62, "step": 0.91, "task": 0.62, "typo": 0.93, "cjk": 0.83}
HYBRID_EMPTY = 0.60
"""The same with MiniLM."""
P50_MS = 10.0
"""Far above the 0.4 ms that were measured: this finds a search that became another kind of work, not a slow machine."""


@cache
def golden_pool() -> ToolCorpus:
    """The tools."""
    return pool_of_tools(read_tools(HERE / "tools.jsonl"), NAME_LIMIT)


@cache
def golden_queries() -> list[LabelledQuery]:
    """The queries."""
    return read_queries(HERE / "queries.jsonl")


def silent(label: str, done: int, total: int) -> None:
    """Nobody looks."""


def lost(summary: Summary, least: Mapping[str, float]) -> dict[str, float]:
    """The styles that are below their bound, with their recall@5."""
    found = {style: round(figures.values["recall@5"], 3) for style, figures in summary.styles.items()}
    assert found.keys() == least.keys()
    return {style: recall for style, recall in found.items() if recall < least[style]}


def share_of_empty(summary: Summary) -> float:
    """How many of the queries that nothing answers were answered with nothing."""
    assert summary.unanswerable is not None
    return summary.unanswerable.values["empty"]


def test_every_right_tool_exists() -> None:
    """Labels name tools of the set, and each style has enough queries to say something."""
    names = golden_pool().names()
    strangers = {name for query in golden_queries() for right in query.gold for name in right} - names
    assert not strangers
    assert len(golden_queries()) >= 200
    assert sum(query.is_unanswerable for query in golden_queries()) >= 40


def test_the_readme_names_every_server_with_its_version_and_licence() -> None:
    """Every server of the set has its row, and its licence lets its texts be passed on."""
    table = [line for line in (HERE / "README.md").read_text("utf-8").splitlines() if line.count("|") == 6]
    rows = {cells[1]: cells[2:] for line in table if (cells := [cell.strip() for cell in line.split("|")])}
    for server in golden_pool().servers():
        _, version, licence, tools, _ = rows[server]
        assert version
        assert licence in {"MIT", "Apache-2.0", "MIT and Apache-2.0"}
        assert int(tools) == sum(record.key.server == server for record in golden_pool().records)


@pytest.mark.long  # a third of a second of processor time
async def test_words_alone_find_what_they_can() -> None:
    """The default engine, without any model."""
    summary = summarize(await run_queries(System("BM25", Settings()), golden_queries(), golden_pool(), silent))
    assert lost(summary, LEXICAL) == {}
    assert share_of_empty(summary) >= LEXICAL_EMPTY


@pytest.mark.long
async def test_words_alone_answer_at_once() -> None:
    """The default engine, in the middle of all queries."""
    summary = summarize(await run_queries(System("BM25", Settings()), golden_queries(), golden_pool(), silent))
    assert summary.p50_ms < P50_MS


@pytest.mark.long
async def test_words_and_meaning_find_more(tmp_path: Path) -> None:
    """HYBRID with the real encoder, without torch."""
    settings = Settings(embedder="HYBRID")
    embedder = open_embedder(settings, os.environ)
    async with Catalog.open(tmp_path, name_limit=NAME_LIMIT) as catalog:
        vectors = await prepare_vectors(catalog, embedder, golden_pool(), silent)
    system = System("HYBRID", settings, embedder, vectors)
    summary = summarize(await run_queries(system, golden_queries(), golden_pool(), silent))
    assert lost(summary, HYBRID) == {}
    assert share_of_empty(summary) >= HYBRID_EMPTY
    assert summary.problems == ()

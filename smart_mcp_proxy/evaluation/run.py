"""Asks every query of an evaluation, the way an agent would, and keeps what came back."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from anyio import to_thread

from smart_mcp_proxy.evaluation.files import LabelledQuery
from smart_mcp_proxy.evaluation.pool import ToolCorpus
from smart_mcp_proxy.evaluation.systems import OnStep, System
from smart_mcp_proxy.gateway.retrieval.retrieval import estimate_tokens
from smart_mcp_proxy.gateway.retrieval.summaries import LEADING, build_brief_words, build_compact_entry, build_more
from smart_mcp_proxy.models import Hit, ToolRecord
from smart_mcp_proxy.search import SearchIndex, SearchResult

SHOWN_LIMIT = 5
"""Tools that an agent is sent unless it asks for more (the default of MCPPROXY_TOP_K)."""
DEEP_LIMIT = 10
"""The longest list that is measured, for recall@10 and the reciprocal rank."""
_TOGETHER = 16
"""Queries between two looks at the keyboard, a fraction of a second."""

Search = Callable[[str, int], SearchResult]
"""The answer to a query with at most so many tools."""


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of one query.

    Attributes:
        query: The query.
        shown: Names of the tools in the answer that an agent would get, best first, at most 5.
        named: Those, and the ones that stand behind them in `more`.
        ranked: Names in an answer of at most 10 tools.
        scores: Their scores in [0, 1].
        tokens: Estimated tokens of `named` as a compact answer.
        latency_ms: What the search for `shown` took.
        is_unsure: Whether that answer is one of low confidence; an empty one is not.
    """

    query: LabelledQuery
    shown: tuple[str, ...]
    named: tuple[str, ...]
    ranked: tuple[str, ...]
    scores: tuple[float, ...]
    tokens: int
    latency_ms: float
    is_unsure: bool = False


class NothingFits(NamedTuple):
    """Queries asked where no tool can be right, and shares of empty and of unsure answers."""

    source: str
    pool: str
    tools: int
    queries: int
    empty: float
    low: float


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """Everything that one system answered.

    Attributes:
        system: Its name.
        outcomes: One for each query, in their order.
        nothing_fits: Sets of queries that have no right tool, made of sources.
        problems: Why the system ranked worse than it should.
    """

    system: str
    outcomes: tuple[Outcome, ...]
    nothing_fits: tuple[NothingFits, ...] = ()
    problems: tuple[str, ...] = ()


async def run_queries(
    system: System, queries: Sequence[LabelledQuery], pool: ToolCorpus, on_step: OnStep, *, is_raw: bool = False
) -> EvaluationRun:
    """Asks `queries` of a pool.

    Each query is searched for twice: once as an agent does, which is timed, and once for ten tools. The second list
    need not begin with the first: what an answer leaves out depends on its length.

    Args:
        system: Ranks.
        queries: At least one.
        pool: Where the right tools are.
        on_step: Told of progress.
        is_raw: Whether to take the engine's ranking as it is: no exact names, no floor, no cut, no room for others.

    Raises:
        EmbeddingError: The embedder failed where vectors alone rank.
    """
    filled = await system.build(pool)
    total = len(pool.records)

    def rank(text: str, limit: int) -> SearchResult:
        hits = tuple(filled.engine.rank(text, limit, None))
        return SearchResult(hits, total=total, degraded=(problem,) if (problem := filled.engine.problem) else ())

    def search(text: str, limit: int) -> SearchResult:
        return filled.index.search(text, limit=limit)

    asked = rank if is_raw else search
    by_id = {record.id: record for record in pool.records}

    def answer_all(chunk: Sequence[LabelledQuery]) -> list[tuple[Outcome, SearchResult]]:
        return [_outcome(query, asked, by_id) for query in chunk]

    outcomes: list[Outcome] = []
    problems: dict[str, None] = {}
    for chunk in _chunks(queries):
        answered = await to_thread.run_sync(answer_all, chunk)
        for outcome, answer in answered:
            outcomes.append(outcome)
            problems |= dict.fromkeys(answer.degraded)
        on_step(f"Asking {system.name}", len(outcomes), len(queries))
    return EvaluationRun(system.name, tuple(outcomes), problems=tuple(problems))


async def run_unanswerable(
    system: System, queries: Sequence[LabelledQuery], pool: ToolCorpus, on_step: OnStep
) -> tuple[NothingFits, ...]:
    """Asks queries of tools that cannot answer them.

    The queries of every source are asked of all tools but its own, and of those of each other source alone.
    """
    sources = sorted({query.source for query in queries} & pool.sources)
    plan = [(source, f"without {source}", pool.without({source})) for source in sources]
    plan += [
        (source, f"only {other}", pool.only({other})) for source in sources for other in sources if other != source
    ]
    found = []
    for source, label, tools in plan:
        if not tools.records:  # all tools come from one source
            continue
        asked = [query for query in queries if query.source == source]
        index = (await system.build(tools)).index

        def answer_all(chunk: Sequence[LabelledQuery], index: SearchIndex = index) -> list[SearchResult]:
            return [index.search(query.text, limit=SHOWN_LIMIT) for query in chunk]

        answers: list[SearchResult] = []
        for chunk in _chunks(asked):
            answers += await to_thread.run_sync(answer_all, chunk)
            on_step(f"Asking {system.name} of tools {label}", len(answers), len(asked))
        empty, low = sum(not answer.hits for answer in answers), sum(map(_is_unsure, answers))
        found.append(NothingFits(source, label, len(tools.records), len(asked), empty / len(asked), low / len(asked)))
    return tuple(found)


def _outcome(query: LabelledQuery, asked: Search, by_id: Mapping[int, ToolRecord]) -> tuple[Outcome, SearchResult]:
    started = time.perf_counter()
    shown = asked(query.text, SHOWN_LIMIT)
    latency_ms = (time.perf_counter() - started) * 1000
    deep = asked(query.text, DEEP_LIMIT)
    names, more = _names(shown.hits, by_id), build_more(by_id[hit.id] for hit in shown.following)
    outcome = Outcome(
        query=query,
        shown=names,
        named=(*names, *(line["name"] for line in more)),
        ranked=_names(deep.hits, by_id),
        scores=tuple(hit.score for hit in deep.hits),
        tokens=_tokens(query, shown, by_id, more),
        latency_ms=latency_ms,
        is_unsure=_is_unsure(shown),
    )
    return outcome, shown


def _is_unsure(answer: SearchResult) -> bool:
    return bool(answer.hits) and not answer.is_sure


def _names(hits: Sequence[Hit], by_id: Mapping[int, ToolRecord]) -> tuple[str, ...]:
    return tuple(str(by_id[hit.id].key) for hit in hits)


def _tokens(
    query: LabelledQuery, answer: SearchResult, by_id: Mapping[int, ToolRecord], more: Sequence[Mapping[str, str]]
) -> int:
    """Estimated tokens of the tools in an answer; the fields around them hardly vary."""
    tools = [
        {**build_compact_entry(by_id[hit.id], is_stale=False), "score": round(hit.score, 3)} for hit in answer.hits
    ]
    for place in range(LEADING, len(tools)):
        tools[place] |= build_brief_words(by_id[answer.hits[place].id])
    said = {
        "query": query.text,
        "tools": tools,
        "more": more,
        "near_misses": [{"name": str(by_id[hit.id].key), "score": round(hit.score, 3)} for hit in answer.near_misses],
    }
    return estimate_tokens(len(msgspec.json.encode(said)))


def _chunks(queries: Sequence[LabelledQuery]) -> Iterator[Sequence[LabelledQuery]]:
    for start in range(0, len(queries), _TOGETHER):
        yield queries[start : start + _TOGETHER]

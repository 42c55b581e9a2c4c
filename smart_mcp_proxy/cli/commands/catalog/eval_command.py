"""`mcpproxy eval`: reads the files, fills the engines, asks, and shows the figures."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from smart_mcp_proxy.catalog import ActivityFilter, Catalog, StoredActivity, open_catalog
from smart_mcp_proxy.cli.commands.catalog.eval_tables import figures_json, replay_json, show_figures, show_replay
from smart_mcp_proxy.cli.support.api import read_servers
from smart_mcp_proxy.cli.support.failure import UsageError, next_step
from smart_mcp_proxy.cli.support.output import console, plural, show_json, warn
from smart_mcp_proxy.errors import ConfigError, RequestError
from smart_mcp_proxy.evaluation import (
    EvaluationRun,
    LabelledQuery,
    OnStep,
    System,
    ToolCorpus,
    compare,
    compare_runs,
    extract_queries,
    label_queries,
    pool_of_tools,
    prepare_vectors,
    read_queries,
    read_tools,
    run_queries,
    run_unanswerable,
    summarize,
)
from smart_mcp_proxy.gateway.activity.activity_log import recover
from smart_mcp_proxy.gateway.activity.records import PAGE_LIMIT
from smart_mcp_proxy.gateway.indexing.daemon import run_in_daemon
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.search.embedders import open_embedder
from smart_mcp_proxy.settings import Settings, environment

T = TypeVar("T")

_EXAMPLES = 3
"""Names that a warning gives as examples."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Systems and files to evaluate.

    Attributes:
        queries: File of queries; None where the log alone has them.
        tools: File of tools; None for those of the data directory.
        systems: Names of the systems; none for the one that the settings ask for.
        query_sources: Only queries of these; empty for all.
        only_sources: Only tools of these; empty for all.
        without_sources: No tools of these.
        rankings: File for what was found; None for none.
        is_raw: The engine alone.
        is_replay: The queries of the activity log are asked; a file says of some which tools are right.
    """

    queries: Path | None
    tools: Path | None
    systems: Sequence[str]
    query_sources: frozenset[str]
    only_sources: frozenset[str]
    without_sources: frozenset[str]
    rankings: Path | None
    is_raw: bool
    is_replay: bool

    @property
    def is_whole(self) -> bool:
        """Whether all tools are searched, so that pools without right tools can be made of them."""
        return not (self.only_sources or self.without_sources or self.is_raw or self.is_replay)


async def measure(choice: Choice, settings: Settings, *, as_json: bool) -> None:
    """Evaluates and shows the figures.

    Raises:
        UsageError: A file cannot be used, or nothing of it is chosen.
        ConfigError: A system needs packages that are not installed, or no tools are stored.
        EmbeddingError: An embedder failed.
    """
    queries = await _read_queries(choice.queries, choice) if choice.queries is not None else []
    async with AsyncExitStack() as stack:
        catalog: Catalog | None = None
        needs_vectors = any(_needs_vectors(chosen) for chosen in _choose_systems(choice, settings).values())
        if choice.tools is None or choice.is_replay or needs_vectors:
            catalog = await stack.enter_async_context(open_catalog(settings))
        whole = await _pool(choice, settings, catalog)
        pool = _filter_sources(whole, choice)
        on_step = stack.enter_context(_progress())
        if choice.is_replay and catalog is not None:
            queries = label_queries(await _read_logged_queries(catalog, settings, on_step), queries)
        _warn_of_unknown(queries, pool)
        runs = []
        for name, chosen in _choose_systems(choice, settings).items():
            system = await _open_system(name, chosen, catalog, pool, on_step)
            runs.append(await _run(choice, system, queries, pool, on_step))
    if choice.rankings is not None:
        _write_rankings(choice.rankings, runs)
    if choice.is_replay:
        replays = [compare_runs(runs[0], other) for other in runs[1:]]
        if as_json:
            show_json({"replays": [replay_json(replay, tools=len(pool.records)) for replay in replays]})
        for replay in () if as_json else replays:
            show_replay(replay, tools=len(pool.records))
        return
    differences = [difference for other in runs[1:] for difference in compare(runs[0], other)]
    summaries = [summarize(run) for run in runs]
    if as_json:
        show_json(figures_json(summaries, differences, tools=len(pool.records), is_raw=choice.is_raw))
    else:
        show_figures(summaries, differences, tools=len(pool.records), is_raw=choice.is_raw)


async def _run(
    choice: Choice, system: System, queries: Sequence[LabelledQuery], pool: ToolCorpus, on_step: OnStep
) -> EvaluationRun:
    run = await run_queries(system, queries, pool, on_step, is_raw=choice.is_raw)
    if not choice.is_whole:
        return run
    return replace(run, nothing_fits=await run_unanswerable(system, queries, pool, on_step))


def _choose_systems(choice: Choice, settings: Settings) -> Mapping[str, Settings]:
    """The settings of each system, by its name; the first is what others are compared with."""
    own = "RANK_BM25" if settings.embedder == "BM25" and settings.bm25_engine == "rank_bm25" else settings.embedder
    systems = choice.systems or (own,)
    if choice.is_replay and len(systems) == 1:
        if systems[0] == own:
            hint = "Name another with --embedder, or two with --compare BM25,HYBRID."
            raise UsageError(f"--replay compares {own}, the present setting, with nothing.", hint=hint)
        systems = (own, *systems)
    return {name: _derive_settings(name, settings) for name in systems}


def _derive_settings(name: str, settings: Settings) -> Settings:
    if name == "RANK_BM25":
        return settings.model_copy(update={"embedder": "BM25", "bm25_engine": "rank_bm25"})
    if name == "BM25":
        return settings.model_copy(update={"embedder": "BM25", "bm25_engine": "builtin"})
    return settings.model_copy(update={"embedder": name})


def _needs_vectors(settings: Settings) -> bool:
    return settings.embedder != "BM25"


async def _read_logged_queries(catalog: Catalog, settings: Settings, on_step: OnStep) -> list[LabelledQuery]:
    """The queries of the activity log, with the tools that were called after them."""
    await recover(catalog, settings.data_dir)
    last, records = await catalog.last_activity_place(), list[StoredActivity]()
    while found := await catalog.activity_page(ActivityFilter(), PAGE_LIMIT, after=records[-1].place if records else 0):
        records += found
        on_step("Reading the activity log", found[-1].place, last)
    queries = extract_queries(record.activity for record in records)
    if not queries:
        with next_step("mcpproxy activity list --kind search"):
            raise ConfigError("The activity log has no searches yet.", hint="Agents' searches are kept there.")
    return queries


async def _read_queries(file: Path, choice: Choice) -> list[LabelledQuery]:
    queries = await to_thread.run_sync(_as_usage, read_queries, file)
    kept = [query for query in queries if not choice.query_sources or query.source in choice.query_sources]
    if not kept:
        raise UsageError(
            f"{file} has no queries of the source {_join_names(choice.query_sources)}.",
            hint=f"Its sources: {_join_names({query.source for query in queries} - {''}) or 'none'}.",
        )
    return kept


async def _pool(choice: Choice, settings: Settings, catalog: Catalog | None) -> ToolCorpus:
    if choice.tools is not None:
        tools = await to_thread.run_sync(_as_usage, read_tools, choice.tools)
        return await to_thread.run_sync(pool_of_tools, tools, settings.tool_name_limit)
    assert catalog is not None  # opened where no file is given
    servers = await read_servers(settings)
    # No similar names: an evaluation never looks a tool up by name.
    records = tuple(CatalogView(catalog, servers, lambda name, n, *, allowed: []).records())
    if not records:
        with next_step("mcpproxy search QUERY"):
            raise ConfigError(
                f"The catalog in {settings.data_dir} has no tools of the configured servers yet.",
                hint="A search connects to them, or --tools names a file of tools.",
            )
    return ToolCorpus(records, {}, has_examples=settings.learn)


def _as_usage(read: Callable[[Path], T], path: Path) -> T:
    """Call `read` on a file; its failure is the user's to repair."""
    try:
        return read(path)
    except RequestError as exc:
        raise UsageError(exc.message, hint=exc.hint) from exc


def _filter_sources(pool: ToolCorpus, choice: Choice) -> ToolCorpus:
    for source in sorted((choice.only_sources | choice.without_sources) - pool.sources):
        raise UsageError(
            f"No tool comes from the source {source!r}.",
            hint=f"Sources of tools: {_join_names(pool.sources) or 'none'}.",
        )
    if choice.only_sources:
        pool = pool.only(choice.only_sources)
    pool = pool.without(choice.without_sources)
    if not pool.records:
        raise UsageError("No tools are left to search.", hint="Leave out fewer sources.")
    return pool


def _warn_of_unknown(queries: Sequence[LabelledQuery], pool: ToolCorpus) -> None:
    """Says which right answers cannot be found because they are not among the tools."""
    names, servers = pool.names(), pool.servers()
    missing = [min(right) for query in queries for right in query.gold if right.isdisjoint(names)]
    missing += [query.server for query in queries if query.server and query.server not in servers]
    if missing:
        distinct = list(dict.fromkeys(missing))
        more = " and others" if len(distinct) > _EXAMPLES else ""
        warn(
            f"{plural(len(missing), 'right answer')} cannot be found, for no such tool is searched: "
            f"{', '.join(distinct[:_EXAMPLES])}{more}."
        )


async def _open_system(
    name: str, settings: Settings, catalog: Catalog | None, pool: ToolCorpus, on_step: OnStep
) -> System:
    if not _needs_vectors(settings):
        return System(name, settings)
    assert catalog is not None  # opened where vectors are needed
    on_step(f"Loading {name}", 0, 0)
    embedder = await run_in_daemon(partial(open_embedder, settings, environment()), "model")
    vectors = await prepare_vectors(catalog, embedder, pool, on_step)
    return System(name, settings, embedder, vectors)


def _write_rankings(path: Path, runs: Sequence[EvaluationRun]) -> None:
    """Write a line of JSON for each query and system."""
    lines = []
    for run in runs:
        for outcome in run.outcomes:
            row: dict[str, Any] = {"id": outcome.query.id, "ranked": outcome.ranked}
            row["scores"] = [round(score, 4) for score in outcome.scores]
            if len(runs) > 1:
                row["system"] = run.system
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    try:
        path.write_text("".join(lines), "utf-8")
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror or exc}.", hint="Check the path.") from exc


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


@contextmanager
def _progress() -> Iterator[OnStep]:
    """A bar on stderr while open, moved by what it yields; nothing off a terminal."""
    if not sys.stderr.isatty():
        yield lambda label, done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda label, done, total: progress.update(task, description=label, completed=done, total=total or None)

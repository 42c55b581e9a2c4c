"""Figures of a system from every query's outcome, and differences between two systems."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from smart_mcp_proxy.evaluation import metrics
from smart_mcp_proxy.evaluation.run import EvaluationRun, NothingFits, Outcome
from smart_mcp_proxy.names import parse_canonical

K = TypeVar("K")
Measure = Callable[[Outcome], float]

MEASURES: Mapping[str, Measure] = {
    "recall@1": lambda outcome: metrics.recall(outcome.shown, outcome.query.gold, 1),
    "recall@5": lambda outcome: metrics.recall(outcome.shown, outcome.query.gold, 5),
    "recall@10": lambda outcome: metrics.recall(outcome.ranked, outcome.query.gold, 10),
    "named": lambda outcome: metrics.recall(outcome.named, outcome.query.gold, len(outcome.named)),
    "nDCG@5": lambda outcome: metrics.ndcg(outcome.shown, outcome.query.gold, 5),
    "MRR": lambda outcome: metrics.reciprocal_rank(outcome.ranked, outcome.query.gold),
    "full-set-hit@5": lambda outcome: metrics.is_full_set(outcome.shown, outcome.query.gold, 5),
    "empty": lambda outcome: not outcome.shown,
    "low": lambda outcome: outcome.is_unsure,
}
"""Measures of queries for which tools are right. `named`: recall of all that an answer names, in `more` too. `empty`
and `low`: the shares of queries that were answered with nothing, and with low confidence."""

_SERVER_MEASURES: Mapping[str, Measure] = {
    "hit@1": lambda outcome: _has_server(outcome, 1),
    "hit@5": lambda outcome: _has_server(outcome, 5),
    "empty": lambda outcome: not outcome.shown,
}
_ANSWERED: Mapping[str, Measure] = {name: MEASURES[name] for name in ("empty", "low")}

_COMPARED = ("recall@5", "nDCG@5")


class MacroMeans(NamedTuple):
    """The measures of some queries, each a macro mean over their (source, style) strata."""

    queries: int
    values: Mapping[str, float]


class Summary(msgspec.Struct, frozen=True):
    """A system's figures.

    Attributes:
        system: Its name.
        overall: Of all queries for which tools are right; None where there are none.
        styles: The same by style.
        strata: The same by source and style.
        servers: Of queries for which any tool of one server is right.
        unanswerable: Of queries for which no tool is right.
        shares: `empty` and `low` of all queries for which tools are right, each query counted once.
        nothing_fits: Of queries asked where their right tools are not.
        tools_sent: Mean length of an answer.
        tokens: Mean estimate of an answer's tokens.
        p50_ms: Median time of a search.
        p95_ms: What 95 % of the searches stay below.
        problems: Why the system ranked worse than it should.
    """

    system: str
    overall: MacroMeans | None
    styles: Mapping[str, MacroMeans]
    strata: Mapping[tuple[str, str], MacroMeans]
    servers: MacroMeans | None
    unanswerable: MacroMeans | None
    shares: Mapping[str, float]
    nothing_fits: tuple[NothingFits, ...]
    tools_sent: float
    tokens: float
    p50_ms: float
    p95_ms: float
    problems: tuple[str, ...]


class Difference(NamedTuple):
    """A difference between two systems on the same queries."""

    measure: str
    system: str
    baseline: str
    interval: metrics.Interval


def summarize(run: EvaluationRun) -> Summary:
    """The figures of a run of at least one query."""
    outcomes = run.outcomes
    with_tools = [outcome for outcome in outcomes if outcome.query.gold]
    latencies = [outcome.latency_ms for outcome in outcomes]
    p50_ms, p95_ms = np.percentile(latencies, [50, 95])
    return Summary(
        system=run.system,
        overall=_figures(with_tools, MEASURES),
        styles=_by(with_tools, lambda outcome: outcome.query.style),
        strata=_by(with_tools, lambda outcome: outcome.query.stratum),
        servers=_figures((outcome for outcome in outcomes if outcome.query.server), _SERVER_MEASURES),
        unanswerable=_figures((outcome for outcome in outcomes if outcome.query.is_unanswerable), _ANSWERED),
        shares={
            name: float(np.mean(list(map(measure, with_tools)))) for name, measure in _ANSWERED.items() if with_tools
        },
        nothing_fits=run.nothing_fits,
        tools_sent=float(np.mean([len(outcome.shown) for outcome in outcomes])),
        tokens=float(np.mean([outcome.tokens for outcome in outcomes])),
        p50_ms=float(p50_ms),
        p95_ms=float(p95_ms),
        problems=run.problems,
    )


def compare(baseline: EvaluationRun, other: EvaluationRun) -> tuple[Difference, ...]:
    """Differences of `other` from `baseline`, where tools are right; none if nowhere.

    Args:
        baseline: One run.
        other: A run of the same queries in the same order.
    """
    pairs = [(a, b) for a, b in zip(baseline.outcomes, other.outcomes, strict=True) if a.query.gold]
    if not pairs:
        return ()
    strata = [outcome.query.stratum for outcome, _ in pairs]
    return tuple(
        Difference(
            name,
            other.system,
            baseline.system,
            metrics.bootstrap_difference(
                [MEASURES[name](before) for before, _ in pairs], [MEASURES[name](after) for _, after in pairs], strata
            ),
        )
        for name in _COMPARED
    )


def _figures(outcomes: Iterable[Outcome], measures: Mapping[str, Measure]) -> MacroMeans | None:
    rows = list(outcomes)
    if not rows:
        return None
    values = {
        name: metrics.macro_mean(rows, lambda outcome: outcome.query.stratum, measure)
        for name, measure in measures.items()
    }
    return MacroMeans(len(rows), values)


def _by(outcomes: Sequence[Outcome], key: Callable[[Outcome], K]) -> dict[K, MacroMeans]:
    groups: dict[K, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return {group: made for group, rows in groups.items() if (made := _figures(rows, MEASURES)) is not None}


def _has_server(outcome: Outcome, k: int) -> bool:
    keys = map(parse_canonical, outcome.shown[:k])
    return any(key is not None and key.server == outcome.query.server for key in keys)

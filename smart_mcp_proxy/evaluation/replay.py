"""Logged queries asked again of another system, whose answers are compared."""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import msgspec

from smart_mcp_proxy import policy
from smart_mcp_proxy.evaluation.files import LabelledQuery
from smart_mcp_proxy.evaluation.metrics import recall
from smart_mcp_proxy.evaluation.run import SHOWN_LIMIT, EvaluationRun, Outcome
from smart_mcp_proxy.gateway.indexing.learning import SEARCHES_KEPT, WINDOW_S
from smart_mcp_proxy.gateway.retrieval.retrieval import QUERY_LIMIT_CHARS
from smart_mcp_proxy.telemetry import Activity

BY_CALL = "calls"
BY_FILE = "file"
"""Styles of logged queries whose right tools are known: from calls that followed, or from a file."""


class RankingChange(NamedTuple):
    """Query whose answers differ: names before and after in their order, at most 5 each."""

    query: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def came(self) -> list[str]:
        """Tools of the later answer alone."""
        return [name for name in self.after if name not in self.before]

    @property
    def went(self) -> list[str]:
        """Tools of the earlier answer alone."""
        return [name for name in self.before if name not in self.after]

    @property
    def rank_changes(self) -> Mapping[str, tuple[int, int]]:
        """Places, from 1, of tools that moved to a different one in the later answer."""
        places = {name: (place, self.after.index(name) + 1) for place, name in enumerate(self.before, 1)
                  if name in self.after}  # fmt: skip
        return {name: pair for name, pair in places.items() if pair[0] != pair[1]}


class Replay(msgspec.Struct, frozen=True):
    """Differences between two systems on logged queries.

    Attributes:
        baseline: Name of the one.
        system: Name of the other.
        queries: Number of different queries, each of which counts once.
        changes: Those with another answer.
        overlap: Mean share of an answer's 5 tools that both have, in [0, 1]; 1 for two empty answers.
        empty: Answers without a tool, before and after.
        recall: Mean recall@5 where right tools are known, before and after; None where none are.
        known: Number of queries whose right tools are known, by how.
        problems: Why a system ranked worse than it should.
    """

    baseline: str
    system: str
    queries: int
    changes: tuple[RankingChange, ...]
    overlap: float
    empty: tuple[int, int]
    recall: tuple[float, float] | None
    known: Mapping[str, int]
    problems: tuple[str, ...]

    @property
    def share_unchanged(self) -> float:
        """Share of the queries with the same answer, in [0, 1]."""
        return 1 - len(self.changes) / self.queries


def extract_queries(records: Iterable[Activity]) -> list[LabelledQuery]:
    """The queries of an activity log, each once, the latest first.

    Right is a tool that a search had found and the same agent called in the ten minutes and four searches after it,
    with success: the rule by which the gateway learns from use.

    Args:
        records: Of any kind, in the order in which they were stored.
    """
    gold: OrderedDict[str, set[str]] = OrderedDict()
    recent: dict[tuple[str, str], deque[Activity]] = defaultdict(lambda: deque(maxlen=SEARCHES_KEPT))
    for record in records:
        searches = recent[record.principal, record.session]
        if record.kind == "search" and "tools" in record.detail and record.subject.strip():
            searches.append(record)
            gold.setdefault(record.subject, set())
            gold.move_to_end(record.subject)
        elif record.kind == "call" and record.outcome == "ok":
            name, earliest_s = f"{record.server}:{record.tool}", record.at_s - WINDOW_S
            found = (search for search in reversed(searches) if search.at_s >= earliest_s)
            if search := next((each for each in found if name in each.detail["tools"]), None):
                gold[search.subject].add(name)
    return [
        LabelledQuery(str(number), text, tuple(frozenset({name}) for name in sorted(right)), style=BY_CALL)
        for number, (text, right) in enumerate(reversed(gold.items()), 1)
    ]


def label_queries(queries: Iterable[LabelledQuery], labels: Iterable[LabelledQuery]) -> list[LabelledQuery]:
    """Logged queries with the right tools of a file, which say more than one agent's calls."""
    known = {policy.mask_text(label.text, QUERY_LIMIT_CHARS): label.gold for label in labels if label.gold}
    return [
        replace(query, gold=known[query.text], style=BY_FILE) if query.text in known else query for query in queries
    ]


def compare_runs(before: EvaluationRun, after: EvaluationRun) -> Replay:
    """Differences between two runs of the same logged queries, at least one, in the same order."""
    pairs = list(zip(before.outcomes, after.outcomes, strict=True))
    changes = [
        RankingChange(one.query.text, one.shown, other.shown) for one, other in pairs if one.shown != other.shown
    ]
    known = [outcome.query.style for outcome in before.outcomes if outcome.query.gold]
    return Replay(
        baseline=before.system,
        system=after.system,
        queries=len(pairs),
        changes=tuple(changes),
        overlap=fmean(_overlap(one.shown, other.shown) for one, other in pairs),
        empty=(_empty(before.outcomes), _empty(after.outcomes)),
        recall=(_recall(before.outcomes), _recall(after.outcomes)) if known else None,
        known={how: known.count(how) for how in (BY_CALL, BY_FILE)},
        problems=tuple(dict.fromkeys((*before.problems, *after.problems))),
    )


def _overlap(before: Sequence[str], after: Sequence[str]) -> float:
    return len({*before} & {*after}) / max(len(before), len(after)) if before or after else 1.0


def _empty(outcomes: Sequence[Outcome]) -> int:
    return sum(not outcome.shown for outcome in outcomes)


def _recall(outcomes: Sequence[Outcome]) -> float:
    """Mean recall@5 of the queries whose right tools are known."""
    return fmean(recall(each.shown, each.query.gold, SHOWN_LIMIT) for each in outcomes if each.query.gold)

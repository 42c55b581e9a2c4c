"""The rows of a search benchmark: tools and queries from files, larger catalogs made of them, and what was found."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "LIMIT",
    "grow",
    "judge",
    "name_of",
    "parameters_of",
    "read_queries",
    "read_rows",
    "stratum_of",
    "write_rows",
]

LIMIT = 5
"""Tools in an answer."""

_CHANGED_WORDS = 0.15
_CHANGED_NAMES = 0.5
_SEED = 7

Row = Mapping[str, Any]


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file, one at a time: only what a reader keeps of them stays in memory."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def write_rows(path: Path, rows: Iterator[Row]) -> None:
    with path.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read_queries(path: Path) -> list[dict[str, Any]]:
    """The queries that some tool answers."""
    return [row for row in read_rows(path) if row.get("gold")]


def name_of(row: Row) -> str:
    return f"{row['server']}:{row['name']}"


def parameters_of(row: Row) -> list[tuple[str, str]]:
    """Names and descriptions of a tool's parameters."""
    properties = (row.get("input_schema") or {}).get("properties") or {}
    return [
        (name, str(spec.get("description") or "") if isinstance(spec, dict) else "")
        for name, spec in properties.items()
    ]


def grow(rows: Sequence[Row], size: int) -> Iterator[dict[str, Any]]:
    """So many copies with 15 % of the description's words and half of the names changed; each round other servers."""
    rng = random.Random(_SEED)
    words = sorted({word for row in rows for word in (row["description"] or "").split()})
    for place in range(size):
        row = rows[place % len(rows)]
        text = (row["description"] or "").split()
        yield {
            **row,
            "server": f"{row['server']}-{place // len(rows)}",
            "name": f"{row['name']}_{rng.choice(words)}" if rng.random() < _CHANGED_NAMES else row["name"],
            "description": " ".join(rng.choice(words) if rng.random() < _CHANGED_WORDS else word for word in text),
        }


def judge(queries: Sequence[Row], found: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Recall@1, recall@5 and nDCG@5 as means over (source, style), share of empty answers, tools in an answer.

    `firsts` and `recalls` have recall@1 and recall@5 of each query.

    A right tool counts as found if it or one as right as it is among the first five.
    """
    strata: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    measures = [
        (_recall_and_ndcg(query, names[:1])[0], *_recall_and_ndcg(query, names[:LIMIT]))
        for query, names in zip(queries, found, strict=True)
    ]
    for query, figures in zip(queries, measures, strict=True):
        strata[stratum_of(query)].append(figures)
    first, recall, ndcg = np.mean([np.mean(values, axis=0) for values in strata.values()], axis=0)
    empty = float(np.mean([not names for names in found]))
    return {
        "first": float(first),
        "recall": float(recall),
        "ndcg": float(ndcg),
        "empty": empty,
        "tools": float(np.mean(list(map(len, found)))),
        "firsts": [first for first, _, _ in measures],
        "recalls": [recall for _, recall, _ in measures],
    }


def stratum_of(query: Row) -> tuple[str, str]:
    """The kind of a query, over which figures are averaged."""
    return query.get("source", ""), query.get("style", "")


def _recall_and_ndcg(query: Row, names: Sequence[str]) -> tuple[float, float]:
    gold = [{right, *query.get("alt", {}).get(right, [])} for right in query["gold"]]
    recall = sum(any(name in right for name in names) for right in gold) / len(gold)
    gain, left = 0.0, list(gold)
    for place, name in enumerate(names):
        if right := next((right for right in left if name in right), None):
            left.remove(right)
            gain += 1 / math.log2(place + 2)
    return recall, gain / sum(1 / math.log2(place + 2) for place in range(min(LIMIT, len(gold))))

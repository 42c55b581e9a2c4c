"""Kinds of queries that cost a search differently, made from tools and labelled queries.

Usage: python -m bench.query_kinds TOOLS.jsonl QUERIES.jsonl COUNT [ENGINE]

As a program it indexes the tools and prints, by kind, the times of the queries as JSON, with the memory that the index
takes and the time to its first answer. For words, only what both an older and a newer package have is used, so that one
is measured beside the other.
"""

import gc
import json
import os
import random
import re
import string
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.search_data import LIMIT, parameters_of, read_queries, read_rows

ENGINES = ("words", "AUTO", "AUTO without Faiss")

_SEED = 11
_LONG_WORDS = 40
_SLIPPED_LETTERS = 5
_PART = 0.6
_INVENTED_WORDS = 3
_EMBEDDED_TOGETHER = 1_000

Row = Mapping[str, Any]


class _Source:
    """What queries are made of.

    Args:
        rows: The tools.
        asked: Labelled queries.
    """

    def __init__(self, rows: Sequence[Row], asked: Sequence[str]) -> None:
        self._rows, self._asked = rows, asked
        self._rng = random.Random(_SEED)

    def labelled(self) -> str:
        """A query that somebody asked."""
        return self._rng.choice(self._asked)

    def long(self) -> str:
        """A request of some sentences."""
        said: list[str] = []
        while sum(len(each.split()) for each in said) < _LONG_WORDS:
            said.append(self.labelled())
        return ". ".join(said)

    def spelt(self) -> str:
        """A tool's name in another spelling."""
        first, *others = re.findall(r"[^\W_]+", self._name())
        return first.lower() + "".join(map(str.capitalize, others))

    def part(self) -> str:
        """The beginning of a tool's name."""
        name = self._name()
        return name[: max(4, int(_PART * len(name)))]

    def nearly(self) -> str:
        """A tool's name with one slip."""
        return self._slipped(self._name())

    def misspelt(self) -> str:
        """A labelled query with a slip in each of its long words."""
        return re.sub(rf"[A-Za-z]{{{_SLIPPED_LETTERS},}}", lambda word: self._slipped(word[0]), self.labelled())

    def unknown(self) -> str:
        """Words that nobody uses."""
        lengths = [self._rng.randint(_SLIPPED_LETTERS, 10) for _ in range(_INVENTED_WORDS)]
        return " ".join("".join(self._rng.choices(string.ascii_lowercase, k=length)) for length in lengths)

    def _name(self) -> str:
        while not re.fullmatch(r"\w{8,}", name := str(self._rng.choice(self._rows)["name"])):
            pass
        return name

    def _slipped(self, word: str) -> str:
        """A word with a letter behind the first one left out, doubled, changed, or swapped with its neighbour."""
        at, how = self._rng.randrange(1, len(word) - 1), self._rng.randrange(4)
        head, here, tail = word[:at], word[at], word[at + 1 :]
        changed = self._rng.choice(string.ascii_lowercase)
        return head + ("", 2 * here, changed, tail[0] + here)[how] + (tail[1:] if how == 3 else tail)


KINDS: Mapping[str, Callable[[_Source], str]] = {
    "labelled": _Source.labelled,
    "long": _Source.long,
    "spelt": _Source.spelt,
    "part": _Source.part,
    "nearly": _Source.nearly,
    "misspelt": _Source.misspelt,
    "unknown": _Source.unknown,
}


def queries_of(rows: Sequence[Row], asked: Sequence[str], count: int) -> dict[str, list[str]]:
    """So many queries of each kind; the same ones for the same tools and queries."""
    source = _Source(rows, asked)
    return {kind: [make(source) for _ in range(count)] for kind, make in KINDS.items()}


def _engine(documents: Sequence[Any], name: str) -> Any:
    """An engine without documents; of AUTO with their vectors."""
    from smart_mcp_proxy.search import Bm25fEngine

    if name == "words":
        return Bm25fEngine()
    from smart_mcp_proxy.gateway.engines import vector_engine
    from smart_mcp_proxy.search.embedders import open_embedder
    from smart_mcp_proxy.search.embedding import build_embedding_text
    from smart_mcp_proxy.search.vectors.vectors import VectorIndex
    from smart_mcp_proxy.settings import Settings

    if name.endswith("without Faiss"):
        sys.modules["faiss"] = None  # type: ignore[assignment]  # so that its import fails
    settings = Settings(embedder="AUTO")
    embedder = open_embedder(settings, {})
    vectors = VectorIndex(embedder.dimension, is_rounded=True)
    made = [embedder.embed(list(map(build_embedding_text, some))) for some in batched(documents, _EMBEDDED_TOGETHER)]
    vectors.update([document.id for document in documents], np.concatenate(made))
    return vector_engine(settings, embedder, vectors)


def batched(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The values in parts of a size."""
    return [values[start : start + size] for start in range(0, len(values), size)]


def _indexed(rows: Sequence[Row], engine: str) -> Any:
    from smart_mcp_proxy.models import Document
    from smart_mcp_proxy.search import SearchIndex

    documents = [
        Document(
            id=place,
            server=row["server"],
            name=row["name"],
            description=row["description"] or "",
            parameters=tuple(parameters_of(row)),
            listed_name=f"{row['server']}__{row['name']}",
        )
        for place, row in enumerate(rows)
    ]
    index = SearchIndex(_engine(documents, engine))
    index.update(documents)
    return index


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _measured(index: Any, queries: Mapping[str, Sequence[str]]) -> dict[str, dict[str, float]]:
    """Milliseconds by kind; kinds take turns, so that the machine's noise hits all of them."""
    worked_ms: dict[str, list[float]] = {kind: [] for kind in queries}
    for turn in zip(*queries.values(), strict=True):
        for kind, query in zip(queries, turn, strict=True):
            began = time.thread_time()
            index.search(query, limit=LIMIT)
            worked_ms[kind].append((time.thread_time() - began) * 1000)
    return {
        kind: {"p50_ms": float(np.percentile(times, 50)), "p99_ms": float(np.percentile(times, 99))}
        for kind, times in worked_ms.items()
    }


def main() -> None:
    tools, asked, count, *others = sys.argv[1:]
    rows = list(read_rows(Path(tools)))
    queries = queries_of(rows, [row["query"] for row in read_queries(Path(asked))], int(count))
    if others:  # the whole gateway comes with it, and is no part of an index
        import smart_mcp_proxy.gateway.engines  # noqa: F401
    before_mb = _resident_mb()
    index = _indexed(rows, *others or ("words",))
    began = time.thread_time()
    index.search(queries["labelled"][0], limit=LIMIT)
    first_ms = (time.thread_time() - began) * 1000
    for some in queries.values():
        index.search(some[0], limit=LIMIT)
    gc.collect()
    memory = {"memory_mb": _resident_mb() - before_mb, "first_ms": first_ms}
    print(json.dumps(_measured(index, queries) | {"index": memory}))


if __name__ == "__main__":
    main()

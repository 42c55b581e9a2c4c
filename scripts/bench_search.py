"""Measures search on given tools and queries: quality, latency, build time, memory.

Usage: bench_search.py TOOLS.jsonl QUERIES.jsonl [--grow]

TOOLS: one JSON object a line with server, name, description, input_schema, source. QUERIES: id, query, gold
(`server:tool` each), alt (equally right tools by gold), source, style. Figures are macro means over the
(source, style) strata of the queries; `engine` is the ranking alone, `product` the whole path with limit 5.
"""

import argparse
import gc
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from smart_mcp_proxy.models import Document, ToolKey
from smart_mcp_proxy.search.bm25f import Bm25fEngine
from smart_mcp_proxy.search.index import SearchIndex

LIMIT = 5


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def document(id: int, tool: dict[str, Any]) -> Document:
    properties = (tool.get("input_schema") or {}).get("properties") or {}
    parameters = tuple(
        (name, str(spec.get("description") or "") if isinstance(spec, dict) else "")
        for name, spec in properties.items()
    )
    key = ToolKey(tool["server"], tool["name"])
    return Document(id, *key, "", tool["description"] or "", parameters, "__".join(key))


def recall_and_ndcg(query: dict[str, Any], names: Sequence[str]) -> tuple[float, float]:
    gold = [{right, *query.get("alt", {}).get(right, [])} for right in query["gold"]]
    recall = sum(any(name in right for name in names) for right in gold) / len(gold)
    gain, left = 0.0, list(gold)
    for place, name in enumerate(names):
        if right := next((right for right in left if name in right), None):
            left.remove(right)
            gain += 1 / math.log2(place + 2)
    return recall, gain / sum(1 / math.log2(place + 2) for place in range(min(LIMIT, len(gold))))


def macro(queries: Sequence[dict[str, Any]], values: Iterable[tuple[float, float]]) -> tuple[float, float]:
    strata = defaultdict(list)
    for query, value in zip(queries, values, strict=True):
        strata[query["source"], query["style"]].append(value)
    recall, ndcg = np.mean([np.mean(rows, axis=0) for rows in strata.values()], axis=0)
    return float(recall), float(ndcg)


def timed(queries: Sequence[dict[str, Any]], find: Callable[[str], list[int]]) -> tuple[list[list[int]], str]:
    found, spent = [], []
    for query in queries:
        start = time.perf_counter()
        found.append(find(query["query"]))
        spent.append(time.perf_counter() - start)
    p50, p95 = np.percentile(spent, [50, 95]) * 1000
    return found, f"{p50:.3f}/{p95:.3f} ms"


def report(label: str, documents: Sequence[Document], queries: Sequence[dict[str, Any]]) -> None:
    engine = Bm25fEngine()
    index = SearchIndex(engine)
    start = time.perf_counter()
    index.update(documents)
    built = time.perf_counter() - start
    name = {doc.id: f"{doc.server}:{doc.name}" for doc in documents}
    print(f"{label}: {len(documents)} tools, {len(queries)} queries, built in {built:.2f} s")
    finders: dict[str, Callable[[str], list[int]]] = {
        "engine": lambda text: [hit.id for hit in engine.rank(text, LIMIT, None)],
        "product": lambda text: [hit.id for hit in index.search(text, limit=LIMIT).hits],
    }
    for path, find in finders.items():
        found, latency = timed(queries, find)
        pairs = zip(queries, found, strict=True)
        recall, ndcg = macro(queries, [recall_and_ndcg(query, [name[id] for id in ids]) for query, ids in pairs])
        empty, size = np.mean([not ids for ids in found]), np.mean([len(ids) for ids in found])
        print(f"  {path:8} R@5 {recall:.4f}  nDCG@5 {ndcg:.4f}  empty {empty:.3f}  tools {size:.2f}  p50/p95 {latency}")


def empty_share(documents: Sequence[Document], queries: Sequence[dict[str, Any]]) -> float:
    index = SearchIndex(Bm25fEngine())
    index.update(documents)
    return float(np.mean([not index.search(query["query"], limit=LIMIT).hits for query in queries]))


def grown(documents: Sequence[Document], size: int) -> list[Document]:
    """Copies with 15 % of the description's words and half of the names changed."""
    random_ = random.Random(7)
    words = sorted({word for doc in documents for word in doc.description.split()})
    copies = []
    for id in range(1, size + 1):
        doc = documents[(id - 1) % len(documents)]
        text = " ".join(random_.choice(words) if random_.random() < 0.15 else word for word in doc.description.split())
        name = f"{doc.name}_{random_.choice(words)}" if random_.random() < 0.5 else doc.name
        server = f"{doc.server}-{(id - 1) // len(documents)}"
        copies.append(replace(doc, id=id, name=name, server=server, description=text, listed_name=f"{server}__{name}"))
    return copies


def resident_mb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def measure_latencies(engine: Bm25fEngine, index: SearchIndex, queries: Sequence[dict[str, Any]]) -> str:
    _, rank = timed(queries, lambda text: [hit.id for hit in engine.rank(text, 50, None)])
    _, search = timed(queries, lambda text: [hit.id for hit in index.search(text, limit=LIMIT).hits])
    _, nearest = timed(queries[:100], lambda text: index.nearest_names(text[:30]))
    return f"rank {rank}, search {search}, nearest_names {nearest}"


def grow(documents: Sequence[Document], queries: Sequence[dict[str, Any]]) -> None:
    for size in (1_000, 10_000, 100_000):
        copies = grown(documents, size)
        changes = [replace(doc, description=f"{doc.description} changed") for doc in copies[:20]]
        gc.collect()
        before = resident_mb()
        engine = Bm25fEngine()
        index = SearchIndex(engine)
        start = time.perf_counter()
        index.update(copies)
        built = time.perf_counter() - start
        memory = resident_mb() - before
        start = time.perf_counter()
        index.update(changes)
        changed = (time.perf_counter() - start) * 1000
        latencies = measure_latencies(engine, index, queries)
        print(
            f"{size:7} tools: build {built:.2f} s, memory {memory:.0f} MB, 20 changed {changed:.1f} ms, "
            f"p50/p95 {latencies}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--grow", action="store_true", help="also measure at 1k, 10k and 100k perturbed copies")
    options = parser.parse_args()
    tools, queries = read_jsonl(options.tools), read_jsonl(options.queries)
    source_of = {id: tool["source"] for id, tool in enumerate(tools, 1)}
    documents = [document(id, tool) for id, tool in enumerate(tools, 1)]
    report("all tools", documents, queries)
    sources = sorted({query["source"] for query in queries})
    of = {source: [query for query in queries if query["source"] == source] for source in sources}
    for source in sources:
        report(f"tools of {source}", [doc for doc in documents if source_of[doc.id] == source], of[source])
    for source in sources:
        foreign = [doc for doc in documents if source_of[doc.id] != source]
        print(f"nothing fits: queries of {source}, its tools removed: empty {empty_share(foreign, of[source]):.3f}")
        for other in sources:
            if other != source:
                pool = [doc for doc in documents if source_of[doc.id] == other]
                print(f"  only tools of {other}: empty {empty_share(pool, of[source]):.3f}")
    if options.grow:
        grow(documents, queries)


if __name__ == "__main__":
    main()

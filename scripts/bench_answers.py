"""Measures what answers to searches cost an agent and hold: tokens, recall of what is named, calls written from them.

TOOLS and QUERIES are those of bench_search.py. Tokens are bytes of compact JSON / 4, medians. Recall is the mean of the
means over (source, style). For the last column a first call of each right tool is written from its signature alone, as
it stands in the answer, and checked by the tool's own schema. With --beside another checkout's package answers, too.

    python scripts/bench_answers.py TOOLS.jsonl QUERIES.jsonl --beside ../before
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs
from bench.report import aligned
from bench.search_data import read_queries, read_rows

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden_search"
SAMPLES: Mapping[str, Any] = {"str": "x", "int": 1, "float": 1.5, "bool": True, "dict": {}, "any": "x", "null": None}
"""A value of each type as signatures name them."""


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path, nargs="?", default=GOLDEN / "tools.jsonl", help="default: the golden set")
    parser.add_argument("queries", type=Path, nargs="?", default=GOLDEN / "queries.jsonl")
    parser.add_argument("--beside", type=Path, help="a checkout whose answers are measured as well")
    parser.add_argument("--native", action="store_true", help="ask each query of the tools of its own source alone")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def split_signature(text: str) -> Iterator[str]:
    """The parts of a signature; commas in quotes and brackets part nothing."""
    depth, is_quoted, start = 0, False, 0
    for place, char in enumerate(text):
        if char == '"' and text[place - 1] != "\\":
            is_quoted = not is_quoted
        elif not is_quoted and char in "[{(":
            depth += 1
        elif not is_quoted and char in "]})":
            depth -= 1
        elif char == "," and not is_quoted and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def make_value(shown: str) -> Any:
    """A value of a type as a signature shows it: the first of several."""
    if shown.startswith("list"):
        inner = shown.removeprefix("list").strip("~")
        return [make_value(inner[1:-1])] if inner.startswith("[") else []
    try:
        return json.JSONDecoder().raw_decode(shown)[0]
    except ValueError:
        return SAMPLES.get(shown.partition("|")[0].strip("~"), "x")


def write_call(signature: str) -> dict[str, Any]:
    """The arguments of a first call: what the signature names without a question mark."""
    parts = [part.partition(":") for part in split_signature(signature.removesuffix("~").strip("()…"))]
    return {name: make_value(shown) for name, _, shown in parts if shown and not name.endswith("?")}


def is_callable(schema: Any, signature: str) -> bool:
    """Whether a call written from a signature has what the schema requires, of the right types and choices."""
    call = write_call(signature)
    try:
        errors = jsonschema_rs.validator_for(schema or {}, offline=True).iter_errors(call)
    except ValueError:  # no schema: the gateway lets every call of such a tool through
        return True
    return not any(error.schema_path[-1] in ("required", "type", "enum") for error in errors)


def build_index(rows: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[int, Any]]:
    """An index of the default settings over the tools, and their records by id."""
    from smart_mcp_proxy.evaluation.files import LabelledTool
    from smart_mcp_proxy.evaluation.pool import pool_of_tools
    from smart_mcp_proxy.gateway.engines import vector_engine
    from smart_mcp_proxy.models import ToolKey
    from smart_mcp_proxy.search import SearchIndex
    from smart_mcp_proxy.search.embedders import open_embedder
    from smart_mcp_proxy.search.embedding import build_embedding_text
    from smart_mcp_proxy.search.vectors.vectors import VectorIndex
    from smart_mcp_proxy.settings import Settings

    def definition(row: Mapping[str, Any]) -> dict[str, Any]:
        schema = row.get("input_schema") or {"type": "object"}
        return {"name": row["name"], "description": row["description"] or "", "inputSchema": schema}

    labelled = [LabelledTool(ToolKey(row["server"], row["name"]), definition(row), "") for row in rows]
    pool = pool_of_tools(labelled, 64)
    documents, settings = pool.documents(), Settings(embedder="AUTO")
    embedder = open_embedder(settings, {})
    vectors = VectorIndex(embedder.dimension, is_rounded=True)
    vectors.update([each.id for each in documents], embedder.embed(list(map(build_embedding_text, documents))))
    index = SearchIndex(vector_engine(settings, embedder, vectors))
    index.update(documents)
    return index, {record.id: record for record in pool.records}


def build_answer(hits: Any, records: Mapping[int, Any]) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Tools and further lines of an answer, as the gateway of this or of an earlier version sends them."""
    from smart_mcp_proxy.gateway.retrieval import summaries

    tools = [
        {**summaries.build_compact_entry(records[hit.id], is_stale=False), "score": round(hit.score, 3)}
        for hit in hits.hits
    ]
    if not hasattr(summaries, "build_more"):
        return tools, []
    for place in range(summaries.LEADING, len(tools)):
        tools[place] |= summaries.build_brief_words(records[hits.hits[place].id])
    return tools, summaries.build_more(records[hit.id] for hit in hits.following)


def measure(rows: Sequence[Mapping[str, Any]], queries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The figures of each query."""
    index, records = build_index(rows)
    schemas = {f"{row['server']}:{row['name']}": row.get("input_schema") for row in rows}
    figures = []
    for query in queries:
        tools, more = build_answer(index.search(query["query"], limit=5), records)
        shown = {line["name"]: line["signature"] for line in (*more, *tools)}
        gold = [{right, *query.get("alt", {}).get(right, [])} for right in query["gold"]]
        first = {tool["name"] for tool in tools}
        right = [name for name in shown if any(name in each for each in gold)]
        sizes = [
            len(json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode()) // 4 for part in (tools, more)
        ]
        figures.append(
            {
                "stratum": f"{query.get('source', '')} {query.get('style', '')}",
                "tools": sizes[0],
                "answer": sum(sizes),
                "lines": len(more),
                "recall": sum(not each.isdisjoint(first) for each in gold) / len(gold),
                "named": sum(not each.isdisjoint(shown) for each in gold) / len(gold),
                "calls": [is_callable(schemas[name], shown[name]) for name in right],
            }
        )
    return figures


def summarize(figures: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cells of a row: medians of sizes, macro means of recall, the share of calls that are right."""
    strata: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in figures:
        strata[each["stratum"]].append(each)
    recall, named = (
        statistics.mean(statistics.mean(each[key] for each in group) for group in strata.values())
        for key in ("recall", "named")
    )
    calls = [is_right for each in figures for is_right in each["calls"]]
    sizes = [f"{statistics.median(each[key] for each in figures):.0f}" for key in ("tools", "answer")]
    lines = statistics.mean(each["lines"] for each in figures)
    return [*sizes, f"{lines:.1f}", f"{recall:.3f}", f"{named:.3f}", f"{statistics.mean(calls):.3f} of {len(calls)}"]


def main() -> None:
    options = parse_options()
    rows, queries = list(read_rows(options.tools)), read_queries(options.queries)
    if options.child:
        figures: list[dict[str, Any]] = []
        sources = sorted({row.get("source", "") for row in queries}) if options.native else [None]
        for source in sources:
            own = [row for row in rows if source in (None, row.get("source", ""))]
            figures += measure(own, [row for row in queries if source in (None, row.get("source", ""))])
        print(json.dumps(figures))
        return
    table = [["", "tools", "with more", "lines", "recall@5", "named", "calls right"]]
    for name, root in (("this", ROOT), ("beside", options.beside)):
        if root is not None:
            environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root.resolve())}
            command = [sys.executable, __file__, str(options.tools), str(options.queries), "--child"]
            command += ["--native"] if options.native else []
            done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
            table.append([name, *summarize(json.loads(done.stdout))])
    print(aligned(table))


if __name__ == "__main__":
    main()

"""Counts answers that depend on the order in which servers and tools were listed.

The tools are indexed in several orders, every query is asked of each, and the answers are compared: the first hit, and
the whole answers of five and of ten tools with their scores. TOOLS and QUERIES are as in bench_search.py, queries may
be several files. Vectors of the fused ranking are made of the checksums of words, which makes many of them equal.
"""

import argparse
import sys
from pathlib import Path

from bench.report import aligned
from bench.search_data import parameters_of, read_rows
from bench.ties import ENGINES, differing

from smart_mcp_proxy.models import Document

ORDERS = 4


def read_documents(path: Path) -> list[Document]:
    return [
        Document(
            id,
            row["server"],
            row["name"],
            "",
            row["description"] or "",
            tuple(parameters_of(row)),
            f"{row['server']}__{row['name']}",
        )
        for id, row in enumerate(read_rows(path), 1)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path)
    parser.add_argument("queries", type=Path, nargs="+")
    parser.add_argument("--orders", type=int, default=ORDERS, help=f"default {ORDERS}")
    parser.add_argument("--engine", choices=tuple(ENGINES), action="append", help="default: each")
    parser.add_argument("--show", type=int, default=0, help="name so many of the queries")
    options = parser.parse_args()
    documents = read_documents(options.tools)
    queries = [row["query"] for path in options.queries for row in read_rows(path)]
    table = [["", "queries", "first hit differs", "five differ", "ten differ"]]
    differ = 0
    for engine in options.engine or ENGINES:
        found = differing(documents, queries, options.orders, ENGINES[engine])
        table.append([engine, f"{found.asked:,}", *(f"{len(some):,}" for some in found[1:])])
        differ += len(found.deep) + len(found.shown)
        for query in dict.fromkeys((*found.first, *found.shown, *found.deep[: options.show])):
            if options.show:
                print(f"  {engine}: {query[:100]!r}")
    print(f"{len(documents):,} tools in {options.orders} orders")
    print(aligned(table), flush=True)
    return bool(differ)


if __name__ == "__main__":
    sys.exit(main())

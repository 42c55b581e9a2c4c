"""What is measured: engines that find tools in a catalog, ours and others, each as its users would use it.

Packages are imported in functions, so that one file serves in any environment; `ImportError` means that one is missing.
"""

import asyncio
import sqlite3
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bench.search_data import parameters_of

__all__ = ["CANDIDATES", "OURS", "PEERS", "WITH_MINILM", "Candidate"]

OURS = "ours, AUTO"
"""The default, to which the others are compared."""
WITH_MINILM = "HYBRID with MiniLM, tools embedded"

Row = Mapping[str, Any]


class Candidate(Protocol):
    """Tools by row number."""

    def change(self, rows: Mapping[int, Row]) -> None:
        """Replaces some tools."""

    def find(self, query: str, limit: int) -> Sequence[int]:
        """Row numbers, best first."""


class OurIndex:
    """The product path with an engine of ours: names, floor, relative cut, per-server limit, clones."""

    def __init__(self, rows: Iterable[Row], engine: str) -> None:
        from smart_mcp_proxy.search import Bm25fEngine, SearchIndex
        from smart_mcp_proxy.search.engines.rank_bm25 import RankBm25Engine

        self._index = SearchIndex({"bm25f": Bm25fEngine, "rank_bm25": RankBm25Engine}[engine]())
        self._index.update(_document(place, row) for place, row in enumerate(rows))

    def change(self, rows: Mapping[int, Row]) -> None:
        self._index.update(_document(place, row) for place, row in rows.items())

    def find(self, query: str, limit: int) -> Sequence[int]:
        return [hit.id for hit in self._index.search(query, limit=limit).hits]


class OurEngine:
    """The default engine's ranking alone."""

    def __init__(self, rows: Iterable[Row]) -> None:
        from smart_mcp_proxy.search import Bm25fEngine

        self._engine = Bm25fEngine()
        self._engine.update((_document(place, row) for place, row in enumerate(rows)), ())

    def change(self, rows: Mapping[int, Row]) -> None:
        self._engine.update([_document(place, row) for place, row in rows.items()], ())

    def find(self, query: str, limit: int) -> Sequence[int]:
        return [hit.id for hit in self._engine.rank(query, limit, None)]


class RandomVectors:
    """Embedder that costs nothing: random vectors of MiniLM's size, and for a query one of those made before."""

    id, dimension = "random:384", 384

    def embed(self, texts: Sequence[str]) -> Any:
        rows = np.random.default_rng(7).standard_normal((len(texts), self.dimension), np.float32)
        self._made = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return self._made

    def embed_query(self, text: str) -> Any:
        return self._made[len(text) % len(self._made)]


def _open_embedder(name: Any) -> Any:
    from smart_mcp_proxy.search.embedders import open_embedder
    from smart_mcp_proxy.settings import Settings

    return open_embedder(Settings(embedder=name), {})


class OurHybrid:
    """The product path of HYBRID, or of AUTO with its encoder; tools are embedded as they are added."""

    def __init__(self, rows: Iterable[Row], embedder: Any) -> None:
        from smart_mcp_proxy.gateway.engines import vector_engine
        from smart_mcp_proxy.search import SearchIndex
        from smart_mcp_proxy.search.embedders.static import is_static
        from smart_mcp_proxy.search.vectors.vectors import VectorIndex
        from smart_mcp_proxy.settings import Settings

        documents = [_document(place, row) for place, row in enumerate(rows)]
        self._embedder = embedder
        self._vectors = VectorIndex(embedder.dimension, is_rounded=is_static(embedder.id))
        self._index = SearchIndex(vector_engine(Settings(embedder="HYBRID"), embedder, self._vectors))
        self._add(documents)

    def change(self, rows: Mapping[int, Row]) -> None:
        self._add([_document(place, row) for place, row in rows.items()])

    def _add(self, documents: Sequence[Any]) -> None:
        from smart_mcp_proxy.search.embedding import build_embedding_text

        vectors = self._embedder.embed(list(map(build_embedding_text, documents)))
        self._vectors.update([document.id for document in documents], vectors)
        self._index.update(documents)

    def find(self, query: str, limit: int) -> Sequence[int]:
        return [hit.id for hit in self._index.search(query, limit=limit).hits]


def _document(place: int, row: Row) -> Any:
    from smart_mcp_proxy.models import Document

    listed_name = f"{row['server']}__{row['name']}"
    parameters = tuple(parameters_of(row))
    return Document(place, row["server"], row["name"], "", row["description"] or "", parameters, listed_name)


def _text(row: Row) -> str:
    parameters = " ".join(f"{name} {text}" for name, text in parameters_of(row))
    return f"{row['server']} {row['name']} {row['description'] or ''} {parameters}"


class Rebuilt:
    """A candidate that knows no change: it is built anew from all texts.

    Args:
        rows: The tools.
        build: Texts to a function from query and limit to row numbers.
        text: What is indexed of a tool.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        build: Callable[[list[str]], Callable[[str, int], Sequence[int]]],
        text: Callable[[Row], str] = _text,
    ) -> None:
        self._texts = list(map(text, rows))
        self._build, self._text = build, text
        self._find = build(self._texts)

    def change(self, rows: Mapping[int, Row]) -> None:
        for place, row in rows.items():
            self._texts[place] = self._text(row)
        self._find = self._build(self._texts)

    def find(self, query: str, limit: int) -> Sequence[int]:
        return self._find(query, limit)


def _rank_bm25(texts: list[str]) -> Callable[[str, int], Sequence[int]]:
    from rank_bm25 import BM25Okapi

    model = BM25Okapi([text.lower().split() for text in texts])

    def find(query: str, limit: int) -> Sequence[int]:
        scores = model.get_scores(query.lower().split())
        return [int(place) for place in np.argsort(-scores, kind="stable")[:limit] if scores[place] > 0]

    return find


def _bm25s(texts: list[str]) -> Callable[[str, int], Sequence[int]]:
    import bm25s

    model = bm25s.BM25()
    model.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)

    def find(query: str, limit: int) -> Sequence[int]:
        tokens = bm25s.tokenize([query], stopwords="en", show_progress=False)
        places, scores = model.retrieve(tokens, k=min(limit, len(texts)), show_progress=False)
        return [int(place) for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    return find


def _faiss(texts: list[str]) -> Callable[[str, int], Sequence[int]]:
    import faiss

    rng = np.random.default_rng(7)
    vectors = rng.standard_normal((len(texts), 384), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(384)
    index.add(vectors)
    faiss.omp_set_num_threads(1)

    def find(query: str, limit: int) -> Sequence[int]:
        place = len(query) % len(texts)
        return [int(row) for row in index.search(vectors[place : place + 1], limit)[1][0]]

    return find


class FullText:
    """SQLite's full-text search with its Porter stemmer, in memory; a query's words are alternatives."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE VIRTUAL TABLE tools USING fts5(text, tokenize='porter unicode61')")
        insert = "INSERT INTO tools(rowid, text) VALUES (?, ?)"
        self._database.executemany(insert, ((place, _text(row)) for place, row in enumerate(rows)))

    def change(self, rows: Mapping[int, Row]) -> None:
        update = "UPDATE tools SET text = ? WHERE rowid = ?"
        self._database.executemany(update, [(_text(row), place) for place, row in rows.items()])

    def find(self, query: str, limit: int) -> Sequence[int]:
        words = " OR ".join(f'"{word}"' for word in "".join(c if c.isalnum() else " " for c in query).split())
        select = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY rank LIMIT ?"
        return [place for (place,) in self._database.execute(select, (words, limit))] if words else []


class FastMcpTransform:
    """FastMCP's search transform as its search tool calls it; names carry the server's, as mounting makes them."""

    def __init__(self, rows: Iterable[Row]) -> None:
        from fastmcp.server.transforms.search.bm25 import BM25SearchTransform

        self._tools = [self._tool(row) for row in rows]
        self._places = {tool.name: place for place, tool in enumerate(self._tools)}
        self._transform = BM25SearchTransform()
        self._loop = asyncio.new_event_loop()
        self.find("build the index", 1)

    def _tool(self, row: Row) -> Any:
        from fastmcp.tools.base import Tool

        schema = row.get("input_schema") or {"type": "object"}
        name = f"{row['server']}_{row['name']}"
        return Tool(name=name, description=row["description"] or "", parameters=schema)

    def change(self, rows: Mapping[int, Row]) -> None:
        for place, row in rows.items():
            self._tools[place] = self._tool(row)

    def find(self, query: str, limit: int) -> Sequence[int]:
        self._transform._max_results = limit
        found = self._loop.run_until_complete(self._transform._search(self._tools, query))
        return [self._places[tool.name] for tool in found]


class SmartMcpProxy031:
    """The indexer of smart-mcp-proxy 0.3.1 from the package index, with its own database and settings."""

    def __init__(self, rows: Iterable[Row]) -> None:
        warnings.simplefilter("ignore")
        from mcpproxy.indexer.facade import IndexerFacade
        from mcpproxy.persistence.facade import PersistenceFacade

        self._folder = tempfile.TemporaryDirectory(prefix="peer-")
        path = self._folder.name
        store = PersistenceFacade(f"{path}/proxy.db", f"{path}/tools.faiss")
        self._index = IndexerFacade(store, index_dir=path)
        self._loop = asyncio.new_event_loop()
        self._places: dict[tuple[str, str], int] = {}
        self._add(enumerate(rows))
        self.find("build the index", 1)

    def change(self, rows: Mapping[int, Row]) -> None:
        self._add(rows.items())

    def _add(self, rows: Iterable[tuple[int, Row]]) -> None:
        from fastmcp.tools.tool import Tool

        async def index() -> None:
            for place, row in rows:
                self._places[row["server"], row["name"]] = place
                tool = Tool(name=row["name"], description=row["description"] or "", parameters=_plain_schema(row))
                await self._index.index_tool_from_object(tool, row["server"])

        self._loop.run_until_complete(index())

    def find(self, query: str, limit: int) -> Sequence[int]:
        found = self._loop.run_until_complete(self._index.search_tools(query, limit))
        return [self._places[result.tool.server_name, result.tool.name] for result in found]


def _plain_schema(row: Row) -> dict[str, Any]:
    """The schema with an object for each parameter: smart-mcp-proxy 0.3.1 fails on `true`, which some tools have."""
    schema = row.get("input_schema") or {}
    properties = schema.get("properties") or {}
    return {**schema, "properties": {name: spec if isinstance(spec, dict) else {} for name, spec in properties.items()}}


CANDIDATES: Mapping[str, Callable[[Iterable[Row]], Candidate]] = {
    OURS: lambda rows: OurHybrid(rows, _open_embedder("AUTO")),
    "ours, product path": lambda rows: OurIndex(rows, "bm25f"),
    "ours, engine alone": OurEngine,
    "ours, HYBRID without encoder": lambda rows: OurHybrid(rows, RandomVectors()),
    WITH_MINILM: lambda rows: OurHybrid(rows, _open_embedder("HF")),
    "rank_bm25 on our words, product path": lambda rows: OurIndex(rows, "rank_bm25"),
    "rank_bm25, split at spaces": lambda rows: Rebuilt(rows, _rank_bm25),
    "bm25s, its tokenizer": lambda rows: Rebuilt(rows, _bm25s),
    "FastMCP BM25SearchTransform": FastMcpTransform,
    "SQLite FTS5, porter": FullText,
    "faiss flat, 384 random": lambda rows: Rebuilt(rows, _faiss),
    "smart-mcp-proxy 0.3.1": SmartMcpProxy031,
}
PEERS = frozenset({"bm25s, its tokenizer", "smart-mcp-proxy 0.3.1"})
"""What runs in an environment of its own; smart-mcp-proxy 0.3.1 needs an older fastmcp than the gateway."""

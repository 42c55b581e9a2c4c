"""The systems that an evaluation compares: the gateway's own engines, filled with the tools of a pool."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.evaluation.pool import ToolCorpus
from smart_mcp_proxy.gateway.engines import lexical_engine, vector_engine
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search import Engine, SearchIndex
from smart_mcp_proxy.search.embedders.static import is_static
from smart_mcp_proxy.search.embedding import Embedder, build_embedding_text, format_pace, text_hash
from smart_mcp_proxy.search.vectors.links import from_bytes, to_bytes
from smart_mcp_proxy.search.vectors.vectors import VectorIndex
from smart_mcp_proxy.settings import Settings

EMBEDDED_TOGETHER = 32
"""Texts embedded between two looks at the keyboard; what is stored is never more than so many behind."""

OnStep = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


class Filled(msgspec.Struct, frozen=True):
    """An index over a pool, and the engine inside."""

    index: SearchIndex
    engine: Engine


@dataclass(frozen=True, slots=True)
class System:
    """Ranking system to evaluate: settings, and an embedder with its vectors.

    Attributes:
        name: As it is shown.
        settings: Say which engines are used.
        embedder: None where words alone rank.
        vectors: Of the tools' texts, by `text_hash`, shape (dimension,) each; all that will be searched.
    """

    name: str
    settings: Settings
    embedder: Embedder | None = None
    vectors: Mapping[str, NDArray[np.float32]] = field(default_factory=dict, repr=False)

    async def build(self, pool: ToolCorpus) -> Filled:
        """An index with the pool's tools."""
        return await to_thread.run_sync(self._fill, pool.documents())

    def _fill(self, documents: Sequence[Document]) -> Filled:
        if self.embedder is None:
            engine: Engine = lexical_engine(self.settings)
        else:
            rows = [self.vectors[text_hash(build_embedding_text(document))] for document in documents]
            vectors = VectorIndex(self.embedder.dimension, is_rounded=is_static(self.embedder.id))
            vectors.update([document.id for document in documents], np.array(rows, np.float32))
            engine = vector_engine(self.settings, self.embedder, vectors)
        index = SearchIndex(engine)
        index.update(documents)
        return Filled(index, engine)


async def prepare_vectors(
    catalog: Catalog, embedder: Embedder, pool: ToolCorpus, on_step: OnStep
) -> Mapping[str, NDArray[np.float32]]:
    """Vectors of a pool's tools by `text_hash`, from the catalog or newly made and stored.

    Raises:
        EmbeddingError: The embedder failed; what it made before is stored.
    """
    texts = {text_hash(text): text for text in map(build_embedding_text, pool.documents())}
    stored = await catalog.read_vectors(embedder.id, list(texts))
    decoded = {key: from_bytes(data, embedder.dimension) for key, data in stored.items()}
    found = {key: vector for key, vector in decoded.items() if vector is not None}
    missing = [key for key in texts if key not in found]
    began_s = time.monotonic()
    for start in range(0, len(missing), EMBEDDED_TOGETHER):
        keys = missing[start : start + EMBEDDED_TOGETHER]
        made = await to_thread.run_sync(embedder.embed, [texts[key] for key in keys])
        vectors = dict(zip(keys, made, strict=True))
        await catalog.store_vectors(embedder.id, {key: to_bytes(vector) for key, vector in vectors.items()})
        found |= vectors
        done = start + len(keys)
        pace = format_pace(done, time.monotonic() - began_s, len(missing) - done)
        on_step(f"Embedding tools {pace}", done, len(missing))
    return found

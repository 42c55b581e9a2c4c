"""Vectors for a stored catalog without the minutes that embedding takes: random ones, under the local model's id."""

from pathlib import Path

import numpy as np

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.gateway.indexing.documents import build_tool_document
from smart_mcp_proxy.search.embedders import open_embedder
from smart_mcp_proxy.search.embedding import build_embedding_text, text_hash
from smart_mcp_proxy.search.vectors.links import to_bytes
from smart_mcp_proxy.settings import Settings

__all__ = ["store_vectors"]

_SEED = 7
_NAME_LIMIT = 60


async def store_vectors(data_dir: Path) -> None:
    """Store a vector for each tool of a catalog, as if the bundled model had made it."""
    embedder = open_embedder(Settings(embedder="HYBRID"), {})
    rng = np.random.default_rng(_SEED)
    async with Catalog.open(data_dir, name_limit=_NAME_LIMIT) as catalog:
        hashes = {
            text_hash(build_embedding_text(build_tool_document(record))) for record in catalog.snapshot.by_id.values()
        }
        made = rng.standard_normal((len(hashes), embedder.dimension), np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        await catalog.store_vectors(embedder.id, dict(zip(hashes, map(to_bytes, made), strict=True)))

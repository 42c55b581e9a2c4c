"""Runs any sentence-transformers model with torch. The one place that imports sentence-transformers."""

from collections.abc import Mapping, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.snapshot import find_snapshot, verify_revision
from smart_mcp_proxy.search.embedding import encodable

_BATCH_TEXTS = 32
"""sentence-transformers' own default; a query waits for one batch of indexing at the most."""


class SentenceTransformerEmbedder:
    """Turns text into vectors with torch, on the device that sentence-transformers chooses.

    Args:
        model: A folder, or a name on the Hugging Face hub. What is not on this machine is downloaded.
        environ: Where `HF_HOME` and its like are looked up.

    Raises:
        EmbeddingError: The model cannot be found, downloaded or loaded, or its weights are not the known ones.
    """

    def __init__(self, model: str, environ: Mapping[str, str]) -> None:
        try:
            # Imported on use: an optional dependency, and ten seconds that other embedders need not pay.
            from sentence_transformers import SentenceTransformer
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()  # loading draws on stderr otherwise
            folder = find_snapshot(model, environ)
            revision = verify_revision(folder, model) if folder else None
            self._model = SentenceTransformer(str(folder or model))
        except (ImportError, OSError, ValueError, RuntimeError, KeyError) as exc:
            raise EmbeddingError(
                f"sentence-transformers cannot load MCPPROXY_HF_MODEL={model}: {type(exc).__name__}: {exc}",
                hint="Check the name and the network, or set MCPPROXY_HF_MODEL to the folder of a downloaded model.",
            ) from exc
        if revision is None:
            downloaded = find_snapshot(model, environ)
            revision = verify_revision(downloaded, model) if downloaded else "unknown"
        self._lock = Lock()  # its tokenizer must not be used by two threads at once
        self.dimension = self._encode(["dimension"], is_query=True).shape[1]
        self.id = f"hf:{model}:{revision}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension)."""
        vectors = np.empty((len(texts), self.dimension), np.float32)
        for start in range(0, len(texts), _BATCH_TEXTS):
            batch = slice(start, start + _BATCH_TEXTS)
            vectors[batch] = self._encode(texts[batch], is_query=False)
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of unit length, shape (dimension,)."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, one row of unit length each, shape (len(texts), dimension)."""
        return self._encode(texts, is_query=True)

    def _encode(self, texts: Sequence[str], *, is_query: bool) -> NDArray[np.float32]:
        encode = self._model.encode_query if is_query else self._model.encode_document
        try:
            with self._lock:
                vectors = encode(list(map(encodable, texts)), normalize_embeddings=True, show_progress_bar=False)
        except RuntimeError as exc:
            raise EmbeddingError(
                f"The model failed: {exc}",
                hint="Restart the gateway; with less memory use a smaller MCPPROXY_HF_MODEL.",
            ) from exc
        if not np.isfinite(vectors).all():
            raise EmbeddingError("The model answers numbers that are not finite.", hint="Install its files again.")
        return np.asarray(vectors, np.float32)

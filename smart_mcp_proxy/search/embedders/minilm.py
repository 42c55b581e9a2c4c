"""Edge of the extra `minilm`: all-MiniLM-L6-v2 and models built like it, without torch."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.bert import BertEncoder
from smart_mcp_proxy.search.embedders.recipe import read_recipe
from smart_mcp_proxy.search.embedders.snapshot import WEIGHTS, damaged, verified_revision
from smart_mcp_proxy.search.embedders.tensors import read_tensors
from smart_mcp_proxy.search.embedders.texts import encodable

__all__ = ["MiniLmEmbedder"]


class MiniLmEmbedder:
    """Turns text into the vectors that sentence-transformers computes from the same files, to 1e-5.

    Args:
        folder: The snapshot: weights, tokenizer and configuration.
        model: The name it was asked for by; part of the id, and decides which weights are right.

    Raises:
        EmbeddingError: The snapshot is damaged, or of a kind that needs torch.
    """

    def __init__(self, folder: Path, model: str) -> None:
        # Imported on use: optional dependencies.
        from threadpoolctl import threadpool_limits
        from tokenizers import Tokenizer

        # For the whole process: the threads of a BLAS spin while they wait for each other, and where the cores are
        # busy a query of 12 ms takes 400 (measured). `embed` spreads whole batches over cores instead.
        threadpool_limits(1, user_api="blas")
        recipe = read_recipe(folder)
        revision = verified_revision(folder, model)
        try:
            self._encoder = BertEncoder(read_tensors(folder / WEIGHTS), recipe.shape)
            self._encoder.encode([[0]])  # says whether the shapes fit, and brings the file into memory
        except (KeyError, ValueError, IndexError, ZeroDivisionError) as exc:
            raise damaged(folder / WEIGHTS, f"it does not hold the model of config.json: {exc}") from exc
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as exc:  # the library raises nothing more precise
            raise damaged(folder / "tokenizer.json", str(exc)) from exc
        if self._tokenizer.get_vocab_size() > self._encoder.vocabulary_size:
            raise damaged(folder / "tokenizer.json", "it knows more tokens than the model")
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(recipe.max_tokens)
        self._recipe = recipe
        self.dimension = self._encoder.dimension
        self.id = f"hf:{model}:{revision}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension)."""
        return self._encode([self._recipe.document_prompt + text for text in texts], _indexing_threads())

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of unit length, shape (dimension,)."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, one row of unit length each, shape (len(texts), dimension)."""
        return self._encode([self._recipe.query_prompt + text for text in texts])

    def _encode(self, texts: Sequence[str], threads: int = 1) -> NDArray[np.float32]:
        # One by one: the tokenizer's batches start threads of their own, which then warn at every fork.
        sequences = [self._tokenizer.encode(encodable(text)).ids for text in texts]
        vectors = self._encoder.encode(sequences, threads)
        if not np.isfinite(vectors).all():
            raise EmbeddingError("The model answers numbers that are not finite.", hint="Install its files again.")
        return vectors


def _indexing_threads() -> int:
    """Half of the cores: searches go on while tools are indexed."""
    return max(1, (os.cpu_count() or 1) // 2)

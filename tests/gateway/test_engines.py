"""Which engine ranks under which settings."""

import numpy as np
import pytest
from numpy.typing import NDArray

from smart_mcp_proxy.gateway.engines import lexical_engine, vector_engine
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.engines.fused import FusedEngine
from smart_mcp_proxy.search.vectors.vectors import VectorIndex
from smart_mcp_proxy.settings import Settings


class NoWords:
    """An embedder that nobody asks."""

    id = "test:none"
    dimension = 2

    def embed(self, texts: object) -> object:
        """Not reached."""
        raise AssertionError

    def embed_query(self, text: str) -> object:
        """Not reached."""
        raise AssertionError


class OneAnswer(NoWords):
    """An embedder with one vector for every query."""

    def __init__(self, model: str, vector: NDArray[np.float32]) -> None:
        self.id = model
        self._vector = vector

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._vector


@pytest.mark.parametrize(("setting", "name"), [("builtin", "bm25f"), ("rank_bm25", "rank_bm25")])
def test_the_lexical_engine_is_the_one_asked_for(setting: str, name: str) -> None:
    """MCPPROXY_BM25_ENGINE chooses."""
    assert lexical_engine(Settings(bm25_engine=setting)).name == name


@pytest.mark.parametrize(
    ("setting", "name"), [("AUTO", "hybrid"), ("HYBRID", "hybrid"), ("HF", "vector"), ("OPENAI", "vector")]
)
def test_words_count_beside_vectors_under_auto_and_hybrid_only(setting: str, name: str) -> None:
    """MCPPROXY_EMBEDDER chooses."""
    assert vector_engine(Settings(embedder=setting), NoWords(), VectorIndex(2)).name == name


@pytest.mark.parametrize(
    ("model", "cosine"), [("hf:all-MiniLM-L6-v2:384", 1.0), ("hf:tiny:384", pytest.approx(0.1, abs=0.09))]
)
def test_cosines_of_other_models_are_brought_to_the_scale_of_the_bundled_one(model: str, cosine: object) -> None:
    """A model to which all tools are nearly the same says little by a cosine of 1."""
    rows = np.ones((12, 2), np.float32) + np.linspace(0, 0.02, 24, dtype=np.float32).reshape(12, 2)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    embedder = OneAnswer(model, rows[5])
    documents = [Document(number, "files", f"tool_{number}") for number in range(12)]
    vectors = VectorIndex(2)
    vectors.update([document.id for document in documents], rows)
    engine = vector_engine(Settings(embedder="HF"), embedder, vectors)
    engine.update(documents, ())
    vectors.update([document.id for document in documents], rows)
    assert engine.explain("anything", [5])[5]["vector"] == cosine


def test_words_go_on_ranking_in_the_engine_with_vectors() -> None:
    """Their index is not made twice, and what changes from then on reaches it."""
    words, documents = lexical_engine(Settings()), {1: Document(1, "files", "read_file", "", "Read a file.")}
    words.update(documents.values(), ())
    first = vector_engine(Settings(embedder="HYBRID"), NoWords(), VectorIndex(2), words, documents)
    second = vector_engine(Settings(embedder="HYBRID"), NoWords(), VectorIndex(2), first, documents)
    second.update([Document(2, "files", "write_file", "", "Write a file.")], [1])

    assert isinstance(second, FusedEngine)
    assert second.lexical is words
    assert [hit.id for hit in words.rank("file", 5, None)] == [2]

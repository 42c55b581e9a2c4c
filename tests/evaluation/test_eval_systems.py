"""The systems that an evaluation compares: what they are filled with, and that no vector is made twice."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.evaluation import (
    LabelledQuery,
    LabelledTool,
    System,
    ToolCorpus,
    pool_of_tools,
    prepare_vectors,
    run_queries,
)
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

DIMENSION = 64


class WordHashes:
    """An embedder that turns each word into a direction, counts its texts, and may be told to fail."""

    id = "test:words"
    dimension = DIMENSION

    def __init__(self) -> None:
        self.embedded: list[str] = []
        self.fails_after = 1_000_000

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit row a text."""
        if len(self.embedded) + len(texts) > self.fails_after:
            raise EmbeddingError("The model is gone.")
        self.embedded += texts
        return np.array([self._vector(text) for text in texts], np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """One unit row."""
        if self.fails_after == 0:
            raise EmbeddingError("The model is gone.")
        return self._vector(text)

    def _vector(self, text: str) -> NDArray[np.float32]:
        vector = np.zeros(DIMENSION, np.float32)
        for word in text.lower().replace(".", " ").split():
            vector[hashlib.sha256(word.encode()).digest()[0] % DIMENSION] += 1
        unit: NDArray[np.float32] = vector / np.linalg.norm(vector)
        return unit


def some_tools(count: int) -> ToolCorpus:
    """Tools that differ in one word."""
    tools = [
        LabelledTool(ToolKey("server", f"tool_{number}"), {"name": f"tool_{number}", "description": f"does {number}"})
        for number in range(count)
    ]
    return pool_of_tools(tools, 60)


def silent(label: str, done: int, total: int) -> None:
    """Nobody looks."""


async def test_vectors_are_made_once_and_kept_in_the_data_directory(tmp_path: Path) -> None:
    """A second evaluation embeds only what is new, and gets the same vectors."""
    embedder = WordHashes()
    steps: list[tuple[int, int]] = []
    labels: list[str] = []

    def on_step(label: str, done: int, total: int) -> None:
        labels.append(label)
        steps.append((done, total))

    async with Catalog.open(tmp_path, name_limit=60) as catalog:
        first = await prepare_vectors(catalog, embedder, some_tools(70), on_step)
    assert len(embedder.embedded) == len(first) == 70
    assert steps == [(32, 70), (64, 70), (70, 70)]
    assert all(re.fullmatch(r"Embedding tools [\d,]+/s, about \d+ s left", label) for label in labels)
    async with Catalog.open(tmp_path, name_limit=60) as catalog:
        second = await prepare_vectors(catalog, embedder, some_tools(71), silent)
    assert len(embedder.embedded) == 71
    assert all(np.array_equal(second[key], vector) for key, vector in first.items())


async def test_what_was_made_before_an_embedder_failed_is_kept(tmp_path: Path) -> None:
    """The next evaluation goes on from there."""
    embedder = WordHashes()
    embedder.fails_after = 40
    async with Catalog.open(tmp_path, name_limit=60) as catalog:
        with pytest.raises(EmbeddingError, match="gone"):
            await prepare_vectors(catalog, embedder, some_tools(70), silent)
        embedder.fails_after = 1_000_000
        await prepare_vectors(catalog, embedder, some_tools(70), silent)
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 70


async def test_a_vector_system_ranks_by_meaning_and_says_when_it_cannot(tmp_path: Path) -> None:
    """The fused engine of the gateway ranks; once its embedder fails, the run names the reason."""
    embedder, pool = WordHashes(), some_tools(10)
    async with Catalog.open(tmp_path, name_limit=60) as catalog:
        vectors = await prepare_vectors(catalog, embedder, pool, silent)
    system = System("HYBRID", Settings(embedder="HYBRID"), embedder, vectors)
    queries = [LabelledQuery("q", "server tool 7 does 7", (frozenset({"server:tool_7"}),))]
    run = await run_queries(system, queries, pool, silent)
    assert run.outcomes[0].ranked[0] == "server:tool_7"
    assert run.problems == ()
    embedder.fails_after = 0
    run = await run_queries(system, queries, pool, silent)
    assert run.outcomes[0].ranked[0] == "server:tool_7"
    assert "The model is gone" in run.problems[0]

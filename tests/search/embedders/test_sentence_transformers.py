"""The same model with torch. Left out where torch is not installed; `make test-torch` brings it."""

from pathlib import Path

import numpy as np
import pytest
from embedding_fakes import replace_file

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders import open_embedder
from smart_mcp_proxy.search.embedders.minilm import MiniLmEmbedder
from smart_mcp_proxy.search.embedders.transformers import SentenceTransformerEmbedder
from smart_mcp_proxy.settings import Settings

pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed: make test-torch")
pytestmark = pytest.mark.filterwarnings("default")  # torch's own are not ours

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TEXTS = [
    "",
    "read a file",
    "搜索文件",
    "🦊",
    "Grüße",
    "a \ud800 b",
    "word " * 1000,
    *(f"tool {at}" for at in range(70)),
]


@pytest.fixture(scope="module")
def with_torch() -> SentenceTransformerEmbedder:
    """The model as sentence-transformers runs it."""
    return SentenceTransformerEmbedder(MODEL, {})


def test_both_ways_have_the_same_vectors_and_id(
    with_torch: SentenceTransformerEmbedder, minilm: MiniLmEmbedder
) -> None:
    """Whoever installs torch later keeps the stored vectors."""
    assert with_torch.id == minilm.id
    np.testing.assert_allclose(with_torch.embed(TEXTS), minilm.embed(TEXTS), atol=1e-5)
    np.testing.assert_allclose(with_torch.embed_query("read a file"), minilm.embed_query("read a file"), atol=1e-5)
    assert with_torch.embed([]).shape == (0, 384)


def test_torch_runs_every_model(copied_files: Path) -> None:
    """Here one with a pooling that the other way refuses."""
    replace_file(copied_files / "1_Pooling/config.json", '{"embedding_dimension": 384, "pooling_mode": "max"}')
    embedder = open_embedder(Settings(embedder="HF", hf_model=str(copied_files)), {}, lambda module: True)
    assert embedder.embed_query("read a file").shape == (384,)


def test_a_folder_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    """With the reason that sentence-transformers gives."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(EmbeddingError, match="cannot load MCPPROXY_HF_MODEL"):
        SentenceTransformerEmbedder(str(tmp_path), {})

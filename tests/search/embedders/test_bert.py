"""The encoder as an ONNX model: it computes what a plain forward pass does, whatever is computed together."""

import json
from pathlib import Path

import numpy as np
import pytest
from embedding_fakes import replace_file
from numpy.typing import NDArray
from plain_bert import reference_vectors, write_weights
from tokenizers import Tokenizer

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.minilm import MiniLmEmbedder

WIDTH, HEADS, LAYERS, WORDS, POSITIONS = 8, 2, 2, 30_522, 64
TEXTS = ["file the one", "one the file", "", *("many words " * count for count in (70, 1, 12, 3, 25))]


def random_weights(prefix: str = "", dtype: type[np.floating] = np.float32) -> dict[str, NDArray[np.floating]]:
    """The tensors of a small model, always the same."""
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for at in range(LAYERS):
        for name, outputs, inputs in (
            ("attention.self.query", WIDTH, WIDTH),
            ("attention.self.key", WIDTH, WIDTH),
            ("attention.self.value", WIDTH, WIDTH),
            ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", 4 * WIDTH, WIDTH),
            ("output.dense", WIDTH, 4 * WIDTH),
        ):
            shapes[f"encoder.layer.{at}.{name}.weight"] = (outputs, inputs)
            shapes[f"encoder.layer.{at}.{name}.bias"] = (outputs,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{at}.{name}.weight"] = (WIDTH,)
            shapes[f"encoder.layer.{at}.{name}.bias"] = (WIDTH,)
    return {prefix + name: (random.standard_normal(shape) * 0.5).astype(dtype) for name, shape in shapes.items()}


@pytest.fixture
def small_model(copied_files: Path) -> Path:
    """MiniLM's tokenizer with a small model of random weights."""
    config = json.loads((copied_files / "config.json").read_text())
    config |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "max_position_embeddings": POSITIONS}
    replace_file(copied_files / "config.json", json.dumps(config))
    (copied_files / "model.safetensors").unlink()
    write_weights(copied_files / "model.safetensors", random_weights())
    return copied_files


def tokens_of(folder: Path, texts: list[str]) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(POSITIONS)
    return [tokenizer.encode(text).ids for text in texts]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_a_plain_forward_pass(
    small_model: Path, pooling: str, prefix: str, dtype: type[np.floating]
) -> None:
    """For both ways to pool, to name tensors and to store numbers: no component differs by more than 1e-6."""
    write_weights(small_model / "model.safetensors", random_weights(prefix, dtype))
    replace_file(small_model / "1_Pooling/config.json", json.dumps({"pooling_mode": pooling}))
    vectors = MiniLmEmbedder(small_model, str(small_model)).embed(TEXTS)
    plain = reference_vectors(small_model, tokens_of(small_model, TEXTS), pooling)
    assert np.abs(vectors - plain).max() <= 1e-6


def test_a_vector_does_not_depend_on_what_is_embedded_with_it(small_model: Path) -> None:
    """Every text of several batches, long and short ones mixed, has the vector it has alone, in its place."""
    embedder = MiniLmEmbedder(small_model, str(small_model))
    texts = [f"{at} {'word ' * (at * 37 % 61)}" for at in range(120)]
    vectors = embedder.embed(texts)
    assert vectors.shape == (len(texts), WIDTH)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    alone = np.array([embedder.embed([text])[0] for text in texts])
    assert np.abs(vectors - alone).max() <= 1e-6


def test_a_missing_tensor_is_named(small_model: Path) -> None:
    """Not guessed."""
    weights = random_weights()
    del weights["encoder.layer.1.output.dense.bias"]
    write_weights(small_model / "model.safetensors", weights)
    with pytest.raises(EmbeddingError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        MiniLmEmbedder(small_model, str(small_model))

"""The forward pass in numpy: its functions, and that it does not matter what is computed together."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_mcp_proxy.search.embedders.bert import BertEncoder, BertShape, Pooling, gelu

WIDTH, HEADS, WORDS, POSITIONS = 8, 2, 50, 40


def random_weights(layers: int, prefix: str = "") -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """The tensors of a small model, always the same."""
    random = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for at in range(layers):
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
    return {prefix + name: random.standard_normal(shape, np.float32) * 0.5 for name, shape in shapes.items()}


def small(pooling: Pooling = "mean", prefix: str = "") -> BertEncoder:
    """A model of two layers and two heads."""
    return BertEncoder(random_weights(2, prefix), BertShape(2, HEADS, 1e-12, pooling))


sequences = st.lists(st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=POSITIONS), max_size=12)


def test_gelu_is_x_times_the_normal_distribution_function() -> None:
    """Within 1e-6 of the exact value, and beyond 8 within what single precision can tell."""
    x = np.linspace(-40, 40, 160_001, dtype=np.float32).reshape(-1, 1)
    exact = np.array([value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in x[:, 0].tolist()])
    assert np.abs(gelu(x.copy())[:, 0] - exact).max() <= 4e-6
    near = np.abs(x[:, 0]) <= 8
    assert np.abs(gelu(x.copy())[near, 0] - exact[near]).max() <= 1e-6


@given(sequences)
def test_a_vector_does_not_depend_on_what_is_encoded_with_it(tokens: list[list[int]]) -> None:
    """Every sequence of a batch has the vector it has alone, in its place, of unit length."""
    encoder = small()
    vectors = encoder.encode(tokens)
    assert vectors.shape == (len(tokens), WIDTH)
    for vector, sequence in zip(vectors, tokens, strict=True):
        np.testing.assert_allclose(vector, encoder.encode([sequence])[0], atol=1e-5)
        assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


def test_more_than_one_batch_is_put_together_in_the_order_given() -> None:
    """5,000 tokens in sequences of all lengths, shuffled."""
    encoder = small()
    random = np.random.default_rng(1)
    tokens = [random.integers(0, WORDS, random.integers(1, POSITIONS)).tolist() for _ in range(250)]
    vectors = encoder.encode(tokens)
    for at in (0, 100, 249):
        np.testing.assert_allclose(vectors[at], encoder.encode([tokens[at]])[0], atol=1e-5)


def test_the_order_of_tokens_and_the_kind_of_pooling_matter() -> None:
    """Positions are added, and the first token's vector is not the mean."""
    one, other = small().encode([[1, 2, 3], [3, 2, 1]])
    assert np.abs(one - other).max() > 1e-3
    assert np.abs(one - small("cls").encode([[1, 2, 3]])[0]).max() > 1e-3


def test_weights_may_carry_the_prefix_of_the_whole_model() -> None:
    """Some files name their tensors `bert.embeddings...`."""
    np.testing.assert_array_equal(small(prefix="bert.").encode([[1, 2]]), small().encode([[1, 2]]))


def test_a_missing_tensor_is_named() -> None:
    """Not guessed."""
    weights = random_weights(2)
    del weights["encoder.layer.1.output.dense.bias"]
    with pytest.raises(KeyError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        BertEncoder(weights, BertShape(2, HEADS, 1e-12, "mean"))

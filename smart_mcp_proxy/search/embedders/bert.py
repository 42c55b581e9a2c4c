"""The forward pass of a BERT encoder in numpy: token ids in, one unit vector a sequence out."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BertEncoder", "BertShape", "Pooling", "gelu"]

Floats = NDArray[np.float32]
Pooling = Literal["mean", "cls"]

_BATCH_TOKENS = 1_024
"""Sequences are run together up to this many tokens: the gain of larger products ends there (measured), and a search
that waits for the cores behind one batch waits for a short one."""
_GELU_ROWS = 64
"""Rows of activations worked on at a time, so that the temporaries of GELU stay in the second-level cache."""

_ERF_P = 0.3275911
_ERF_COEFFICIENTS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""erfc(z) = (a5 t^5 + ... + a1 t) exp(-z^2), t = 1 / (1 + p z), z >= 0; absolute error <= 1.5e-7.

Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
"""


@dataclass(frozen=True, slots=True)
class BertShape:
    """Configuration of a model's encoder, beyond the shapes of its weights."""

    layers: int
    heads: int
    norm_epsilon: float
    pooling: Pooling


class _Dense(NamedTuple):
    """x -> x @ weight + bias; weight has shape (inputs, outputs)."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        y = x @ self.weight
        y += self.bias
        return y


class _Norm(NamedTuple):
    """Layer normalisation over the last axis."""

    weight: Floats
    bias: Floats
    epsilon: float

    def __call__(self, x: Floats) -> Floats:
        """Normalises rows of shape (tokens, width), in place."""
        x -= x.sum(axis=1, keepdims=True) / np.float32(x.shape[1])
        variance = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[1])
        x *= (1 / np.sqrt(variance + np.float32(self.epsilon)))[:, None]
        x *= self.weight
        x += self.bias
        return x


class _Layer(NamedTuple):
    """One block of attention and feed-forward network."""

    query_key_value: _Dense
    attended: _Dense
    attended_norm: _Norm
    widened: _Dense
    narrowed: _Dense
    narrowed_norm: _Norm


class _Run(NamedTuple):
    """Neighbouring sequences of equal length inside a batch."""

    start: int
    sequences: int
    length: int


class BertEncoder:
    """Turns token ids into sentence vectors. Immutable once built; may be used from many threads.

    All tokens of a batch go through the linear layers as the rows of one matrix, and only sequences of equal length
    share an attention product, so nothing is ever padded.

    Args:
        weights: The tensors of the model by their names in the file. They are used where they lie if they can be.
        shape: Layers, heads and pooling.

    Raises:
        KeyError: A tensor is missing.
        ValueError: The tensors do not fit each other.
    """

    def __init__(self, weights: Mapping[str, Floats], shape: BertShape) -> None:
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in weights else ""
        self._shape = shape
        self._words = weights[f"{prefix}embeddings.word_embeddings.weight"]
        types = weights[f"{prefix}embeddings.token_type_embeddings.weight"]
        self._positions = weights[f"{prefix}embeddings.position_embeddings.weight"] + types[0]
        self._norm = _norm(weights, f"{prefix}embeddings.LayerNorm", shape.norm_epsilon)
        self._layers = [_layer(weights, f"{prefix}encoder.layer.{at}.", shape) for at in range(shape.layers)]
        self.vocabulary_size, self.dimension = self._words.shape

    def encode(self, sequences: Sequence[Sequence[int]], threads: int = 1) -> Floats:
        """The unit vectors of token sequences, in their order, shape (len(sequences), dimension).

        Args:
            sequences: Token ids with the model's own first and last marks; at least one, at most as many as it has
                positions.
            threads: How many batches are computed at the same time.
        """
        vectors = np.empty((len(sequences), self.dimension), np.float32)
        by_length = sorted(range(len(sequences)), key=lambda at: len(sequences[at]))
        batches = list(_batches(by_length, sequences))
        encoded = partial(self._encode_batch, sequences)
        if threads == 1:
            parts = list(map(encoded, batches))
        else:
            with ThreadPoolExecutor(threads) as pool:
                parts = list(pool.map(encoded, batches))
        for batch, part in zip(batches, parts, strict=True):
            vectors[batch] = part
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def _encode_batch(self, every: Sequence[Sequence[int]], batch: Sequence[int]) -> Floats:
        """Pooled vectors of the sequences at the places in `batch`, which are sorted by length."""
        sequences = [every[at] for at in batch]
        runs = list(_runs(sequences))
        x: Floats = self._words[[token for tokens in sequences for token in tokens]]
        for start, count, length in runs:
            x[start : start + count * length].reshape(count, length, -1)[:] += self._positions[:length]
        x = self._norm(x)
        for layer in self._layers:
            mixed = layer.attended(self._attend(layer.query_key_value(x), runs))
            mixed += x
            x = layer.attended_norm(mixed)
            narrowed = layer.narrowed(gelu(layer.widened(x)))
            narrowed += x
            x = layer.narrowed_norm(narrowed)
        return np.concatenate([self._pool(x, run) for run in runs])

    def _attend(self, query_key_value: Floats, runs: Sequence[_Run]) -> Floats:
        """Each token's mix of the values of its own sequence, shape (tokens, width)."""
        width = query_key_value.shape[1] // 3
        mixed = np.empty((query_key_value.shape[0], width), np.float32)
        for start, count, length in runs:
            rows = slice(start, start + count * length)
            # (3, count, heads, length, width of a head), all views
            parts = query_key_value[rows].reshape(count, length, 3, self._shape.heads, -1).transpose(2, 0, 3, 1, 4)
            query, key, value = parts
            attention = query @ key.swapaxes(2, 3)
            attention -= attention.max(axis=3, keepdims=True)
            np.exp(attention, out=attention)
            values = attention @ value
            values /= attention.sum(axis=3, keepdims=True)
            mixed[rows].reshape(count, length, self._shape.heads, -1)[:] = values.swapaxes(1, 2)
        return mixed

    def _pool(self, x: Floats, run: _Run) -> Floats:
        start, count, length = run
        tokens = x[start : start + count * length].reshape(count, length, -1)
        return tokens.mean(axis=1) if self._shape.pooling == "mean" else tokens[:, 0]


def gelu(x: Floats) -> Floats:
    """GELU, x * Phi(x), in place on a matrix; within 1e-6 up to |x| = 8."""
    for start in range(0, x.shape[0], _GELU_ROWS):
        _gelu_block(x[start : start + _GELU_ROWS])
    return x


def _gelu_block(x: Floats) -> None:
    # gelu(x) = max(x, 0) - |x| erfc(|x| / sqrt 2) / 2, which needs no case for the sign.
    size = np.abs(x)
    t = size * np.float32(_ERF_P / np.sqrt(2))
    t += np.float32(1)
    np.reciprocal(t, out=t)
    tail = t * np.float32(_ERF_COEFFICIENTS[0] / 2)
    for coefficient in _ERF_COEFFICIENTS[1:]:
        tail += np.float32(coefficient / 2)
        tail *= t
    tail *= size
    np.square(size, out=size)
    size *= np.float32(-0.5)
    tail *= np.exp(size, out=size)
    np.maximum(x, np.float32(0), out=x)
    x -= tail


def _batches(order: Sequence[int], sequences: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Cuts `order` into lists of at most `_BATCH_TOKENS` tokens, or of a single sequence."""
    batch: list[int] = []
    size = 0
    for at in order:
        if batch and size + len(sequences[at]) > _BATCH_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += len(sequences[at])
    if batch:
        yield batch


def _runs(sequences: Sequence[Sequence[int]]) -> Iterator[_Run]:
    start = 0
    for length, equal in groupby(map(len, sequences)):
        count = sum(1 for _ in equal)
        yield _Run(start, count, length)
        start += count * length


def _dense(weights: Mapping[str, Floats], name: str) -> _Dense:
    return _Dense(weights[f"{name}.weight"].T, weights[f"{name}.bias"])


def _norm(weights: Mapping[str, Floats], name: str, epsilon: float) -> _Norm:
    return _Norm(weights[f"{name}.weight"], weights[f"{name}.bias"], epsilon)


def _layer(weights: Mapping[str, Floats], prefix: str, shape: BertShape) -> _Layer:
    return _Layer(
        _query_key_value(weights, f"{prefix}attention.self.", shape.heads),
        _dense(weights, f"{prefix}attention.output.dense"),
        _norm(weights, f"{prefix}attention.output.LayerNorm", shape.norm_epsilon),
        _dense(weights, f"{prefix}intermediate.dense"),
        _dense(weights, f"{prefix}output.dense"),
        _norm(weights, f"{prefix}output.LayerNorm", shape.norm_epsilon),
    )


def _query_key_value(weights: Mapping[str, Floats], prefix: str, heads: int) -> _Dense:
    """The three projections as one product, the scale of attention folded into the query's."""
    query, key, value = (_dense(weights, f"{prefix}{part}") for part in ("query", "key", "value"))
    scale = np.float32((query.weight.shape[1] / heads) ** -0.5)
    stacked = np.concatenate([query.weight.T * scale, key.weight.T, value.weight.T])
    return _Dense(stacked.T, np.concatenate([query.bias * scale, key.bias, value.bias]))

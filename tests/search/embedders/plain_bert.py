"""The forward pass of BERT as its paper writes it, one sequence at a time: what vectors are compared with."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

erf = np.vectorize(math.erf)


def read_weights(file: Path) -> dict[str, Array]:
    """The floating-point tensors of a file, in double precision."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    weights = {}
    for name, entry in header.items():
        if kind := {"F32": "<f4", "F16": "<f2"}.get(entry.get("dtype")):
            begin, end = entry["data_offsets"]
            numbers = np.frombuffer(data[start + begin : start + end], kind)
            weights[name.removeprefix("bert.")] = numbers.reshape(entry["shape"]).astype(np.float64)
    return weights


def write_weights(file: Path, weights: Mapping[str, Array]) -> None:
    """A file with these tensors, in single or half precision as they are."""
    header, body = {}, b""
    for name, tensor in weights.items():
        data = tensor.tobytes()
        kind = {"float32": "F32", "float16": "F16"}[tensor.dtype.name]
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)


def reference_vectors(folder: Path, sequences: Sequence[Sequence[int]], pooling: str = "mean") -> Array:
    """The unit vectors of token sequences, shape (len(sequences), width)."""
    config = json.loads((folder / "config.json").read_text())
    weights = read_weights(folder / "model.safetensors")
    vectors = []
    for tokens in sequences:
        x = hidden(weights, config, tokens)
        pooled = x.mean(axis=0) if pooling == "mean" else x[0]
        vectors.append(pooled / np.linalg.norm(pooled))
    return np.array(vectors)


def hidden(weights: Mapping[str, Array], config: Mapping[str, Any], tokens: Sequence[int]) -> Array:
    """The last layer's output, shape (tokens, width)."""
    heads = config["num_attention_heads"]

    def dense(x: Array, name: str) -> Array:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        x = x - x.mean(axis=1, keepdims=True)
        x = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + config["layer_norm_eps"])
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def split(x: Array) -> Array:
        return x.reshape(len(tokens), heads, -1).swapaxes(0, 1)

    table = "embeddings.{}_embeddings.weight".format
    x = (
        weights[table("word")][list(tokens)]
        + weights[table("position")][: len(tokens)]
        + weights[table("token_type")][0]
    )
    x = norm(x, "embeddings.LayerNorm")
    for at in (f"encoder.layer.{number}." for number in range(config["num_hidden_layers"])):
        query, key, value = (split(dense(x, f"{at}attention.self.{part}")) for part in ("query", "key", "value"))
        scores = query @ key.swapaxes(1, 2) / math.sqrt(query.shape[2])
        attention = np.exp(scores - scores.max(axis=2, keepdims=True))
        attention /= attention.sum(axis=2, keepdims=True)
        mixed = (attention @ value).swapaxes(0, 1).reshape(len(tokens), -1)
        x = norm(x + dense(mixed, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
        wide = dense(x, f"{at}intermediate.dense")
        wide *= (1 + erf(wide / math.sqrt(2))) / 2
        x = norm(x + dense(wide, f"{at}output.dense"), f"{at}output.LayerNorm")
    return x

"""A BERT encoder as an ONNX model whose weights stay in their safetensors file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from smart_mcp_proxy.search.embedders.onnx import CONTRIB, DType, external_weight, model, node, tensor_info
from smart_mcp_proxy.search.embedders.tensors import Tensor

Pooling = Literal["mean", "cls"]

_DTYPES = {"F32": DType.FLOAT, "F16": DType.FLOAT16}


@dataclass(frozen=True, slots=True)
class BertShape:
    """Configuration of a model's encoder, beyond the shapes of its weights."""

    layers: int
    heads: int
    norm_epsilon: float
    pooling: Pooling


def bert_model(tensors: Mapping[str, Tensor], shape: BertShape, file: str) -> bytes:
    """The encoder with inputs `tokens`, `mask` and `pool`, and the output `pooled`.

    `tokens` and `mask`, shape (sequences, length), int32: ids, with zeros after the end of a sequence, where `mask` is
    zero and elsewhere one. `pool`, shape (sequences, 1, length), float32: how much each token counts in the sum that is
    `pooled`, shape (sequences, 1, width).

    Args:
        tensors: Of the model by their names in the file.
        shape: Layers and heads.
        file: The name of the file with the tensors.

    Raises:
        KeyError: A tensor is missing, or its numbers are of a type that no layer uses.
    """
    graph = _Graph(tensors, shape, file)
    x = graph.embed()
    for layer in range(shape.layers):
        x = graph.layer(f"encoder.layer.{layer}.", x)
    graph.pool(x)
    inputs = [tensor_info(name, DType.INT32, ("sequences", "length")) for name in ("tokens", "mask")]
    inputs.append(tensor_info("pool", DType.FLOAT, ("sequences", "one", "length")))
    outputs = [tensor_info("pooled", DType.FLOAT, ("sequences", "one", "width"))]
    return model(graph.nodes, graph.weights, inputs, outputs)


class _Graph:
    """The nodes so far, and the weights that they use."""

    def __init__(self, tensors: Mapping[str, Tensor], shape: BertShape, file: str) -> None:
        self._prefix = "bert." if "bert.embeddings.word_embeddings.weight" in tensors else ""
        self._tensors = tensors
        self._shape = shape
        self._file = file
        self.nodes: list[bytes] = []
        self.weights: list[bytes] = []

    def embed(self) -> str:
        """Adds what makes the first layer's input, and `lengths`, how many ones each row of `mask` has."""
        self._add("Sub", ["mask", "mask"], "types", domain="")
        tables = [f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
        weights = [self._weight(name) for name in (*tables, *_parameters("embeddings.LayerNorm"))]
        inputs = ["tokens", "types", *weights, "mask"]
        self._add("EmbedLayerNormalization", inputs, "x", "lengths", epsilon=self._shape.norm_epsilon)
        return "x"

    def layer(self, at: str, x: str) -> str:
        """Adds one block of attention and feed-forward network on `x`; returns its output."""
        query, key, value = (f"{at}attention.self.{part}" for part in ("query", "key", "value"))
        biases = [self._weight(f"{part}.bias") for part in (query, key, value)]
        self._add("Concat", biases, f"{at}biases", domain="", axis=0)
        inputs = [*(self._product(x, part) for part in (query, key, value)), f"{at}biases", "lengths"]
        self._add("MultiHeadAttention", inputs, f"{at}mixed", num_heads=self._shape.heads)
        x = self._add_and_norm(x, f"{at}mixed", f"{at}attention.output")
        bias = self._weight(f"{at}intermediate.dense.bias")
        self._add("BiasGelu", [self._product(x, f"{at}intermediate.dense"), bias], f"{at}widened")
        return self._add_and_norm(x, f"{at}widened", f"{at}output")

    def pool(self, x: str) -> None:
        """Adds the sum of tokens, each as much as `pool` says."""
        self._add("MatMul", ["pool", x], "pooled", domain="")

    def _add_and_norm(self, x: str, other: str, at: str) -> str:
        """The normalised sum of `x` and a linear layer of another tensor."""
        product = self._product(other, f"{at}.dense")
        weights = [self._weight(name) for name in (*_parameters(f"{at}.LayerNorm"), f"{at}.dense.bias")]
        return self._add("SkipLayerNormalization", [product, x, *weights], at, epsilon=self._shape.norm_epsilon)

    def _product(self, x: str, at: str) -> str:
        return self._add("FusedMatMul", [x, self._weight(f"{at}.weight")], at, transB=1)

    def _add(self, operator: str, inputs: list[str], *outputs: str, domain: str = CONTRIB, **options: float) -> str:
        self.nodes.append(node(operator, inputs, outputs, domain, **options))
        return outputs[0]

    def _weight(self, name: str) -> str:
        """The name of a weight in single precision."""
        tensor = self._tensors[self._prefix + name]
        weight = external_weight(
            name, _DTYPES[tensor.dtype], tensor.shape, self._file, tensor.offset, tensor.size_bytes
        )
        self.weights.append(weight)
        if tensor.dtype == "F32":
            return name
        return self._add("Cast", [name], f"{name} widened", domain="", to=DType.FLOAT)


def _parameters(norm: str) -> tuple[str, str]:
    return f"{norm}.weight", f"{norm}.bias"

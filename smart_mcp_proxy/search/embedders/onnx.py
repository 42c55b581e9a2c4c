"""Writes models in the ONNX format, with weights that stay in the file they lie in.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto; https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum

CONTRIB = "com.microsoft"
"""The domain of ONNX runtime's own operators: whole parts of a transformer in one step."""

_IR_VERSION, _OPSET, _CONTRIB_OPSET = 8, 17, 1
_EXTERNAL = 1
_FLOAT_ATTRIBUTE, _INT_ATTRIBUTE = 1, 2


class DType(IntEnum):
    """Types of a tensor's numbers, by their codes in the format."""

    FLOAT = 1
    INT32 = 6
    FLOAT16 = 10


def node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = CONTRIB, **attributes: int | float
) -> bytes:
    """Encode a graph node: an operator that makes the tensors `outputs` of the tensors `inputs`."""
    encoded = (
        _message((1, name), (2, value), (20, _FLOAT_ATTRIBUTE))
        if isinstance(value, float)
        else _message((1, name), (3, value), (20, _INT_ATTRIBUTE))
        for name, value in attributes.items()
    )
    return _message(*_each(1, inputs), *_each(2, outputs), (4, operator), *_each(5, encoded), (7, domain))


def external_weight(name: str, dtype: DType, shape: Sequence[int], file: str, offset: int, size_bytes: int) -> bytes:
    """A constant tensor whose numbers lie in `file`, in the folder that the session has as an option."""
    where = {"location": file, "offset": str(offset), "length": str(size_bytes)}
    entries = (_message((1, key), (2, value)) for key, value in where.items())
    return _message(*_each(1, shape), (2, dtype), (8, name), *_each(13, entries), (14, _EXTERNAL))


def tensor_info(name: str, dtype: DType, shape: Sequence[str]) -> bytes:
    """An input or output of the model; its dimensions are names of sizes that vary."""
    dimensions = _message(*_each(1, (_message((2, size)) for size in shape)))
    return _message((1, name), (2, _message((1, _message((1, dtype), (2, dimensions))))))


def model(nodes: Iterable[bytes], weights: Iterable[bytes], inputs: Iterable[bytes], outputs: Iterable[bytes]) -> bytes:
    """The whole model; nodes in the order of their execution."""
    graph = _message(*_each(1, nodes), (2, "graph"), *_each(5, weights), *_each(11, inputs), *_each(12, outputs))
    opsets = (_message((1, ""), (2, _OPSET)), _message((1, CONTRIB), (2, _CONTRIB_OPSET)))
    return _message((1, _IR_VERSION), (7, graph), *_each(8, opsets))


_Value = int | float | str | bytes


def _each(field: int, values: Iterable[_Value]) -> Iterable[tuple[int, _Value]]:
    return ((field, value) for value in values)


def _message(*fields: tuple[int, _Value]) -> bytes:
    """A message of numbered fields; bytes are messages inside of it."""
    parts: list[bytes] = []
    for number, value in fields:
        if isinstance(value, int):
            parts += _varint(number << 3), _varint(value)
        elif isinstance(value, float):
            parts += _varint(number << 3 | 5), struct.pack("<f", value)
        else:
            data = value.encode() if isinstance(value, str) else value
            parts += _varint(number << 3 | 2), _varint(len(data)), data
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last byte have their highest bit set."""
    groups = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])

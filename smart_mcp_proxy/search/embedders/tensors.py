"""Reads a file in the safetensors format without copying it.

Source: github.com/huggingface/safetensors, Format: 8 bytes of length, a JSON header, then the tensors' bytes.
"""

from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.search.embedders.snapshot import damaged

__all__ = ["read_tensors"]

_LENGTH_BYTES = 8
_DTYPES = {"F32": "<f4", "F16": "<f2"}


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def read_tensors(file: Path) -> dict[str, NDArray[np.float32]]:
    """The floating-point tensors of a file by name.

    Those in single precision lie in the mapped file, so that many processes share one copy in memory.

    Raises:
        EmbeddingError: It is no such file, or shorter than it says.
    """
    try:
        data = np.asarray(np.memmap(file, np.uint8, "r"))  # a plain array: the subclass would slow down every step
        start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
        if start > len(data):
            raise ValueError("it is shorter than its header")
        header = msgspec.json.decode(data[_LENGTH_BYTES:start].tobytes(), type=dict[str, Any])
        header.pop("__metadata__", None)
        tensors = msgspec.convert(header, dict[str, _Tensor])
        body = data[start:]
        return {name: _view(body, tensor) for name, tensor in tensors.items() if tensor.dtype in _DTYPES}
    except (OSError, ValueError, OverflowError) as exc:
        raise damaged(file, str(exc)) from exc


def _view(body: NDArray[np.uint8], tensor: _Tensor) -> NDArray[np.float32]:
    start, stop = tensor.data_offsets
    size = np.dtype(_DTYPES[tensor.dtype]).itemsize * prod(tensor.shape)
    if not 0 <= start <= stop <= len(body) or stop - start != size:
        raise ValueError("a tensor lies outside of the file")
    return body[start:stop].view(_DTYPES[tensor.dtype]).reshape(tensor.shape).astype(np.float32, copy=False)

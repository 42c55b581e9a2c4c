"""Finds the tensors in a file in the safetensors format.

8 bytes of length, a JSON header, then the tensors' bytes. Source: https://github.com/huggingface/safetensors#format
"""

from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from smart_mcp_proxy.search.embedders.snapshot import build_damage_error

_LENGTH_BYTES = 8
_ITEM_BYTES = {"F32": 4, "F16": 2}


class Tensor(NamedTuple):
    """Position of a tensor in its file.

    Attributes:
        dtype: F32 or F16, little endian.
        shape: Rows first.
        offset: Of its first byte in the file.
        size_bytes: Of all of it.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


class _Entry(msgspec.Struct):
    """A tensor in the header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def find_tensors(file: Path) -> dict[str, Tensor]:
    """The floating-point tensors of a file by name.

    Raises:
        EmbeddingError: It is no such file, or shorter than it says.
    """
    try:
        with file.open("rb") as data:
            start = _LENGTH_BYTES + int.from_bytes(data.read(_LENGTH_BYTES), "little")
            size = file.stat().st_size
            if start > size:
                raise ValueError("it is shorter than its header")
            header = msgspec.json.decode(data.read(start - _LENGTH_BYTES), type=dict[str, Any])
        header.pop("__metadata__", None)
        entries = msgspec.convert(header, dict[str, _Entry])
        return {name: _tensor(entry, start, size) for name, entry in entries.items() if entry.dtype in _ITEM_BYTES}
    except (OSError, ValueError) as exc:
        raise build_damage_error(file, str(exc)) from exc


def _tensor(entry: _Entry, start: int, file_bytes: int) -> Tensor:
    begin, end = entry.data_offsets
    if not 0 <= begin <= end <= file_bytes - start or end - begin != _ITEM_BYTES[entry.dtype] * prod(entry.shape):
        raise ValueError("a tensor lies outside of the file")
    return Tensor(entry.dtype, entry.shape, start + begin, end - begin)

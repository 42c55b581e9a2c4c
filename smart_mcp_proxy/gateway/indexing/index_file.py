"""The side-car `tools.index` with the lexical index: a cache; a broken one is ignored.

SHA-256 of everything behind it | JSON of format and arrays, a line | the arrays, one after another
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.vectors.file_lock import try_lock_file
from smart_mcp_proxy.telemetry import get_logger

INDEX_NAME = "tools.index"

_FORMAT = "1"
"""Of the file; what the arrays hold, they say themselves."""

_DIGEST_BYTES = 32
_HEADER_LIMIT_BYTES = 64 * 1024

log = get_logger("index")


class _Header(msgspec.Struct):
    """Names, types and lengths of the arrays, in their order."""

    format: str
    arrays: list[tuple[str, str, int]]


class _StoredArrays(Mapping[str, NDArray[Any]]):
    """Arrays of an open file, read when they are asked for: all at once take half of the index's memory.

    Args:
        file: Open.
        header: Of the file.
        start: Where the arrays begin.
    """

    def __init__(self, file: BufferedReader, header: _Header, start: int) -> None:
        self._file = file
        self._places: dict[str, tuple[int, np.dtype[Any], int]] = {}
        for name, code, length in header.arrays:
            dtype = np.dtype(code)
            self._places[name] = (start, dtype, length)
            start += length * dtype.itemsize

    def __getitem__(self, name: str) -> NDArray[Any]:
        start, dtype, length = self._places[name]
        self._file.seek(start)
        return np.fromfile(self._file, dtype, length)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@contextmanager
def open_index_file(path: Path) -> Iterator[Arrays | None]:
    """The arrays of the side-car while it is open; None if it is not whole, or of another format."""
    with ExitStack() as stack:
        arrays = None
        try:
            arrays = _read(stack.enter_context(path.open("rb")))
        except (OSError, ValueError, TypeError) as exc:  # msgspec's errors are ValueErrors
            log.debug("side-car '%s' is not used: %s", path, exc)
        yield arrays


def _read(file: BufferedReader) -> _StoredArrays:
    digest = file.read(_DIGEST_BYTES)
    if hashlib.file_digest(file, "sha256").digest() != digest:
        raise ValueError("its checksum does not fit")
    file.seek(_DIGEST_BYTES)
    header = msgspec.json.decode(file.readline(_HEADER_LIMIT_BYTES), type=_Header)
    if header.format != _FORMAT:
        raise ValueError("it has another format")
    return _StoredArrays(file, header, file.tell())


def save(path: Path, arrays: Arrays) -> bool:
    """Replace the side-car atomically: at any moment one of them is whole.

    Returns:
        Whether it was written; another process that is writing one now goes first.

    Raises:
        OSError: The file cannot be written.
    """
    staged = path.with_name(f"{path.name}.new")
    with try_lock_file(staged) as is_alone:
        if not is_alone:
            return False  # what a dead process left there is written over
        with staged.open("r+b") as file:
            file.truncate(0)
            file.write(bytes(_DIGEST_BYTES))
            described = [(name, array.dtype.str, len(array)) for name, array in arrays.items()]
            file.write(msgspec.json.encode(_Header(_FORMAT, described)) + b"\n")
            for array in arrays.values():
                array.tofile(file)
            file.seek(_DIGEST_BYTES)
            digest = hashlib.file_digest(file, "sha256").digest()
            file.seek(0)
            file.write(digest)
        staged.replace(path)
    return True

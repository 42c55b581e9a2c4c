"""The side-car `tools.faiss` with all tools' vectors: a cache; a broken one is ignored.

A Faiss index that `faiss.read_index` loads, and behind it what links its vectors to tools:

    Faiss index | text hashes, 32 bytes each | embedder id, UTF-8 | footer | SHA-256 of everything before
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import SearchError
from smart_mcp_proxy.file_changes import sync_folder
from smart_mcp_proxy.search.vectors.faiss_edge import read_index, write_index
from smart_mcp_proxy.search.vectors.file_lock import try_lock_file
from smart_mcp_proxy.telemetry import get_logger

SIDECAR_NAME = "tools.faiss"
"""Source: docs/design/processes.md#the-catalog"""

_FOOTER = struct.Struct("<8sQQII")
"""Magic, bytes of the index, number of vectors, dimension, bytes of the embedder's id."""
_MAGIC = b"mcpprox2"
_DIGEST_BYTES = 32

_log = get_logger("search")


class Sidecar(msgspec.Struct, frozen=True):
    """Contents of the file.

    Attributes:
        embedder_id: Whose vectors they are.
        ids: Tools, shape (n,).
        hashes: Hex SHA-256 of the text that each vector was made of: one counts only while its tool has that text. So
            a file of an older catalog can do no harm, and what did not change is taken from it.
        vectors: Shape (n, dimension).
    """

    embedder_id: str
    ids: NDArray[np.int64]
    hashes: Sequence[str]
    vectors: NDArray[np.float32]


def load(path: Path, embedder_id: str, dimension: int) -> Sidecar | None:
    """Load the side-car if it is whole and of this embedder, else None.

    Raises:
        MissingExtraError: Faiss is not installed.
    """
    try:
        sidecar = _parse_sidecar(path.read_bytes())
        if sidecar.embedder_id != embedder_id or sidecar.vectors.shape[1] != dimension:
            raise SearchError(f"It holds vectors of '{sidecar.embedder_id}', not of '{embedder_id}'.")
    except (OSError, SearchError) as exc:
        _log.debug("side-car '%s' is not used: %s", path, exc)
        return None
    return sidecar


def save(path: Path, sidecar: Sidecar) -> bool:
    """Replace the side-car atomically: at any moment one of them is whole.

    Returns:
        Whether it was written; another process that is writing one now goes first.

    Raises:
        OSError, SearchError: The file cannot be written.
        MissingExtraError: Faiss is not installed.
    """
    staged = path.with_name(f"{path.name}.new")
    with try_lock_file(staged) as is_alone:
        if not is_alone:
            return False  # what a dead process left there is written over
        write_index(staged, sidecar.ids, sidecar.vectors)
        _append_trailer(staged, sidecar)
        staged.replace(path)
    sync_folder(path.parent)
    return True


def _parse_sidecar(data: bytes) -> Sidecar:
    """Parse a whole file.

    Raises:
        SearchError: The file is not whole, or no side-car.
    """
    end = len(data) - _DIGEST_BYTES
    start = end - _FOOTER.size
    view = memoryview(data)
    if start < 0 or hashlib.sha256(view[:end]).digest() != data[end:]:
        raise SearchError("Its checksum does not fit.")
    magic, index_bytes, count, dimension, id_bytes = _FOOTER.unpack(view[start:end])
    if magic != _MAGIC or index_bytes + count * _DIGEST_BYTES + id_bytes != start:
        raise SearchError("It has another format.")
    ids, vectors = read_index(data[:index_bytes])
    if vectors.shape != (count, dimension) or len(ids) != count:
        raise SearchError(f"It holds vectors of shape {vectors.shape}, not {(count, dimension)}.")
    hashes = data[index_bytes : start - id_bytes].hex()
    digits = 2 * _DIGEST_BYTES
    return Sidecar(
        embedder_id=data[start - id_bytes : start].decode("utf-8", "replace"),
        ids=ids,
        hashes=[hashes[at : at + digits] for at in range(0, len(hashes), digits)],
        vectors=vectors,
    )


def _append_trailer(path: Path, sidecar: Sidecar) -> None:
    """Completes a file that holds the index alone, and sees it on disk."""
    embedder_id = sidecar.embedder_id.encode()
    count, dimension = sidecar.vectors.shape
    with path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256")
        footer = _FOOTER.pack(_MAGIC, file.tell(), count, dimension, len(embedder_id))
        trailer = bytes.fromhex("".join(sidecar.hashes)) + embedder_id + footer
        digest.update(trailer)
        file.write(trailer + digest.digest())
        file.flush()
        os.fsync(file.fileno())

"""Links of vectors to tools, by the hash of the embedded text and nothing else."""

import threading
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.embedding import build_embedding_text, text_hash
from smart_mcp_proxy.search.vectors.sidecar import Sidecar
from smart_mcp_proxy.search.vectors.vectors import VectorIndex, are_sound

Vector = NDArray[np.float32]

_STORED = np.dtype("<f4")
"""Components as they are stored, on whichever machine."""


def to_bytes(vector: Vector) -> bytes:
    """A vector as it is stored: little-endian floats of 4 bytes."""
    return vector.astype(_STORED).tobytes()


def from_bytes(data: bytes, dimension: int) -> Vector | None:
    """A stored vector; None if it is damaged."""
    if len(data) != dimension * _STORED.itemsize:
        return None
    vector = np.frombuffer(data, _STORED).astype(np.float32)
    return vector if are_sound(vector[np.newaxis])[0] else None


class VectorLinks:
    """Gives tools their vectors, and takes away those that are not theirs any more.

    Safe for threads: changes follow each other under a lock.

    Args:
        vectors: Filled from here; whatever else takes vectors out of it has them put back.
    """

    def __init__(self, vectors: VectorIndex) -> None:
        self.vectors = vectors
        self._documents: Mapping[int, Document] = {}
        self._hashes: dict[int, str] = {}
        self._linked: dict[int, str] = {}
        self.revision = 0
        """Grows with every change of a link."""
        self._changing = threading.Lock()

    def __repr__(self) -> str:
        return f"<VectorLinks {len(self._linked)} of {len(self._hashes)} tools>"

    def follow(self, documents: Mapping[int, Document]) -> None:
        """Makes `documents` the tools that there are; a vector of a tool that reads otherwise now is dropped.

        Args:
            documents: By id; never changed afterwards.
        """
        with self._changing:
            old, self._documents = self._documents, documents
            if old is documents:
                return
            for id in old.keys() - documents.keys():
                del self._hashes[id]
            for id, document in documents.items():
                if old.get(id) is not document:
                    self._hashes[id] = text_hash(build_embedding_text(document))
            stale = [id for id, hash in self._linked.items() if self._hashes.get(id) != hash]
            self.vectors.update((), np.empty((0, self.vectors.dimension), np.float32), stale)
            for id in stale:
                del self._linked[id]
            self.revision += bool(stale)

    def find_missing_vectors(self) -> dict[str, list[int]]:
        """The tools without a vector, by the hash of their text."""
        with self._changing:
            found: dict[str, list[int]] = {}
            has_vector = self.vectors.has(np.array(list(self._hashes), np.int64)).tolist()
            for (id, hash), is_there in zip(self._hashes.items(), has_vector, strict=True):
                if self._linked.get(id) != hash or not is_there:
                    found.setdefault(hash, []).append(id)
            return found

    def texts(self, wanted: Mapping[str, Sequence[int]]) -> dict[str, str]:
        """The texts of tools, given by hash, as they are returned."""
        documents = self._documents
        return {hash: build_embedding_text(documents[ids[0]]) for hash, ids in wanted.items()}

    def link(self, found: Mapping[int, tuple[str, Vector]]) -> None:
        """Gives tools their vectors, unless they read otherwise by now.

        Args:
            found: By tool id: the hash of a text, and its vector.

        Raises:
            SearchError: One is no vector.
        """
        with self._changing:
            fitting = {id: vector for id, (hash, vector) in found.items() if self._hashes.get(id) == hash}
            if fitting:
                self.vectors.update(list(fitting), np.stack(list(fitting.values())))
                self._linked.update((id, self._hashes[id]) for id in fitting)
                self.revision += 1

    def take_over(self, sidecar: Sidecar) -> None:
        """Gives tools the vectors that a side-car has for them."""
        sound = are_sound(sidecar.vectors)
        self.link(
            {
                id: (hash, vector)
                for id, hash, vector, is_sound in zip(
                    sidecar.ids.tolist(), sidecar.hashes, sidecar.vectors, sound, strict=True
                )
                if is_sound
            }
        )

    def hashes(self) -> Collection[str]:
        """The hashes of the texts of all tools."""
        with self._changing:
            return set(self._hashes.values())

    def dump_vectors(self) -> dict[str, bytes]:
        """All vectors as they are stored, by the hash of their text."""
        with self._changing:
            ids, vectors = self.vectors.take(self._linked)
            return {self._linked[id]: to_bytes(vector) for id, vector in zip(ids, vectors, strict=True)}

    def sidecar(self, embedder_id: str) -> Sidecar:
        """All links, as they are kept in a side-car."""
        with self._changing:
            ids, vectors = self.vectors.take(self._linked)
            hashes = [self._linked[id] for id in ids]
        return Sidecar(embedder_id, np.array(ids, np.int64), hashes, vectors)

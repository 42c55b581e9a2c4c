"""Static encoder: a vector for each wordpiece, and a text is their sum. Needs numpy alone."""

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import MissingExtraError
from smart_mcp_proxy.search.embedders.wordpieces import Wordpieces
from smart_mcp_proxy.search.languages import OTHER_EUROPEAN, detect_language

ENCODER_FILE: Final = Path(__file__).with_name("static_encoder.bin")
"""Comes with the package; scripts/train_encoder.py makes it, static_encoder.md beside it says what it is."""

_ID_PREFIX: Final = "static:"

_FORMAT: Final = "smart-mcp-proxy static encoder 1"
"""Changes with whatever would make older code read a file wrongly."""
_HEADER_BYTES: Final = 1_024
"""More than any first line has."""
_SCALE_BYTES: Final = 4
_BYTE_MAX: Final = 127
_REVISION_DIGITS: Final = 12


class EncoderTable(NamedTuple):
    """The content of an encoder's file.

    Attributes:
        pieces: The vocabulary.
        scales: What a row's bytes are to be multiplied by, shape (n,), float32.
        rows: The vector of each piece, shape (n, dimension), int8.
    """

    pieces: Sequence[str]
    scales: NDArray[np.float32]
    rows: NDArray[np.int8]


class _Header(msgspec.Struct):
    """First line of the file, as JSON; then the pieces, a line each, the scales and the rows."""

    format: str
    revision: str
    count: int
    dimension: int
    pieces_bytes: int


def pack_vectors(pieces: Sequence[str], vectors: NDArray[np.float32]) -> EncoderTable:
    """Round the vectors of pieces, one row each, to a byte a component."""
    scales = np.maximum(np.abs(vectors).max(axis=1), np.finfo(np.float32).tiny) / _BYTE_MAX
    rows = np.rint(vectors / scales[:, np.newaxis]).astype(np.int8)
    return EncoderTable(pieces, scales.astype(np.float32), rows)


def write_encoder(path: Path, table: EncoderTable, revision: str) -> None:
    """Write an encoder's file; `revision` names its vectors: those of two are never compared."""
    words = "\n".join(table.pieces).encode()
    count, dimension = table.rows.shape
    header = _Header(_FORMAT, revision[:_REVISION_DIGITS], count, dimension, len(words))
    scales = table.scales.astype("<f4").tobytes()
    path.write_bytes(b"".join((msgspec.json.encode(header), b"\n", words, scales, table.rows.tobytes())))


def is_static(embedder_id: str) -> bool:
    """Whether an embedder of this id is a static encoder."""
    return embedder_id.startswith(_ID_PREFIX)


class StaticEmbedder:
    """Embedder whose vector of a text is the sum of its pieces' vectors; takes microseconds.

    A text without known pieces gets the vector of no meaning in particular as a tool, and zeros as a query.

    Args:
        path: The encoder's file; it is mapped, not read, so that processes share it.

    Raises:
        MissingExtraError: It is missing, cut short, or of another version, which only an installation mends.
    """

    def __init__(self, path: Path = ENCODER_FILE) -> None:
        header, table = _read_encoder(path)
        self._pieces = Wordpieces(table.pieces)
        self._scales, self._rows = table.scales, table.rows
        self.dimension = header.dimension
        self.id = f"{_ID_PREFIX}{header.revision}:{header.dimension}"
        self._nothing = np.full(header.dimension, header.dimension**-0.5, np.float32)

    def __repr__(self) -> str:
        return f"<StaticEmbedder {self.id}>"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension)."""
        vectors = self._sum_pieces(texts)
        vectors[~vectors.any(axis=1)] = self._nothing
        return vectors

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of unit length or zeros, shape (dimension,)."""
        vector: NDArray[np.float32] = self.embed_queries([text])[0]
        return vector

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of one query's views, rows of unit length or zeros, shape (len(texts), dimension).

        A query in another European language gets zeros: its pieces stand near to English words of other meanings.
        """
        if detect_language(texts) in OTHER_EUROPEAN:
            return np.zeros((len(texts), self.dimension), np.float32)
        return self._sum_pieces(texts)

    def _sum_pieces(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            pieces = self._pieces(text)
            if pieces:
                vectors[row] = self._scales[pieces] @ self._rows[pieces].astype(np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        return vectors


def _read_encoder(path: Path) -> tuple[_Header, EncoderTable]:
    try:
        with path.open("rb") as file:
            line = file.readline(_HEADER_BYTES)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as exc:  # an empty file cannot be mapped
        raise _build_file_error(path, str(exc)) from exc
    try:
        header = msgspec.json.decode(line, type=_Header)
    except msgspec.DecodeError as exc:
        raise _build_file_error(path, "it is no encoder") from exc
    if header.format != _FORMAT:
        raise _build_file_error(path, f"its format is {header.format!r}, expected {_FORMAT!r}")
    words_end = len(line) + header.pieces_bytes
    rows_start = words_end + header.count * _SCALE_BYTES
    size = rows_start + header.count * header.dimension
    if len(data) != size:
        raise _build_file_error(path, f"it has {len(data):,} bytes, expected {size:,}")
    try:
        pieces = data[len(line) : words_end].decode().split("\n")
    except UnicodeDecodeError as exc:
        raise _build_file_error(path, "its words are damaged") from exc
    if len(pieces) != header.count:
        raise _build_file_error(path, f"it has {len(pieces):,} words, expected {header.count:,}")
    scales = np.frombuffer(data, "<f4", header.count, words_end)
    rows = np.frombuffer(data, np.int8, header.count * header.dimension, rows_start)
    return header, EncoderTable(pieces, scales, rows.reshape(header.count, header.dimension))


def _build_file_error(path: Path, reason: str) -> MissingExtraError:
    return MissingExtraError(
        f"The static encoder {path.name} cannot be used: {reason}.",
        hint="Install smart-mcp-proxy again, or set MCPPROXY_EMBEDDER=BM25 for words alone.",
    )

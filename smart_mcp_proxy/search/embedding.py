"""What the search room asks of anything that turns text into vectors, and the text of a tool that it gets."""

import hashlib
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document

__all__ = ["TEXT_LIMIT_CHARS", "Embedder", "text_hash", "text_of"]

TEXT_LIMIT_CHARS = 4_000
"""What is embedded of one tool; encoders read 256 to 8,192 tokens, and what matters stands first."""

_WORD_EDGE = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])")


class Embedder(Protocol):
    """Turns text into vectors. Every method blocks and may be called from any thread.

    Attributes:
        id: Names model, revision and dimension, so that vectors of two ids are never compared.
        dimension: Length of every vector.
    """

    id: str
    dimension: int

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension).

        Raises:
            EmbeddingError: The model or its service failed, or answered something that is no such matrix.
        """

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, of unit length, shape (dimension,).

        Raises:
            EmbeddingError: As above; a query does not wait for retries as long as indexing does.
        """


def text_of(document: Document) -> str:
    """The text that is embedded of a tool: server, name in words, description."""
    name = " ".join(_WORD_EDGE.split(document.name)).strip()
    return f"{document.server}. {name}. {document.description or document.title}"[:TEXT_LIMIT_CHARS]


def text_hash(text: str) -> str:
    """Hex SHA-256 of an embedded text: the definition hash under which its vector is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

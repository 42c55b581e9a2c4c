"""Interface of embedders, and the texts of a tool that they get."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.text import content_words, split_literals

TEXT_LIMIT_CHARS = 4_000
"""Characters embedded of one view of a tool; encoders read 256 to 8,192 tokens, and what matters stands first."""

_SENTENCE_LIMIT_CHARS = 300
"""A first sentence that goes on for longer is a list or a manual; 99 % of real ones end before."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s")
_SHORTEST_SENTENCE_CHARS = 20
"""A full stop before that ends an abbreviation or a heading."""

_REQUEST_PARTS = 6
"""Sentences of a request that are looked at by themselves; of 764 requests of 30 to 60 words none has more."""
_PART_WORDS = 3
"""A shorter sentence asks for nothing."""

_NEXT_VIEW = "\f"
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
        """The vector of a query, of unit length, shape (dimension,), or a row for each part of it.

        Raises:
            EmbeddingError: As above; a query does not wait for retries as long as indexing does.
        """


class ViewEmbedder:
    """Embedder that averages the vectors of a text's views.

    Of a tool, so that no part is drowned by a long description; of a query, so that its subject outweighs its wording.
    A request of several sentences is embedded as a whole and sentence by sentence, for each may need another tool.

    Args:
        embedder: Embeds each view.
        embed_queries: Embeds the views of a query, one row each: the whole of it, and its content words. Against the
            whole alone they gained 0.005 to 0.019 of recall@5 on each of four query sets. None: a query is one text.
    """

    def __init__(
        self, embedder: Embedder, embed_queries: Callable[[Sequence[str]], NDArray[np.float32]] | None = None
    ) -> None:
        self.id = f"{embedder.id}:views"
        self.dimension = embedder.dimension
        self._embedder = embedder
        self._embed_queries = embed_queries

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension).

        Args:
            texts: As `build_embedding_text` writes them; one without views is a view of its own.
        """
        views = [text.split(_NEXT_VIEW) for text in texts]
        rows = self._embedder.embed([view for each in views for view in each])
        if not texts:
            return rows
        starts = np.cumsum([0, *map(len, views[:-1])])
        sums = np.add.reduceat(rows, starts, axis=0)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # Opposite vectors may leave nothing of each other; then the first view stands for all.
        means: NDArray[np.float32] = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1), rows[starts])
        return means

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """The vector of a query, shape (dimension,), or a row for the whole and each of its sentences.

        The first row is that of the whole.
        """
        if self._embed_queries is None:
            return self._embedder.embed_query(text)
        parts = [text, *_sentences(text)]
        views = [(part, content_words(split_literals(part)[0]) or content_words(part) or part) for part in parts]
        texts = list(dict.fromkeys(view for pair in views for view in pair))
        rows = self._embed_queries(texts)
        wholes = rows[[texts.index(whole) for whole, _ in views]]
        both = wholes + rows[[texts.index(words) for _, words in views]]
        lengths = np.linalg.norm(both, axis=1, keepdims=True)
        means: NDArray[np.float32] = np.where(lengths > 0, both / np.where(lengths > 0, lengths, 1), wholes)
        return means if len(parts) > 1 else means[0]


def _sentences(text: str) -> list[str]:
    """The sentences of a request that has several; else none."""
    found = [part for part in _SENTENCE_END.split(text) if len(part.split()) >= _PART_WORDS]
    return found[:_REQUEST_PARTS] if len(found) > 1 else []


def build_embedding_text(document: Document) -> str:
    """The text that is embedded of a tool: its views, for `ViewEmbedder` to take apart.

    Heading (server and name in words), first sentence, heading with the whole description, learned questions if there
    are any. Against heading and description as one text, their mean vector gained 0.007 to 0.026 of nDCG@5 on each of
    four query sets, and the questions 0.02 of recall@1.
    """
    heading = f"{document.server}. {' '.join(_WORD_EDGE.split(document.name)).strip()}"
    description = document.description or document.title
    views = [heading, _first_sentence(description) or heading, f"{heading}. {description}"]
    if document.examples:
        views.append("; ".join(document.examples))
    return _NEXT_VIEW.join(view.replace(_NEXT_VIEW, " ")[:TEXT_LIMIT_CHARS] for view in views)


def format_pace(done: int, took_s: float, left: int) -> str:
    """Rate of embedding and time for the rest: `60/s, about 2 min left`; empty while nothing is known."""
    if not done or took_s <= 0:
        return ""
    rate, left_s = done / took_s, left * took_s / done
    shown = f"{rate:,.0f}/s" if rate >= 1 else f"{rate:.1f}/s"
    return f"{shown}, about {f'{left_s:.0f} s' if left_s < 60 else f'{left_s / 60:,.0f} min'} left"


def encodable(text: str) -> str:
    """The text with a question mark for every lone surrogate, which UTF-8 and so every encoder refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


def text_hash(text: str) -> str:
    """Hex SHA-256 of an embedded text: the definition hash under which its vector is stored."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _first_sentence(text: str) -> str:
    text = " ".join(text[:TEXT_LIMIT_CHARS].split())
    end = _SENTENCE_END.search(text, _SHORTEST_SENTENCE_CHARS)
    return text[: end.start() if end else None][:_SENTENCE_LIMIT_CHARS]

"""Which texts of a tool are embedded, and how their vectors become one."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from smart_mcp_proxy.models import Document
from smart_mcp_proxy.search.embedding import (
    TEXT_LIMIT_CHARS,
    ViewEmbedder,
    build_embedding_text,
    format_pace,
    text_hash,
)


class LetterEmbedder:
    """The counts of a, b and c, as a direction."""

    id = "letters"
    dimension = 3

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen += texts
        rows = np.array([[text.count(letter) for letter in "abc"] for text in texts], np.float32).reshape(-1, 3)
        if "minus" in texts:
            rows[texts.index("minus")] = [-1, 0, 0]
        lengths: NDArray[np.float32] = np.linalg.norm(rows, axis=1, keepdims=True)
        unit: NDArray[np.float32] = rows / lengths
        return unit

    def embed_query(self, text: str) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector


def views(document: Document) -> list[str]:
    return build_embedding_text(document).split("\f")


def test_a_tool_is_embedded_as_heading_first_sentence_and_whole() -> None:
    """The name stands there in words, since encoders know words and not identifiers."""
    description = "Reads a file, e.g. a log.\nReturns its text. Slow."
    assert views(Document(1, "files", "readFile_v2", "", description)) == [
        "files. read File v2",
        "Reads a file, e.g. a log.",
        f"files. read File v2. {description}",
    ]


def test_a_title_stands_in_for_a_description_and_the_heading_for_both() -> None:
    """Many tools have no description at all."""
    assert views(Document(1, "s", "do", "Do it"))[1:] == ["Do it", "s. do. Do it"]
    assert views(Document(1, "s", "do")) == ["s. do", "s. do", "s. do. "]


def test_learned_questions_are_a_view_of_their_own() -> None:
    """A tool without them has the text it had, and so keeps its vector."""
    assert views(Document(1, "s", "do", examples=("how?", "what?")))[3:] == ["how?; what?"]
    assert len(views(Document(1, "s", "do"))) == 3


@given(st.text(), st.text(), st.text(max_size=50), st.lists(st.text(), max_size=3))
def test_any_definition_makes_bounded_views_and_a_hash(server: str, name: str, text: str, examples: list[str]) -> None:
    """Separators and lone surrogates in definitions included."""
    document = Document(1, server, name, "", text * 200, examples=tuple(examples))
    parts = views(document)
    assert len(parts) == (4 if examples else 3)
    assert all(len(part) <= TEXT_LIMIT_CHARS for part in parts)
    assert len(text_hash(build_embedding_text(document))) == 64


def test_a_vector_is_the_mean_of_the_views() -> None:
    """Each view counts alike, however long it is, and texts do not mix."""
    embedder = ViewEmbedder(LetterEmbedder())
    rows = embedder.embed(["a\fbbb", "c", "a\fa\fb\fb"])
    half = np.sqrt(0.5)
    assert rows == pytest.approx(np.array([[half, half, 0], [0, 0, 1], [half, half, 0]]), abs=1e-6)
    assert rows.dtype == np.float32
    assert embedder.embed([]).shape == (0, 3)
    assert (embedder.id, embedder.dimension) == ("letters:views", 3)
    assert embedder.embed_query("c").tolist() == [0, 0, 1]


def test_a_request_of_several_sentences_is_embedded_sentence_by_sentence_too() -> None:
    """The whole first; what is too short to ask for anything has no row."""
    inner = LetterEmbedder()
    embedder = ViewEmbedder(inner, inner.embed)
    rows = embedder.embed_query("a b c. Then b b b! Thanks. And c c c?")
    alone = [embedder.embed_query(text) for text in ("a b c.", "Then b b b!", "And c c c?")]
    assert rows.shape == (4, 3)
    assert rows[1:] == pytest.approx(np.array(alone))
    assert embedder.embed_query("a b c. Thanks.").shape == (3,)


def test_a_querys_vector_is_the_mean_of_the_whole_and_its_content_words() -> None:
    """Both are embedded in one call, and only where the words are not the whole or nothing."""
    inner = LetterEmbedder()
    embedder = ViewEmbedder(inner, inner.embed)
    both = np.array([np.sqrt(0.5), 0, np.sqrt(0.5) + 1])
    assert embedder.embed_query("a c") == pytest.approx(both / np.linalg.norm(both))
    assert embedder.embed_query("b").tolist() == [0, 1, 0]
    assert embedder.embed_query("a").tolist() == [1, 0, 0]
    assert inner.seen == ["a c", "c", "b", "a"]


def test_the_content_words_of_a_query_are_those_beside_its_literals() -> None:
    """What is handed to a tool says little of which one it is; the whole has it anyway."""
    inner = LetterEmbedder()
    embedder = ViewEmbedder(inner, inner.embed)
    embedder.embed_query('close issue 4711 of https://example.com/a/b with "not planned"')
    assert inner.seen == ['close issue 4711 of https://example.com/a/b with "not planned"', "close issue"]


def test_a_querys_views_that_cancel_out_leave_the_whole() -> None:
    """A vector has unit length whatever the model says."""
    opposite = np.array([[0, 1, 0], [0, -1, 0]], np.float32)
    assert ViewEmbedder(LetterEmbedder(), lambda texts: opposite).embed_query("to b").tolist() == [0, 1, 0]


def test_views_that_cancel_out_leave_the_first() -> None:
    """A vector has unit length whatever the model says."""
    assert ViewEmbedder(LetterEmbedder()).embed(["a\fminus"]).tolist() == [[1, 0, 0]]


def test_all_views_are_embedded_together() -> None:
    """One call, so that batches stay full."""
    inner = LetterEmbedder()
    ViewEmbedder(inner).embed(["a\fb", "c"])
    assert inner.seen == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("done", "took_s", "left", "pace"),
    [
        (0, 0.0, 5_000, ""),
        (1_200, 20.0, 3_800, "60/s, about 1 min left"),
        (1_200, 20.0, 1_200, "60/s, about 20 s left"),
        (40_000, 10.0, 0, "4,000/s, about 0 s left"),
        (1, 4.0, 1_000, "0.2/s, about 67 min left"),
    ],
)
def test_the_pace_of_embedding_is_a_rate_and_the_time_that_is_left(
    done: int, took_s: float, left: int, pace: str
) -> None:
    """Nothing is said before anything is done."""
    assert format_pace(done, took_s, left) == pace

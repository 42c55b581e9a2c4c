"""The static encoder: pieces of words, their vectors, the file that comes with the package, and damaged ones."""

from pathlib import Path

import numpy as np
import pytest

from smart_mcp_proxy.errors import MissingExtraError
from smart_mcp_proxy.search.embedders.static import ENCODER_FILE, StaticEmbedder, is_static, pack_vectors, write_encoder
from smart_mcp_proxy.search.embedders.wordpieces import TEXT_PIECES, Wordpieces

PIECES = ("read", "file", "##s", "cafe", "##fi", "##le", "中", "##文")


@pytest.fixture(scope="module")
def packaged() -> StaticEmbedder:
    return StaticEmbedder()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file with two pieces of two components."""
    path = tmp_path / "small.bin"
    write_encoder(path, pack_vectors(["read", "file"], np.array([[3, 4], [0, 2]], np.float32)), "0123456789abcdef")
    return path


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Read files", "read file ##s"),
        ("readFile", "read file"),
        ("read_files.", "read file ##s"),
        ("Café", "cafe"),
        ("中文", "中 ##文"),
        ("readx file", "file"),
        ("\ud800 file", "file"),
        ("", ""),
    ],
)
def test_words_are_cut_into_the_longest_pieces(text: str, pieces: str) -> None:
    """Case, accents and the spelling of names do not count; a word that has no pieces is left out."""
    assert [PIECES[number] for number in Wordpieces(PIECES)(text)] == pieces.split()


def test_of_a_long_text_the_first_pieces_are_read() -> None:
    """However long it is, and however long a run of letters without a gap."""
    assert Wordpieces(PIECES)("file " * 20_000) == [1] * TEXT_PIECES
    assert Wordpieces(PIECES)("x" * 1_000_000) == []


def test_a_text_is_the_sum_of_its_pieces(small: Path) -> None:
    """Of unit length; the id names the vectors and their dimension."""
    embedder = StaticEmbedder(small)
    assert embedder.id == "static:0123456789ab:2" and is_static(embedder.id)
    rows = embedder.embed(["read", "read file", "nothing known"])
    assert rows[0] == pytest.approx([0.6, 0.8], abs=0.01)
    assert rows[1] == pytest.approx(np.array([3, 6]) / np.sqrt(45), abs=0.01)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1)
    assert not embedder.embed_query("nothing known").any()
    assert embedder.embed([]).shape == (0, 2)


def test_the_packaged_encoder_brings_words_of_one_meaning_together(packaged: StaticEmbedder) -> None:
    """Without a word in common."""
    asked = packaged.embed_query("remove a picture")
    tools = packaged.embed(["delete image", "list invoices", "send mail", "search flights"])
    assert int(np.argmax(tools @ asked)) == 0


@pytest.mark.parametrize(
    "query",
    [
        "read " * 20_000,
        '"a" 17 /tmp/x',
        "Lösche das Bild",
        "画像を削除する",
        "احذف الصورة",
        "\ud800\udfff\ud800",
        "",
        " \x00",
    ],
)
def test_odd_queries_have_a_vector_or_none(packaged: StaticEmbedder, query: str) -> None:
    """Its length is 1 or 0, never anything else."""
    assert round(float(np.linalg.norm(packaged.embed_query(query))), 5) in {0.0, 1.0}


@pytest.mark.parametrize(
    ("query", "has_vector"),
    [
        ("obtener el tiempo actual en Madrid para mis clientes", False),
        ("zeige mir alle Dateien auf dem Server", False),
        ("show me all of the files on the server", True),
        ("weather Madrid", True),
        ("列出所有文件 list files", True),
    ],
)
def test_pieces_of_another_european_language_mean_nothing(
    packaged: StaticEmbedder, query: str, has_vector: bool
) -> None:
    """With content words alone as a second view, which tell no language; words then rank by themselves."""
    assert packaged.embed_queries([query, query.replace(" el ", " ")]).any() == has_vector


@pytest.mark.parametrize(
    "damage", ["missing", "empty", "cut", "longer", "other format", "no encoder", "no line", "no text", "a word less"]
)
def test_a_damaged_file_is_refused_with_what_to_do(small: Path, damage: str) -> None:
    """Before a vector is made of it."""
    data = small.read_bytes()
    small.unlink()
    damaged = {
        "empty": b"",
        "cut": data[:-1],
        "longer": data + b"x",
        "other format": data.replace(b"encoder 1", b"encoder 9"),
        "no encoder": b"PK\x03\x04\nrest",
        "no line": b"x" * 5_000,
        "no text": _put_behind_header(data, b"\xff"),
        "a word less": data.replace(b"\n", b"\0").replace(b"\0", b"\n", 1),
    }
    if damage in damaged:
        small.write_bytes(damaged[damage])
    with pytest.raises(MissingExtraError, match=r"The static encoder small\.bin cannot be used: ") as caught:
        StaticEmbedder(small)
    assert "MCPPROXY_EMBEDDER=BM25" in (caught.value.hint or "")


def _put_behind_header(data: bytes, bad: bytes) -> bytes:
    start = data.index(b"\n") + 1
    return data[:start] + bad + data[start + len(bad) :]


def test_the_packaged_file_and_its_card_are_there() -> None:
    """And small enough for a wheel of 12 MB."""
    assert ENCODER_FILE.stat().st_size < 9_000_000
    assert ENCODER_FILE.with_suffix(".md").is_file()

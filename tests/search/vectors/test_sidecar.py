"""The side-car: what is written comes back, and whatever is wrong with the file it is as if there were none."""

import logging
import os
import stat
from pathlib import Path

import faiss
import numpy as np
import pytest

from smart_mcp_proxy.errors import SearchError
from smart_mcp_proxy.search.vectors import faiss_edge, sidecar
from smart_mcp_proxy.search.vectors.file_lock import try_lock_file
from smart_mcp_proxy.search.vectors.sidecar import SIDECAR_NAME, Sidecar, load, save

EMBEDDER = "fake:ä:4"
VECTORS = np.eye(4, dtype=np.float32)[[2, 0, 3]]
WHOLE = Sidecar(EMBEDDER, np.array([5, 1 << 41, 3]), [f"{number:064x}" for number in (1, 2, 3)], VECTORS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a whole one lies."""
    path = tmp_path / SIDECAR_NAME
    assert save(path, WHOLE)
    return path


def test_what_is_written_comes_back(path: Path) -> None:
    """Ids, hashes, vectors; the file is for its owner only, and nothing else is left beside it."""
    found = load(path, EMBEDDER, 4)
    assert found is not None
    assert found.embedder_id == EMBEDDER
    assert found.ids.tolist() == WHOLE.ids.tolist()
    assert found.hashes == WHOLE.hashes
    assert (found.vectors == VECTORS).all()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [SIDECAR_NAME]


def test_faiss_reads_it(path: Path) -> None:
    """It is a real index: the nearest vector has the tool's id."""
    index = faiss.read_index(str(path))
    assert index.ntotal == 3
    assert index.search(VECTORS[1:2], 1)[1].tolist() == [[1 << 41]]


def test_no_tools_make_a_side_car_too(path: Path) -> None:
    """A catalog that became empty."""
    empty = Sidecar(EMBEDDER, np.empty(0, np.int64), [], np.empty((0, 4), np.float32))
    assert save(path, empty)
    found = load(path, EMBEDDER, 4)
    assert found is not None
    assert len(found.ids) == len(found.hashes) == len(found.vectors) == 0


def test_a_torn_file_is_none(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever it was cut, with one line for those who look closely."""
    whole = path.read_bytes()
    cuts = {*range(0, len(whole), 64), *range(len(whole) - 64, len(whole))}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "mcpproxy.search"):
            assert load(path, EMBEDDER, 4) is None, cut
        assert [record.levelname for record in caplog.records] == ["DEBUG"]
    path.write_bytes(whole + b"\0")
    assert load(path, EMBEDDER, 4) is None


def test_a_flipped_bit_is_none(path: Path) -> None:
    """Whichever byte it is in: index, hashes, embedder, footer or checksum."""
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert load(path, EMBEDDER, 4) is None, at
    path.write_bytes(whole)
    assert load(path, EMBEDDER, 4) is not None


@pytest.mark.parametrize(("embedder", "dimension"), [("fake:b:4", 4), (EMBEDDER, 8)])
def test_another_embedders_file_is_none(path: Path, embedder: str, dimension: int) -> None:
    """By name or by dimension."""
    assert load(path, embedder, dimension) is None


@pytest.mark.parametrize("content", [None, b"", b"x" * 500, b"directory"])
def test_what_is_no_side_car_is_none(tmp_path: Path, content: bytes | None) -> None:
    """Nothing, something else, or a directory."""
    path = tmp_path / SIDECAR_NAME
    if content == b"directory":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    assert load(path, EMBEDDER, 4) is None


def test_another_kind_of_index_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole by its checksum, but not what we write."""

    def write_other(path: Path, ids: object, vectors: object) -> None:
        faiss.write_index(faiss.IndexFlatL2(4), str(path))

    monkeypatch.setattr(sidecar, "write_index", write_other)
    assert save(path, WHOLE)
    assert load(path, EMBEDDER, 4) is None
    with pytest.raises(SearchError):
        faiss_edge.read_index(b"nothing")


def test_a_writer_that_died_leaves_the_old_one(path: Path) -> None:
    """What it began is written over by the next."""
    staged = path.with_name(f"{SIDECAR_NAME}.new")
    staged.write_bytes(b"half" * 10_000)
    assert load(path, EMBEDDER, 4) is not None
    assert save(path, Sidecar(EMBEDDER, WHOLE.ids[:2], WHOLE.hashes[:2], VECTORS[:2]))
    found = load(path, EMBEDDER, 4)
    assert found is not None
    assert len(found.ids) == 2
    assert not staged.exists()


def test_a_second_writer_leaves_it_to_the_first(path: Path) -> None:
    """It neither waits nor writes into the other's file."""
    before = path.read_bytes()
    with try_lock_file(path.with_name(f"{SIDECAR_NAME}.new")) as is_alone:
        assert is_alone
        assert not save(path, WHOLE)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The caller has the vectors elsewhere and decides."""
    with pytest.raises(OSError, match="No such file"):
        save(tmp_path / "gone" / SIDECAR_NAME, WHOLE)


def test_a_lock_is_for_one_at_a_time(tmp_path: Path) -> None:
    """And for the next when it is given back, or when the file was renamed meanwhile."""
    path = tmp_path / "lock"
    with try_lock_file(path) as first, try_lock_file(path) as second:
        assert (first, second) == (True, False)
        path.rename(tmp_path / "other")
        with try_lock_file(path) as third:
            assert third
    with try_lock_file(path) as fourth:
        assert fourth

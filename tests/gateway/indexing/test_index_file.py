"""The side-car of the lexical index: a file that is not whole, or of another kind, is no file."""

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smart_mcp_proxy.gateway.indexing import index_file
from smart_mcp_proxy.gateway.indexing.index_file import INDEX_NAME, load, save
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.vectors.file_lock import held_alone

ARRAYS: Arrays = {"ids": np.arange(5), "text": np.frombuffer(b"a\nb", np.uint8), "none": np.empty(0, np.float32)}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """Names, types and values, in a file for the owner only, in place of a longer one."""
    path = tmp_path / INDEX_NAME
    assert save(path, {"ids": np.arange(500)})
    assert save(path, ARRAYS)
    loaded = load(path)
    assert loaded is not None
    assert list(loaded) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].tolist() == array.tolist()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: b"\0" * len(data),
    ],
    ids=["empty", "no header", "a byte less", "a byte more", "a bit flipped", "zeros"],
)
def test_a_damaged_file_is_not_used(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """However it was damaged."""
    path = tmp_path / INDEX_NAME
    save(path, ARRAYS)
    path.write_bytes(damage(path.read_bytes()))
    assert load(path) is None


def test_a_missing_file_and_one_of_another_format_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later program makes something else of the same texts."""
    path = tmp_path / INDEX_NAME
    assert load(path) is None
    monkeypatch.setattr(index_file, "_FORMAT", "another")
    save(path, ARRAYS)
    assert load(path) is not None
    monkeypatch.undo()
    assert load(path) is None


def test_of_two_processes_that_write_one_goes_first(tmp_path: Path) -> None:
    """The other one leaves it to it; its file stays whole."""
    path = tmp_path / INDEX_NAME
    save(path, ARRAYS)
    with held_alone(tmp_path / f"{INDEX_NAME}.new"):
        assert not save(path, {"ids": np.arange(9)})
    assert load(path) is not None
    assert save(path, {"ids": np.arange(9)})

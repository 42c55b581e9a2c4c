"""The side-car of the lexical index: a file that is not whole, or of another kind, is no file."""

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smart_mcp_proxy.gateway.indexing import index_sync
from smart_mcp_proxy.gateway.indexing.index_sync import INDEX_NAME, open_index_file, save_index
from smart_mcp_proxy.search.engine import Arrays
from smart_mcp_proxy.search.vectors.file_lock import try_lock_file

ARRAYS: Arrays = {"ids": np.arange(5), "text": np.frombuffer(b"a\nb", np.uint8), "none": np.empty(0, np.float32)}


def is_used(path: Path) -> bool:
    with open_index_file(path) as arrays:
        return arrays is not None


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """Names, types and values, in a file for the owner only, in place of a longer one."""
    path = tmp_path / INDEX_NAME
    assert save_index(path, {"ids": np.arange(500)})
    assert save_index(path, ARRAYS)
    with open_index_file(path) as loaded:
        assert loaded is not None
        assert list(loaded) == list(ARRAYS)
        assert len(loaded) == len(ARRAYS)
        for name, array in reversed(ARRAYS.items()):
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
    save_index(path, ARRAYS)
    path.write_bytes(damage(path.read_bytes()))
    assert not is_used(path)


def test_a_missing_file_and_one_of_another_format_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later program makes something else of the same texts."""
    path = tmp_path / INDEX_NAME
    assert not is_used(path)
    monkeypatch.setattr(index_sync, "_FORMAT", "another")
    save_index(path, ARRAYS)
    assert is_used(path)
    monkeypatch.undo()
    assert not is_used(path)


def test_of_two_processes_that_write_one_goes_first(tmp_path: Path) -> None:
    """The other one leaves it to it; its file stays whole."""
    path = tmp_path / INDEX_NAME
    save_index(path, ARRAYS)
    with try_lock_file(tmp_path / f"{INDEX_NAME}.new"):
        assert not save_index(path, {"ids": np.arange(9)})
    assert is_used(path)
    assert save_index(path, {"ids": np.arange(9)})

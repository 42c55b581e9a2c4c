"""Where a model is looked for, and how its weights are read and checked."""

import json
import struct
from pathlib import Path

import pytest
from embedding_fakes import replace_file

from smart_mcp_proxy.errors import EmbeddingError
from smart_mcp_proxy.search.embedders.bert import Tensor, find_tensors
from smart_mcp_proxy.search.embedders.snapshot import find_snapshot, places, verify_revision

MODEL = "sentence-transformers/all-MiniLM-L6-v2"


def cached(hub: Path, model: str, weights: str = "model.safetensors") -> Path:
    """A model in the Hugging Face cache, as its library lays it out."""
    folder = hub / f"models--{model.replace('/', '--')}"
    snapshot = folder / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (snapshot / weights).write_bytes(b"weights")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc123")
    return snapshot


def safetensors(header: object, body: bytes = b"") -> bytes:
    """A file of the format."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def test_a_folder_comes_first(tmp_path: Path, model_files: Path) -> None:
    """A path in the setting is that model, whatever the cache holds; ~ is the home."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    assert find_snapshot(str(tmp_path), {}) == tmp_path
    assert find_snapshot(str(model_files), {"HF_HOME": str(tmp_path)}) == model_files


@pytest.mark.parametrize(
    ("variable", "below"), [("HF_HOME", "hub"), ("HF_HUB_CACHE", ""), ("XDG_CACHE_HOME", "huggingface/hub")]
)
def test_the_hugging_face_cache_comes_next(tmp_path: Path, variable: str, below: str) -> None:
    """Wherever the variables of its library put it; the revision is the one that main points to."""
    snapshot = cached(tmp_path / below, MODEL)
    assert find_snapshot(MODEL, {variable: str(tmp_path)}) == snapshot
    assert find_snapshot("all-MiniLM-L6-v2", {variable: str(tmp_path)}) == snapshot


def test_the_cache_in_the_home_folder_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """~/.cache/huggingface/hub."""
    monkeypatch.setenv("HOME", str(tmp_path))
    snapshot = cached(tmp_path / ".cache" / "huggingface" / "hub", "BAAI/bge-small-en-v1.5", "pytorch_model.bin")
    assert find_snapshot("BAAI/bge-small-en-v1.5", {}) == snapshot


def test_the_installed_package_comes_last(tmp_path: Path, model_files: Path) -> None:
    """Also where the cache holds a snapshot without weights; only for the model that it is."""
    (cached(tmp_path / "hub", MODEL) / "model.safetensors").unlink()
    environ = {"HF_HOME": str(tmp_path)}
    assert find_snapshot(MODEL, environ) == model_files
    assert len(list(places(MODEL, environ))) == 3
    assert find_snapshot("BAAI/bge-small-en-v1.5", environ) is None


def test_the_weights_of_minilm_are_the_official_ones(model_files: Path) -> None:
    """The installed package holds what its name says."""
    assert verify_revision(model_files, MODEL) == "53aa51172d14"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("1_Pooling/config.json", '{"pooling_mode": "cls"}'),
        ("modules.json", "[]"),
        ("tokenizer.json", "{}"),
        ("vocab.txt", "a"),
        ("config.json", "{}"),
        ("config_sentence_transformers.json", '{"prompts": {"query": "query: "}}'),
        ("sentence_bert_config.json", '{"max_seq_length": 8}'),
    ],
)
def test_whatever_decides_a_vector_is_part_of_the_revision(copied_files: Path, file: str, content: str) -> None:
    """Pooling, modules, tokenizer, prompts, length; other files beside them are not."""
    replace_file(copied_files / "README.md", "other words")
    assert verify_revision(copied_files, MODEL) == "53aa51172d14"
    replace_file(copied_files / file, content)
    assert verify_revision(copied_files, MODEL).startswith("53aa51172d14-")


def test_every_shard_is_part_of_the_revision(tmp_path: Path) -> None:
    """One of them may change while their index stays; one that is missing is an error."""
    weight_map = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "model-1.safetensors").write_bytes(b"one")
    (tmp_path / "model-2.safetensors").write_bytes(b"two")
    before = verify_revision(tmp_path, "some/model")
    assert before == verify_revision(tmp_path, "some/model")
    (tmp_path / "model-2.safetensors").write_bytes(b"other")
    assert verify_revision(tmp_path, "some/model") != before
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(EmbeddingError, match=r"model-2\.safetensors cannot be used: No such file"):
        verify_revision(tmp_path, "some/model")


def test_other_weights_under_a_known_name_are_refused(tmp_path: Path) -> None:
    """A cut download or a foreign file never becomes an index; a folder of one's own may hold anything."""
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(EmbeddingError, match="its SHA-256 starts with") as caught:
        verify_revision(tmp_path, MODEL)
    assert "again" in caught.value.hint
    assert len(verify_revision(tmp_path, str(tmp_path))) == 12 + 1 + 12


def test_weights_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    """With the operating system's reason."""
    with pytest.raises(EmbeddingError, match=r"model\.safetensors cannot be used: No such file"):
        verify_revision(tmp_path, "some/model")


def test_tensors_are_found_by_name(tmp_path: Path) -> None:
    """In single and half precision; whole numbers, which no layer uses, are left out."""
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "F16", "shape": [2], "data_offsets": [24, 28]},
        "c": {"dtype": "I64", "shape": [1], "data_offsets": [28, 36]},
    }
    file = tmp_path / "x.safetensors"
    file.write_bytes(safetensors(header, bytes(36)))
    start = file.stat().st_size - 36
    assert find_tensors(file) == {"a": Tensor("F32", (2, 3), start, 24), "b": Tensor("F16", (2,), start + 24, 4)}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        safetensors(b"no json"),
        safetensors(["a"]),
        safetensors({"a": {"dtype": "F32"}}),
        safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234"),
        safetensors({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"12345678"),
        safetensors({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}, b"12345678"),
        struct.pack("<Q", 2**63) + b"{}",
    ],
)
def test_a_file_that_is_none_or_cut_is_an_error(tmp_path: Path, content: bytes) -> None:
    """Nothing is read from outside of it."""
    file = tmp_path / "x.safetensors"
    file.write_bytes(content)
    with pytest.raises(EmbeddingError, match=r"x\.safetensors cannot be used"):
        find_tensors(file)

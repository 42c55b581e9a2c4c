"""Engines, embedders and languages by the settings and by what is installed."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, cast

from smart_mcp_proxy.errors import MissingExtraError
from smart_mcp_proxy.gateway.indexing.embedding import VectorSetup
from smart_mcp_proxy.gateway.observability.choose import list_missing_packages
from smart_mcp_proxy.gateway.sandbox import runnable
from smart_mcp_proxy.models import Document
from smart_mcp_proxy.plugins import ENGINES_GROUP, load_plugin
from smart_mcp_proxy.search import Bm25fEngine, Engine
from smart_mcp_proxy.search.embedders import open_embedder, reopen_embedder, require_packages
from smart_mcp_proxy.search.embedders.static import is_static
from smart_mcp_proxy.search.embedding import Embedder
from smart_mcp_proxy.search.engine import LexicalEngine
from smart_mcp_proxy.search.engines.fused import FusedEngine
from smart_mcp_proxy.search.engines.rank_bm25 import RankBm25Engine
from smart_mcp_proxy.search.vectors.vectors import VectorIndex
from smart_mcp_proxy.settings import Settings

ENGINES: Final[Mapping[str, Callable[[], LexicalEngine]]] = {"builtin": Bm25fEngine, "rank_bm25": RankBm25Engine}
"""Engines that rank by words, by MCPPROXY_BM25_ENGINE."""

_FITTED_MODEL: Final = "all-MiniLM-L6-v2"
"""The model for which the weights and floors of `FusedEngine` were measured."""

_FUSED: Final = frozenset({"AUTO", "HYBRID"})
"""Values of MCPPROXY_EMBEDDER under which words count beside vectors."""

_NEWS: Final = (
    "tools are found by meaning now, not by words alone, with the encoder that comes with the package; "
    "MCPPROXY_EMBEDDER=BM25 goes back to words"
)


def lexical_engine(settings: Settings) -> LexicalEngine:
    """The engine that ranks by words, without tools.

    Raises:
        MissingExtraError: The settings ask for one whose package is not installed.
    """
    name = settings.bm25_engine
    engine: LexicalEngine = (ENGINES.get(name) or load_plugin(ENGINES_GROUP, name))()
    return engine


def vector_engine(
    settings: Settings,
    embedder: Embedder,
    vectors: VectorIndex,
    present: Engine | None = None,
    documents: Mapping[int, Document] = MappingProxyType({}),
) -> Engine:
    """The engine that ranks by `vectors`, under HYBRID by words as well; raises as above.

    Args:
        settings: Those that the present engine was chosen by.
        embedder: Made the vectors.
        vectors: By tool id.
        present: The engine in whose place it comes: its part that ranks by words goes on in the new one. To index all
            tools once more would take 1.2 s for 10,000 of them, and 40 MB. None for one without tools.
        documents: Those that it has, or has had a moment ago.
    """
    return FusedEngine(
        lexical_engine(settings) if present is None else _lexical_part(present),
        vectors,
        embedder,
        is_lexical_used=settings.embedder in _FUSED,
        is_rescaled=_FITTED_MODEL not in embedder.id,
        is_judged_by_words=is_static(embedder.id),
        documents=documents,
    )


def _lexical_part(engine: Engine) -> LexicalEngine:
    """The part that ranks by words of an engine that the gateway uses."""
    return engine.lexical if isinstance(engine, FusedEngine) else cast(LexicalEngine, engine)


def vector_setup(wanted: Settings, present: Settings, environ: Mapping[str, str]) -> VectorSetup:
    """Pair what makes vectors, by the settings `wanted`, with what uses them, by `present`."""
    return VectorSetup(
        partial(open_embedder, wanted, environ),
        partial(reopen_embedder, settings=wanted, environ=environ),
        partial(vector_engine, present),
        is_light=wanted.embedder == "AUTO",
        news=_NEWS if wanted.embedder == "AUTO" else "",
    )


def list_missing_extras(settings: Settings, environ: Mapping[str, str]) -> list[MissingExtraError]:
    """List the packages that the settings need and that are not installed; loads nothing large."""
    looks: list[Callable[[], object]] = [partial(lexical_engine, settings)]
    if settings.embedder != "BM25":
        looks.append(partial(require_packages, settings, environ))
    missing = list(runnable(settings.code)[1])
    for look in looks:
        try:
            look()
        except MissingExtraError as exc:
            missing.append(exc)
    return missing + list_missing_packages(settings, environ)


def available(settings: Settings, environ: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """The settings with what is there instead of what is not, and what that is.

    Raises:
        MissingExtraError: Something is not there, and `MCPPROXY_STRICT=true`.
    """
    reasons = []
    try:
        if settings.strict and settings.embedder != "BM25":
            require_packages(settings, environ)
        lexical_engine(settings)
    except MissingExtraError as exc:
        if settings.strict:
            raise
        settings = settings.model_copy(update={"bm25_engine": "builtin"})
        reasons.append(f"{exc.message}; until then the builtin engine ranks")
    code, missing = runnable(settings.code)
    if missing and settings.strict:
        raise missing[0]
    settings = settings.model_copy(update={"code": code})
    reasons += [f"{exc.message}; until then agents cannot use it" for exc in missing]
    return settings, tuple(reasons)

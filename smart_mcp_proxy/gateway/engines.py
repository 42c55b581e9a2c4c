"""The engines that the settings ask for: one place for the gateway and for its evaluation."""

from smart_mcp_proxy.search import Bm25fEngine, Engine
from smart_mcp_proxy.search.embedding import Embedder
from smart_mcp_proxy.search.engine import LexicalEngine
from smart_mcp_proxy.search.fused import FusedEngine
from smart_mcp_proxy.search.rank_bm25 import RankBm25Engine
from smart_mcp_proxy.search.vectors import VectorIndex
from smart_mcp_proxy.settings import Settings

__all__ = ["lexical_engine", "vector_engine"]


def lexical_engine(settings: Settings) -> LexicalEngine:
    """The engine that ranks by words, without tools.

    Raises:
        MissingExtraError: The settings ask for rank-bm25, which is not installed.
    """
    return RankBm25Engine() if settings.bm25_engine == "rank_bm25" else Bm25fEngine()


def vector_engine(settings: Settings, embedder: Embedder, vectors: VectorIndex) -> Engine:
    """The engine that ranks by `vectors`, under HYBRID by words as well, without tools; raises as above."""
    return FusedEngine(lexical_engine(settings), vectors, embedder, is_lexical_used=settings.embedder == "HYBRID")

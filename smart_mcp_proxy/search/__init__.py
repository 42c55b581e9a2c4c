"""Search: ranks tools for a query; derived from the catalog and always rebuildable."""

from smart_mcp_proxy.search.answer import SearchResult
from smart_mcp_proxy.search.engine import Engine
from smart_mcp_proxy.search.engines.bm25f import Bm25fEngine
from smart_mcp_proxy.search.index import SearchIndex

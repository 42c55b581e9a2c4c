"""Embedders: a local model, with torch or without, or a service on the network."""

from smart_mcp_proxy.search.embedders.choose import CachedQueries, open_embedder, reopen_embedder, require_packages

"""Published servers that were tried: what was seen of them, as data, and its lookup."""

from smart_mcp_proxy.servers.known.known_servers import describe_known, describe_missing, find_known_server

__all__ = ["describe_known", "describe_missing", "find_known_server"]

"""What the gateway puts behind its `proxy` tool: the tools, resources and prompts that a caller may see."""

from smart_mcp_proxy.gateway.proxying.reader import ContentReader
from smart_mcp_proxy.gateway.proxying.source import CallerSource

__all__ = ["CallerSource", "ContentReader"]

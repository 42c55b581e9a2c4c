"""Haystack: tools of its MCP toolset."""

from typing import Any

from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo
from story import live_blocking, target

TARGET = target()
SERVER: Any = StreamableHttpServerInfo(**TARGET) if "url" in TARGET else StdioServerInfo(**TARGET)

toolset = MCPToolset(SERVER, connection_timeout=30)
toolset.warm_up()
try:
    by_name = {tool.name: tool for tool in toolset}
    live_blocking(by_name, lambda name, arguments: by_name[name].invoke(**arguments))
finally:
    toolset.close()

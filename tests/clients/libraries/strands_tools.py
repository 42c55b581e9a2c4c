"""Strands Agents: tools of its MCP client."""

from typing import Any

from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from story import live_blocking, target
from strands.tools.mcp import MCPClient

TARGET = target()


def transport() -> Any:
    return streamable_http_client(TARGET["url"]) if "url" in TARGET else stdio_client(StdioServerParameters(**TARGET))


with MCPClient(transport) as client:
    names = [tool.tool_name for tool in client.list_tools_sync()]
    live_blocking(names, lambda name, arguments: client.call_tool_sync("1", name, arguments))

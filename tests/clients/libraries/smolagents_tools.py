"""smolagents: its MCP client makes a tool of each tool."""

from mcp import StdioServerParameters
from smolagents import MCPClient
from story import live_blocking, target

TARGET = target()
PARAMETERS = TARGET | {"transport": "streamable-http"} if "url" in TARGET else StdioServerParameters(**TARGET)

with MCPClient(PARAMETERS, structured_output=False) as tools:
    by_name = {tool.name: tool for tool in tools}
    live_blocking(by_name, lambda name, arguments: by_name[name](**arguments))

"""CrewAI: its adapter makes a CrewAI tool of each tool and fills optional parameters."""

from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters
from story import live_blocking, target

TARGET = target()
PARAMETERS = TARGET | {"transport": "streamable-http"} if "url" in TARGET else StdioServerParameters(**TARGET)

with MCPServerAdapter(PARAMETERS) as tools:
    by_name = {tool.name: tool for tool in tools}
    live_blocking(by_name, lambda name, arguments: by_name[name].run(**arguments))

"""Google ADK: tools of its MCP toolset, run as its agent runs them."""

import asyncio
from typing import Any
from unittest.mock import MagicMock

from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from mcp import StdioServerParameters
from story import live, target


async def main() -> None:
    server = target()
    if "url" in server:
        connection: Any = StreamableHTTPConnectionParams(url=server["url"])
    else:
        connection = StdioConnectionParams(server_params=StdioServerParameters(**server), timeout=30)
    toolset = McpToolset(connection_params=connection)
    try:
        tools = {tool.name: tool for tool in await toolset.get_tools()}
        context = MagicMock()  # an agent's invocation, of which nothing is asked without a sign-in
        context.tool_confirmation = None
        await live(tools, lambda name, arguments: tools[name].run_async(args=arguments, tool_context=context))
    finally:
        await toolset.close()


asyncio.run(main())

"""mcp-use: its LangChain adapter, as its agent uses it."""

import asyncio

from mcp_use.agents.adapters.langchain_adapter import LangChainAdapter
from mcp_use.client.client import MCPClient
from story import live, target


async def main() -> None:
    client = MCPClient.from_dict({"mcpServers": {"gw": target()}})
    try:
        adapter = LangChainAdapter()
        tools = {tool.name: tool for tool in await adapter.create_tools(client)}
        await live(tools, lambda name, arguments: tools[name].ainvoke(arguments))
    finally:
        await client.close_all_sessions()


asyncio.run(main())

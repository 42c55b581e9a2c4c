"""LangChain: tools of langchain-mcp-adapters, invoked as an agent invokes them."""

import asyncio

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from story import live, target


async def main() -> None:
    server = target()
    transport = "streamable_http" if "url" in server else "stdio"
    client = MultiServerMCPClient({"gw": {**server, "transport": transport}})
    async with client.session("gw") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        await live(tools, lambda name, arguments: tools[name].ainvoke(arguments))


asyncio.run(main())

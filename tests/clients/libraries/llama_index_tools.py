"""LlamaIndex: function tools of llama-index-tools-mcp."""

import asyncio

from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from story import live, target


async def main() -> None:
    server = target()
    if "url" in server:
        client = BasicMCPClient(server["url"])
    else:
        client = BasicMCPClient(server["command"], args=server["args"], env=server["env"])
    tools = {tool.metadata.name: tool for tool in await McpToolSpec(client).to_tool_list_async()}

    async def call(name: str, arguments: dict[str, object]) -> str:
        return (await tools[name].acall(**arguments)).content

    await live(tools, call)


asyncio.run(main())

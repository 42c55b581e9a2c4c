"""Semantic Kernel: functions of its MCP plugins."""

import asyncio
from typing import Any

from semantic_kernel import Kernel
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin
from story import live, target


async def main() -> None:
    server = target()
    plugin: Any = MCPStreamableHttpPlugin("gw", **server) if "url" in server else MCPStdioPlugin("gw", **server)
    async with plugin:
        kernel = Kernel()
        kernel.add_plugin(plugin)
        functions = kernel.plugins["gw"].functions
        names = [name.replace("-", "_") for name in functions]
        by_name = dict(zip(names, functions.values(), strict=True))
        await live(names, lambda name, arguments: by_name[name].invoke(kernel, **arguments))


asyncio.run(main())

"""AutoGen: adapters of autogen-ext."""

import asyncio
from typing import Any

from autogen_core import CancellationToken
from autogen_ext.tools.mcp import StdioServerParams, StreamableHttpServerParams, mcp_server_tools
from story import live, target


async def main() -> None:
    server = target()
    parameters: Any = StreamableHttpServerParams(**server) if "url" in server else StdioServerParams(**server)
    tools = {tool.name: tool for tool in await mcp_server_tools(parameters)}

    async def call(name: str, arguments: dict[str, Any]) -> str:
        result = await tools[name].run_json(arguments, CancellationToken())
        return tools[name].return_value_as_string(result)

    await live(tools, call)


asyncio.run(main())

"""Agno: functions of its MCP tools."""

import asyncio
from typing import Any

from agno.tools.mcp import MCPTools
from mcp import StdioServerParameters
from story import live, target


async def main() -> None:
    server = target()
    options: dict[str, Any] = {"url": server["url"], "transport": "streamable-http"} if "url" in server else {}
    if not options:
        options = {"server_params": StdioServerParameters(**server), "transport": "stdio"}
    async with MCPTools(**options, timeout_seconds=30) as tools:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            result = await tools.functions[name].entrypoint(**arguments)
            return str(getattr(result, "content", result))

        await live(tools.functions, call)


asyncio.run(main())

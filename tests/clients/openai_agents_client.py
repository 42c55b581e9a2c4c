"""Uses what a search found with the OpenAI Agents SDK, a modern client. Usage: openai_agents_client.py TARGET

TARGET is JSON: {"url"} or {"command", "args", "env"}. Prints what it saw as JSON. A program of its own, because the
library's package has a name that tests use too.
"""

import asyncio
import json
import sys
from typing import Any

from agents.mcp import MCPServer, MCPServerStdio, MCPServerStreamableHttp

PAUSE_S = 0.05


def opened(target: dict[str, Any]) -> MCPServer:
    """A server object of the library, tool caching off."""
    kind: Any = MCPServerStreamableHttp if "url" in target else MCPServerStdio
    server: MCPServer = kind(target, cache_tools_list=False, client_session_timeout_seconds=30)
    return server


async def names(server: MCPServer) -> list[str]:
    return [tool.name for tool in await server.list_tools()]


async def use(server: MCPServer, answer: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """What a call of the found tool says: at its toolset's address if there is one, else by the call tool named."""
    best = answer["tools"][0]
    if answer["toolset"] is None:
        call = {"name": best["name"], "args": arguments}
        return {"found": None, "said": (await server.call_tool(best["call_with"], call)).model_dump_json()}
    async with opened({"url": answer["toolset"]["url"]}) as own:
        return {
            "found": await names(own),
            "said": (await own.call_tool(best["listed_name"], arguments)).model_dump_json(),
        }


async def main(target: dict[str, Any]) -> None:
    async with opened(target) as server:
        answer: dict[str, Any] = {"tools": []}
        while not answer["tools"]:  # a gateway that was just started may still be listing its servers
            result = await server.call_tool("retrieve_tools", {"query": "todo:add_task", "limit": 1})
            answer = result.structured_content
            await asyncio.sleep(PAUSE_S)
        used = await use(server, answer, {"title": "Milk"})
        print(json.dumps({"own": await names(server), **used}))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))

"""Uses what a search found with the OpenAI Agents SDK. Usage: openai_agents_client.py ERA TARGET

ERA is modern, as the library is by itself; own, the same where it is offered the handshake era only; or handshake, as
it is with an older MCP SDK. TARGET is JSON: {"url"} or {"command", "args", "env"}. Prints what it saw as JSON. It is a
program of its own, because the library's package has a name that tests use too.
"""

import asyncio
import json
import sys
from typing import Any

import mcp
from agents.mcp import MCPServer, MCPServerStdio, MCPServerStreamableHttp
from stories import Reply, live

PAUSE_S = 0.05


class HandshakeClient(mcp.Client):
    """The SDK's client as the library opens it, which asks for the newest era by itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | {"mode": "legacy"})


def opened(target: dict[str, Any], **options: Any) -> MCPServer:
    """A server object of the library, tool caching off."""
    kind: Any = MCPServerStreamableHttp if "url" in target else MCPServerStdio
    server: MCPServer = kind(target, cache_tools_list=False, client_session_timeout_seconds=30, **options)
    return server


class OpenAIVisitor:
    """A server object of the library, as one client in a story."""

    def __init__(self, target: dict[str, Any]) -> None:
        self._told = 0
        self.server = opened(target, message_handler=self._hear)

    async def _hear(self, message: Any) -> None:
        self._told += getattr(message, "method", "") == "notifications/tools/list_changed"

    def told(self) -> int:
        return self._told

    async def names(self) -> list[str]:
        return await names(self.server)

    async def call(self, name: str, arguments: dict[str, Any]) -> Reply:
        result = await self.server.call_tool(name, arguments)
        structured = result.structured_content
        return Reply(structured if isinstance(structured, dict) else {}, result.model_dump_json())


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


async def visit(target: dict[str, Any]) -> dict[str, Any]:
    """What a modern client sees, and what another one does."""
    async with opened(target) as server, opened(target) as other:
        answer: dict[str, Any] = {"tools": []}
        while not answer["tools"]:  # a gateway that was just started may still be listing its servers
            result = await server.call_tool("retrieve_tools", {"query": "todo:add_task", "limit": 1})
            answer = result.structured_content
            await asyncio.sleep(PAUSE_S)
        used = await use(server, answer, {"title": "Milk"})
        return {"own": await names(server), "others": await names(other), **used}


async def main(era: str, target: dict[str, Any]) -> None:
    if era == "modern":
        print(json.dumps(await visit(target)))
        return
    if era == "handshake":
        vars(mcp)["Client"] = HandshakeClient  # where the library looks for it
    visitor, other = OpenAIVisitor(target), OpenAIVisitor(target)
    async with visitor.server, other.server:
        print(json.dumps(await live(visitor, other)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))

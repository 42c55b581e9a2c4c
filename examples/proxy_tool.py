"""A server with a `proxy` tool, and a client that looks behind it. Run it: python examples/proxy_tool.py"""

import asyncio

from fastmcp import FastMCP

from smart_mcp_proxy.client import ProxyClient, ProxyFastMCP, ProxyResponseInfo

server = FastMCP("calculator")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.resource("config://units", mime_type="text/plain")
def units() -> str:
    """Units in use."""
    return '{"length": "m"}'


@server.prompt
def explain(word: str) -> str:
    """Explain a word."""
    return f"Explain {word} in one sentence."


async def main() -> None:
    """Looks with the tool in sight, then with the tool out of sight."""
    async with ProxyClient(ProxyFastMCP(server)) as client:
        [answer] = await client.proxy("tool", "list")
        print(ProxyResponseInfo.from_content(answer))
        [answer] = await client.proxy("resource", "call", "config://units")
        print(answer.resource.mime_type, answer.resource.text, ProxyResponseInfo.from_content(answer).content_type)

    async with ProxyClient(ProxyFastMCP(server), transparent=True) as client:
        print([tool.name for tool in await client.list_tools()])
        print((await client.call_tool("add", {"a": 5, "b": 3})).data)
        print((await client.read_resource("config://units"))[0].mime_type)
        print((await client.get_prompt("explain", {"word": "gateway"})).messages[0].content.text)


if __name__ == "__main__":
    asyncio.run(main())

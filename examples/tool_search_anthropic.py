"""Claude finds tools by the gateway's ranking: its search is answered with references.

Needs a gateway (`mcpproxy serve --http`), `pip install anthropic` and ANTHROPIC_API_KEY; then
`python examples/tool_search_anthropic.py MODEL QUESTION`.
"""

import asyncio
import sys
from typing import Any

from fastmcp import Client

from smart_mcp_proxy.client.tool_search import AnthropicToolSearch

GATEWAY = "http://127.0.0.1:8000/mcp"


async def converse(messages_api: Any, search: AnthropicToolSearch, question: str, model: str) -> str:
    """The model's last words. `messages_api` is `AsyncAnthropic().messages`."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    while True:
        reply = await messages_api.create(model=model, max_tokens=2048, tools=search.tools, messages=messages)
        messages.append({"role": "assistant", "content": reply.content})
        results = await search.answers(reply)  # searches and calls of what they found
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        messages.append({"role": "user", "content": results})


async def main() -> None:
    """Answers the question on the command line."""
    from anthropic import AsyncAnthropic

    async with Client(GATEWAY) as gateway:
        search = AnthropicToolSearch(gateway)
        print(await converse(AsyncAnthropic().messages, search, sys.argv[2], sys.argv[1]))


if __name__ == "__main__":
    asyncio.run(main())

"""A model of OpenAI's finds tools by the gateway's ranking: a client-executed tool search, answered with definitions.

Needs a gateway (`mcpproxy serve --http`), `pip install openai` and OPENAI_API_KEY; then
`python examples/tool_search_openai.py MODEL QUESTION`.
"""

import asyncio
import sys
from typing import Any

from fastmcp import Client

from smart_mcp_proxy.client.tool_search import OpenAIToolSearch

GATEWAY = "http://127.0.0.1:8000/mcp"


async def converse(responses_api: Any, search: OpenAIToolSearch, question: str, model: str) -> str:
    """The model's last words. `responses_api` is `AsyncOpenAI().responses`."""
    items: list[Any] = [{"role": "user", "content": question}]
    while True:
        reply = await responses_api.create(model=model, tools=search.tools, input=items, parallel_tool_calls=False)
        items += reply.output
        outputs = await search.answers(reply)  # searches and calls of what they found
        if not outputs:
            return str(reply.output_text)
        items += outputs


async def main() -> None:
    """Answers the question on the command line."""
    from openai import AsyncOpenAI

    async with Client(GATEWAY) as gateway:
        search = OpenAIToolSearch(gateway)
        print(await converse(AsyncOpenAI().responses, search, sys.argv[2], sys.argv[1]))


if __name__ == "__main__":
    asyncio.run(main())

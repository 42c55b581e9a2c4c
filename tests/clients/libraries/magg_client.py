"""Magg: its own client asks a `proxy` tool of ours, and its own decoder reads the answers."""

import asyncio
import json
from typing import Any

from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from magg.proxy import ProxyClient, ProxyMCP
from magg.util.transform import tool_result_as_prompt_result, tool_result_as_resource_result
from story import PAUSE_S, TRIES, target

TARGET = target()
TRANSPORT = StreamableHttpTransport(TARGET["url"]) if "url" in TARGET else StdioTransport(**TARGET)


def named(decoded: Any) -> Any:
    """Type and name of what was decoded."""
    if isinstance(decoded, list):
        return sorted(named(each) for each in decoded)
    return None if decoded is None else [type(decoded).__name__, decoded.name]


async def main() -> None:
    """Print as JSON what Magg made of each answer."""
    async with ProxyClient(TRANSPORT) as client:

        async def asked(*request: Any) -> Any:
            return (await client.proxy(*request)).content

        async def query(*request: Any) -> Any:
            [block] = await asked(*request)
            return named(ProxyMCP.get_proxy_query_result(block))

        tools = prompts = resources = None
        for _ in range(TRIES):  # servers may still be starting
            tools, prompts, resources = [await query(type_, "list") for type_ in ("tool", "prompt", "resource")]
            if tools and prompts and resources:
                break
            await asyncio.sleep(PAUSE_S)
        [sum_] = await asked("tool", "call", "add", {"a": 5, "b": 3})
        [settings] = await asked("resource", "call", "config://settings")
        [greeting] = await asked("prompt", "call", "greeting", {"name": "Ada"})
        text = {"action": "call", "type": "tool", "path": "add", "args": '{"a": 1, "b": 1}'}
        [page] = (await client.call_tool("proxy", {"action": "list", "type": "tool", "limit": 2, "offset": 1})).content
        read, prompt = tool_result_as_resource_result(settings), tool_result_as_prompt_result(greeting)
        seen = {
            "tools": tools,
            "prompts": prompts,
            "resources": resources,
            "info": [await query("tool", "info", "add"), await query("prompt", "info", "greeting")],
            "called": sum_.text,
            "call_is_no_query": ProxyMCP.get_proxy_query_result(sum_),
            "said": sum_.annotations.model_dump(exclude_none=True),
            "read": [read.text, read.mimeType, read.contentType],
            "greeted": prompt.messages[0].content.text,
            "from_text": (await client.call_tool("proxy", text)).content[0].text,
            "page": named(ProxyMCP.get_proxy_query_result(page)),
            "total": page.annotations.totalCount,
        }
        print(json.dumps(seen))


asyncio.run(main())

"""Tool search of model APIs, answered out of the gateway's ranking.

    async with Client("http://127.0.0.1:8000/mcp") as gateway:
        search = AnthropicToolSearch(gateway)   # or OpenAIToolSearch
        ... send `search.tools` with each request, and `await search.answer(block)` for each call of the model

The definitions of thousands of tools need not be sent: those that a search has found are, deferred, from then on.

Sources: Anthropic, Messages API, "Tool search tool" with "Custom tool search implementation"; OpenAI, Responses API,
"Tool search" with "Client-executed tool search", and the types of its SDK (tool_search_tool_param,
response_tool_search_call, response_tool_search_output_item_param, namespace_tool_param).
"""

from smart_mcp_proxy.client.tool_search.anthropic import AnthropicToolSearch
from smart_mcp_proxy.client.tool_search.openai import OpenAIToolSearch
from smart_mcp_proxy.client.tool_search.searching import FoundTool, ToolSearch

__all__ = ["AnthropicToolSearch", "FoundTool", "OpenAIToolSearch", "ToolSearch"]

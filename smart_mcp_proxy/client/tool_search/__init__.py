"""Tool search of model APIs, answered out of the gateway's ranking.

    async with Client("http://127.0.0.1:8000/mcp") as gateway:
        search = AnthropicToolSearch(gateway)   # or OpenAIToolSearch
        ... send `search.tools` with each request, and `await search.answer(block)` for each call of the model

The definitions of thousands of tools need not be sent: those that a search has found are, deferred, from then on.

Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool;
https://developers.openai.com/api/docs/guides/tools-tool-search
"""

from smart_mcp_proxy.client.tool_search.anthropic import AnthropicToolSearch
from smart_mcp_proxy.client.tool_search.openai import OpenAIToolSearch
from smart_mcp_proxy.client.tool_search.searching import FoundTool, ToolSearch

__all__ = ["AnthropicToolSearch", "FoundTool", "OpenAIToolSearch", "ToolSearch"]

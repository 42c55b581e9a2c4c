"""Client-executed tool search of OpenAI's Responses API, answered with definitions.

The types of its SDK: tool_search_tool_param, response_tool_search_call, response_tool_search_output_item_param,
namespace_tool_param.

Source: https://developers.openai.com/api/docs/guides/tools-tool-search
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fastmcp import Client

from smart_mcp_proxy.client.tool_search import parts
from smart_mcp_proxy.client.tool_search.searching import DESCRIPTION, SEARCH_SCHEMA, FoundTool, ToolSearch
from smart_mcp_proxy.errors import RequestError, UpstreamError

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


class OpenAIToolSearch(ToolSearch):
    """Answers a client-executed search of the Responses API with definitions, and calls what it found.

    Args:
        gateway: Connected to the gateway.
        has_namespaces: Whether the tools of a server stand in a namespace, as OpenAI recommends.
        **options: As of `ToolSearch`.
    """

    name_limit = 64

    def __init__(self, gateway: Client[Any], *, has_namespaces: bool = True, **options: Any) -> None:
        super().__init__(gateway, **options)
        self._has_namespaces = has_namespaces

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The search tool alone: what is found stays loaded by its own `tool_search_output`."""
        own = {"type": "tool_search", "execution": "client", "description": DESCRIPTION}
        return [own | {"parameters": dict(SEARCH_SCHEMA)}]

    async def answer(self, call: Any) -> dict[str, Any]:
        """The output of a `tool_search_call`, or of a `function_call` for a tool that was found."""
        item = parts.members(call)
        if item.get("type") == "function_call" and isinstance(item.get("call_id"), str):
            return {"type": "function_call_output", "call_id": item["call_id"], "output": await self._output(item)}
        if item.get("type") != "tool_search_call":
            raise parts.no_call(item, "a tool_search_call or a function_call")
        if item.get("execution") != "client" or not isinstance(item.get("call_id"), str):
            raise RequestError(
                "This search is executed by OpenAI itself.",
                hint='Declare {"type": "tool_search", "execution": "client"}, as `tools` does, to answer it here.',
            )
        output = {"type": "tool_search_output", "execution": "client", "call_id": item["call_id"]}
        try:
            arguments = parts.parse_arguments(item.get("arguments"))
            found = await self.search(parts.read_query(arguments), parts.read_limit(arguments))
        except (RequestError, UpstreamError):
            return output | {"status": "incomplete", "tools": []}
        return output | {"status": "completed", "tools": self._definitions(found.tools)}

    async def answers(self, response: Any) -> list[dict[str, Any]]:
        """The input items that follow a response: the outputs of all calls in it."""
        items = [parts.members(item) for item in parts.members(response).get("output") or ()]
        calls = [item for item in items if item.get("type") in ("tool_search_call", "function_call")]
        return [await self.answer(item) for item in calls if item.get("execution") != "server"]

    def _definitions(self, tools: Iterable[FoundTool]) -> list[dict[str, Any]]:
        if not self._has_namespaces:
            return [_openai_definition(tool) for tool in tools]
        grouped: dict[str, dict[str, Any]] = {}
        for tool in tools:
            name = parts.shorten_name(_NOT_IN_A_NAME.sub("_", tool.server), self.name_limit)
            words = f"Tools of the server {tool.server}."
            empty = {"type": "namespace", "name": name, "description": words, "tools": []}
            grouped.setdefault(name, empty)["tools"].append(_openai_definition(tool))
        return list(grouped.values())

    async def _output(self, item: Mapping[str, Any]) -> str:
        try:
            done = await self.call(str(item.get("name")), parts.parse_arguments(item.get("arguments")))
        except (RequestError, UpstreamError) as error:
            return f"{error.message} {error.hint}".rstrip()
        return "\n".join(parts.as_text(part) for part in done.content)


def _openai_definition(tool: FoundTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.shown_name,
        "description": tool.description,
        "parameters": dict(tool.input_schema),
        # Strict mode would make every parameter required and refuse what servers' schemas may hold.
        "strict": False,
        "defer_loading": True,
    }

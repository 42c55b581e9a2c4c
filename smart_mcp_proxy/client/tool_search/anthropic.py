"""Tool search of Anthropic's Messages API, answered with references.

Source: https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import mcp_types
from fastmcp import Client

from smart_mcp_proxy.client.tool_search.parts import as_text, members, no_call, read_limit, read_query
from smart_mcp_proxy.client.tool_search.searching import DESCRIPTION, SEARCH_SCHEMA, FoundTool, ToolSearch
from smart_mcp_proxy.errors import RequestError, UpstreamError

_PATTERN_CHARS: Final = 200
_WORD: Final = re.compile(r"[A-Za-z0-9]{2,}")
_FLAGS: Final = re.compile(r"\(\?[a-zA-Z-]+[):]|\\[a-zA-Z]")


class AnthropicToolSearch(ToolSearch):
    """Answers a search of Claude's with references, and calls what it found.

    Claude calls the search tool that is declared here (`tool_use`), which gets a `tool_result` with `tool_reference`
    blocks. A `server_tool_use` of `tool_search_tool_regex` or `tool_search_tool_bm25` gets the API's own form of
    answer: that is for programs that serve the Messages API themselves, as Anthropic's answers those by itself.

    Args:
        gateway: Connected to the gateway.
        name: Name of the search tool.
        **options: As of `ToolSearch`.
    """

    name_limit = 128

    def __init__(self, gateway: Client[Any], *, name: str = "find_tools", **options: Any) -> None:
        super().__init__(gateway, **options)
        self.name = name

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The search tool, and deferred what was found: each reference needs its definition in the request."""
        own = {"name": self.name, "description": DESCRIPTION, "input_schema": dict(SEARCH_SCHEMA)}
        return [own, *(_anthropic_definition(tool) for tool in self.found.values())]

    async def answer(self, call: Any) -> dict[str, Any]:
        """The `tool_result` of a `tool_use`; see the class for `server_tool_use`."""
        block = members(call)
        if block.get("type") == "server_tool_use":
            return await self._server_answer(block)
        if block.get("type") != "tool_use" or not isinstance(block.get("id"), str):
            raise no_call(block, "a tool_use")
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": block["id"]}
        arguments = members(block.get("input") or {})
        try:
            if block.get("name") != self.name:
                done = await self.call(str(block.get("name")), arguments)
                failed = {"is_error": True} if done.is_error else {}
                return result | {"content": [_anthropic_block(part) for part in done.content]} | failed
            found = await self.search(read_query(arguments), read_limit(arguments))
        except (RequestError, UpstreamError) as error:
            return result | {"content": [_text(f"{error.message} {error.hint}".rstrip())], "is_error": True}
        return result | {"content": _references(found.tools) or [_text(found.hint)]}

    async def answers(self, message: Any) -> list[dict[str, Any]]:
        """The content of the user's next message: the results of all calls in a message of the model's."""
        blocks = [members(block) for block in members(message).get("content") or ()]
        return [await self.answer(block) for block in blocks if block.get("type") == "tool_use"]

    async def _server_answer(self, block: Mapping[str, Any]) -> dict[str, Any]:
        result = {"type": "tool_search_tool_result", "tool_use_id": block.get("id")}
        query = read_query(members(block.get("input") or {}), is_required=False)
        code = ""
        if "regex" in str(block.get("name")):
            query, code = _extract_words(query)
        if not code:
            try:
                found = await self.search(query)
            except (RequestError, UpstreamError):
                code = "unavailable"
        if code:
            return result | {"content": {"type": "tool_search_tool_result_error", "error_code": code}}
        content = {"type": "tool_search_tool_search_result", "tool_references": _references(found.tools)}
        return result | {"content": content}


def _extract_words(pattern: str) -> tuple[str, str]:
    """Words of a regular expression, which is never matched, or the API's error code for it."""
    if len(pattern) > _PATTERN_CHARS:
        return "", "pattern_too_long"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return "", "invalid_pattern"
    words = _WORD.findall(_FLAGS.sub(" ", pattern).replace("_", " "))
    return " ".join(dict.fromkeys(words)), "" if words else "invalid_pattern"


def _references(tools: Iterable[FoundTool]) -> list[dict[str, Any]]:
    return [{"type": "tool_reference", "tool_name": tool.shown_name} for tool in tools]


def _anthropic_definition(tool: FoundTool) -> dict[str, Any]:
    return {
        "name": tool.shown_name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "defer_loading": True,
    }


def _text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _anthropic_block(part: mcp_types.ContentBlock) -> dict[str, Any]:
    if isinstance(part, mcp_types.ImageContent):
        return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}
    return _text(as_text(part))

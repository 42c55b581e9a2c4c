"""Result of `ProxyClient` calls: a list of content blocks that is FastMCP's result, too."""

from typing import Any

import mcp_types
from fastmcp.client.client import CallToolResult
from fastmcp.exceptions import ToolError


class ProxyResult(list[mcp_types.ContentBlock], CallToolResult):
    """The content blocks of a tool's result, with the attributes of FastMCP's `CallToolResult`.

    Attributes:
        content: The same blocks.
        structured_content: As the tool gave it.
        data: The value in it, taken out where FastMCP had to wrap it.
        meta: The result's `_meta`.
        is_error: Whether the tool failed.
    """

    def __init__(self, result: mcp_types.CallToolResult) -> None:
        list.__init__(self, result.content)
        structured = result.structured_content
        wrapping = (result.meta or {}).get("fastmcp")
        is_wrapped = isinstance(wrapping, dict) and wrapping.get("wrap_result") is True
        data: Any = structured.get("result") if is_wrapped and isinstance(structured, dict) else structured
        CallToolResult.__init__(self, result.content, structured, result.meta, data, result.is_error)

    def raise_if_error(self) -> None:
        """Passes unless the tool failed.

        Raises:
            ToolError: It failed; the gateway's errors are told as sentences, all others as they came.
        """
        if not self.is_error:
            return
        error = (self.structured_content or {}).get("error")
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            raise ToolError(f"{error['message']} {error.get('hint', '')}".rstrip())
        texts = [block.text for block in self if isinstance(block, mcp_types.TextContent)]
        raise ToolError("\n".join(texts) or "The tool failed and does not say why.")

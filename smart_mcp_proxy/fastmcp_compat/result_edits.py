"""Edits of one tool's results for clients of the handshake era.

Behind all models: those of FastMCP and the SDK drop what they do not know.

Private names used: `FastMCP._mcp_server`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastmcp import FastMCP
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

EditBlock = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def edit_handshake_content(server: FastMCP, tool: str, edit: EditBlock) -> None:
    """Have each content block in the results of a tool changed for clients of the handshake era.

    Args:
        server: Lists the tool.
        tool: Its name.
        edit: Returns the block as it is sent.
    """
    server._mcp_server.middleware.insert(0, _EditContent(tool, edit))


class _EditContent:
    """SDK middleware, the outermost: those below may make models of results."""

    def __init__(self, tool: str, edit: EditBlock) -> None:
        self._tool = tool
        self._edit = edit

    async def __call__(
        self, ctx: ServerRequestContext[Any], call_next: Callable[[ServerRequestContext[Any]], Awaitable[Any]]
    ) -> Any:
        """Answers one request."""
        answer = await call_next(ctx)
        is_meant = ctx.method == "tools/call" and (ctx.params or {}).get("name") == self._tool
        if not is_meant or ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return answer
        if isinstance(answer, BaseModel):
            answer = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return {**answer, "content": [self._edit(block) for block in answer.get("content", ())]}

"""The search that all adapters share: it asks the gateway, keeps what was found, and calls it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import mcp_types
import msgspec
from fastmcp import Client
from mcp import MCPError

from smart_mcp_proxy.client.tool_search.parts import LIMIT, shorten_name
from smart_mcp_proxy.errors import Delivery, RequestError, UpstreamError

DESCRIPTION: Final = (
    "Find tools across all connected servers by what they do. Call it before saying that something cannot be done: "
    "what it finds can be called from then on."
)
SEARCH_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool should do, in a few words."},
        "limit": {"type": "integer", "description": "Most tools to find", "minimum": 1, "maximum": LIMIT},
    },
    "required": ["query"],
    "additionalProperties": False,
}
"""Arguments of a search, as the model sees them."""
_LOOK: Final = "Look at the gateway's log, or ask it: mcpproxy doctor"
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


class FoundTool(msgspec.Struct, frozen=True):
    """A tool that a search has found.

    Attributes:
        name: Canonical, `server:tool`.
        shown_name: Name under which the model calls it.
        server: The server that has it.
        description: Of its definition.
        input_schema: Of its definition.
        call_with: The gateway's tool that calls it.
        digest: Of the definition that the model sees: another one is not called.
    """

    name: str
    shown_name: str
    server: str
    description: str
    input_schema: Mapping[str, Any]
    call_with: str
    digest: str


class Findings(NamedTuple):
    """Tools that fit, best first, and the gateway's words where there are none."""

    tools: list[FoundTool]
    hint: str


class ToolSearch(ABC):
    """A conversation's tools: the search, and what it has found so far.

    Args:
        gateway: Connected to the gateway.
        limit: Tools that one search finds where the model does not say it, 1 to 50.
        servers: Only tools of these; empty for all.
        read_only: Only tools that are marked as such.
    """

    name_limit: ClassVar[int]
    """Characters that a tool's name may have in this API."""

    def __init__(
        self, gateway: Client[Any], *, limit: int = 5, servers: Sequence[str] = (), read_only: bool = False
    ) -> None:
        if not 1 <= limit <= LIMIT:
            raise RequestError(f"limit is {limit}.", hint=f"Use an integer from 1 to {LIMIT}.")
        self._gateway = gateway
        self._limit = limit
        self._filter: dict[str, Any] = {"servers": list(servers)} if servers else {}
        self._filter |= {"read_only": True} if read_only else {}
        self.found: dict[str, FoundTool] = {}
        """What was found so far, by the name under which the model calls it."""

    @property
    @abstractmethod
    def tools(self) -> list[dict[str, Any]]:
        """Definitions for the next request."""

    @abstractmethod
    async def answer(self, call: Any) -> dict[str, Any]:
        """The answer to one call of the model: a search, or a call of a tool that it found.

        Args:
            call: As the API or its SDK gives it.

        Raises:
            RequestError: It is no call that is answered here.
        """

    async def search(self, query: str, limit: int | None = None) -> Findings:
        """Tools that fit a query; from then on they are in `found`.

        Raises:
            UpstreamError: The gateway could not search.
        """
        asked: dict[str, Any] = {"query": query, "detail": "full", "limit": limit or self._limit, **self._filter}
        result = await self._call_gateway("retrieve_tools", asked)
        told = result.structured_content or {}
        if result.is_error:
            error = told.get("error", {})
            message, hint = error.get("message", "The gateway could not search."), error.get("hint", _LOOK)
            raise UpstreamError(str(message), hint=str(hint))
        tools = [self._remember_tool(tool) for tool in told.get("tools", ())]
        near = ", ".join(miss["name"] for miss in told.get("near_misses", ()))
        hint = str(told.get("hint", "")) + (f" Near misses: {near}." if near and not tools else "")
        if waiting := ", ".join(row["approve"] for row in told.get("waiting", ())):
            hint += f" Waiting: {waiting}."
        return Findings(tools, hint.strip() or "No tool fits.")

    async def call(self, shown_name: str, arguments: Mapping[str, Any]) -> mcp_types.CallToolResult:
        """The result of a tool that was found, or of the gateway's refusal.

        Raises:
            UpstreamError: The gateway cannot be reached.
        """
        tool = self.found.get(shown_name)
        if tool is None:
            words = f"No tool {shown_name[:100]!r} was found in this conversation. Search for it first."
            return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=words)], is_error=True)
        sent = {"name": tool.name, "args": dict(arguments), "digest": tool.digest}
        return await self._call_gateway(tool.call_with, sent, delivery="unknown")

    async def _call_gateway(
        self, tool: str, arguments: dict[str, Any], *, delivery: Delivery = "not_sent"
    ) -> mcp_types.CallToolResult:
        try:
            return await self._gateway.call_tool_mcp(tool, arguments)
        except MCPError as exc:
            raise UpstreamError(f"The gateway answered with an error: {exc}", hint=_LOOK, delivery=delivery) from exc

    def _remember_tool(self, tool: Mapping[str, Any]) -> FoundTool:
        shown = shorten_name(tool["listed_name"], self.name_limit)
        schema = tool.get("input_schema")
        found = FoundTool(
            name=tool["name"],
            shown_name=shown,
            server=tool["server"],
            description=tool.get("description", ""),
            input_schema=schema if isinstance(schema, dict) and schema.get("type") == "object" else _NO_ARGUMENTS,
            call_with=tool["call_with"],
            digest=tool["digest"],
        )
        self.found[shown] = found
        return found

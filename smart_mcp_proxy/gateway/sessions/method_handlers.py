"""All that agents ask besides tools, each method answered by the part that it belongs to."""

from collections.abc import Mapping
from typing import Any

from smart_mcp_proxy.fastmcp_compat.handlers import Inbound, RequestHandlers
from smart_mcp_proxy.models import Era


class MethodHandlers:
    """Several handlers as one.

    Args:
        handlers: Each answers methods of its own.
    """

    def __init__(self, *handlers: RequestHandlers) -> None:
        self._handlers = handlers
        self._by_method: Mapping[str, RequestHandlers] = {
            method: handler for handler in handlers for method in handler.methods
        }

    @property
    def methods(self) -> frozenset[str]:
        """Methods handled here."""
        return frozenset(self._by_method)

    def capabilities(self, era: Era) -> dict[str, Any]:
        """Capabilities of all for a client of an era, their extensions together."""
        found: dict[str, Any] = {}
        extensions: dict[str, Any] = {}
        for handler in self._handlers:
            declared = handler.capabilities(era)
            extensions |= declared.pop("extensions", {})
            found |= declared
        return found | ({"extensions": extensions} if extensions else {})

    async def answer(self, method: str, inbound: Inbound) -> dict[str, Any]:
        """The result of one request.

        Raises:
            MCPError: There is none.
        """
        return await self._by_method[method].answer(method, inbound)

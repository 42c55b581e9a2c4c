"""The gateway's own tools, in a list that never changes."""

from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from typing import Any, Final

from smart_mcp_proxy.gateway.shared.base import AgentTool, Caller
from smart_mcp_proxy.models import Era
from smart_mcp_proxy.raw_result import RawResult

__all__ = ["OwnTools"]

ALWAYS_LOAD: Final[Mapping[str, Any]] = {"anthropic/alwaysLoad": True}
"""Has Claude Code show a tool from the first turn on; it keeps all others behind a search of its own.
Source: contract.md, Results and errors."""

LIST_TTL_MS = 300_000
"""How long a client may keep the list; it is fixed while the gateway runs."""


class OwnTools:
    """The gateway's own tools.

    Args:
        tools: In the order in which they are listed.
        is_always_loaded: Whether clients that defer tools are asked to show these from the start.
        instructions: What a model is told at connection; a look-up.
    """

    list_ttl_ms = LIST_TTL_MS

    def __init__(
        self,
        tools: Sequence[AgentTool[Any]],
        *,
        is_always_loaded: bool = True,
        instructions: Callable[[], str] = lambda: "",
    ) -> None:
        self._instructions = instructions
        self._tools = {tool.name: tool for tool in tools}
        more = {"_meta": dict(ALWAYS_LOAD)} if is_always_loaded else {}
        self._definitions = [tool.definition() | more for tool in tools]
        self._schemas = {definition["name"]: definition["inputSchema"] for definition in self._definitions}

    @property
    def instructions(self) -> str:
        """Instructions for a model at connection, as of now."""
        return self._instructions()

    async def wait_listed(self) -> None:
        """Returns at once: the list is known from the start."""

    def definitions(self, era: Era) -> Sequence[Mapping[str, Any]]:
        """The fixed list, byte for byte the same for everyone of an era."""
        return self._definitions

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool."""
        return self._schemas.get(name)

    def has(self, name: str) -> bool:
        """Whether a tool of this name is listed."""
        return name in self._tools

    def demands_headers(self, name: str) -> bool:
        """No argument of these tools must travel as a header."""
        return False

    def may_need_line(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the call may lead to a server that knows each client."""
        return self._tools[name].may_need_line(arguments)

    def state(self) -> Hashable:
        """Always the same."""
        return None

    def hint(self, name: str) -> str:
        """The way to the tools that are not listed."""
        return f"Listed: {', '.join(self._tools)}. Others are found with retrieve_tools."

    def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> Coroutine[Any, Any, RawResult]:
        """The tool's result."""
        return self._tools[name].call(arguments, caller)

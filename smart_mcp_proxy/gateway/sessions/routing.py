"""Tool exposure per client: by call tools, or in the client's own list."""

import time
from collections.abc import Callable
from typing import Final, Literal

from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.gateway.sessions.tool_surface import ToolSurface
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.shared.tool_offer import Routed, ToolProvider, build_path_error
from smart_mcp_proxy.greeting.seen_clients import find_client
from smart_mcp_proxy.models import Principal, Reach

_UNHEEDED: Final = 2
"""After so many unheeded announcements its next session gets CALL_TOOL, whatever the table says."""


def decide(name: str, conduct: tuple[int, int]) -> Routed:
    """Decide what AUTO gives a client of this name, and why.

    Args:
        name: As the client calls itself.
        conduct: Announcements that clients of this name heeded, and did not.
    """
    heeded, unheeded = conduct
    if heeded:
        return Routed("DYNAMIC", f"it asked for its list again after {heeded} of {heeded + unheeded} announcements")
    if unheeded >= _UNHEEDED:
        return Routed("CALL_TOOL", f"it did not ask for its list again after {unheeded} announcements")
    seen = find_client(name)
    if seen is None:
        return Routed("CALL_TOOL", "it is not known to ask for its list again when the list changes")
    if seen.heeds_changes:
        return Routed("DYNAMIC", f"it is known to ask for its list again when the list changes ({seen.version})")
    return Routed("CALL_TOOL", f"it is known not to ask for its list again in a session ({seen.version})")


class Routing:
    """Offers every client its list: by its path, its era and what it is known for.

    Args:
        setting: What the settings ask for.
        surface_at: The surface at the path of the whole catalog or a profile, as far as a reach goes; a look-up.
        toolsets: A principal's toolsets, by handle and principal; a look-up.
        conduct: How clients took announcements.
        limit: Most tools in one session's pool.
        clock: Monotonic seconds.
        is_listing_more: Whether the configuration lists servers' tools for everybody; a look-up.
    """

    def __init__(
        self,
        setting: Literal["CALL_TOOL", "DYNAMIC", "AUTO"],
        surface_at: Callable[[str, Reach], ToolSurface | None],
        toolsets: Callable[[str, Principal], ToolProvider | None],
        conduct: ClientBehavior,
        *,
        limit: int,
        clock: Callable[[], float] = time.monotonic,
        is_listing_more: Callable[[], bool],
    ) -> None:
        self._found_at = surface_at
        self._is_listing_more = is_listing_more
        self._conduct = conduct
        self._setting = setting
        self._toolsets = toolsets
        self._limit = limit
        self._clock = clock

    @property
    def is_changing(self) -> bool:
        """Whether any list can change: by searches, or with the servers' tools that are always listed."""
        return self._setting != "CALL_TOOL" or self._is_listing_more()

    def at(self, path: str, principal: Principal) -> ToolProvider:
        """The fixed list of a path; where lists of other clients grow, its searches make toolsets.

        Raises:
            RequestError: Nothing is there, or not for this principal.
        """
        if (chosen := self._toolset_at(path, principal)) is not None:
            return chosen
        surface = self._surface_at(path, principal.reach)
        return surface.fixed if self._setting == "CALL_TOOL" else surface.fixed_with_toolsets

    def route(self, client: HandshakeClient) -> Routed:
        """Decide how this client is served at its path, and why."""
        if self._toolset_at(client.path, client.principal) is not None:
            return Routed("TOOLSET", "it came in at a toolset's address")
        if self._setting == "AUTO":
            return decide(client.name, self._conduct.of(client.name))
        return Routed(self._setting, "MCPPROXY_ROUTING_TYPE says so")

    def to(self, client: HandshakeClient, routed: Routed, on_change: Callable[[], None]) -> ToolProvider:
        """The list of one client of the handshake era: one of its own where it is routed dynamically.

        Raises:
            RequestError: Nothing is at its path.
        """
        if (toolset := self._toolset_at(client.path, client.principal)) is not None:
            return toolset
        surface = self._surface_at(client.path, client.principal.reach)
        return (
            surface.build_pooled_tools(self._limit, self._clock, on_change)
            if routed.route == "DYNAMIC"
            else surface.fixed
        )

    def _toolset_at(self, path: str, principal: Principal) -> ToolProvider | None:
        kind, _, handle = path.partition("/")
        return self._toolsets(handle, principal) if kind == "t" else None

    def _surface_at(self, path: str, reach: Reach) -> ToolSurface:
        if (surface := self._found_at(path, reach)) is None:
            raise build_path_error(path)
        return surface

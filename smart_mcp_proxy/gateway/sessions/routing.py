"""Routes of clients to tools: call tools, a list of their own, a toolset, or one server."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.fastmcp_compat.paths import get_own_routing
from smart_mcp_proxy.gateway.sessions.tool_surface import PooledTools, ToolSurface, ToolSurfaces
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.shared.agent_tools import ToolList
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.shared.sessions import Route
from smart_mcp_proxy.greeting.seen_clients import find_client
from smart_mcp_proxy.models import Principal, Reach
from smart_mcp_proxy.pool import Pool
from smart_mcp_proxy.settings import Settings

_UNHEEDED: Final = 2
"""After so many unheeded announcements its next session gets CALL_TOOL, whatever the table says."""


def decide(name: str, conduct: tuple[int, int]) -> Route:
    """Decide what AUTO gives a client of this name, and why.

    Args:
        name: As the client calls itself.
        conduct: Announcements that clients of this name heeded, and did not.
    """
    heeded, unheeded = conduct
    if heeded:
        return Route("DYNAMIC", f"it asked for its list again after {heeded} of {heeded + unheeded} announcements")
    if unheeded >= _UNHEEDED:
        return Route("CALL_TOOL", f"it did not ask for its list again after {unheeded} announcements")
    seen = find_client(name)
    if seen is None:
        return Route("CALL_TOOL", "it is not known to ask for its list again when the list changes")
    if seen.heeds_changes:
        return Route("DYNAMIC", f"it is known to ask for its list again when the list changes ({seen.version})")
    return Route("CALL_TOOL", f"it is known not to ask for its list again in a session ({seen.version})")


@dataclass(eq=False, repr=False)
class Routing:
    """Gives every client its list of tools: by its path, its era and what it is known for.

    Attributes:
        settings: What clients get, and the most tools in one session's pool.
        surfaces: The tools at the paths of the whole catalog and of profiles.
        toolsets: Those of a principal, by handle.
        conduct: How clients took announcements.
        clock: Monotonic seconds.
        passthrough: The tools of the one server that is passed through, as far as a reach goes; a look-up. None where
            all servers are served.
    """

    settings: Settings
    surfaces: ToolSurfaces
    toolsets: Toolsets
    conduct: ClientBehavior
    clock: Callable[[], float]
    passthrough: Callable[[Reach], ToolList] | None = None

    @property
    def is_changing(self) -> bool:
        """Whether any list can change: a server's own, by searches, or with what is always listed."""
        kind = get_own_routing() or self.settings.routing_type
        return self.passthrough is not None or kind != "CALL_TOOL" or self.surfaces.is_listing_more

    def find_tools(self, path: str, principal: Principal) -> ToolList | None:
        """Find the list of a modern client at a path; its searches make toolsets where other lists grow.

        None where nothing is at this path for this principal.
        """
        if (shared := self._find_shared_list(path, principal)) is not None:
            return shared
        if (surface := self._find_surface(path, principal.reach)) is None:
            return None
        return surface.fixed if self.settings.routing_type == "CALL_TOOL" else surface.fixed_with_toolsets

    def route(self, client: HandshakeClient) -> Route:
        """Decide how this client is served at its path, and why."""
        if self.passthrough is not None:
            return Route("PASSTHROUGH", "one server is passed through as it is")
        if self._find_shared_list(client.path, client.principal) is not None:
            return Route("TOOLSET", "it came in at a toolset's address")
        kind = get_own_routing() or self.settings.routing_type
        if kind == "AUTO":
            return decide(client.name, self.conduct.of(client.name))
        return Route("DYNAMIC" if kind == "DYNAMIC" else "CALL_TOOL", "MCPPROXY_ROUTING_TYPE says so")

    def open_tools(self, client: HandshakeClient, route: Route, on_change: Callable[[], None]) -> ToolList | None:
        """Open the list of a client of the handshake era: one of its own where it is routed dynamically.

        Args:
            client: Who it is.
            route: What was decided for it.
            on_change: Called when something the client did has changed its list.

        Returns:
            The list; None where nothing is at its path.
        """
        if (shared := self._find_shared_list(client.path, client.principal)) is not None:
            return shared
        if (surface := self._find_surface(client.path, client.principal.reach)) is None:
            return None
        if route.kind != "DYNAMIC":
            return surface.fixed
        return PooledTools(surface, Pool(self.settings.tools_limit), self.clock, on_change)

    def _find_shared_list(self, path: str, principal: Principal) -> ToolList | None:
        """The list that clients of both eras get: of the server that is passed through, or of a toolset."""
        if self.passthrough is not None:
            return None if path else self.passthrough(principal.reach)
        kind, _, handle = path.partition("/")
        return self.toolsets.at(handle, principal) if kind == "t" else None

    def _find_surface(self, path: str, reach: Reach) -> ToolSurface | None:
        return None if self.passthrough is not None else self.surfaces.at(path, reach)

"""Routes of clients to tools, and the tools of the whole catalog or of a profile behind them."""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from smart_mcp_proxy.fastmcp_compat.methods import HandshakeClient
from smart_mcp_proxy.fastmcp_compat.paths import get_endpoint_url, get_own_routing
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sessions.tool_list import LIST_TTL_MS, CatalogToolList
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.shared.agent_tools import Caller, OwnTools, Registration, ToolList
from smart_mcp_proxy.gateway.shared.client_behavior import ClientBehavior
from smart_mcp_proxy.gateway.shared.sessions import Route
from smart_mcp_proxy.gateway.tools.builtin_tools import ToolParts, own_tools
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.greeting.seen_clients import find_client
from smart_mcp_proxy.models import Hit, Principal, Reach, ToolRecord
from smart_mcp_proxy.pool import Pool
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.settings import Settings

_CHANGING_TTL_MS = 10_000
"""For a modern client that does not listen for changes, of a list that can change."""
_FIXED = "Your own list of tools stays as it is: revision 2026-07-28 forbids that a search changes it."
_FIXED_WITH_TOOLSET = f"{_FIXED} The toolset lists these tools at its url."
_FIXED_ON_STDIO = f"{_FIXED} Under MCPPROXY_STDIO_ERA=handshake searches add to it."
_LISTED_ALREADY = "Your own list of tools holds them already, as far as its limit goes."
"""Reasons why a search registers nothing."""


@dataclass(eq=False, repr=False)
class ToolSurface:
    """Tools of one part of the catalog: searched, listed and called.

    Attributes:
        visible: Its tools.
        retrieval: Searches them.
        calls: The one call path.
        own: The gateway's own tools, working on this part.
        toolsets: Make toolsets of what searches find in this part.
        profile: Name of the profile that it is; empty for the whole catalog.
        list_all_below_tokens: A part whose definitions cost less is listed whole; 0 for never.
    """

    visible: CatalogView
    retrieval: Retrieval
    calls: Calls
    own: OwnTools
    toolsets: Toolsets
    profile: str
    list_all_below_tokens: int

    def __post_init__(self) -> None:
        self._pinned: tuple[ToolRecord, ...] = ()
        self._pinned_of: object = None
        self.fixed: ToolList = PinnedTools(self)
        """The same for every client: the gateway's self.own tools, and what is pinned."""
        self.fixed_with_toolsets: ToolList = PinnedTools(self, is_offering_toolsets=True)
        """The same list; each search also makes a toolset."""

    @property
    def is_listing_more(self) -> bool:
        """Whether the configuration lists servers' tools here, be there any yet or not."""
        return self.list_all_below_tokens > 0 or self.visible.is_pinning

    def select_pinned(self) -> tuple[ToolRecord, ...]:
        """Tools that are always listed, by listed name; computed once per state of the catalog."""
        state = self.visible.state()
        if state is not self._pinned_of:
            is_whole = 0 < self.retrieval.catalog_tokens() < self.list_all_below_tokens
            chosen = self.visible.records() if is_whole else filter(self.visible.is_pinned, self.visible.records())
            self._pinned = tuple(sorted(chosen, key=lambda record: record.listed_name))
            self._pinned_of = state
        return self._pinned


class PinnedTools(CatalogToolList):
    """The gateway's own tools and those that the configuration lists for everybody.

    Args:
        surface: The part of the catalog that they work on.
        is_offering_toolsets: Whether every search makes a toolset; else only a search that extends one.
    """

    def __init__(self, surface: ToolSurface, *, is_offering_toolsets: bool = False) -> None:
        super().__init__(surface.own, surface.visible, surface.calls)
        self._surface = surface
        self._is_offering_toolsets = is_offering_toolsets

    @property
    def list_ttl_ms(self) -> int:
        """Long only if the list stays as it is."""
        return _CHANGING_TTL_MS if self._surface.is_listing_more else LIST_TTL_MS

    def select_records(self) -> tuple[ToolRecord, ...]:
        """Pinned tools."""
        return self._surface.select_pinned()

    async def register(
        self, found: Sequence[tuple[Hit, ToolRecord]], toolset: str | None, principal: str
    ) -> Registration:
        """Leaves the list as it is; the tools that a search found make a toolset where one is wanted."""
        if toolset is None and not self._is_offering_toolsets:
            return Registration()
        made = await self._surface.toolsets.make(
            [record for _, record in found], principal=principal, profile=self._surface.profile, extends=toolset
        )
        return Registration(toolset=made, reason=self._reason(made) if found else "")

    def _reason(self, made: Mapping[str, Any] | None) -> str:
        """Why the tools that a search found are not in the list, where lists of other clients grow."""
        if not self._is_offering_toolsets:
            return ""
        if made is not None:
            return _FIXED_WITH_TOOLSET
        return _FIXED if get_endpoint_url() else _FIXED_ON_STDIO


class PooledTools(PinnedTools):
    """The list of one session: pinned tools, and those that its searches found and its pool keeps.

    Args:
        surface: The part of the catalog that they work on.
        pool: Of this session.
        clock: Monotonic seconds.
        on_change: Called when a search has changed the list.
    """

    def __init__(
        self, surface: ToolSurface, pool: Pool, clock: Callable[[], float], on_change: Callable[[], None]
    ) -> None:
        super().__init__(surface)
        self.pool = pool
        self._clock = clock
        self._on_change = on_change

    def select_records(self) -> tuple[ToolRecord, ...]:
        """Pinned tools, then pooled ones in the order in which they were found; what may not be seen has left."""
        pinned = self._surface.select_pinned()
        found = {id_: self._visible.by_id(id_) for id_ in self.pool.ids}
        if gone := [id_ for id_, record in found.items() if record is None]:
            self.pool.drop(gone)
        if not pinned:
            return tuple(record for record in found.values() if record is not None)
        taken = {record.id for record in pinned}
        return (*pinned, *(record for record in found.values() if record is not None and record.id not in taken))

    def select_loaded_ids(self) -> Collection[int]:
        """Ids of the tools that searches found."""
        return self.pool.ids

    def call(self, name: str, arguments: Mapping[str, Any], caller: Caller) -> Coroutine[Any, Any, RawResult]:
        """The result of a listed tool; what is called stays in the pool for longer."""
        if (record := self.records().get(name)) is not None:
            self.note_called(record)
        return super().call(name, arguments, caller)

    async def register(
        self, found: Sequence[tuple[Hit, ToolRecord]], toolset: str | None, principal: str
    ) -> Registration:
        """Takes the tools that a search found into the pool."""
        registration = await super().register(found, toolset, principal)
        pinned = {record.id for record in self._surface.select_pinned()}
        names = {record.id: record.listed_name for record in self.select_records()}
        change = self.pool.admit([hit for hit, _ in found if hit.id not in pinned], self._clock())
        names |= {record.id: record.listed_name for _, record in found}
        if change:
            self._on_change()
        return replace(
            registration,
            reason="" if change.added or not found else _LISTED_ALREADY,
            newly_registered=tuple(names[id_] for id_ in change.added),
            evicted=tuple(names[id_] for id_ in change.evicted),
            pool={"size": len(self.pool), "limit": self.pool.limit},
        )

    def note_called(self, record: ToolRecord) -> None:
        """Keeps a tool fresh that is called, by whatever way."""
        self.pool.touch(record.id, self._clock())


class ToolSurfaces:
    """Keeps one tool surface per view, as long as the view lives.

    Args:
        views: The whole catalog's view, the profiles', and parts of them.
        toolsets: Makes toolsets of what searches find.
        parts_of: Gives the parts that the tools of a view are made of.
    """

    def __init__(self, views: Views, toolsets: Toolsets, parts_of: Callable[[CatalogView], ToolParts]) -> None:
        self._views = views
        self._toolsets = toolsets
        self._parts_of = parts_of
        self.whole = self._of(views.whole, "")

    @property
    def is_listing_more(self) -> bool:
        """Whether the configuration lists servers' tools for everybody, anywhere."""
        return self.whole.is_listing_more or self._views.is_pinning

    def reach(self, who: Principal) -> Reach:
        """Return how far a principal reaches; see `Views.reach`."""
        return self._views.reach(who)

    def at(self, path: str, reach: Reach) -> ToolSurface | None:
        """Return the surface at the path of the whole catalog or a profile, as far as a reach goes; a look-up."""
        view = self._views.at(path, reach)
        return None if view is None else self._of(view, path.removeprefix("p/"))

    def _of(self, view: CatalogView, profile: str) -> ToolSurface:
        return view.once(ToolSurface, lambda: self._open(view, profile))

    def _open(self, view: CatalogView, profile: str) -> ToolSurface:
        parts = self._parts_of(view)
        limit_tokens = parts.settings.list_all_below_tokens
        return ToolSurface(view, parts.retrieval, parts.calls, own_tools(parts), self._toolsets, profile, limit_tokens)


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
    passthrough: Callable[[Principal], ToolList] | None = None

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
        if (surface := self._find_surface(path, self.surfaces.reach(principal))) is None:
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
        if (surface := self._find_surface(client.path, self.surfaces.reach(client.principal))) is None:
            return None
        if route.kind != "DYNAMIC":
            return surface.fixed
        return PooledTools(surface, Pool(self.settings.tools_limit), self.clock, on_change)

    def _find_shared_list(self, path: str, principal: Principal) -> ToolList | None:
        """The list that clients of both eras get: of the server that is passed through, or of a toolset."""
        if self.passthrough is not None:
            return None if path else self.passthrough(principal)
        kind, _, handle = path.partition("/")
        return self.toolsets.at(handle, principal) if kind == "t" else None

    def _find_surface(self, path: str, reach: Reach) -> ToolSurface | None:
        return None if self.passthrough is not None else self.surfaces.at(path, reach)

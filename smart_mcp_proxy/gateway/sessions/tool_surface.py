"""Tools of the whole catalog or of a profile, as their clients search, list and call them."""

from collections.abc import Callable

from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sessions.tool_list import MakeToolset, PinnedTools, PooledTools
from smart_mcp_proxy.gateway.shared.agent_tools import OwnTools
from smart_mcp_proxy.gateway.shared.tool_offer import ToolProvider
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.pool import Pool


class ToolSurface:
    """Tools of one part of the catalog: searched, listed and called.

    Args:
        visible: Its tools.
        retrieval: Searches them.
        calls: The one call path.
        own: The gateway's own tools, working on this part.
        make_toolset: Makes toolsets of what searches find in this part.
        list_all_below_tokens: A part whose definitions cost less is listed whole; 0 for never.
    """

    def __init__(
        self,
        visible: CatalogView,
        retrieval: Retrieval,
        calls: Calls,
        own: OwnTools,
        make_toolset: MakeToolset,
        list_all_below_tokens: int,
    ) -> None:
        self.visible = visible
        self.retrieval = retrieval
        self._calls = calls
        self._own = own
        self._make_toolset = make_toolset
        self._list_all_below_tokens = list_all_below_tokens
        self._pinned: tuple[ToolRecord, ...] = ()
        self._pinned_of: object = None
        self.fixed: ToolProvider = PinnedTools(
            own, visible, calls, self.select_pinned, make_toolset, is_listing_more=self.is_listing_more
        )
        """The same for every client: the gateway's own tools, and what is pinned."""
        self.fixed_with_toolsets: ToolProvider = PinnedTools(
            own,
            visible,
            calls,
            self.select_pinned,
            make_toolset,
            is_offering_toolsets=True,
            is_listing_more=self.is_listing_more,
        )
        """The same list; each search also makes a toolset."""

    def build_pooled_tools(self, limit: int, clock: Callable[[], float], on_change: Callable[[], None]) -> PooledTools:
        """A list that its client's searches fill, with a pool of its own."""
        return PooledTools(
            self._own,
            self.visible,
            self._calls,
            self.select_pinned,
            self._make_toolset,
            pool=Pool(limit),
            clock=clock,
            on_change=on_change,
        )

    def is_listing_more(self) -> bool:
        """Whether the configuration lists servers' tools here, be there any yet or not; a look-up."""
        return self._list_all_below_tokens > 0 or self.visible.is_pinning

    def select_pinned(self) -> tuple[ToolRecord, ...]:
        """Tools that are always listed, by listed name; computed once per state of the catalog."""
        state = self.visible.state()
        if state is not self._pinned_of:
            is_whole = 0 < self.retrieval.catalog_tokens() < self._list_all_below_tokens
            chosen = self.visible.records() if is_whole else filter(self.visible.is_pinned, self.visible.records())
            self._pinned = tuple(sorted(chosen, key=lambda record: record.listed_name))
            self._pinned_of = state
        return self._pinned

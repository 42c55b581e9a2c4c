"""The gateway's own tools on each view of the catalog."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.results.outputs import Outputs
from smart_mcp_proxy.gateway.retrieval.retrieval import Retrieval
from smart_mcp_proxy.gateway.sessions.tool_surface import Front
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.tools import AgentTool
from smart_mcp_proxy.gateway.tools.builtin_tools import own_tools
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import Visible
from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.settings import Settings

__all__ = ["Fronts"]


class Fronts:
    """Keeps one front per view, as long as the view lives.

    Args:
        views: The whole catalog's view, the profiles', and parts of them.
        settings: Say which tools there are.
        calls: The one call path.
        outputs: What was cut.
        toolsets: Makes toolsets of what searches find.
        open_retrieval: Makes the search of a view.
        optional_tools: Makes the tools of a view that only some gateways offer.
    """

    def __init__(
        self,
        views: Views,
        settings: Settings,
        calls: Calls,
        outputs: Outputs,
        toolsets: Toolsets,
        open_retrieval: Callable[[Visible], Retrieval],
        optional_tools: Callable[[Visible], Iterator[AgentTool[Any]]],
    ) -> None:
        self._views = views
        self._settings = settings
        self._calls = calls
        self._outputs = outputs
        self._toolsets = toolsets
        self._open_retrieval = open_retrieval
        self._optional_tools = optional_tools
        self.whole = self._of(views.whole, "")

    def at(self, path: str, reach: Reach) -> Front | None:
        """Return the front at the path of the whole catalog or a profile, as far as a reach goes; a look-up."""
        view = self._views.at(path, reach)
        return None if view is None else self._of(view, path.removeprefix("p/"))

    def _of(self, view: Visible, profile: str) -> Front:
        return view.once(Front, lambda: self._open(view, profile))

    def _open(self, view: Visible, profile: str) -> Front:
        settings, retrieval = self._settings, self._open_retrieval(view)
        own = own_tools(settings, view, retrieval, self._calls, self._outputs, self._optional_tools(view))
        make_toolset = partial(self._toolsets.make, profile=profile)
        return Front(view, retrieval, self._calls, own, make_toolset, settings.list_all_below_tokens)

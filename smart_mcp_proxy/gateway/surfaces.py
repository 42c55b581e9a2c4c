"""The gateway's own tools on each view of the catalog."""

from collections.abc import Callable
from functools import partial

from smart_mcp_proxy.gateway.sessions.tool_surface import ToolSurface
from smart_mcp_proxy.gateway.sessions.toolsets import Toolsets
from smart_mcp_proxy.gateway.tools.builtin_tools import ToolParts, own_tools
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import Reach


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

    def at(self, path: str, reach: Reach) -> ToolSurface | None:
        """Return the surface at the path of the whole catalog or a profile, as far as a reach goes; a look-up."""
        view = self._views.at(path, reach)
        return None if view is None else self._of(view, path.removeprefix("p/"))

    def _of(self, view: CatalogView, profile: str) -> ToolSurface:
        return view.once(ToolSurface, lambda: self._open(view, profile))

    def _open(self, view: CatalogView, profile: str) -> ToolSurface:
        parts = self._parts_of(view)
        make_toolset = partial(self._toolsets.make, profile=profile)
        limit_tokens = parts.settings.list_all_below_tokens
        return ToolSurface(view, parts.retrieval, parts.calls, own_tools(parts), make_toolset, limit_tokens)

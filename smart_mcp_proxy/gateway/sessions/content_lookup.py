"""Look-up of prompts and resources by the path and principal of a request."""

from dataclasses import dataclass

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.gateway.shared.agent_tools import Caller
from smart_mcp_proxy.gateway.visibility.contents import Contents
from smart_mcp_proxy.gateway.visibility.items import Target
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import Principal


def build_caller(inbound: Inbound, *, is_root: bool = True) -> Caller:
    """The caller behind a request."""
    return Caller(
        inbound.principal.id,
        inbound.meta,
        inbound.on_progress,
        inbound.session_id,
        input=inbound.input,
        line=inbound.line,
        extensions=inbound.extensions,
        is_root=is_root,
        era=inbound.era,
        role=inbound.principal.role,
    )


@dataclass(eq=False, repr=False)
class ContentLookup:
    """Finds the prompts and resources that a principal may see at a path.

    Attributes:
        views: What may be seen; toolsets have tools alone.
        catalog: Holds prompts and resources.
        name_limit: Longest name of a prompt, in characters.
        passed: The one server that is shown as it is; None for all under the gateway's names.
    """

    views: Views
    catalog: Catalog
    name_limit: int
    passed: str | None

    def at(self, path: str, who: Principal) -> Contents | None:
        """Contents at a path on behalf of a principal; None where the place has tools alone; a look-up."""
        view = self.views.at(path, self.views.reach(who))
        return None if view is None else self.on(view)

    def on(self, view: CatalogView) -> Contents:
        """Contents that a view shows; the same object as long as the view lives."""
        return view.once((Contents, self.passed), lambda: Contents(self.catalog, view, self.name_limit, self.passed))

    def find(self, path: str, who: Principal, uri: str) -> Target:
        """Resolve a URI at a path on behalf of a principal; a look-up.

        Raises:
            ProxyError: Nowhere, or it may not be read.
        """
        contents = self.at(path, who)
        if contents is None:
            raise RequestError("There are no resources here.", hint="Use the path /mcp.", code="not_found")
        return contents.resource(uri)

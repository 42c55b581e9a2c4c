"""Calls that interfaces make through their host, each held to the server that the interface came from.

A page knows its server's tools by their own names, and a host that shows it passes these on. Such a name is looked for
among the servers whose page the caller has opened, and nowhere else. A host may say from which page a call comes, in
the request's `_meta.ui.resourceUri`: then that server alone is asked, whatever the name.
"""

from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from smart_mcp_proxy.errors import ProxyError, RefusedError, RequestError, UnverifiedError
from smart_mcp_proxy.extensions import APP_META, APPS
from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.fastmcp_compat.methods import request_error
from smart_mcp_proxy.gateway.calls.calls import Calls
from smart_mcp_proxy.gateway.sessions.content_lookup import ContentLookup
from smart_mcp_proxy.gateway.sessions.tool_list import build_request
from smart_mcp_proxy.gateway.shared.agent_tools import Caller, CallTool
from smart_mcp_proxy.gateway.shared.app_pages import is_for_apps, is_page
from smart_mcp_proxy.gateway.visibility.links import Links
from smart_mcp_proxy.gateway.visibility.uri_templates import split_gateway_uri
from smart_mcp_proxy.gateway.visibility.views import Views
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.upstream import Fleet

UNTOLD_KEY: Final = "dev.smartmcpproxy/appsNotDeclaredTo"
"""In the `_meta` of a list of tools: servers that are not told that its client shows interfaces."""
NAME_CHARS: Final = 200


class AppCalls:
    """Finds the tools that interfaces call.

    Args:
        views: What may be seen.
        calls: The one call path.
        links: Know whose pages a caller has opened.
        lookup: Knows where there are pages.
        fleet: The servers.
    """

    def __init__(self, views: Views, calls: Calls, links: Links, lookup: ContentLookup, fleet: Fleet) -> None:
        self._views = views
        self._fleet = fleet
        self._lookup = lookup
        self._calls = calls
        self._links = links
        self._passed = lookup.passed  # its tools have their own names already

    def build_listing(self, definitions: Sequence[Mapping[str, Any]], inbound: Inbound) -> dict[str, Any]:
        """A client's list, and which servers do not know that it shows pages, if it does."""
        listing: dict[str, Any] = {"tools": self._restrict_own_tools(definitions, inbound)}
        if untold := self._untold(inbound):
            listing["_meta"] = {UNTOLD_KEY: untold}
        return listing

    def _restrict_own_tools(
        self, definitions: Sequence[Mapping[str, Any]], inbound: Inbound
    ) -> Sequence[Mapping[str, Any]]:
        """A client's tools; where it shows pages, the gateway's own tools are for its model alone.

        With them a page would reach every server: which one a call comes from few hosts say. A host lets no page call
        what is for models.
        """
        view = self._find_app_view(inbound)
        if self._passed is not None or view is None:
            return definitions
        if not any(is_page(item.name) for item in self._lookup.on(view).of("resources").values()):
            return definitions
        return [each if view.find(each["name"]) is not None else _for_models(each) for each in definitions]

    def _untold(self, inbound: Inbound) -> list[str]:
        """Servers that are not told that this client shows interfaces; empty for one that shows none.

        A server of the handshake era is told once on a session, for all calls on it; this one is shared by all clients.
        """
        view = self._find_app_view(inbound)
        names = [] if view is None else view.servers if self._passed is None else [self._passed]
        found = ((name, self._fleet.upstreams.get(name)) for name in sorted(names))
        return [
            name for name, each in found if each is not None and each.own is None and each.status.era == "handshake"
        ]

    def _find_app_view(self, inbound: Inbound) -> CatalogView | None:
        """The view that a client with interfaces lists; None for one that shows none."""
        if APPS not in (inbound.extensions or {}):
            return None
        return self._views.at(
            "" if inbound.path.startswith("t/") else inbound.path, self._views.reach(inbound.principal)
        )

    async def way(self, inbound: Inbound, *, is_listed: bool) -> CallTool | None:
        """The call of the tool that a page means; None for a call that no page makes.

        A host need not say that one does: then its name decides.

        Args:
            inbound: The call.
            is_listed: Whether its name is one of the client's list.

        Raises:
            MCPError: It may not be called so; see `find`.
        """
        if is_listed and _read_page_uri(inbound) is None:
            return None
        try:
            return await self.find(inbound)
        except ProxyError as error:
            raise request_error(error.jsonrpc_code, str(error), error.to_dict()) from error

    async def find(self, inbound: Inbound) -> CallTool | None:
        """The call of the tool that a page means; None where it can mean none.

        Raises:
            RequestError: Two servers whose pages were opened have such a tool.
            RefusedError: The tool is not for interfaces, or of another server than the page.
            UnverifiedError: Whether a page of its server was opened cannot be looked up.
        """
        view = None if self._passed is not None else self._views.at(inbound.path, self._views.reach(inbound.principal))
        if view is None:
            return None
        name, page = inbound.params["name"], _read_page_uri(inbound)
        if page is not None:
            return self._of_page(view, page, name)
        found = [record for server in view.servers if (record := _own(view, server, name)) is not None]
        if not found:
            return None
        try:
            opened = await self._links.find_opened_servers(inbound.principal.id, inbound.session_id)
        except UnverifiedError:
            if any(is_for_apps(record.raw) for record in found):
                raise
            return None
        of_opened = [record for record in found if record.key.server in opened]
        if len(of_opened) > 1:
            raise _ambiguous(name, of_opened)
        if not of_opened:
            return None
        (record,) = of_opened
        await self._links.note_opened(record.key.server, inbound.principal.id, inbound.session_id)
        return self._permit_app_tool(view, record)

    def _of_page(self, view: CatalogView, page: str, name: str) -> CallTool:
        server, _ = split_gateway_uri(page) or ("", "")
        record = _own(view, server, name)
        if record is None:
            listed = view.find(name)
            if listed is None or listed.key.server != server:
                raise RefusedError(
                    f"The interface {page[:NAME_CHARS]!r} has no tool {name[:NAME_CHARS]!r}: it may call those of its "
                    "own server alone.",
                    hint="Call a tool of the server that the page came from.",
                    code="other_server",
                )
            record = listed
        return self._permit_app_tool(view, record)

    def _permit_app_tool(self, view: CatalogView, record: ToolRecord) -> CallTool:
        if not is_for_apps(record.raw):
            raise RefusedError(
                f"'{record.key}' is for models, not for an interface.",
                hint="Nothing lifts this: the server says so in the tool's _meta.ui.visibility.",
                code="model_only",
            )
        return partial(self._call, view, record)

    def _call(
        self, view: CatalogView, record: ToolRecord, name: str, arguments: Mapping[str, Any], caller: Caller
    ) -> Coroutine[Any, Any, RawResult]:
        request = build_request(str(record.key), arguments, caller)
        meta = {key: value for key, value in caller.meta.items() if key != APP_META}
        request = msgspec.structs.replace(request, session=caller.session, meta=meta)
        return self._calls.call(request, within=view, record=record)


def _for_models(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = {**(definition.get("_meta") or {}), APP_META: {"visibility": ["model"]}}
    return {**definition, "_meta": meta}


def _own(view: CatalogView, server: str, name: str) -> ToolRecord | None:
    """A server's visible tool of this own name."""
    record = view.find(f"{server}:{name}") if server in view.servers else None
    return record if record is not None and record.key == (server, name) else None


def _read_page_uri(inbound: Inbound) -> str | None:
    ui = inbound.meta.get(APP_META)
    uri = ui.get("resourceUri") if isinstance(ui, Mapping) else None
    return uri if isinstance(uri, str) else None


def _ambiguous(name: str, records: list[ToolRecord]) -> RequestError:
    ways = ", ".join(sorted(record.listed_name for record in records))
    return RequestError(
        f"Several interfaces that are open come from servers with a tool {name[:NAME_CHARS]!r}, and the call does not "
        "say which of them it comes from.",
        hint=f"Call one of {ways}, or name the page in _meta.ui.resourceUri.",
        code="app_ambiguous",
    )

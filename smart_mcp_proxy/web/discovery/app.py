"""Server cards and the registry's API over HTTP, behind the same checks and the same token as `/mcp`."""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from smart_mcp_proxy.errors import RequestError, UnverifiedError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.models import WHOLE, Principal
from smart_mcp_proxy.web.auth.auth import Keys
from smart_mcp_proxy.web.auth.signed_tokens import resource_url
from smart_mcp_proxy.web.common.messages import JSON_TYPE
from smart_mcp_proxy.web.common.paths import serve_beside
from smart_mcp_proxy.web.common.refusals import guard_app
from smart_mcp_proxy.web.discovery.cards import (
    CARD_TYPE,
    DiscoveryEndpoint,
    build_card_catalog,
    build_server_card,
    build_server_list,
    find_server_version,
)

CATALOG_PATHS: Final = ("/.well-known/mcp/catalog.json", "/.well-known/ai-catalog.json")
"""Of MCP, and of the standard that it is to grow into, whose entries have the same form."""
SERVERS_PATH: Final = "/v0.1/servers"
_CARD_PATH: Final = re.compile(r"/mcp(?:/p/(?P<profile>[^/]+))?/server-card")
_KEPT: Final = "private, max-age=300"
"""A client may keep what it was told for five minutes, and nobody on the way."""


def serve_discovery_beside(
    app: ASGIApp, gateway: Gateway, keys: Keys, metadata_url: str | None, scopes: Sequence[str]
) -> ASGIApp:
    """Serve cards, catalog and registry at their own paths, as far as the settings ask for them.

    Args:
        app: Everything else, which gets it untouched.
        gateway: Open.
        keys: Says who callers are.
        metadata_url: Where clients learn who signs tokens for this gateway; None where nobody does.
        scopes: That such a token can have.
    """
    has_cards, has_registry = gateway.settings.serve_cards, gateway.settings.serve_registry

    def is_own(path: str) -> bool:
        is_card = has_cards and (path in CATALOG_PATHS or _CARD_PATH.fullmatch(path) is not None)
        return is_card or (has_registry and (path == SERVERS_PATH or path.startswith(SERVERS_PATH + "/")))

    own = guard_app(_endpoints(_Discovery(gateway, keys)), gateway.settings, metadata_url, scopes)
    return serve_beside(app, own, is_own) if has_cards or has_registry else app


class _Discovery:
    """Answers for callers that are let in, each about the places that it reaches.

    Args:
        gateway: Open.
        keys: Says who callers are.
    """

    def __init__(self, gateway: Gateway, keys: Keys) -> None:
        self._gateway = gateway
        self._keys = keys
        self._address = resource_url(gateway.settings)

    async def card(self, request: Request) -> Response:
        """A place's card."""
        profile = request.path_params.get("profile", "")

        def look(places: Sequence[DiscoveryEndpoint]) -> dict[str, Any] | None:
            return next((build_server_card(place) for place in places if place.profile == profile), None)

        return await self._answer_lookup(request, look, CARD_TYPE)

    async def catalog(self, request: Request) -> Response:
        """All cards' addresses."""
        return await self._answer_lookup(request, build_card_catalog)

    async def servers(self, request: Request) -> Response:
        """A page of the list."""
        return await self._answer_lookup(request, lambda places: build_server_list(places, request.query_params))

    async def versions(self, request: Request) -> Response:
        """The one version of a place, as a list."""

        def look(places: Sequence[DiscoveryEndpoint]) -> dict[str, Any] | None:
            found = find_server_version(places, request.path_params["name"])
            return None if found is None else {"servers": [found], "metadata": {"count": 1}}

        return await self._answer_lookup(request, look)

    async def version(self, request: Request) -> Response:
        """A place in the version that is asked for."""
        name, version = request.path_params["name"], request.path_params["version"]
        return await self._answer_lookup(request, lambda places: find_server_version(places, name, version))

    async def _answer_lookup(
        self,
        request: Request,
        look: Callable[[Sequence[DiscoveryEndpoint]], dict[str, Any] | None],
        kind: str = JSON_TYPE,
    ) -> Response:
        try:
            who = await self._keys.check(request.scope)
        except UnverifiedError as error:
            return _build_error_response(error.http_status, f"{error.message} {error.hint}")
        if who is None:
            return Response(status_code=401)
        try:
            value = look(self._places(request, who))
        except RequestError as error:
            return _build_error_response(400, f"{error.message} {error.hint}")
        if value is None:
            return _build_error_response(404, "Server not found")
        return Response(msgspec.json.encode(value), headers={"cache-control": _KEPT}, media_type=kind)

    def _places(self, request: Request, who: Principal) -> list[DiscoveryEndpoint]:
        """The endpoint, and those of its profiles in which the caller reaches something."""
        endpoint = self._address or f"{request.url.scheme}://{request.headers.get('host', '')}/mcp"
        is_passing_through = self._gateway.base.config.passthrough is not None
        profiles = [""] if is_passing_through else ["", *self._list_reachable_profiles(who)]
        return [DiscoveryEndpoint(profile, endpoint, not self._keys.is_open) for profile in profiles]

    def _list_reachable_profiles(self, who: Principal) -> list[str]:
        views = self._gateway.lists.views
        named = sorted(profile.name for profile in views.profiles)
        seen = ((name, views.of(name, who.reach)) for name in named)
        return [
            name
            for name, view in seen
            if view is not None and (who.reach == WHOLE or view.rules.list_reachable_servers())
        ]


def _endpoints(discovery: _Discovery) -> Starlette:
    app = Starlette(
        routes=[
            Route("/mcp/server-card", discovery.card),
            Route("/mcp/p/{profile}/server-card", discovery.card),
            *(Route(path, discovery.catalog) for path in CATALOG_PATHS),
            Route(SERVERS_PATH, discovery.servers),
            # A name has a slash, written as %2F, which is one again by the time that paths are compared.
            Route(SERVERS_PATH + "/{name:path}/versions/{version}", discovery.version),
            Route(SERVERS_PATH + "/{name:path}/versions", discovery.versions),
        ],
        exception_handlers={404: _no_such_path, 405: _no_such_path},
    )
    app.router.redirect_slashes = False
    return app


async def _no_such_path(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    response = _build_error_response(exc.status_code, "Method not allowed" if exc.status_code == 405 else "Not found")
    response.headers.update(exc.headers or {})
    return response


def _build_error_response(status: int, words: str) -> Response:
    return Response(
        msgspec.json.encode({"error": words}),
        status_code=status,
        headers={"cache-control": "no-store"},
        media_type=JSON_TYPE,
    )

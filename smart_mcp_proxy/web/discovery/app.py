"""Server cards and the registry's API v0.1 over HTTP, behind the checks and the token of `/mcp`.

They name the gateway and its profiles; no tool, no server behind them. Two things differ from the extension on
purpose: all of it stands behind the token of `/mcp`, and so it sends no `Access-Control-Allow-Origin: *`, which it may
only for what is public.

Source: https://github.com/modelcontextprotocol/experimental-ext-server-card/blob/main/docs/discovery.md;
https://github.com/modelcontextprotocol/experimental-ext-server-card/blob/main/schema.ts;
https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/openapi.yaml
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import RequestError, UnverifiedError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.results.results import SERVER_NAME
from smart_mcp_proxy.models import WHOLE, Principal
from smart_mcp_proxy.registry.listing import OFFICIAL
from smart_mcp_proxy.web.auth.auth import Keys
from smart_mcp_proxy.web.auth.signed_tokens import resource_url
from smart_mcp_proxy.web.common.messages import JSON_TYPE
from smart_mcp_proxy.web.common.paths import serve_beside
from smart_mcp_proxy.web.common.refusals import guard_app, parse_address

CARD_TYPE: Final = "application/mcp-server-card+json"
_CARD_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_SPEC_VERSION: Final = "draft"
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9.-]")
_WHOLE: Final = "One search tool in front of many MCP servers."
_VERSIONS: Final = [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]
LATEST: Final = "latest"
PAGE: Final = 30
PAGE_LIMIT: Final = 100
"""The official registry's; the API itself names none."""
_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_PARAMETERS: Final = ("cursor", "limit", "search", "updated_since", "version", "include_deleted")
_DIGITS: Final = re.compile(r"[0-9]{1,4}")
_SHOWN_CHARS: Final = 40
CATALOG_PATHS: Final = ("/.well-known/mcp/catalog.json", "/.well-known/ai-catalog.json")
"""Paths of the catalogs of MCP, and of the standard that it is to grow into, whose entries have the same form."""
SERVERS_PATH: Final = "/v0.1/servers"
_CARD_PATH: Final = re.compile(r"/mcp(?:/p/(?P<profile>[^/]+))?/server-card")
_KEPT: Final = "private, max-age=300"
"""A client may keep what it was told for five minutes, and nobody on the way."""


class DiscoveryEndpoint(NamedTuple):
    """The endpoint, or one of its profiles.

    Attributes:
        profile: Name of the profile; empty for the whole.
        endpoint: Address of the endpoint.
        needs_token: Whether a token is asked for there.
    """

    profile: str
    endpoint: str
    needs_token: bool

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self.endpoint}/p/{self.profile}" if self.profile else self.endpoint

    @property
    def short_name(self) -> str:
        """Its name without the namespace."""
        return f"{SERVER_NAME}.{self.profile}" if self.profile else SERVER_NAME

    @property
    def name(self) -> str:
        """Its name with the host in front, the other way round: `com.example.gateway/smart-mcp-proxy`."""
        return f"{_namespace(self.host)}/{self.short_name}"

    @property
    def host(self) -> str:
        """The host of its address."""
        return urlsplit(self.endpoint).hostname or "localhost"

    @property
    def title(self) -> str:
        """Its name for people."""
        return f"{SERVER_NAME}: {self.profile}" if self.profile else SERVER_NAME

    @property
    def description(self) -> str:
        """Its purpose in one sentence, at most 100 characters."""
        return f"{_WHOLE[:-1]}, as far as a profile goes." if self.profile else _WHOLE


def build_server_card(place: DiscoveryEndpoint) -> dict[str, Any]:
    """The server card of a place."""
    return {
        "$schema": _CARD_SCHEMA,
        "name": place.name,
        "version": __version__,
        "title": place.title,
        "description": place.description,
        "remotes": [build_remote(place) | {"supportedProtocolVersions": _VERSIONS}],
    }


def build_remote(place: DiscoveryEndpoint) -> dict[str, Any]:
    """The way to connect to a place; what has to be sent is described and never given."""
    remote: dict[str, Any] = {"type": "streamable-http", "url": place.url}
    if place.needs_token:
        token = {"description": "A token of this gateway.", "isRequired": True, "isSecret": True}
        remote["headers"] = [
            {
                "name": "Authorization",
                "description": "Bearer token of this gateway, from its operator.",
                "isRequired": True,
                "isSecret": True,
                "value": "Bearer {token}",
                "variables": {"token": token},
            }
        ]
    return remote


def build_card_catalog(places: Iterable[DiscoveryEndpoint]) -> dict[str, Any]:
    """The catalog of the cards of some places."""
    entries = [
        {
            "identifier": f"urn:air:{place.host}:{place.short_name}",
            "displayName": place.title,
            "type": CARD_TYPE,
            "url": f"{place.url}/server-card",
        }
        for place in places
    ]
    return {"specVersion": _SPEC_VERSION, "entries": entries}


def _namespace(host: str) -> str:
    """A host name with its parts the other way round; an address as it is."""
    if parse_address(host) is None:
        host = ".".join(reversed(host.rstrip(".").split(".")))
    return _NOT_IN_A_NAME.sub("-", host)


def build_server_response(place: DiscoveryEndpoint) -> dict[str, Any]:
    """Build the registry's `ServerResponse` of an endpoint."""
    server = {
        "$schema": _SCHEMA,
        "name": place.name,
        "description": place.description,
        "title": place.title,
        "version": __version__,
        "remotes": [build_remote(place)],
    }
    return {"server": server, "_meta": {OFFICIAL: {"status": "active", "isLatest": True}}}


def find_server_version(places: Sequence[DiscoveryEndpoint], name: str, version: str = LATEST) -> dict[str, Any] | None:
    """The place of that name in that version; None if there is none."""
    place = next((each for each in places if each.name == name), None)
    return build_server_response(place) if place is not None and version in (LATEST, __version__) else None


def build_server_list(places: Sequence[DiscoveryEndpoint], query: Mapping[str, str]) -> dict[str, Any]:
    """A `ServerList`: the places that a query asks for, sorted by name, a page at a time.

    When something of a place changed is not known, so `updated_since` leaves none out: a mirror gets all of them again.

    Raises:
        RequestError: A parameter is not known, or its value is none.
    """
    _check(query)
    after = _decode_cursor(query["cursor"]) if query.get("cursor") else ""
    limit = _limit(query.get("limit", str(PAGE)))
    words = query.get("search", "").casefold()
    is_version = query.get("version", LATEST) in (LATEST, __version__)
    found = [
        place
        for place in sorted(places, key=lambda each: each.name)
        if is_version and place.name > after and words in f"{place.name} {place.description}".casefold()
    ]
    page = found[:limit]
    metadata: dict[str, Any] = {"count": len(page)}
    if len(found) > limit:
        metadata["nextCursor"] = base64.urlsafe_b64encode(page[-1].name.encode()).decode()
    return {"servers": [build_server_response(place) for place in page], "metadata": metadata}


def _check(query: Mapping[str, str]) -> None:
    for name in query:
        if name not in _PARAMETERS:
            raise RequestError(f"{name[:_SHOWN_CHARS]!r} is not a parameter.", hint=f"Use: {', '.join(_PARAMETERS)}.")
    if (since := query.get("updated_since")) is not None:
        try:
            datetime.fromisoformat(since)
        except ValueError as exc:
            raise RequestError(f"updated_since is {since[:_SHOWN_CHARS]!r}.", hint="Use an RFC 3339 time.") from exc
    if query.get("include_deleted", "false") not in ("true", "false"):
        raise RequestError("include_deleted is neither true nor false.", hint="Use one of them, or leave it out.")


def _limit(text: str) -> int:
    if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= PAGE_LIMIT:
        raise RequestError(f"limit is {text[:40]!r}.", hint=f"Use an integer from 1 to {PAGE_LIMIT}.")
    return int(text)


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as exc:
        raise RequestError("The cursor is not one that this registry gave.", hint="Begin without one.") from exc


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
        seen = ((name, views.of(name, views.reach(who))) for name in named)
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

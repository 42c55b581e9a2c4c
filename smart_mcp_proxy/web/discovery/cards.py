"""Server cards: addresses of the gateway and its profiles; no tool, no server behind them.

Two things differ from the extension on purpose: all of it stands behind the token of `/mcp`, and so it sends no
`Access-Control-Allow-Origin: *`, which it may only for what is public.

Source: https://github.com/modelcontextprotocol/experimental-ext-server-card/blob/main/docs/discovery.md;
https://github.com/modelcontextprotocol/experimental-ext-server-card/blob/main/schema.ts
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from smart_mcp_proxy import __version__
from smart_mcp_proxy.gateway.results.results import SERVER_NAME

CARD_TYPE: Final = "application/mcp-server-card+json"
_CARD_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_SPEC_VERSION: Final = "draft"
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9.-]")
_WHOLE: Final = "One search tool in front of many MCP servers."
_VERSIONS: Final = [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]


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
    try:
        ip_address(host)
    except ValueError:
        host = ".".join(reversed(host.rstrip(".").split(".")))
    return _NOT_IN_A_NAME.sub("-", host)

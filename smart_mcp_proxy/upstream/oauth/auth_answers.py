"""Answers of authorization servers, written as the MCP SDK reads them."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import httpx2
from mcp.client.auth.utils import build_oauth_authorization_server_metadata_discovery_urls, issuers_match

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.upstream.oauth.auth_http import parse_json_members
from smart_mcp_proxy.upstream.oauth.auth_provider import Memory

_MOST_SERVERS: Final = 5
"""So many of those that a resource names are tried."""
_SERVERS: Final = "authorization_servers"


def with_known_members(response: httpx2.Response, memory: Memory) -> httpx2.Response:
    """Token response in the forms that the SDK knows; `memory` notes whether tokens are bound.

    Some servers give a lifetime with a fraction or as text, and scopes as a list. Source: RFC 6749, section 5.1.
    """
    answer = parse_json_members(response)
    memory.is_proved = memory.proofs is not None and str(answer.get("token_type")).lower() == "dpop"
    if "access_token" not in answer:
        return response
    known = {name: value for name, value in answer.items() if name not in ("expires_in", "scope")}
    if memory.is_proved:
        known["token_type"] = "Bearer"
    if (lifetime_s := _lifetime_s(answer.get("expires_in"))) is not None:
        known["expires_in"] = lifetime_s
    if (scope := _scope(answer.get("scope"))) is not None:
        known["scope"] = scope
    return response if known == answer else httpx2.Response(response.status_code, json=known, request=response.request)


def _lifetime_s(value: Any) -> int | None:
    """A lifetime in whole seconds, rounded down; None where none is said."""
    try:
        lifetime_s = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return math.floor(lifetime_s) if math.isfinite(lifetime_s) else None


def _scope(value: Any) -> Any:
    """Scopes with blanks between; None where none is said."""
    if isinstance(value, list) and all(isinstance(scope, str) for scope in value):
        return " ".join(filter(None, value)) or None
    return value


async def with_working_server(
    response: httpx2.Response,
    server_url: str,
    issuer: str,
    send: Callable[[httpx2.Request], Awaitable[httpx2.Response]],
) -> httpx2.Response:
    """Metadata of a resource with the authorization server that answers, where it names several.

    The SDK takes the first, also while that is down; the client chooses. Source: RFC 9728, section 7.6

    Args:
        response: To the request for the metadata.
        server_url: Address of the MCP server.
        issuer: The configured one, which goes before the others; empty for none.
        send: Asks; raises UpstreamError where there is no answer.
    """
    metadata = parse_json_members(response)
    named = metadata.get(_SERVERS)
    if response.status_code != 200 or not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        return response
    listed: Sequence[str] = [one for one in named if issuer and issuers_match(one, issuer)] or named
    if len(named) < 2:
        return response
    for one in listed[:_MOST_SERVERS]:
        if len(listed) == 1 or await _answers(one, server_url, send):
            return httpx2.Response(200, json=metadata | {_SERVERS: [one]}, request=response.request)
    return response


async def _answers(issuer: str, server_url: str, send: Callable[[httpx2.Request], Awaitable[httpx2.Response]]) -> bool:
    """Whether an authorization server gives its metadata at present."""
    for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, server_url):
        try:
            response = await send(httpx2.Request("GET", url))
        except (UpstreamError, httpx2.InvalidURL):
            return False
        if response.status_code == 200 and "issuer" in parse_json_members(response):
            return True
    return False

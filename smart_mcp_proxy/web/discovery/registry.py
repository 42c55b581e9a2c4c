"""The endpoint and its profiles as a registry's API v0.1 lists servers, to be read only.

Source: https://github.com/modelcontextprotocol/registry/blob/main/docs/reference/api/openapi.yaml
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from smart_mcp_proxy import __version__
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.registry.listing import OFFICIAL
from smart_mcp_proxy.web.discovery.cards import DiscoveryEndpoint, build_remote

LATEST: Final = "latest"
PAGE: Final = 30
PAGE_LIMIT: Final = 100
"""The official registry's; the API itself names none."""
_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_PARAMETERS: Final = ("cursor", "limit", "search", "updated_since", "version", "include_deleted")
_DIGITS: Final = re.compile(r"[0-9]{1,4}")
_SHOWN_CHARS: Final = 40


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

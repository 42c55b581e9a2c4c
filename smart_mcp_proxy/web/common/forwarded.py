"""Clients behind trusted proxies: their addresses, as the proxies' header fields give them."""

import re
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.web.common.refusals import Address, parse_address

_WITH_PORT: Final = re.compile(r"^(?:\[([^\]]+)\](?::\d+)?|([\d.]+):\d+)$")
"""Some proxies write the client's port behind its address. Source: RFC 7239, section 6"""

_CONNECTED: Final = "smart_mcp_proxy.connected"
"""Key of a scope for the process that connects, which a proxy's header field does not change."""


def find_connected(scope: Scope) -> tuple[str, int] | None:
    """The address and port that a request's connection comes from, whatever a proxy says of its client."""
    connected: tuple[str, int] | None = scope.get(_CONNECTED, scope.get("client"))
    return connected


class ForwardedClients:
    """ASGI app that puts the client behind trusted proxies in the place of the proxy that connects.

    Args:
        app: Answers.
        trusted: Addresses and networks of proxies.
    """

    def __init__(self, app: ASGIApp, trusted: Sequence[str]) -> None:
        self._app = app
        self._trusted = [ip_network(each) for each in trusted]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        proxy = parse_address((scope.get("client") or ("",))[0])
        if proxy is not None and self._is_trusted(proxy):
            fields = [_read_field(scope, name) for name in (b"x-forwarded-for", b"forwarded")]
            found = {self._find_client(proxy, entries) for entries in fields if entries}
            # A proxy writes one of the two. Where they differ the client has sent the other, and nobody knows which.
            if len(found) == 1:
                scope = {**scope, "client": (str(found.pop()), 0), _CONNECTED: scope["client"]}
        await self._app(scope, receive, send)

    def _find_client(self, proxy: Address, entries: Sequence[str]) -> Address:
        """The nearest address that is no trusted proxy's: each adds the one that connected to it at the end."""
        for entry in reversed(entries):
            client = parse_address(_WITH_PORT.sub(r"\1\2", entry))
            if client is None or not self._is_trusted(proxy):
                break
            proxy = client
        return proxy

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _read_field(scope: Scope, name: bytes) -> list[str]:
    """Clients that all lines of a header field name, in their order; empty texts for those left unnamed.

    Source: RFC 7239, section 4
    """
    lines = [value.decode("latin-1") for each, value in scope["headers"] if each == name]
    entries = [entry.strip() for line in lines for entry in line.split(",")]
    if name == b"forwarded":
        parts = [[part.strip() for part in entry.split(";")] for entry in entries]
        return ["".join(part[4:].strip('"') for part in each if part[:4].lower() == "for=") for each in parts]
    return entries

"""Under which names the gateway may be reached: one answer for `/mcp`, the broker and REST."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.settings import Settings

Address = IPv4Address | IPv6Address

_HOST = re.compile(rb"(?:[^\[\]@/\s]*|\[[0-9A-Fa-f:.]+\](?::\d+)?)")
"""A name or an IPv4 address, or an IPv6 address and nothing behind it but a port. Source: RFC 3986, section 3.2.2."""


def list_allowed_hosts(settings: Settings) -> tuple[str, ...]:
    """Host names accepted besides loopback: the settings' own and the public address's."""
    public = urlsplit(settings.public_url).hostname if settings.public_url is not None else None
    return (*settings.allowed_hosts, public) if public else settings.allowed_hosts


def parse_address(text: str) -> Address | None:
    """An IP address, that of IPv4 where IPv6 only wraps one; None for any other text."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(host: str) -> bool:
    """Whether `host` can be reached from this machine only."""
    address = parse_address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


class PlainAddress:
    """Refuses a request whose Host or Origin is ambiguous; passes others on untouched.

    Args:
        app: Checks what is left.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        headers = scope["headers"] if scope["type"] == "http" else ()
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) > 1 or not all(map(_HOST.fullmatch, hosts)):
            await Response("Misdirected Request", status_code=421)(scope, receive, send)
        elif sum(name == b"origin" for name, _ in headers) > 1:
            await Response("Forbidden Origin", status_code=403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

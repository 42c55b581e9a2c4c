"""Checks of Host and Origin in front of an app; FastMCP's own, which takes FastMCP with it."""

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from fastmcp.server.http import HostOriginGuardMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from smart_mcp_proxy.errors import ProxyError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.common.refusals import PlainAddress, Refusals, answer_rest


def list_allowed_hosts(settings: Settings) -> tuple[str, ...]:
    """Host names accepted besides loopback: the settings' own and the public address's."""
    public = urlsplit(settings.public_url).hostname if settings.public_url is not None else None
    return (*settings.allowed_hosts, public) if public else settings.allowed_hosts


def guard_app(
    app: ASGIApp,
    settings: Settings,
    metadata_url: str | None = None,
    scopes: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    answer: Callable[[ProxyError, int], Response] | None = None,
) -> ASGIApp:
    """The app behind checks of Host and Origin, and with its refusals worded.

    Args:
        app: Answers who passes.
        settings: They name the hosts.
        metadata_url: See `Refusals`, as the others.
        scopes: Likewise.
        allowed_origins: Of pages that may ask; none for those of the gateway's own address alone.
        answer: Words a refusal; None for an error as REST has it.
    """
    hosts = list_allowed_hosts(settings) or None
    guarded = HostOriginGuardMiddleware(app, hosts, allowed_origins or None, mode="strict")
    return Refusals(PlainAddress(guarded), metadata_url, scopes, answer or answer_rest)

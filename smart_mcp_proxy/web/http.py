"""HTTP: `/mcp` and `/sse` behind Host, Origin and token checks, `/healthz` and `/readyz` in front of them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.fastmcp_compat.http import HttpApp
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.paths import Places
from smart_mcp_proxy.web.refusals import Refusals
from smart_mcp_proxy.web.streams import EndingStreams
from smart_mcp_proxy.web.wire_http import WireHttp

__all__ = ["bind", "build_app", "is_loopback", "token_of"]

MCP_PATH = "/mcp"
SSE_PATH = "/sse"
SSE_MESSAGES_PATH = "/messages"
_UNCACHED = {"cache-control": "no-store"}


def build_app(gateway: Gateway, *, token: str | None, is_over: asyncio.Event) -> ASGIApp:
    """The ASGI app of the HTTP door.

    Args:
        gateway: Open.
        token: Bearer token that `/mcp` and `/sse` ask for; None lets everyone in.
        is_over: Set when the streams that clients keep open have to end.
    """
    hosts = gateway.settings.allowed_hosts
    server = gateway.mcp_server(token=token)
    streamable = HttpApp(server, MCP_PATH, allowed_hosts=hosts)
    legacy = HttpApp(server, SSE_PATH, is_sse=True, allowed_hosts=hosts)

    async def mcp(scope: Scope, receive: Receive, send: Send) -> None:
        is_legacy = scope["path"].startswith((SSE_PATH, SSE_MESSAGES_PATH))
        await (legacy if is_legacy else streamable)(scope, receive, send)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with streamable.running(), legacy.running():
            yield

    health = _Health(gateway)
    app = Starlette(
        routes=[Route("/healthz", health.live), Route("/readyz", health.ready), Mount("/", app=mcp)],
        lifespan=lifespan,
    )
    wire = WireHttp(EndingStreams(Refusals(app), is_over), streamable.session, MCP_PATH, gateway.agent, token)
    return Places(wire, MCP_PATH, gateway.serves_at)


class _Health:
    """Health says nothing that an unknown caller should not know, so it needs neither token nor Host."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def live(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"}, headers=_UNCACHED)

    async def ready(self, request: Request) -> Response:
        """Ready when the stored index serves; no upstream can hold it hostage."""
        is_ready = self._gateway.status().is_loaded
        return JSONResponse(
            {"status": "ready" if is_ready else "loading"}, status_code=200 if is_ready else 503, headers=_UNCACHED
        )


def is_loopback(host: str) -> bool:
    """Whether `host` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(settings: Settings) -> str | None:
    """The bearer token to ask for; None on a loopback address where none is set.

    Raises:
        ConfigError: The address can be reached from elsewhere and no token is set.
    """
    if settings.auth_token is not None:
        return settings.auth_token.get_secret_value()
    if is_loopback(settings.host):
        return None
    raise ConfigError(
        f"MCPPROXY_HOST is '{settings.host}', which other machines can reach, and no token is set.",
        hint="Set MCPPROXY_AUTH_TOKEN or MCPPROXY_AUTH_TOKEN_FILE, or use MCPPROXY_HOST=127.0.0.1.",
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigError: The address is taken or not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it every answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as exc:
        listener.close()
        raise ConfigError(
            f"Port {port} on {host} cannot be used: {exc.strerror or exc}.",
            hint="Stop the other program or set MCPPROXY_PORT to a free port (0 picks one).",
        ) from exc
    return listener

"""REST on a network address: Host and Origin checked, writes with the operator's token."""

import asyncio
import secrets
from functools import partial

from anyio import to_thread
from fastmcp.server.http import HostOriginGuardMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.web.common.hosts import PlainAddress, list_allowed_hosts
from smart_mcp_proxy.web.common.refusals import Refusals
from smart_mcp_proxy.web.common.streams import EndingStreams
from smart_mcp_proxy.web.rest import PAGES, PREFIX, build_rest_app
from smart_mcp_proxy.web.rest.authorization import NetworkAuthorizer, operator_token

log = get_logger("rest")


class RestBeside:
    """Serves REST at its own paths and hands everything else on, untouched.

    Args:
        app: Everything else.
        gateway: Answers.
        authorizer: Tells who sends a request.
        is_over: Set when streams have to end.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway, authorizer: NetworkAuthorizer, is_over: asyncio.Event) -> None:
        self._app = app
        guarded = HostOriginGuardMiddleware(
            build_rest_app(gateway, authorizer),
            allowed_hosts=list(list_allowed_hosts(gateway.settings)) or None,
            mode="strict",
        )
        self._rest = EndingStreams(Refusals(PlainAddress(guarded), is_rest=True), is_over)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        path = scope["path"] if scope["type"] == "http" else ""
        is_rest = (path.rstrip("/") or path) in PAGES or path.startswith(PREFIX + "/")
        await (self._rest if is_rest else self._app)(scope, receive, send)


async def open_authorizer(gateway: Gateway) -> NetworkAuthorizer:
    """Open the operator's REST by the stored token; without a data directory it stays closed."""
    try:
        token = await to_thread.run_sync(operator_token, gateway.settings)
    except ConfigError as exc:
        log.warning("servers cannot be managed over HTTP: %s", exc)
        token = secrets.token_urlsafe()
    return NetworkAuthorizer(token, partial(gateway.admin.agent_tokens.of_gateways.digests, "operator"))

"""The address for Prometheus: with the operator's token, or on a port of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from anyio import to_thread
from fastmcp.server.http import HostOriginGuardMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import ConfigError, ProxyError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.telemetry import get_logger
from smart_mcp_proxy.web.common.hosts import PlainAddress, is_loopback, list_allowed_hosts
from smart_mcp_proxy.web.common.messages import json_response
from smart_mcp_proxy.web.common.refusals import Refusals
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.metrics.exposition import encode_metrics
from smart_mcp_proxy.web.metrics.gathering import Gathering
from smart_mcp_proxy.web.rest.route import Authorizer
from smart_mcp_proxy.web.serve import serve_app

METRICS_PATH: Final = "/metrics"

log = get_logger("metrics")


class MetricsBeside:
    """Serves the figures at their own path to the operator, and hands everything else on, untouched.

    Args:
        app: Everything else.
        gateway: Counts.
        authorizer: Tells who sends a request.
    """

    def __init__(self, app: ASGIApp, gateway: Gateway, authorizer: Authorizer) -> None:
        self._app = app
        is_on = gateway.settings.metrics and gateway.base.metrics is not None
        self._figures = _guard_metrics_app(_Figures(Gathering(gateway), authorizer), gateway) if is_on else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        is_asked = scope["type"] == "http" and scope["path"].rstrip("/") == METRICS_PATH
        await (self._figures if is_asked and self._figures is not None else self._app)(scope, receive, send)


class _Figures:
    """Answers with the figures.

    Args:
        gathering: Collects them.
        authorizer: Tells who sends a request; None lets in whoever can connect.
    """

    def __init__(self, gathering: Gathering, authorizer: Authorizer | None) -> None:
        self._gathering = gathering
        self._authorizer = authorizer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._answer(Request(scope, receive)))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.url.path.rstrip("/") != METRICS_PATH:
            return Response(status_code=404)
        if request.method not in ("GET", "HEAD"):
            return Response(status_code=405, headers={"allow": "GET, HEAD"})
        try:
            if self._authorizer is not None:
                self._authorizer.admit(request, "operator")
        except ProxyError as error:
            return json_response({"error": error.to_dict()}, error)
        families = await self._gathering.families()
        text, content_type = await to_thread.run_sync(encode_metrics, families, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type, "cache-control": "no-store"})


@asynccontextmanager
async def serve_metrics(gateway: Gateway) -> AsyncIterator[None]:
    """Serve the figures on the port that the settings name while open.

    Of several workers the first one does. Where the port is taken, by a gateway for another window for example, this
    one goes on without it.
    """
    port, worker = gateway.settings.metrics_port, gateway.base.worker
    if port is None or gateway.base.metrics is None:
        yield
        return
    gathering = Gathering(gateway)
    if worker.number != 0:
        yield
        return
    try:
        listener = bind(gateway.settings.host, port)
    except ConfigError as exc:
        log.warning("no metrics are served: %s", exc)
        yield
        return
    figures: ASGIApp = _Figures(gathering, None)
    # From elsewhere it is asked under whatever name or address the monitoring system knows.
    app = _guard_metrics_app(figures, gateway) if is_loopback(gateway.settings.host) else figures
    async with serve_app(app, listener):
        yield


def _guard_metrics_app(figures: ASGIApp, gateway: Gateway) -> ASGIApp:
    """The app behind REST's checks of Host and Origin: no page in a browser may read the figures."""
    hosts = list(list_allowed_hosts(gateway.settings)) or None
    return Refusals(PlainAddress(HostOriginGuardMiddleware(figures, allowed_hosts=hosts, mode="strict")), is_rest=True)

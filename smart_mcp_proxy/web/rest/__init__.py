"""REST under `/api/v1`: what the command line asks a gateway. One table of routes, one file per noun."""

from starlette.applications import Starlette

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.web.rest import calls, servers, tools
from smart_mcp_proxy.web.rest.route import Endpoint

__all__ = ["ROUTES", "build_rest_app"]

ROUTES: tuple[Endpoint, ...] = (*servers.ROUTES, *tools.ROUTES, *calls.ROUTES)


def build_rest_app(gateway: Gateway) -> Starlette:
    """The ASGI app of all routes. It trusts its caller: serve it on a private socket only."""
    return Starlette(routes=[endpoint.bound_to(gateway) for endpoint in ROUTES])

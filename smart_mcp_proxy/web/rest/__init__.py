"""REST under `/api/v1`: what the command line and the operator ask a gateway. One table of routes, a file per noun."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.web.broker import describe_broker
from smart_mcp_proxy.web.messages import json_response, not_served
from smart_mcp_proxy.web.rest import activity, agent_tokens, approvals, calls, config, servers, tools
from smart_mcp_proxy.web.rest.doors import NetworkDoor, PrivateDoor, operator_token
from smart_mcp_proxy.web.rest.openapi import OPENAPI_PATH, describe
from smart_mcp_proxy.web.rest.route import PREFIX, Door, Endpoint

__all__ = ["OPENAPI_PATH", "PREFIX", "ROUTES", "NetworkDoor", "build_rest_app", "operator_token"]

ROUTES: tuple[Endpoint, ...] = (
    *servers.ROUTES,
    *config.ROUTES,
    *tools.ROUTES,
    *calls.ROUTES,
    *approvals.ROUTES,
    *activity.ROUTES,
    *agent_tokens.ROUTES,
)
_PRIVATE = PrivateDoor()


def build_rest_app(gateway: Gateway, door: Door = _PRIVATE) -> Starlette:
    """The ASGI app of all routes.

    Args:
        gateway: Answers.
        door: Tells who sends a request. The one left out trusts its caller: serve it on a private socket only.
    """
    document = describe_broker(describe(ROUTES))

    async def openapi(request: Request) -> Response:
        return json_response(document)

    return Starlette(
        routes=[Route(OPENAPI_PATH, openapi), *(endpoint.bound_to(gateway, door) for endpoint in ROUTES)],
        exception_handlers={404: _not_served, 405: _not_served},
    )


async def _not_served(request: Request, exc: Exception) -> Response:
    """The answer to a path or method that no route has."""
    assert isinstance(exc, HTTPException)
    error = not_served(request, exc)
    response = json_response({"error": error.to_dict()}, error)
    response.headers.update(exc.headers or {})
    return response

"""REST: each person's own sign-ins at servers, and nobody else's."""

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.errors import ConfigError, ServerNotFoundError, UpstreamError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.own_sign_ins import OwnSignIn
from smart_mcp_proxy.upstream import SignedOut
from smart_mcp_proxy.web.rest.route import Endpoint, get_admitted


class OwnSignInsView(msgspec.Struct, frozen=True):
    """Servers at which the sender signs in for themselves, each with how that stands."""

    sign_ins: list[OwnSignIn]


async def _list(gateway: Gateway, request: Request) -> OwnSignInsView:
    return OwnSignInsView(await gateway.admin.own_sign_ins.list(get_admitted(request).who))


async def _forget(gateway: Gateway, request: Request) -> SignedOut:
    done = await gateway.admin.own_sign_ins.forget(request.path_params["name"], get_admitted(request).who)
    gateway.base.changes.announce()
    return done


ROUTES = (
    Endpoint(
        "GET",
        "/sign-ins",
        _list,
        "The sender's own sign-ins at servers where each person has one.",
        OwnSignInsView,
        failures=(UpstreamError,),
    ),
    Endpoint(
        "DELETE",
        "/sign-ins/{name:path}",
        _forget,
        "Gives the sender's own sign-in at a server back, and forgets it.",
        SignedOut,
        failures=(ServerNotFoundError, ConfigError),
    ),
)

"""REST: signing in to servers, in the browser of whoever asks."""

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.errors import ConfigError, ConflictError, ServerNotFoundError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.server_sign_ins import ServerSignIn
from smart_mcp_proxy.web.rest.route import Endpoint, decode_body


class SignInView(msgspec.Struct, frozen=True):
    """State of a sign-in to a server.

    Attributes:
        server: Configured name.
        state: none, waiting (for the person, at `url`), done or failed.
        url: Where the person signs in.
        problem: Why it failed.
        hint: What to do about it.
    """

    server: str
    state: str
    url: str
    problem: str
    hint: str


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address at which a browser ended that could not reach the gateway's machine."""

    address: str


async def _begin(gateway: Gateway, request: Request) -> SignInView:
    name = request.path_params["name"]
    return _view(name, await gateway.admin.server_sign_ins.begin(name))


async def _get_login_state(gateway: Gateway, request: Request) -> SignInView:
    name = request.path_params["name"]
    return _view(name, await gateway.admin.server_sign_ins.of(name))


async def _take(gateway: Gateway, request: Request) -> SignInView:
    name = request.path_params["name"]
    body = await decode_body(request, Address)
    return _view(name, await gateway.admin.server_sign_ins.take(name, body.address.strip()))


def _view(name: str, shown: ServerSignIn) -> SignInView:
    return SignInView(name, shown.state, shown.url, shown.problem, shown.hint)


_ONE = "/servers/{name:path}/login"

ROUTES = (
    Endpoint(
        "POST",
        _ONE,
        _begin,
        "Begins a sign-in to a server; a person finishes it at the address in the answer.",
        SignInView,
        failures=(ServerNotFoundError, ConfigError),
    ),
    Endpoint(
        "GET",
        _ONE,
        _get_login_state,
        "How far a sign-in to a server has come.",
        SignInView,
        failures=(ServerNotFoundError,),
    ),
    Endpoint(
        "POST",
        _ONE + "/address",
        _take,
        "Goes on with a sign-in whose browser ended at an address that it could not load.",
        SignInView,
        Address,
        failures=(ServerNotFoundError, ConflictError),
    ),
)

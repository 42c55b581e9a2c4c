"""REST: the tokens that the operator makes for agents, and links to the page."""

from typing import Annotated, Any

import msgspec
from starlette.requests import Request

from smart_mcp_proxy.catalog import AgentToken
from smart_mcp_proxy.errors import ConflictError
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.gateway.admin.agent_tokens import (
    LONGEST_LIFE_S,
    NAME_CHARS,
    SHORTEST_LIFE_S,
    Scope,
    TokenNotFoundError,
)
from smart_mcp_proxy.gateway.admin.page_sessions import PageLink
from smart_mcp_proxy.models import CallVariant, Role
from smart_mcp_proxy.web.rest.route import Endpoint, decode_body, get_admitted, get_operator_digest

# What the descriptions say of these, the gateway checks, and words what does not fit.
_Name = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_CHARS})]
_Life = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": SHORTEST_LIFE_S, "maximum": LONGEST_LIFE_S})]


class NewTokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body for a new token: name and permissions.

    Without `servers` all, without `expires_in_s` for ever.
    """

    name: _Name
    servers: list[str] | None = None
    access: CallVariant = "read"
    profile: str | None = None
    expires_in_s: _Life | None = None
    role: Role | None = None

    @property
    def scope(self) -> Scope:
        """Permissions of the token."""
        servers = None if self.servers is None else tuple(self.servers)
        return Scope(servers, self.access, self.profile, self.expires_in_s, self.role)


class TokenView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token for display; `token` itself only at creation. Times in seconds since the epoch.

    One that `is_altered` was changed in the catalog by something else than a gateway, and opens nothing.
    """

    id: str
    name: str
    servers: tuple[str, ...] | None
    access: CallVariant
    profile: str | None
    created_s: float
    expires_s: float | None
    last_used_s: float | None
    revoked_s: float | None
    token: str = ""
    role: Role | None = None
    is_altered: bool = False


class TokensView(msgspec.Struct, frozen=True):
    """All tokens that were ever made, oldest first."""

    tokens: list[TokenView]


def _build_token_view(token: AgentToken, secret: str = "") -> TokenView:
    """A token as it is shown, with its secret where it has just been made."""
    shared = {name: getattr(token, name) for name in TokenView.__struct_fields__ if name not in ("id", "token")}
    return TokenView(id=token.principal_id, token=secret, **shared)


async def _create(gateway: Gateway, request: Request) -> TokenView:
    body = await decode_body(request, NewTokenBody)
    body.scope.require_known(gateway.visible.servers, [profile.name for profile in gateway.lists.views.profiles])
    made = await gateway.admin.agent_tokens.create(body.name, body.scope, get_admitted(request))
    gateway.base.changes.announce()  # to whoever looks at the tokens
    return _build_token_view(made.token, made.secret)


async def _list(gateway: Gateway, request: Request) -> TokensView:
    return TokensView([_build_token_view(token) for token in await gateway.admin.agent_tokens.tokens()])


async def _revoke(gateway: Gateway, request: Request) -> dict[str, Any]:
    name = request.path_params["name"]
    await gateway.admin.agent_tokens.revoke(name, get_admitted(request))
    gateway.base.changes.announce()
    return {"revoked": name}


async def _make_link(gateway: Gateway, request: Request) -> PageLink:
    return await gateway.admin.page_sessions.make_link(get_admitted(request), get_operator_digest(request))


ROUTES = (
    Endpoint("GET", "/tokens", _list, "All tokens for agents, never the tokens themselves.", TokensView),
    Endpoint(
        "POST",
        "/tokens",
        _create,
        "Makes a token for an agent, shown this once.",
        TokenView,
        NewTokenBody,
        failures=(ConflictError,),
    ),
    Endpoint(
        "DELETE",
        "/tokens/{name:path}",
        _revoke,
        "Ends the token of that name for good.",
        failures=(TokenNotFoundError,),
    ),
    Endpoint("POST", "/page/links", _make_link, "Makes a link that opens the page in one browser, once.", PageLink),
)

"""Signing in to the gateway at an OpenID Connect provider: who is let in, and how far."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import ModuleType
from typing import Final, NamedTuple

from fastmcp.server.auth import AccessToken
from starlette.types import ASGIApp

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.models import CallVariant, Principal, Reach
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.signed_tokens import MISTAKEN, SignedTokens, parse_names_claim

_ANYBODY: Final = "*"
PAGE_CLIENT: Final = "mcpproxy-page"
"""Client id of the gateway's own page, which need not register: strangers who do can neither stop nor displace it."""
PAGE_BACK_PATH: Final = "/ui/signed-in"
"""Path of the page to which a browser comes back that signed in."""


class BrowserSignIn(NamedTuple):
    """Sign-in of people.

    Attributes:
        tokens: Verifies what they get.
        paths: That the flow is served at.
        pages: Serves it.
        scopes: That clients are told to ask for.
        find_operator: Returns who the holder of a token that they got is at the page; None for nobody.
        follow: Learns of sign-ins that end at other processes, until it is cancelled.
        timed: Modules of libraries that go by the clock in it.
    """

    tokens: SignedTokens
    paths: frozenset[str]
    pages: ASGIApp
    scopes: Sequence[str]
    find_operator: Callable[[str], Awaitable[Principal | None]]
    follow: Callable[[], Coroutine[None, None, None]]
    timed: Sequence[ModuleType]


class Users:
    """Users of the gateway and their permissions.

    Args:
        entries: A verified e-mail address, `@domain`, a subject without `@` in it or `*` each, with `=read`,
            `=write` or `=destructive` behind it; without that it is read.
        servers_claim: Claim that names the servers somebody reaches.
    """

    def __init__(self, entries: Sequence[str], servers_claim: str) -> None:
        self._servers_claim = servers_claim
        self._access: dict[str, CallVariant] = {}
        for entry in entries:
            name, _, access = entry.partition("=")
            allowed: CallVariant = (
                "destructive" if access == "destructive" else "write" if access == "write" else "read"
            )
            self._access[name.casefold() if "@" in name else name] = allowed

    def resolve_reach(self, token: AccessToken) -> Reach | None:
        """Reach of the holder of a verified id token, by the most exact entry."""
        claims = token.claims
        subject = str(claims.get("sub") or "")
        # What a provider calls somebody is no address of theirs, even if it looks like one.
        names = [] if "@" in subject else [subject]
        email = claims.get("email")
        # An address that nobody has verified could be anybody's.
        # Source: https://openid.net/specs/openid-connect-core-1_0.html#ClaimStability
        if isinstance(email, str) and "@" in email and claims.get("email_verified") is True:
            names += [email.casefold(), "@" + email.casefold().rpartition("@")[2]]
        access = next((self._access[name] for name in [*names, _ANYBODY] if name in self._access), None)
        servers = parse_names_claim(claims.get(self._servers_claim))
        return None if access is None or servers is MISTAKEN else Reach(servers, access)


def is_sign_in_enabled(settings: Settings) -> bool:
    """Whether people are to sign in at a provider; asks nobody.

    Raises:
        ConfigError: Something that belongs to it is missing.
    """
    others = {
        "MCPPROXY_OIDC_CLIENT_ID": settings.oidc_client_id,
        "MCPPROXY_OIDC_USERS": settings.oidc_users or settings.group_roles,
        "MCPPROXY_PUBLIC_URL": settings.public_url,
    }
    if settings.oidc_url is None:
        if settings.oidc_client_id or settings.oidc_client_secret or settings.oidc_users or settings.oidc_operators:
            raise ConfigError(
                "MCPPROXY_OIDC_URL is not set, and other settings of its kind are.",
                hint="Set it to the provider's discovery address.",
            )
        return False
    if missing := [name for name, value in others.items() if not value]:
        raise ConfigError(
            f"MCPPROXY_OIDC_URL is set, and {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not.",
            hint="Say who the gateway is at the provider, who may sign in, and at which address clients find it.",
        )
    return True

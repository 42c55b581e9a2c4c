"""Signing in to the gateway at an OpenID Connect provider: who is let in, how far, and what serves the flow."""

import base64
import hmac
from collections.abc import Sequence
from typing import Final, NamedTuple

import httpx2
from anyio import to_thread
from cryptography.fernet import Fernet
from fastmcp.server.auth import AccessToken
from fastmcp.server.http import HostOriginGuardMiddleware
from key_value.aio.protocols import AsyncKeyValue
from key_value.aio.stores.filetree import (
    FileTreeStore,
    FileTreeV1CollectionSanitizationStrategy,
    FileTreeV1KeySanitizationStrategy,
)
from key_value.aio.wrappers.encryption import FernetEncryptionWrapper
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.fastmcp_compat.sign_in import SignInProxy
from smart_mcp_proxy.models import CallVariant, Reach
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream.auth_key import SignInKey, UnusableFileError
from smart_mcp_proxy.web.hosts import PlainAddress, allowed_hosts
from smart_mcp_proxy.web.refusals import Refusals
from smart_mcp_proxy.web.signed_tokens import MISTAKEN, ReachOf, SignedTokens, names_in

__all__ = ["SignInDoor", "Users", "asks_for_sign_in", "open_sign_in"]

FOLDER: Final = "agent-sign-ins"
_ANYBODY: Final = "*"


class SignInDoor(NamedTuple):
    """What lets people sign in.

    Attributes:
        tokens: Verifies what they get.
        paths: That the flow is served at.
        pages: Serves it.
        scopes: That clients are told to ask for.
    """

    tokens: SignedTokens
    paths: frozenset[str]
    pages: ASGIApp
    scopes: Sequence[str]

    def beside(self, app: ASGIApp) -> ASGIApp:
        """What serves the flow at its own paths and hands everything else on to `app`, untouched."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            is_ours = scope["type"] == "http" and scope["path"] in self.paths
            await (self.pages if is_ours else app)(scope, receive, send)

        return answer


class Users:
    """Who may use the gateway, and what is allowed to them.

    Args:
        entries: A verified e-mail address, `@domain`, a subject or `*` each, with `=read`, `=write` or `=destructive`
            behind it; without that it is read.
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

    def reach_of(self, token: AccessToken) -> Reach | None:
        """How far the holder of a verified id token reaches, by the entry that names them most exactly."""
        claims = token.claims
        names = [str(claims.get("sub") or "")]
        email = claims.get("email")
        # An address that nobody has verified could be anybody's. Source: OpenID Connect Core, section 5.7.
        if isinstance(email, str) and "@" in email and claims.get("email_verified") is True:
            names += [email.casefold(), "@" + email.casefold().rpartition("@")[2]]
        access = next((self._access[name] for name in [*names, _ANYBODY] if name in self._access), None)
        servers = names_in(claims.get(self._servers_claim))
        return None if access is None or servers is MISTAKEN else Reach(servers, access)


def asks_for_sign_in(settings: Settings) -> bool:
    """Whether people are to sign in at a provider; asks nobody.

    Raises:
        ConfigError: Something that belongs to it is missing.
    """
    others = {
        "MCPPROXY_OIDC_CLIENT_ID": settings.oidc_client_id,
        "MCPPROXY_OIDC_USERS": settings.oidc_users,
        "MCPPROXY_PUBLIC_URL": settings.public_url,
    }
    if settings.oidc_url is None:
        if settings.oidc_client_id or settings.oidc_client_secret or settings.oidc_users:
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


async def open_sign_in(settings: Settings) -> SignInDoor | None:
    """What lets people sign in by these settings; None where they ask for no such thing.

    Raises:
        ConfigError: A setting is missing or cannot be used, the provider cannot be asked, or the data directory
            cannot be written.
    """
    if not asks_for_sign_in(settings):
        return None
    users = Users(settings.oidc_users, settings.jwt_servers_claim)
    return await to_thread.run_sync(_opened, settings, users.reach_of)


def _opened(settings: Settings, reach_of: ReachOf) -> SignInDoor:
    assert settings.oidc_url and settings.oidc_client_id and settings.public_url
    secret = settings.oidc_client_secret
    key = _key(settings)
    try:
        proxy = SignInProxy(
            config_url=settings.oidc_url,
            client_id=settings.oidc_client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            scopes=settings.oidc_scopes,
            algorithm=settings.jwt_algorithm,
            base_url=settings.public_url.rstrip("/"),
            store=_store(settings, key),
            signing_key=hmac.digest(key, b"tokens", "sha256"),
            is_let_in=lambda token: reach_of(token) is not None,
        )
        routes = proxy.get_routes("/mcp")
    except (httpx2.HTTPError, ValueError) as exc:
        reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        raise ConfigError(
            f"Nobody could sign in: the provider at MCPPROXY_OIDC_URL or MCPPROXY_PUBLIC_URL cannot be used: {reason}",
            hint="Check both addresses; other machines than this one need https.",
        ) from exc
    tokens = SignedTokens(proxy, reach_of)
    proxy.on_forgotten = tokens.forget
    # Pages of every origin may take part in OAuth; a code is worth nothing without its PKCE verifier, and the form that
    # consents belongs to one browser.
    guarded = HostOriginGuardMiddleware(
        Starlette(routes=routes), allowed_hosts(settings), allowed_origins=["*"], mode="strict"
    )
    pages = Refusals(PlainAddress(guarded), is_rest=True)
    return SignInDoor(tokens, frozenset(route.path for route in routes), pages, settings.oidc_scopes)


def _key(settings: Settings) -> bytes:
    folder = settings.data_dir / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return SignInKey(folder).load_or_make()[0]
    except (OSError, UnusableFileError) as exc:
        raise ConfigError(
            f"Sign-ins cannot be kept under {folder}: {exc}.", hint="Check the data directory's owner and permissions."
        ) from exc


def _store(settings: Settings, key: bytes) -> AsyncKeyValue:
    """Clients, codes and the provider's tokens, encrypted, in the data directory."""
    folder = settings.data_dir / FOLDER / "state"
    folder.mkdir(mode=0o700, exist_ok=True)
    files = FileTreeStore(
        data_directory=folder,
        key_sanitization_strategy=FileTreeV1KeySanitizationStrategy(folder),
        collection_sanitization_strategy=FileTreeV1CollectionSanitizationStrategy(folder),
    )
    fernet = Fernet(base64.urlsafe_b64encode(hmac.digest(key, b"store", "sha256")))
    return FernetEncryptionWrapper(key_value=files, fernet=fernet, raise_on_decryption_error=False)

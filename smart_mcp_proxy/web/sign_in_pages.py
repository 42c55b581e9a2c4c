"""What serves the sign-in at an OpenID Connect provider. Apart, because it takes long to load and few ask for it."""

import base64
import hmac
import logging
import time
from typing import Final

import httpx2
from anyio import to_thread
from cryptography.fernet import Fernet
from fastmcp.server.http import HostOriginGuardMiddleware
from key_value.aio.protocols import AsyncKeyValue
from key_value.aio.stores.filetree import (
    FileTreeStore,
    FileTreeV1CollectionSanitizationStrategy,
    FileTreeV1KeySanitizationStrategy,
)
from key_value.aio.wrappers.encryption import FernetEncryptionWrapper
from starlette.applications import Starlette

from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.fastmcp_compat.sign_in import SignInProxy
from smart_mcp_proxy.policy.limits import TokenBucket
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream.auth_key import SignInKey, UnusableFileError
from smart_mcp_proxy.web.hosts import PlainAddress, allowed_hosts
from smart_mcp_proxy.web.refusals import Refusals
from smart_mcp_proxy.web.sign_in import SignInDoor, Users, asks_for_sign_in
from smart_mcp_proxy.web.signed_tokens import ReachOf, SignedTokens

__all__ = ["FOLDER", "open_sign_in"]

FOLDER: Final = "agent-sign-ins"
REGISTRATIONS_PER_S: Final = 1 / 60
REGISTRATIONS_AT_ONCE: Final = 100
"""Clients register once in their life; whoever reaches the gateway may, and each takes about a kilobyte for good."""

# FastMCP logs what it raises with its traceback; we raise it on in words of our own.
logging.getLogger("fastmcp.server.auth.oidc_proxy").setLevel(logging.CRITICAL + 1)


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
            registration_wait_s=_Registrations().wait_s,
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


class _Registrations:
    """How many clients may still register."""

    def __init__(self) -> None:
        self._bucket = TokenBucket(REGISTRATIONS_PER_S, REGISTRATIONS_AT_ONCE)

    def wait_s(self) -> float:
        """Counts one; seconds that it has to wait instead, 0 if it need not."""
        now_s = time.monotonic()
        wait_s = self._bucket.wait_s(now_s)
        if not wait_s:
            self._bucket.take(now_s)
        return wait_s


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

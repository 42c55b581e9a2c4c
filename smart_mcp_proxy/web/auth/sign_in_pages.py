"""Pages of the sign-in at an OpenID Connect provider; apart, because they load slowly."""

import hmac
import logging
import time

import httpx2
from anyio import to_thread
from starlette.applications import Starlette

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.fastmcp_compat.auth.sign_in import TIMED, SignInProxy
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.ended_sign_ins import EndedSignIns
from smart_mcp_proxy.web.auth.sign_in import BrowserSignIn, Users
from smart_mcp_proxy.web.auth.sign_in_answers import StandardAnswers, answer_unavailable
from smart_mcp_proxy.web.auth.sign_in_bounds import BoundedPages
from smart_mcp_proxy.web.auth.sign_in_store import open_store
from smart_mcp_proxy.web.auth.sign_in_turns import SignInTurns
from smart_mcp_proxy.web.auth.signed_tokens import ReachOf, SignedTokens
from smart_mcp_proxy.web.common.refusals import guard_app

# FastMCP logs what it raises with its traceback; we raise it on in words of our own.
logging.getLogger("fastmcp.server.auth.oidc_proxy").setLevel(logging.CRITICAL + 1)


async def open_oidc_login(settings: Settings, catalog: Catalog | None = None) -> BrowserSignIn:
    """Open the sign-in of people.

    Args:
        settings: They ask for it (`is_sign_in_enabled`).
        catalog: Keeps sign-ins where gateways share its store; None for files.

    Raises:
        ConfigError: A setting cannot be used, the provider cannot be asked, or the data directory cannot be written.
    """
    users = Users(settings.oidc_users, settings.jwt_servers_claim)
    return await to_thread.run_sync(_build_oidc_login, settings, catalog, users.resolve_reach)


def _build_oidc_login(settings: Settings, catalog: Catalog | None, reach_of: ReachOf) -> BrowserSignIn:
    assert settings.oidc_url and settings.oidc_client_id and settings.public_url
    secret = settings.oidc_client_secret
    store, key = open_store(settings, catalog)
    has_others = settings.workers > 1 or (catalog is not None and catalog.is_shared)
    try:
        proxy = SignInProxy(
            config_url=settings.oidc_url,
            client_id=settings.oidc_client_id,
            client_secret=None if secret is None else secret.get_secret_value(),
            scopes=settings.oidc_scopes,
            algorithm=settings.jwt_algorithm,
            base_url=settings.public_url.rstrip("/"),
            store=store,
            signing_key=hmac.digest(key, b"tokens", "sha256"),
            is_let_in=lambda token: reach_of(token) is not None,
            alone=SignInTurns(catalog if has_others else None).alone,
        )
        routes = proxy.get_routes("/mcp")
    except (httpx2.HTTPError, ValueError) as exc:
        reason = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
        raise ConfigError(
            f"Nobody could sign in: the provider at MCPPROXY_OIDC_URL or MCPPROXY_PUBLIC_URL cannot be used: {reason}",
            hint="Check both addresses; other machines than this one need https.",
        ) from exc
    tokens = SignedTokens(proxy, reach_of, wall=time.time if catalog is None else catalog.now_s)
    ended = EndedSignIns(catalog, tokens.forget)
    proxy.on_forgotten = ended.note
    # Pages of every origin may take part in OAuth; a code is worth nothing without its PKCE verifier, and the form that
    # consents belongs to one browser.
    served = Starlette(routes=routes, exception_handlers={CatalogError: answer_unavailable})
    pages = guard_app(BoundedPages(StandardAnswers(served)), settings, allowed_origins=("*",))
    operators = Users(settings.oidc_operators, settings.jwt_servers_claim)

    async def is_operator(token: str) -> bool:
        found = await proxy.verify_token(token)
        return found is not None and operators.resolve_reach(found) is not None

    paths = frozenset(route.path for route in routes)
    return BrowserSignIn(tokens, paths, pages, settings.oidc_scopes, is_operator, ended.follow, TIMED)

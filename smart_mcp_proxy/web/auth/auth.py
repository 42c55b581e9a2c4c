"""Authentication over HTTP: the one place that decides it, for fast path and SDK alike."""

import hashlib
import hmac
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from smart_mcp_proxy.catalog import STORE_AGAIN_S
from smart_mcp_proxy.errors import RefusedError, UnverifiedError
from smart_mcp_proxy.fastmcp_compat.http.http import add_session_owner
from smart_mcp_proxy.fastmcp_compat.paths import bind_principal
from smart_mcp_proxy.gateway.admin.agent_tokens import PREFIX, AgentTokens
from smart_mcp_proxy.gateway.admin.doors import AgentCaller
from smart_mcp_proxy.models import LOCAL, Principal
from smart_mcp_proxy.secrets.sealing import SecretKey
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.signed_tokens import SignedTokens
from smart_mcp_proxy.web.auth.token_files import load_or_create_token
from smart_mcp_proxy.web.common.refusals import is_loopback, refusal

TOKEN_NAME: Final = "auth.token"
_MADE: Final = PREFIX.encode()
CALLER: Final = "caller"
"""Key of a request's state for the process that its connection is of, where no token is asked for."""
TOKEN = Principal("token")
"""Holder of the gateway's own token, or of that of another gateway on its database."""


class Keys:
    """The tokens that are accepted, and whose each of them is.

    Args:
        token: The gateway's own; None where it has none.
        agents: Those that the operator has made, and those of other gateways on the database.
        signed: Those of an identity provider; None where none are accepted.
    """

    def __init__(self, token: str | None, agents: AgentTokens, signed: SignedTokens | None = None) -> None:
        self._token = None if token is None else token.encode()
        self._agents = agents
        self._signed = signed
        self.is_open = token is None and signed is None
        """Whether a request without a token is let in."""
        self.has_signed = signed is not None

    def look_up_principal(self, authorization: bytes | None) -> Principal | None:
        """Look up the principal of a request; None if that needs a closer look, or has none.

        Whoever sends a token is who the token says, on an open endpoint as well: one that has ended opens nothing.

        Args:
            authorization: The header's value; None where there is none.
        """
        if authorization is None:
            return LOCAL if self.is_open else None
        token = _bearer(authorization)
        if not token:
            return None
        if self._token is not None and hmac.compare_digest(token, self._token):
            return TOKEN
        digest = hashlib.sha256(token).digest()
        who = self._agents.find_principal(digest)
        if who is None and self._signed is not None:
            return self._signed.find_principal(digest, token)
        # Where people sign in nobody needs a gateway's token, whatever the others on the database have.
        return TOKEN if who is None and digest in self._agents.of_gateways.digests("agents") else who

    async def check(self, scope: Scope) -> Principal | None:
        """Whose request this is; None if it is to be refused.

        Raises:
            UnverifiedError: Nobody can say at the moment.
        """
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(sent) > 1:
            return None
        authorization = sent[0].strip() if sent else None
        who = self.look_up_principal(authorization)
        if who is None and authorization is not None and self._signed is not None:
            who = await self._signed.verify(_bearer(authorization))
        if who is None and _bearer(authorization or b"").startswith(_MADE) and not self._agents.is_current:
            raise UnverifiedError(
                "Whether this token is good cannot be looked up: the catalog cannot be read.",
                hint="Try again in a while, with the same token.",
                retry_after_s=STORE_AGAIN_S,
            )
        return who


def _bearer(authorization: bytes) -> bytes:
    """The token in a header's value; empty if it holds none."""
    scheme, _, token = authorization.partition(b" ")
    return token if scheme.lower() == b"bearer" else b""


class TokenMiddleware:
    """ASGI app that admits good tokens and sets the principal for the app behind it.

    Args:
        app: Answers them.
        keys: Says who they are.
    """

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            who = await self._keys.check(scope)
        except UnverifiedError as error:
            await refusal(error)(scope, receive, send)
            return
        if who is None:
            await Response(status_code=401)(scope, receive, send)
            return
        with bind_principal(who):
            await self._app(add_session_owner(scope, who), receive, send)


def check_callers(app: ASGIApp, open_paths: Collection[str]) -> ASGIApp:
    """The app behind a check that keeps out processes of servers which send no token.

    Args:
        app: Answers all others.
        open_paths: Where everybody may ask.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        caller: AgentCaller | None = scope.get("state", {}).get(CALLER)
        has_token = caller is not None and any(name == b"authorization" for name, _ in scope["headers"])
        try:
            if caller is not None and not has_token and scope["path"] not in open_paths:
                await caller.check()
        except RefusedError as error:
            await refusal(error)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


class OwnToken(NamedTuple):
    """The gateway's own token.

    Attributes:
        value: What agents send; None where they need not.
        file: Where it was found or put; None where the settings have it.
        is_new: Whether it has just been made.
    """

    value: str | None
    file: Path | None = None
    is_new: bool = False

    def __repr__(self) -> str:
        return f"<OwnToken in {self.file or 'the settings'}>" if self.value else "<OwnToken, none>"


def own_token(settings: Settings, *, has_signed: bool = False) -> OwnToken:
    """The token to ask for: the settings' own, and where other machines can reach the gateway never none.

    Without one there it is made once, for the owner only, in the data directory; gateways with a common secret key
    have the same one.

    Args:
        settings: Address, token and data directory.
        has_signed: Whether an identity provider's tokens are accepted, so that nobody needs this one.

    Raises:
        ConfigError: The file cannot be written, holds something else, or is not the owner's alone.
    """
    if settings.auth_token is not None:
        return OwnToken(settings.auth_token.get_secret_value())
    if is_loopback(settings.host) or has_signed:
        return OwnToken(None)
    path = settings.data_dir / TOKEN_NAME
    secret = SecretKey.of(settings)
    given = None if secret is None else secret.token("agents")
    kept = load_or_create_token(path, given=given, hint=f"Make it yours alone (chmod 600), or remove it. {_OTHER_WAYS}")
    return OwnToken(kept.value, path, kept.is_new)


_OTHER_WAYS: Final = "Or set MCPPROXY_AUTH_TOKEN or MCPPROXY_AUTH_TOKEN_FILE, or use MCPPROXY_HOST=127.0.0.1."

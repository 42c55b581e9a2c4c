"""Sign-in to the page at the provider of agents' users, as one more client of the gateway's own."""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from smart_mcp_proxy.errors import RefusedError, UpstreamAuthError
from smart_mcp_proxy.gateway.admin.page_sessions import PageSessions
from smart_mcp_proxy.gateway.admin.roles import Admitted
from smart_mcp_proxy.models import Principal
from smart_mcp_proxy.web.auth.sign_in import PAGE_BACK_PATH, PAGE_CLIENT, BrowserSignIn
from smart_mcp_proxy.web.page.asking import build_scope, call_asgi_app
from smart_mcp_proxy.web.page.rendering import HEADERS
from smart_mcp_proxy.web.page.visit import cookie_name

T = TypeVar("T")

BEGIN_PATH: Final = "/ui/sign-in"
_WAIT_S: Final = 600
"""For passwords and second factors."""
_BYTES: Final = 32
_SHOWN_CHARS: Final = 300


class ProviderSignIn:
    """The way of an operator's browser to the provider and back.

    What one sign-in needs is in a cookie of the browser that began it, so that it may come back to another process.

    Args:
        sign_in: The gateway's own sign-in of people.
        public_url: The gateway's public address.
        sessions: Of the page.
    """

    def __init__(self, sign_in: BrowserSignIn, public_url: str, sessions: PageSessions) -> None:
        self._sign_in = sign_in
        self._base = public_url.rstrip("/")
        self._sessions = sessions
        self._is_https = self._base.startswith("https:")

    async def begin(self, request: Request) -> Response:
        """Send the browser on its way."""
        state, verifier = secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        words = {
            "response_type": "code",
            "client_id": PAGE_CLIENT,
            "redirect_uri": self._base + PAGE_BACK_PATH,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "scope": " ".join(self._sign_in.scopes),
            "resource": f"{self._base}/mcp",
        }
        response = RedirectResponse(f"{self._base}/authorize?{urlencode(words)}", 303, headers=HEADERS)
        response.set_cookie(
            cookie_name(request, "sign-in"),
            f"{state}.{verifier}",
            max_age=_WAIT_S,
            path=PAGE_BACK_PATH,
            httponly=True,
            samesite="lax",  # it comes back from another site
            secure=self._is_https,
        )
        return response

    async def finish(self, request: Request) -> str:
        """Take a browser that comes back; returns the secret of its session.

        Raises:
            RefusedError: It did not begin here, or whoever signed in is no operator.
            UpstreamAuthError: The sign-in was refused.
        """
        who = await self._ask_of_token(request, self._sign_in.find_operator)
        if who is None or who.role is None:
            raise RefusedError(
                "Signed in, but not as somebody who may use this page.",
                hint="Whoever runs the gateway can add them to MCPPROXY_OIDC_OPERATORS, or a group of theirs to "
                "MCPPROXY_GROUP_ROLES.",
                code="not_operator",
            )
        return await self._sessions.open(Admitted("web", who.role, who))

    async def identify(self, request: Request) -> Principal:
        """Take a browser that comes back; returns who signed in, operator or not.

        Raises:
            RefusedError: It did not begin here, or the provider lets them in nowhere.
            UpstreamAuthError: The sign-in was refused.
        """
        who = await self._ask_of_token(request, lambda token: self._sign_in.tokens.verify(token.encode()))
        if who is None:
            raise RefusedError(
                "Signed in, but not as somebody who may use this gateway.",
                hint="Whoever runs the gateway can add them to MCPPROXY_OIDC_USERS.",
                code="access_denied",
            )
        return who

    async def _ask_of_token(self, request: Request, ask: Callable[[str], Awaitable[T]]) -> T:
        parts = request.cookies.get(cookie_name(request, "sign-in"), "").split(".", 1)
        given = request.query_params
        if len(parts) != 2 or not hmac.compare_digest(parts[0].encode(), given.get("state", "").encode()):
            raise RefusedError(
                "This sign-in was not begun in this browser, or too long ago.",
                hint="Begin it again.",
                code="sign_in_unknown",
            )
        if "code" not in given:
            reason = given.get("error_description") or given.get("error", "no reason was given")
            raise UpstreamAuthError(f"The sign-in was refused: {reason[:_SHOWN_CHARS]}", hint="Begin it again.")
        form = {
            "grant_type": "authorization_code",
            "code": given["code"],
            "redirect_uri": self._base + PAGE_BACK_PATH,
            "client_id": PAGE_CLIENT,
            "code_verifier": parts[1],
        }
        tokens = await self._post("/token", form)
        try:
            return await ask(tokens["access_token"])
        finally:  # who it was is known: the token is for nothing else
            used = {"token": tokens["access_token"], "client_id": PAGE_CLIENT}
            await self._post("/revoke", used)

    async def _post(self, path: str, form: dict[str, str]) -> dict[str, Any]:
        body = urlencode(form).encode()
        scope = build_scope("POST", path, self._base, body, "application/x-www-form-urlencoded")
        status, text = await call_asgi_app(self._sign_in.pages, scope, body)
        answer: Any = msgspec.json.decode(text) if text.startswith(b"{") else {}
        if status >= 400:
            reason = answer.get("error_description") or answer.get("error") or f"HTTP {status}"
            raise UpstreamAuthError(f"The sign-in was refused: {str(reason)[:_SHOWN_CHARS]}", hint="Begin it again.")
        found: dict[str, Any] = answer
        return found

"""An OpenID Connect provider, and a person with a browser who consents to what they are asked."""

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from html import unescape
from typing import Any
from urllib.parse import urlencode, urljoin

import httpx2
from joserfc import jwk
from signing_keys import RSAKeyPair
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

__all__ = ["CLIENT_ID", "CLIENT_SECRET", "OpenIdProvider", "consent"]

CLIENT_ID, CLIENT_SECRET = "the-gateway", "secret-of-the-gateway"
_KEY_ID = "first"
_FORM = re.compile(r'<form[^>]*action="([^"]*)"(.*?)</form>', re.DOTALL)
_FIELD = re.compile(r'<(?:input|button)[^>]*?name="([^"]*)"[^>]*?value="([^"]*)"')


class OpenIdProvider:
    """Signs in whoever comes as `user`, without a page of its own.

    Attributes:
        base: Its address and issuer; set once it is served.
        user: Claims of the person who signs in.
        changes: Claims that its id tokens have instead of the right ones.
        lifetime_s: Of its tokens.
        granted: Scopes that it says it granted, whatever was asked for.
        asked: Queries that it was asked to sign somebody in with.
        refreshes: Refresh tokens that it was sent.
        revoked: Tokens that it was told to take back.
        before_refresh: Awaited before it answers with renewed tokens.
        has_keys: Whether its keys can be fetched.

    Args:
        takes_back: Whether it says where tokens are given back.
    """

    def __init__(self, *, takes_back: bool = True) -> None:
        self.base = ""
        self.has_keys = True
        self._takes_back = takes_back
        self.key = RSAKeyPair.generate()
        self.signing_key = self.key
        self.user: dict[str, Any] = {"sub": "ann-1", "email": "Ann@Example.com", "email_verified": True}
        self.changes: dict[str, Any] = {}
        self.lifetime_s = 3600
        self.granted = "openid email"
        self.asked: list[dict[str, str]] = []
        self.refreshes: list[str] = []
        self.revoked: list[str] = []
        self.before_refresh: Callable[[], Awaitable[None]] | None = None
        self.given: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()
        paths = {"authorize": self._authorize, "token": self._token, "keys": self._keys, "revoke": self._revoke}
        routes = [Route(f"/{path}", answer, methods=["GET", "POST"]) for path, answer in paths.items()]
        self.app = Starlette(routes=[Route("/.well-known/openid-configuration", self._configuration), *routes])

    @property
    def config_url(self) -> str:
        return f"{self.base}/.well-known/openid-configuration"

    async def _configuration(self, request: Request) -> Response:
        facts = {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "jwks_uri": f"{self.base}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        return JSONResponse(facts | ({"revocation_endpoint": f"{self.base}/revoke"} if self._takes_back else {}))

    async def _keys(self, request: Request) -> Response:
        if not self.has_keys:
            return Response(status_code=503)
        public = jwk.import_key(self.key.public_key, "RSA").as_dict() | {"kid": _KEY_ID, "use": "sig"}
        return JSONResponse({"keys": [public]})

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        self.asked.append(query)
        assert (query["client_id"], query["code_challenge_method"]) == (CLIENT_ID, "S256")
        code = secrets.token_urlsafe()
        self._codes[code] = query
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        basic = "Basic " + base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if request.headers.get("authorization") != basic:
            return JSONResponse({"error": "invalid_client"}, 401)
        if form["grant_type"] == "refresh_token":
            self.refreshes.append(form["refresh_token"])
            if form["refresh_token"] not in self._refresh_tokens:
                return JSONResponse({"error": "invalid_grant"}, 400)
            self._refresh_tokens.discard(form["refresh_token"])
            if self.before_refresh is not None:
                await self.before_refresh()
        else:
            asked = self._codes.pop(form["code"])
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"]
        return JSONResponse(self._tokens())

    def _tokens(self) -> dict[str, Any]:
        now = int(time.time())
        claims = {"iss": self.base, "aud": CLIENT_ID, "iat": now, "exp": now + self.lifetime_s}
        claims |= self.user | self.changes
        id_token = self.signing_key.create_token(kid=_KEY_ID, additional_claims=claims)
        access, refresh = f"at-{secrets.token_urlsafe()}", f"rt-{secrets.token_urlsafe()}"
        self._refresh_tokens.add(refresh)
        self.given += [access, refresh, id_token]
        answer = {"access_token": access, "refresh_token": refresh, "id_token": id_token, "token_type": "Bearer"}
        return answer | {"expires_in": self.lifetime_s, "scope": self.granted}

    async def _revoke(self, request: Request) -> Response:
        token = str((await request.form())["token"])
        self.revoked.append(token)
        self._refresh_tokens.discard(token)
        return Response()


async def consent(url: str, login: str = "somebody") -> httpx2.Response:
    """What a person's browser ends at who says yes on every page."""
    async with httpx2.AsyncClient(follow_redirects=True, timeout=20, trust_env=False) as client:
        page = await client.get(url)
        while (form := _FORM.search(page.text)) is not None:
            fields = {name: unescape(value) for name, value in _FIELD.findall(form[2])}
            fields |= {"action": "approve"} if "action" in fields else {"login": login, "password": "something"}
            page = await client.post(urljoin(str(page.url), unescape(form[1])), data=fields)
        return page

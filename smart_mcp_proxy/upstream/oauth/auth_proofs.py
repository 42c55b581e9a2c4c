"""Proofs of possession (DPoP): tokens that are of use only with a key, which stays here.

Source: RFC 9449.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx2
from joserfc import jwk, jwt

if TYPE_CHECKING:
    from mcp.shared.auth import ProtectedResourceMetadata

_ALGORITHM: Final = "ES256"
_CURVE: Final = "P-256"
_SCHEME = r"(?i)(?:^|,)\s*DPoP\b"
_USE_NONCE: Final = "use_dpop_nonce"
"""Source: RFC 9449, sections 8 and 9."""


class Proofs:
    """Proofs that requests come from the holder of one key, a new one for each request.

    Args:
        key: That of an earlier one; empty to make one.
        now: Seconds since the epoch.

    Attributes:
        key: The private key, as a JSON Web Key in one text: a secret.
    """

    def __init__(self, key: str = "", now: Callable[[], float] = time.time) -> None:
        self._pair = jwk.ECKey.import_key(json.loads(key)) if key else jwk.ECKey.generate_key(_CURVE)
        self.key = key or json.dumps(self._pair.as_dict(private=True))
        self._header = {"typ": "dpop+jwt", "alg": _ALGORITHM, "jwk": self._pair.as_dict(private=False)}
        self._now = now
        self._nonces: dict[str, str] = {}
        """By origin, as the servers named them last."""

    def __repr__(self) -> str:
        return f"<Proofs with nonces of {len(self._nonces)} servers>"

    def headers(self, verb: str, url: str, token: str = "") -> dict[str, str]:
        """Headers of one request: its proof, and the access token that the key belongs to.

        Args:
            verb: HTTP method.
            url: Where the request goes.
            token: Access token; empty for a request that asks for one.
        """
        parts = urlsplit(url)
        address = parts._replace(query="", fragment="").geturl()
        claims = {"jti": secrets.token_urlsafe(16), "htm": verb, "htu": address, "iat": int(self._now())}
        if nonce := self._nonces.get(parts.netloc):
            claims["nonce"] = nonce
        if not token:
            return {"dpop": self._sign_claims(claims)}
        digest = hashlib.sha256(token.encode()).digest()
        claims["ath"] = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return {"dpop": self._sign_claims(claims), "authorization": f"DPoP {token}"}

    def asks_again(self, url: str, headers: Mapping[str, str], said: str = "") -> bool:
        """Take up the nonce of a response; return whether the request was refused for want of it.

        Args:
            url: Where the request went.
            headers: Those of the response; names in lower case.
            said: Body of the response.
        """
        nonce = headers.get("dpop-nonce", "")
        if nonce:
            self._nonces[urlsplit(url).netloc] = nonce
        return bool(nonce) and (_USE_NONCE in headers.get("www-authenticate", "") or _USE_NONCE in said)

    def _sign_claims(self, claims: dict[str, Any]) -> str:
        return jwt.encode(self._header, claims, self._pair, algorithms=[_ALGORITHM])


async def send_with_proof(
    proofs: Proofs | None, request: httpx2.Request, send: Callable[[httpx2.Request], Awaitable[httpx2.Response]]
) -> httpx2.Response:
    """Send a request with a proof, if there is a key; again where the response asks for a nonce.

    Its bearer token, if it has one, becomes one that the proof belongs to.
    """
    if proofs is None:
        return await send(request)
    url, token = str(request.url), request.headers.get("authorization", "").partition("Bearer ")[2]
    request.headers.update(proofs.headers(request.method, url, token))
    response = await send(request)
    if response.status_code in (400, 401) and proofs.asks_again(url, response.headers, response.text):
        request.headers.update(proofs.headers(request.method, url, token))
        response = await send(request)
    return response


def wants_proofs(
    challenge: str, resource: ProtectedResourceMetadata | None, algorithms_of_issuer: list[str] | None
) -> bool:
    """Whether a server takes tokens with proofs that we can make.

    A server that does not say so gets bearer tokens. That the authorization server knows such tokens is not enough:
    many know them and guard servers that do not.

    Args:
        challenge: `WWW-Authenticate` of the server.
        resource: The server's metadata, if it has any.
        algorithms_of_issuer: That the authorization server takes; None if it does not say.
    """
    asks, algorithms = re.search(_SCHEME, challenge) is not None, None
    if resource is not None:
        algorithms = resource.dpop_signing_alg_values_supported
        asks = asks or bool(resource.dpop_bound_access_tokens_required or algorithms)
    return asks and all(not listed or _ALGORITHM in listed for listed in (algorithms, algorithms_of_issuer))

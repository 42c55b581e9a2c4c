"""Tokens bound to a key (DPoP): who is asked for them, and what proves them, against a server that checks it all."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jwt
from mcp.shared.auth import ProtectedResourceMetadata
from sign_in_fakes import RESOURCE, Guarded, Person, WallClock, call, guarded, linked

from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.upstream.http_failures import has_sign_in_metadata
from smart_mcp_proxy.upstream.oauth.auth_proofs import Proofs, wants_proofs

pytestmark = pytest.mark.anyio


@dataclass
class Proving:
    """In front of a guarded server: binds its tokens to keys and checks every proof, nonces included.

    Attributes:
        nonces: By path, what proofs have to hold.
        proofs: Claims of those that were accepted.
        refused: How many requests were sent back for want of a nonce.
    """

    server: Guarded
    app: Any
    nonces: dict[str, str] = field(default_factory=dict)
    proofs: list[dict[str, Any]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    refused: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path")
        headers = dict(scope.get("headers", ()))
        if path not in ("/mcp", "/token"):
            await self.app(scope, receive, send)
            return
        scheme, _, token = headers.get(b"authorization", b"").decode().partition(" ")
        if path == "/mcp" and not token:
            await self._refuse(send, 401, f'DPoP resource_metadata="{self.server.base}{RESOURCE}"')
            return
        claims, thumbprint = self._checked(scope["method"], path, headers[b"dpop"].decode(), token)
        if claims.get("nonce") != self.nonces.get(path):
            self.refused += 1
            await self._refuse(send, 401 if token else 400, 'DPoP error="use_dpop_nonce"', self.nonces[path])
            return
        self.proofs.append(claims)
        if token:
            assert (scheme, self.keys[token]) == ("DPoP", thumbprint)
            headers[b"authorization"] = b"Bearer " + token.encode()
            await self.app(scope | {"headers": [*headers.items()]}, receive, send)
            return

        async def bind(message: Any) -> None:
            if message["type"] == "http.response.body":
                self.keys[json.loads(message["body"])["access_token"]] = thumbprint
                message = message | {"body": message["body"].replace(b'"Bearer"', b'"DPoP"  ')}
            await send(message)

        await self.app(scope, receive, bind)

    def _checked(self, verb: str, path: str, proof: str, token: str) -> tuple[dict[str, Any], str]:
        head = json.loads(base64.urlsafe_b64decode(proof.split(".", maxsplit=1)[0] + "=="))
        assert head["typ"] == "dpop+jwt"
        assert "d" not in head["jwk"]
        key = jwk.ECKey.import_key(head["jwk"])
        claims = dict(jwt.decode(proof, key, algorithms=["ES256"]).claims)
        assert (claims["htm"], claims["htu"]) == (verb, f"{self.server.base}{path}")
        assert claims["jti"] not in [earlier["jti"] for earlier in self.proofs]
        digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
        assert claims.get("ath") == (digest if token else None)
        return claims, key.thumbprint()

    async def _refuse(self, send: Any, status: int, challenge: str, nonce: str = "") -> None:
        head = [(b"www-authenticate", challenge.encode())] + [(b"dpop-nonce", nonce.encode())] * bool(nonce)
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": b'{"error": "use_dpop_nonce"}'})


@pytest.fixture
async def proving() -> AsyncIterator[Proving]:
    async with guarded() as server:
        server.app = made = Proving(server, server.app)
        yield made


async def sign_in(sign_ins: SignIns, server: Guarded) -> Any:
    async with Person().browser() as browser:
        return await sign_ins.authorize_server(server.config(), browser)


@pytest.mark.long  # much work for one test
async def test_a_server_that_asks_for_proofs_gets_a_new_one_with_every_request(
    sign_ins: SignIns, proving: Proving, clock: WallClock, tmp_path: Path
) -> None:
    """At the token endpoint, at the server, after a renewal and in another process: one key, sealed with the tokens."""
    got = await sign_in(sign_ins, proving.server)
    assert (got.is_proved, "proof_key" in repr(got)) == (True, False)
    async with linked(SignIns(tmp_path, now=clock), proving.server) as session:
        assert b"somebody" in await call(session)
        clock.ahead_s = 7200
        assert b"somebody" in await call(session)
    assert len(proving.server.refreshes) == 1
    assert len(set(proving.keys.values())) == 1
    (stored,) = (tmp_path / "sign-ins").glob("*.json")
    assert json.loads(got.proof_key)["d"].encode() not in stored.read_bytes()


async def test_a_nonce_is_taken_up_and_the_request_sent_once_more(sign_ins: SignIns, proving: Proving) -> None:
    """Of the authorization server and of the server, each its own; a new one later costs one request, too."""
    proving.nonces.update({"/token": "first-of-issuer", "/mcp": "first-of-server"})
    await sign_in(sign_ins, proving.server)
    assert proving.refused == 2
    async with linked(sign_ins, proving.server) as session:
        assert b"somebody" in await call(session)
        assert proving.refused == 3
        proving.nonces["/mcp"] = "second"
        assert b"somebody" in await call(session)
        assert b"somebody" in await call(session)
    assert proving.refused == 4


async def test_an_authorization_server_that_ignores_proofs_brings_a_bearer_token(
    sign_ins: SignIns, proving: Proving
) -> None:
    """The type in its response decides how the token is sent."""
    proving.server.app = proving.app
    proving.server.answers["/mcp"] = lambda seen: None if "authorization" in seen.headers else (401, {}, "DPoP, Bearer")
    got = await sign_in(sign_ins, proving.server)
    assert not got.is_proved
    (asked,) = proving.server.asked("/token")
    assert "dpop" in asked.headers
    async with linked(sign_ins, proving.server) as session:
        assert b"somebody" in await call(session)
    assert proving.server.wire[-1].headers["authorization"] == f"Bearer {got.access_token}"
    assert "dpop" not in proving.server.wire[-1].headers


def resource(**says: Any) -> ProtectedResourceMetadata:
    return ProtectedResourceMetadata(resource="https://h/mcp", authorization_servers=["https://a"], **says)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("challenge", "says", "algorithms", "wants"),
    [
        ("Bearer", {}, ["ES256"], False),
        ('Bearer realm="x", DPoP algs="ES256"', {}, ["ES256"], True),
        ('dpop resource_metadata="https://h"', None, None, True),
        ('Bearer realm="DPoP"', None, ["ES256"], False),
        ("Bearer", {"dpop_bound_access_tokens_required": True}, None, True),
        ("Bearer", {"dpop_bound_access_tokens_required": False}, None, False),
        ("Bearer", {"dpop_signing_alg_values_supported": ["ES256", "RS256"]}, ["ES256"], True),
        ("Bearer", {"dpop_signing_alg_values_supported": ["RS256"]}, ["ES256"], False),
        ("DPoP", {}, ["RS256"], False),
    ],
)
def test_proofs_are_for_servers_that_take_them(
    challenge: str, says: dict[str, Any] | None, algorithms: list[str] | None, wants: bool
) -> None:
    """By challenge or metadata of the server, where both sides take our algorithm; the issuer's alone is not enough."""
    assert wants_proofs(challenge, None if says is None else resource(**says), algorithms) is wants


def test_a_proof_names_the_address_without_query_and_shows_no_key() -> None:
    """RFC 9449, section 4.2; the key itself can be stored and taken up again."""
    proofs = Proofs(now=lambda: 1000.9)
    claims = jwt.decode(
        proofs.headers("GET", "https://h:8/mcp?key=x#y")["dpop"], jwk.ECKey.import_key(json.loads(proofs.key))
    ).claims
    assert (claims["htu"], claims["htm"], claims["iat"]) == ("https://h:8/mcp", "GET", 1000)
    assert Proofs(proofs.key).key == proofs.key
    assert json.loads(proofs.key)["d"] not in repr(proofs)


def test_a_challenge_for_proofs_names_a_sign_in() -> None:
    """Such a server waits for a login like one that takes bearer tokens."""
    assert has_sign_in_metadata(
        401, 'DPoP algs="ES256", resource_metadata="https://h/.well-known/oauth-protected-resource"'
    )

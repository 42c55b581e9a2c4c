"""Tokens that an identity provider has signed: which are good here, for whom, and how far."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import HttpAgent
from joserfc import jwk
from plain_http import plain_client
from signing_keys import RSAKeyPair
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from transports import listening, odd_servers, opened_gateway, over_http, served

from smart_mcp_proxy.errors import UnverifiedError
from smart_mcp_proxy.fastmcp_compat.auth.signing_keys import RotatingKeyVerifier
from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.web.auth.signed_tokens import SignedTokens

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("signed-tokens")]

ISSUER = "https://id.example"
PUBLIC_URL = "https://gateway.example"
AUDIENCE = f"{PUBLIC_URL}/mcp"
KEY_ID = "first"


class Provider:
    """An identity provider: it signs tokens, publishes its key and counts how often it is asked for it."""

    def __init__(self) -> None:
        self.key = RSAKeyPair.generate()
        self.other_key = RSAKeyPair.generate()
        self.asked = 0

    async def keys(self, request: Request) -> Response:
        self.asked += 1
        public = jwk.import_key(self.key.public_key, "RSA").as_dict() | {"kid": KEY_ID, "use": "sig"}
        return JSONResponse({"keys": [public]})

    def token(self, *, is_forged: bool = False, **changes: Any) -> str:
        given: dict[str, Any] = {"subject": "ann", "issuer": ISSUER, "audience": AUDIENCE, "scopes": ["mcp:read"]}
        key = self.other_key if is_forged else self.key
        return key.create_token(**{**given, "kid": KEY_ID, **changes})


@pytest.fixture(scope="module")
async def provider() -> Provider:
    """The one that all tests here trust."""
    return Provider()


@pytest.fixture(scope="module")
async def base(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The address of a gateway that accepts the provider's tokens and has none of its own."""
    directory = tmp_path_factory.mktemp("signed")
    ledger = directory / "ledger"
    ledger.touch()
    async with listening(Starlette(routes=[Route("/keys", provider.keys)])) as provider_at:
        settings = {"jwt_jwks_url": f"{provider_at}/keys", "jwt_issuer": ISSUER, "public_url": PUBLIC_URL}
        async with (
            opened_gateway(directory / "data", odd_servers(ledger), **settings) as gateway,
            served(gateway) as address,
        ):
            assert await gateway.wait_settled(20)
            yield address


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


REFUSED: list[tuple[str, Callable[[Provider], str]]] = [
    ("forged", lambda one: one.token(is_forged=True)),
    ("another issuer", lambda one: one.token(issuer="https://evil.example")),
    ("another audience", lambda one: one.token(audience="https://other.example/mcp")),
    ("no audience", lambda one: one.token(audience=None)),
    ("expired", lambda one: one.token(expires_in_seconds=-1)),
    ("no end", lambda one: one.token(additional_claims={"exp": None})),
    ("an end too far away", lambda one: one.token(additional_claims={"exp": 1e308})),
    ("an end beyond all dates", lambda one: one.token(additional_claims={"exp": 10**15})),
    ("an end at infinity", lambda one: one.token(additional_claims={"exp": float("inf")})),
    ("an end that is no number", lambda one: one.token(additional_claims={"exp": float("nan")})),
    ("an end in words", lambda one: one.token(additional_claims={"exp": "9999999999"})),
    ("not yet", lambda one: one.token(additional_claims={"nbf": int(time.time()) + 3_600})),
    ("an odd beginning", lambda one: one.token(additional_claims={"nbf": "soon"})),
    ("no subject", lambda one: one.token(additional_claims={"sub": None})),
    ("a subject that is a number", lambda one: one.token(additional_claims={"sub": 7})),
    ("a subject that is a list", lambda one: one.token(additional_claims={"sub": ["ann"]})),
    ("an issuer that is a list", lambda one: one.token(additional_claims={"iss": [ISSUER]})),
    ("ended an hour ago", lambda one: one.token(expires_in_seconds=-3_600)),
    ("no scope", lambda one: one.token(scopes=None)),
    ("other scopes", lambda one: one.token(scopes=["mcp", "read", "mcp:admin"])),
    ("odd servers", lambda one: one.token(additional_claims={"mcp_servers": 7})),
    ("odd names", lambda one: one.token(additional_claims={"mcp_servers": ["old", 7]})),
    ("an unknown key", lambda one: one.token(kid="second", is_forged=True)),
    ("cut", lambda one: one.token()[:-4]),
    ("unsigned", lambda one: "eyJhbGciOiJub25lIn0." + one.token().split(".")[1] + "."),
    ("no token", lambda one: "a.b.c"),
    ("dots", lambda one: ".."),
]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(("why", "make"), REFUSED, ids=[why for why, _ in REFUSED])
async def test_a_token_that_is_not_good_here_opens_nothing(
    base: str, provider: Provider, era: str, why: str, make: Callable[[Provider], str]
) -> None:
    """Twice, so that neither request path lets it in; the answer says where to get a good one."""
    async with plain_client() as client:
        agent = HttpAgent(era, f"{base}/mcp", client)  # type: ignore[arg-type]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "retrieve_tools"}}
        headers = agent._headers(body) | bearer(make(provider))
        for _ in range(2):
            reply = await client.post(f"{base}/mcp", json=body, headers=headers)
            assert reply.status_code == 401, why
            challenge = reply.headers["www-authenticate"]
            assert 'error="invalid_token"' in challenge
            assert f'resource_metadata="{PUBLIC_URL}/.well-known/oauth-protected-resource/mcp"' in challenge
            assert 'scope="mcp:read mcp:write mcp:destructive"' in challenge


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"scopes": ["mcp:read"]}, {"old:look", "new:look"}),
        ({"scopes": ["mcp:write", "openid"]}, {"old:look", "old:echo", "new:look", "new:echo"}),
        ({"scopes": ["mcp:read"], "additional_claims": {"mcp_servers": ["old"]}}, {"old:look"}),
        ({"scopes": ["mcp:write"], "additional_claims": {"mcp_servers": "new other"}}, {"new:look", "new:echo"}),
        (
            {"scopes": ["mcp:destructive"], "audience": ["https://a.example", AUDIENCE]},
            {"old:look", "old:echo", "old:erase", "new:look", "new:echo", "new:erase"},
        ),
        ({"scopes": ["mcp:destructive"], "additional_claims": {"mcp_servers": []}}, set()),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
async def test_scopes_and_claims_say_how_far_a_token_reaches(
    base: str, provider: Provider, era: str, changes: dict[str, Any], allowed: set[str]
) -> None:
    """Over both request paths: what is let in slowly is known to the fast way the next time."""
    names = [f"{server}:{tool}" for server in ("old", "new") for tool in ("look", "echo", "erase")]
    async with over_http(base, era, bearer(provider.token(**changes))) as agent:  # type: ignore[arg-type]
        for _ in range(2):
            reached = set()
            for name in names:
                result = await agent.call("call_tool_destructive", name=name, args={"entry": 1})
                if not result.get("isError"):
                    reached.add(name)
            assert reached == allowed


async def test_a_token_of_a_provider_whose_clock_is_ahead_is_good_at_once(base: str, provider: Provider) -> None:
    """By less than the half minute that FastMCP allows."""
    token = provider.token(additional_claims={"nbf": int(time.time()) + 25})
    async with over_http(base, "modern", bearer(token)) as agent:
        assert not (await agent.call("call_tool_read", name="old:look", args={"entry": 1})).get("isError")


async def test_a_token_with_a_thousand_groups_is_as_good_as_any(base: str, provider: Provider) -> None:
    """Some providers name every group of a large company."""
    many = {"groups": [f"group-{number}" for number in range(1_000)]}
    async with over_http(base, "modern", bearer(provider.token(additional_claims=many))) as agent:
        assert (await agent.call("retrieve_tools", query="look"))["structuredContent"]["tools"]


async def test_a_principal_is_issuer_and_subject_and_a_session_keeps_its_reach(base: str, provider: Provider) -> None:
    """Another token of the same reach goes on with the session; another subject or reach does not."""
    async with over_http(base, "handshake", bearer(provider.token())) as agent:
        body: dict[str, Any] = {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}
        for changes, status in (
            ({"expires_in_seconds": 1_800}, 200),
            ({"subject": "bob"}, 404),
            ({"scopes": ["mcp:destructive"]}, 404),
            ({"additional_claims": {"mcp_servers": ["old"]}}, 404),
        ):
            headers = agent._headers(body) | bearer(provider.token(**changes))
            reply = await agent.http.post(f"{base}/mcp", json=body, headers=headers)
            assert reply.status_code == status, changes


async def test_whoever_looks_for_a_sign_in_is_told_where_without_a_token(base: str, provider: Provider) -> None:
    """The metadata of RFC 9728; the public name is let in as a Host."""
    async with plain_client() as client:
        reply = await client.get(f"{base}/.well-known/oauth-protected-resource/mcp")
        assert reply.status_code == 200
        metadata = reply.json()
        assert metadata["resource"] == AUDIENCE
        assert [url.rstrip("/") for url in metadata["authorization_servers"]] == [ISSUER]
        assert metadata["scopes_supported"] == ["mcp:read", "mcp:write", "mcp:destructive"]
        reply = await client.post(f"{base}/mcp", json={}, headers={"host": "gateway.example"})
        assert reply.status_code == 401


@pytest.mark.long  # half a second of work and more
async def test_keys_are_asked_for_once(base: str, provider: Provider) -> None:
    """Unknown key ids do not make the gateway ask again and again."""
    async with plain_client() as client:
        for number in range(20):
            token = provider.token(kid=f"unknown-{number}", is_forged=True)
            assert (await client.post(f"{base}/mcp", json={}, headers=bearer(token))).status_code == 401
    assert provider.asked <= 3


class Turning(httpx2.AsyncBaseTransport):
    """An issuer that publishes one key after another under the same id, and counts how often it is asked."""

    def __init__(self) -> None:
        self.key = RSAKeyPair.generate()
        self.asked = 0
        self.is_down = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The key of the moment."""
        self.asked += 1
        if self.is_down:
            return httpx2.Response(503, request=request)
        public = jwk.import_key(self.key.public_key, "RSA").as_dict() | {"kid": KEY_ID, "use": "sig"}
        return httpx2.Response(200, json={"keys": [public]}, request=request)

    def token(self) -> str:
        """A token signed with the key of the moment."""
        return self.key.create_token(subject="ann", issuer=ISSUER, kid=KEY_ID)


@pytest.fixture
async def turning() -> AsyncIterator[tuple[Turning, RotatingKeyVerifier]]:
    """Such an issuer, and what verifies its tokens."""
    issuer = Turning()
    async with httpx2.AsyncClient(transport=issuer) as client:
        yield issuer, RotatingKeyVerifier(jwks_uri="https://id.example/keys", issuer=ISSUER, http_client=client)


def later(verifier: RotatingKeyVerifier) -> None:
    """Lets the time pass for which nobody is asked again."""
    assert verifier._jwks_last_refresh_attempt is not None
    verifier._jwks_last_refresh_attempt -= verifier._jwks_refresh_interval


@pytest.mark.long  # a third of a second of processor time
async def test_a_key_that_is_replaced_under_its_id_is_noticed(turning: tuple[Turning, RotatingKeyVerifier]) -> None:
    """At its first token; one of the old key is refused from then on."""
    issuer, verifier = turning
    old = issuer.token()
    assert await verifier.verify_token(old) is not None
    issuer.key = RSAKeyPair.generate()
    later(verifier)
    assert await verifier.verify_token(issuer.token()) is not None
    assert await verifier.verify_token(old) is None
    assert issuer.asked == 2


@pytest.mark.long  # half a second of work and more
async def test_bad_signatures_make_nobody_ask_more_often(turning: tuple[Turning, RotatingKeyVerifier]) -> None:
    """Once in the time that is set, whatever comes; tokens that end or are for others cause no request at all."""
    issuer, verifier = turning
    good, forged = issuer.token(), RSAKeyPair.generate()
    ended = issuer.key.create_token(subject="ann", issuer=ISSUER, kid=KEY_ID, expires_in_seconds=-1)
    strange = issuer.key.create_token(subject="ann", issuer="https://evil.example", kid=KEY_ID)
    assert await verifier.verify_token(good) is not None
    later(verifier)
    for _ in range(3):
        assert await verifier.verify_token(ended) is await verifier.verify_token(strange) is None
    assert issuer.asked == 1
    for number in range(10):
        assert await verifier.verify_token(forged.create_token(subject=str(number), issuer=ISSUER, kid=KEY_ID)) is None
    assert issuer.asked == 2
    assert await verifier.verify_token(good) is not None


async def test_a_token_of_a_key_that_cannot_be_had_may_be_good(turning: tuple[Turning, RotatingKeyVerifier]) -> None:
    """Whoever sends it is told to try again, not to sign in anew."""
    issuer, verifier = turning
    tokens = SignedTokens(verifier, lambda token: Reach(None, "write"))
    issuer.is_down = True
    sent = issuer.token().encode()
    with pytest.raises(UnverifiedError, match="the keys of its issuer cannot be fetched") as told:
        await tokens.verify(sent)
    assert told.value.http_status == 503
    issuer.is_down = False
    later(verifier)
    assert (who := await tokens.verify(sent)) is not None and who.id == f"{ISSUER}#ann"


@pytest.mark.long  # a third of a second of processor time
async def test_keys_that_cannot_be_had_leave_the_known_ones_good(turning: tuple[Turning, RotatingKeyVerifier]) -> None:
    """Nobody can switch the tokens of others off with a bad one while the issuer is down."""
    issuer, verifier = turning
    good = issuer.token()
    assert await verifier.verify_token(good) is not None
    issuer.is_down = True
    later(verifier)
    assert await verifier.verify_token(RSAKeyPair.generate().create_token(issuer=ISSUER, kid=KEY_ID)) is None
    assert issuer.asked == 2
    assert await verifier.verify_token(good) is not None


@pytest.mark.parametrize("signs_with_key", [True, False])
async def test_a_public_key_will_do_instead_of_an_address(
    tmp_path: Path, provider: Provider, signs_with_key: bool
) -> None:
    """Without a public address there is an audience to name, and no metadata."""
    settings = {"jwt_public_key": provider.key.public_key, "jwt_issuer": ISSUER, "jwt_audience": "tools"}
    token = provider.token(audience="tools", is_forged=not signs_with_key)
    async with (
        opened_gateway(tmp_path, {"off": {"command": "none", "disabled": True}}, **settings) as gateway,
        served(gateway) as base,
        plain_client() as client,
    ):
        reply = await client.post(f"{base}/mcp", json={}, headers=bearer(token))
        assert (reply.status_code == 401) == (not signs_with_key)
        assert (await client.post(f"{base}/mcp", json={})).headers["www-authenticate"] == "Bearer"
        assert (await client.get(f"{base}/.well-known/oauth-protected-resource/mcp")).status_code == 404

"""Tokens that an identity provider has signed: which are good here, for whom, and how far."""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import HttpAgent
from doors import listening, odd_servers, opened_gateway, over_http, served
from fastmcp.server.auth.providers.jwt import RSAKeyPair
from joserfc import jwk
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

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
        settings = {
            "jwt_jwks_url": f"{provider_at}/keys",
            "jwt_issuer": ISSUER,
            "public_url": PUBLIC_URL,
        }
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
    ("not yet", lambda one: one.token(additional_claims={"nbf": int(time.time()) + 3_600})),
    ("an odd beginning", lambda one: one.token(additional_claims={"nbf": "soon"})),
    ("no subject", lambda one: one.token(additional_claims={"sub": None})),
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
    """Twice, so that neither way through the door lets it in; the answer says where to get a good one."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        agent = HttpAgent(era, f"{base}/mcp", client)  # type: ignore[arg-type]
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "retrieve_tools"}}
        for _ in range(2):
            reply = await client.post(f"{base}/mcp", json=body, headers=agent._headers(body) | bearer(make(provider)))
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
    """Over both ways through the door: what is let in slowly is known to the fast way the next time."""
    names = [f"{server}:{tool}" for server in ("old", "new") for tool in ("look", "echo", "erase")]
    async with over_http(base, era, bearer(provider.token(**changes))) as agent:  # type: ignore[arg-type]
        for _ in range(2):
            reached = set()
            for name in names:
                result = await agent.call("call_tool_destructive", name=name, args={"entry": 1})
                if not result.get("isError"):
                    reached.add(name)
            assert reached == allowed


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
    async with httpx2.AsyncClient(trust_env=False) as client:
        reply = await client.get(f"{base}/.well-known/oauth-protected-resource/mcp")
        assert reply.status_code == 200
        metadata = reply.json()
        assert metadata["resource"] == AUDIENCE
        assert [url.rstrip("/") for url in metadata["authorization_servers"]] == [ISSUER]
        assert metadata["scopes_supported"] == ["mcp:read", "mcp:write", "mcp:destructive"]
        reply = await client.post(f"{base}/mcp", json={}, headers={"host": "gateway.example"})
        assert reply.status_code == 401


async def test_keys_are_asked_for_once(base: str, provider: Provider) -> None:
    """Unknown key ids do not make the gateway ask again and again."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        for number in range(20):
            token = provider.token(kid=f"unknown-{number}", is_forged=True)
            assert (await client.post(f"{base}/mcp", json={}, headers=bearer(token))).status_code == 401
    assert provider.asked <= 3


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
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        reply = await client.post(f"{base}/mcp", json={}, headers=bearer(token))
        assert (reply.status_code == 401) == (not signs_with_key)
        assert (await client.post(f"{base}/mcp", json={})).headers["www-authenticate"] == "Bearer"
        assert (await client.get(f"{base}/.well-known/oauth-protected-resource/mcp")).status_code == 404

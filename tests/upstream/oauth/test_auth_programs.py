"""Sign-in of programs that hold no shared secret: a key of their own, or a token of their platform."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.auth.auth import AccessToken
from joserfc import jwk, jwt
from sign_in_fakes import SCOPES, Guarded, Seen, WallClock, call, guarded, linked

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.upstream.http_failures import TlsContext
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        made.answers["/token"] = lambda seen: granted(made, seen)
        yield made


def granted(server: Guarded, seen: Seen) -> tuple[int, Any]:
    """An access token for whatever is sent, an hour long."""
    text = f"program-token-{len(server.wire)}"
    server.provider.access_tokens[text] = AccessToken(token=text, client_id="robot", scopes=SCOPES)
    return 200, {"access_token": text, "token_type": "bearer", "expires_in": 3600}


@pytest.mark.parametrize(
    ("kind", "of", "algorithm"),
    [(jwk.RSAKey, 2048, "RS256"), (jwk.ECKey, "P-256", "ES256"), (jwk.ECKey, "P-521", "ES512")],
)
async def test_a_program_signs_for_itself(
    sign_ins: SignIns, server: Guarded, kind: Any, of: Any, algorithm: str
) -> None:
    """private_key_jwt: an assertion for the issuer, of this minute and used once, instead of a secret."""
    key = kind.generate_key(of)
    oauth = {"grant": "client_credentials", "client_id": "robot", "private_key": key.as_pem(private=True).decode()}
    for kid in ({"kid": "first"}, {}):
        got = await sign_ins.authorize_server(server.config(oauth | kid | {"issuer": server.base}), None)
    seen, again = (one.form for one in server.asked("/token", grant_type="client_credentials"))
    assert seen["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert (seen["resource"], "client_secret" in seen) == (server.url, False)
    signed = jwt.decode(seen["client_assertion"], key, algorithms=[algorithm])
    assert (signed.header["kid"], signed.claims["iss"], signed.claims["sub"]) == ("first", "robot", "robot")
    assert signed.claims["aud"] == got.issuer
    assert signed.claims["exp"] - signed.claims["iat"] == 300
    assert "kid" not in jwt.decode(again["client_assertion"], key, algorithms=[algorithm]).header
    assert server.asked("/register") == []
    async with linked(sign_ins, server, oauth=oauth) as session:
        assert b"somebody" in await call(session)


@pytest.mark.parametrize("pem", ["hunter2", jwk.ECKey.generate_key("P-256").as_pem(private=False).decode()])
async def test_a_key_that_cannot_sign_is_refused_without_being_shown(
    sign_ins: SignIns, server: Guarded, pem: str
) -> None:
    """The key by name and what is expected; nothing is sent."""
    oauth = {"grant": "client_credentials", "client_id": "robot", "private_key": pem}
    with pytest.raises(UpstreamAuthError, match=r"'oauth\.private_key' cannot be used") as caught:
        await sign_ins.authorize_server(server.config(oauth), None)
    assert pem not in str(caught.value)
    assert server.asked("/token") == []


async def test_a_token_of_the_platform_is_traded_as_it_is_at_that_moment(
    sign_ins: SignIns, server: Guarded, clock: WallClock, tmp_path: Path
) -> None:
    """jwt_bearer: no client is needed; the next time the file is read anew, for platforms replace it."""
    file = tmp_path / "token"
    file.write_text("first.j.wt\n")
    oauth = {"grant": "jwt_bearer", "assertion_file": str(file), "scopes": SCOPES}
    async with linked(sign_ins, server, oauth=oauth) as session:
        assert b"somebody" in await call(session)
        file.write_text("second.j.wt")
        clock.ahead_s = 7200
        assert b"somebody" in await call(session)
    asked = [one.form for one in server.asked("/token")]
    assert [form["assertion"] for form in asked] == ["first.j.wt", "second.j.wt"]
    assert {form["grant_type"] for form in asked} == {"urn:ietf:params:oauth:grant-type:jwt-bearer"}
    assert (asked[0]["resource"], asked[0]["scope"]) == (server.url, " ".join(SCOPES))
    assert not asked[0].keys() & {"client_id", "client_secret"}


async def test_a_client_beside_the_token_is_named_and_proved(
    sign_ins: SignIns, server: Guarded, tmp_path: Path
) -> None:
    """Its id in the form, or with its secret in the header."""
    file = tmp_path / "token"
    file.write_text("a.j.wt")
    oauth = {"grant": "jwt_bearer", "assertion_file": str(file), "client_id": "robot"}
    for secret in ({}, {"client_secret": "robot-secret"}):
        await sign_ins.authorize_server(server.config(oauth | secret), None)
    public, confidential = server.asked("/token")
    assert (public.form["client_id"], "authorization" in public.headers) == ("robot", False)
    assert confidential.headers["authorization"].startswith("Basic ")
    assert "robot-secret" not in confidential.body.decode()


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\xff\xfe", b"-----BEGIN PRIVATE KEY-----\nMC4=\n-----END PRIVATE KEY-----\n"],
    ids=["absent", "empty", "binary", "a key"],
)
async def test_a_file_without_a_token_is_named(
    sign_ins: SignIns, server: Guarded, tmp_path: Path, content: bytes | None
) -> None:
    """It may be there a moment later, so it is no matter of signing in anew."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UpstreamError, match=f"cannot be read from {file}") as caught:
        await sign_ins.authorize_server(server.config({"grant": "jwt_bearer", "assertion_file": str(file)}), None)
    assert not isinstance(caught.value, UpstreamAuthError)
    assert "'assertion_file'" in caught.value.hint
    assert server.asked("/token") == []


async def test_a_token_that_is_refused_is_not_sent_again(sign_ins: SignIns, server: Guarded, tmp_path: Path) -> None:
    """The authorization server's code is told, and no other grant is tried."""
    file = tmp_path / "token"
    file.write_text("a.j.wt")
    server.answers["/token"] = lambda _: (400, {"error": "invalid_grant"})
    with pytest.raises(UpstreamAuthError, match="invalid_grant"):
        await sign_ins.authorize_server(server.config({"grant": "jwt_bearer", "assertion_file": str(file)}), None)
    assert len(server.asked("/token")) == 1


async def test_a_sign_in_without_a_secret_is_forgotten_and_nobody_asked(
    sign_ins: SignIns, server: Guarded, tmp_path: Path
) -> None:
    """There is nothing by which it could be given back; its token ends by itself."""
    file = tmp_path / "token"
    file.write_text("a.j.wt")
    config = server.config({"grant": "jwt_bearer", "assertion_file": str(file)})
    await sign_ins.authorize_server(config, None)
    done = await sign_ins.sign_out(config)
    assert (done.was_signed_in, done.is_revoked, done.problem) == (True, False, "")
    assert server.asked("/revoke") == []


def of_company(server: Guarded, file: Path, **changes: Any) -> dict[str, Any]:
    """The `oauth` of an entry for a server that the company's identity provider opens; the id token is in `file`."""
    file.write_text("id.of.person")
    oauth = {"grant": "jwt_bearer", "assertion_file": str(file), "client_id": "robot", "client_secret": "robot-secret"}
    return oauth | {"idp_token_endpoint": f"{server.base}/idp", "idp_client_id": "ours", "scopes": SCOPES} | changes


ID_JAG = {"access_token": "id.jag", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag", "token_type": "N_A"}


async def test_the_companys_provider_gives_the_assertion_for_an_id_token(
    sign_ins: SignIns, server: Guarded, tmp_path: Path
) -> None:
    """Token exchange at the provider for this issuer and server, then the grant; the id token goes nowhere else."""
    server.answers["/idp"] = lambda _: (200, ID_JAG)
    for secret in ({}, {"idp_client_secret": "idp-secret"}):
        got = await sign_ins.authorize_server(server.config(of_company(server, tmp_path / "id") | secret), None)
    public, confidential = server.asked("/idp")
    assert public.form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "subject_token": "id.of.person",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": got.issuer,
        "resource": server.url,
        "scope": " ".join(SCOPES),
        "client_id": "ours",
    }
    assert confidential.headers["authorization"].startswith("Basic ")
    assert b"idp-secret" not in confidential.body
    asked = server.asked("/token")[0]
    assert asked.form["assertion"] == "id.jag"
    assert [seen.path for seen in server.wire if b"id.of.person" in seen.body] == ["/idp", "/idp"]


@pytest.mark.parametrize(
    ("status", "answer", "words", "is_refused"),
    [
        (400, {"error": "invalid_grant"}, r"\(invalid_grant\)", True),
        (503, {"error": "later"}, r"\(later\)", False),
        (200, ID_JAG | {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}, "HTTP 200", False),
    ],
)
async def test_a_provider_that_gives_no_assertion_is_said_to(
    sign_ins: SignIns, server: Guarded, tmp_path: Path, status: int, answer: Any, words: str, is_refused: bool
) -> None:
    """Its code, and the keys to check; the authorization server hears nothing."""
    server.answers["/idp"] = lambda _: (status, answer)
    with pytest.raises(UpstreamError, match=words) as caught:
        await sign_ins.authorize_server(server.config(of_company(server, tmp_path / "id")), None)
    assert isinstance(caught.value, UpstreamAuthError) is is_refused
    assert "id.of.person" not in str(caught.value)
    assert server.asked("/token") == []


async def test_a_provider_in_the_companys_network_may_be_asked_for_a_server_outside() -> None:
    """The user configured it; where a server leads must not be closer than the server, and never link-local."""

    async def resolve(host: str, _: int) -> list[str]:
        return {"mcp.example": ["93.184.216.34"], "idp.corp": ["10.0.0.7"]}.get(host, ["169.254.169.254"])

    http = AuthHttp("web", "https://mcp.example/mcp", TlsContext(), resolve)
    with pytest.raises(UpstreamAuthError, match="closer to this machine"):
        await http.check("https://idp.corp/token")
    assert await http.beside("https://idp.corp/token").check("https://idp.corp/token") == ["10.0.0.7"]
    with pytest.raises(UpstreamAuthError, match="link-local"):
        await http.beside("https://meta.corp/token").check("https://meta.corp/token")

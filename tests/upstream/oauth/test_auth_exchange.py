"""Token exchange: what is sent to the identity provider, what its answer may be, and what is said where it may not."""

import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import pytest
from asgi_server import listening
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.servers import ExchangeOptions, ServerConfig
from smart_mcp_proxy.upstream.http_failures import TlsContext
from smart_mcp_proxy.upstream.oauth.auth_exchange import ExchangedBearer, SubjectTokens
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp

pytestmark = pytest.mark.anyio

AUDIENCE = "https://api.example/mcp"
ISSUER = "https://login.api.example"
JWT = "urn:ietf:params:oauth:token-type:jwt"
"""Source: RFC 8693, section 3"""
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
"""Source: https://datatracker.ietf.org/doc/draft-ietf-oauth-identity-assertion-authz-grant/"""


def jwt_of(**claims: Any) -> str:
    """An unsigned token; who signed it is for its server to check."""
    parts = ({"alg": "none"}, {"aud": AUDIENCE, "exp": time.time() + 600} | claims)
    head, body = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{head}.{body}.signature"


class Exchange:
    """A token endpoint that answers with `answer`, and a person who came with `subject`."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.authorizations: list[str] = []
        self.status = 200
        self.answer: Any = None
        self.subject: str | None = "token-of-ann"
        self.ahead_s = 0.0
        self.url = ""
        self.issuer_status = 200
        self.issuer_answer: dict[str, Any] = {}

    async def give(self, request: Request) -> Response:
        self.forms.append(dict(parse_qsl((await request.body()).decode())))
        self.authorizations.append(request.headers.get("authorization", ""))
        usual = {"access_token": jwt_of(n=len(self.forms)), "issued_token_type": JWT, "token_type": "Bearer"}
        answer = usual | {"expires_in": 600} | self.answer if isinstance(self.answer, dict) else usual
        return JSONResponse(answer if self.status == 200 else self.answer, self.status)

    async def redeem(self, request: Request) -> Response:
        """The server's authorization server, which takes an assertion."""
        self.forms.append(dict(parse_qsl((await request.body()).decode())))
        self.authorizations.append(request.headers.get("authorization", ""))
        usual = {"access_token": jwt_of(n=len(self.forms)), "token_type": "Bearer", "expires_in": 600}
        return JSONResponse(usual | self.issuer_answer, self.issuer_status)

    def asserting(self, **options: Any) -> ExchangedBearer:
        """One whose provider gives assertions."""
        client = {"issuer_client_id": "us there", "issuer_client_secret": "0ther"}
        return self.bearer(issuer=ISSUER, issuer_token_url=f"{self.url}/redeem", **client | options)

    def bearer(self, **options: Any) -> ExchangedBearer:
        config = ServerConfig("web", "http", url=self.url, person="ann")
        given = {"token_url": self.url, "audience": AUDIENCE, "client_id": "us", "client_secret": "s3cret"} | options
        http = AuthHttp("web", self.url, TlsContext())
        now = lambda: time.time() + self.ahead_s  # noqa: E731
        return ExchangedBearer(config, ExchangeOptions(**given), http, lambda person, now_s: self.subject, now)


@pytest.fixture
async def exchange() -> AsyncIterator[Exchange]:
    made = Exchange()
    async with served(made):
        yield made


@asynccontextmanager
async def served(made: Exchange) -> AsyncIterator[None]:
    routes = [Route("/token", made.give, methods=["POST"]), Route("/token/redeem", made.redeem, methods=["POST"])]
    async with listening(Starlette(routes=routes)) as base:
        made.url = f"{base}/token"
        yield


async def test_the_persons_token_is_traded_once_until_it_ends(exchange: Exchange) -> None:
    """Audience, scope, subject and client are named; the answer is kept, then traded anew."""
    bearer = exchange.bearer(scope="read write")
    first = await bearer.token()
    assert await bearer.token() == first
    (form,) = exchange.forms
    assert (form["audience"], form["scope"], form["subject_token"]) == (AUDIENCE, "read write", "token-of-ann")
    assert form["grant_type"].endswith("token-exchange")
    assert exchange.authorizations == ["Basic " + base64.b64encode(b"us:s3cret").decode()]
    exchange.ahead_s = 580
    exchange.answer = {"access_token": jwt_of(exp=time.time() + 1200)}
    assert await bearer.token() != first
    assert len(exchange.forms) == 2
    await bearer.close()


async def test_without_a_token_of_the_person_nobody_is_asked(exchange: Exchange) -> None:
    """The message says how to come with one."""
    exchange.subject = None
    with pytest.raises(UpstreamAuthError, match="came with none") as caught:
        await exchange.bearer().token()
    assert "token of the identity provider" in caught.value.hint
    assert exchange.forms == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"access_token": jwt_of(aud="https://other.example")}, "for another audience"),
        ({"access_token": jwt_of(aud=None)}, "for another audience"),
        ({"access_token": jwt_of(aud=["https://other.example"])}, "for another audience"),
        ({"access_token": "token-of-ann"}, "gave back the token that the person came with"),
        ({"access_token": 7}, "holds no token"),
        ({"access_token": "a\nb"}, "holds no token"),
        ({"token_type": "N_A"}, "another kind of token"),
        ({"issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}, "another kind of token"),
        ({"issued_token_type": ["x"]}, "another kind of token"),
        ({"expires_in": "soon"}, "says in no number"),
        ({"expires_in": True}, "says in no number"),
        ({"expires_in": 10**400}, "says in no number"),
        ({"expires_in": -1}, "has run out already"),
        ({"access_token": jwt_of(exp="tomorrow")}, "the token's 'exp' is no time"),
        ({"access_token": jwt_of(exp=time.time() - 3_600)}, "ended \\d+ s ago: compare both clocks"),
        ({"access_token": jwt_of(nbf=time.time() + 3_600)}, "begins \\d+ s from now: compare both clocks"),
    ],
)
async def test_an_answer_that_is_no_token_for_the_server_and_for_now_is_refused(
    exchange: Exchange, answer: dict[str, Any], reason: str
) -> None:
    """Each kind of unfit answer has its own words, and no token is in them."""
    exchange.answer = answer
    with pytest.raises(UpstreamError, match=reason) as caught:
        await exchange.bearer().token()
    assert "token-of-ann" not in str(caught.value)
    assert jwt_of().split(".", maxsplit=1)[0] not in str(caught.value)


async def test_an_audience_among_several_and_an_opaque_token_are_taken(exchange: Exchange) -> None:
    """Only its server can read an opaque token; it was asked for with the audience."""
    for token in (jwt_of(aud=["https://other.example", AUDIENCE]), "opaque"):
        exchange.answer = {"access_token": token, "expires_in": None}
        bearer = exchange.bearer()
        assert await bearer.token() == token
        await bearer.close()


async def test_a_clock_that_is_off_by_an_hour_is_named(exchange: Exchange) -> None:
    """A token that lasts ten minutes ended long ago by a clock that is ahead."""
    exchange.ahead_s = 3_600
    with pytest.raises(UpstreamError, match="compare both clocks"):
        await exchange.bearer().token()


async def test_a_refusal_names_its_code_and_a_failure_is_tried_again(exchange: Exchange) -> None:
    """A refused person has to do something; a provider that fails or is down is at fault itself."""
    exchange.status, exchange.answer = 400, {"error": "invalid_target", "error_description": "token-of-ann"}
    with pytest.raises(UpstreamAuthError, match=r"it refused \(invalid_target\)"):
        await exchange.bearer().token()
    for status in (429, 503):
        exchange.status, exchange.answer = status, {"error": "temporarily_unavailable"}
        with pytest.raises(UpstreamError, match="temporarily_unavailable") as failed:
            await exchange.bearer().token()
        assert not isinstance(failed.value, UpstreamAuthError)
    bearer = exchange.bearer(token_url="http://127.0.0.1:9/token")
    with pytest.raises(UpstreamError, match="cannot be asked") as down:
        await bearer.token()
    assert not isinstance(down.value, UpstreamAuthError)


async def test_a_token_that_was_just_had_is_not_traded_again_when_it_is_refused(exchange: Exchange) -> None:
    """A server that refuses every token is not answered with ever new ones."""
    bearer = exchange.bearer()
    token = await bearer.token()
    assert not await bearer.renew_refused_token(token)
    exchange.ahead_s = 10
    assert await bearer.renew_refused_token(token)
    assert await bearer.token() != token
    await bearer.close()


def assertion_of(**claims: Any) -> dict[str, Any]:
    """An identity provider's answer with an assertion for the authorization server."""
    return {"access_token": jwt_of(**{"aud": ISSUER} | claims), "issued_token_type": ID_JAG, "token_type": "N_A"}


async def test_an_assertion_of_who_the_person_is_becomes_their_token(exchange: Exchange) -> None:
    """The provider is asked for one for the server's authorization server, which takes it; each knows us by its own."""
    exchange.answer = assertion_of()
    bearer = exchange.asserting(scope="read")
    token = await bearer.token()
    asked, redeemed = exchange.forms
    assert (asked["audience"], asked["resource"], asked["requested_token_type"]) == (ISSUER, AUDIENCE, ID_JAG)
    assert (asked["subject_token"], asked["scope"]) == ("token-of-ann", "read")
    assert redeemed == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": exchange.answer["access_token"],
        "scope": "read",
    }
    pairs = [base64.b64decode(each.removeprefix("Basic ")).decode() for each in exchange.authorizations]
    assert pairs == ["us:s3cret", "us%20there:0ther"]
    assert token != exchange.answer["access_token"]
    assert await bearer.token() == token
    await bearer.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (assertion_of(aud="https://other.example"), "for another authorization server"),
        (assertion_of(aud=[ISSUER, "https://other.example"]), "for another authorization server"),
        ({"access_token": "opaque", "issued_token_type": ID_JAG}, "for another authorization server"),
        (assertion_of() | {"issued_token_type": JWT}, "no assertion of who the person is"),
        ({"access_token": "token-of-ann", "issued_token_type": ID_JAG}, "gave back the token"),
        ({"access_token": ["x"], "issued_token_type": ID_JAG}, "holds no token"),
    ],
)
async def test_an_answer_that_is_no_assertion_for_the_issuer_goes_nowhere(
    exchange: Exchange, answer: dict[str, Any], reason: str
) -> None:
    """Nothing is sent to the authorization server."""
    exchange.answer = answer
    with pytest.raises(UpstreamError, match=reason) as caught:
        await exchange.asserting().token()
    assert "'oauth.exchange.token_url'" in str(caught.value)
    assert len(exchange.forms) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"access_token": jwt_of(aud="https://other.example")}, "for another audience"),
        ({"token_type": "N_A"}, "another kind of token"),
        ({"access_token": "token-of-ann"}, "gave back the token"),
        ({"access_token": assertion_of(exp=2e9)["access_token"]}, "or the assertion"),
        ({"expires_in": -1}, "has run out already"),
    ],
)
async def test_what_the_issuer_answers_is_judged_as_well(
    exchange: Exchange, answer: dict[str, Any], reason: str
) -> None:
    """The message names the endpoint that is at fault."""
    exchange.answer, exchange.issuer_answer = assertion_of(exp=2e9), answer
    with pytest.raises(UpstreamError, match=reason) as caught:
        await exchange.asserting().token()
    assert "'oauth.exchange.issuer_token_url'" in str(caught.value)


async def test_an_issuer_that_refuses_the_assertion_is_told_from_one_that_fails(exchange: Exchange) -> None:
    """The first is the person's to settle, the second is tried again."""
    exchange.answer, exchange.issuer_answer, exchange.issuer_status = assertion_of(), {"error": "invalid_grant"}, 400
    with pytest.raises(UpstreamAuthError, match=r"issuer_token_url' brought nothing: it refused \(invalid_grant\)"):
        await exchange.asserting().token()
    exchange.issuer_status = 500
    with pytest.raises(UpstreamError) as failed:
        await exchange.asserting().token()
    assert not isinstance(failed.value, UpstreamAuthError)


def test_tokens_of_people_are_kept_only_where_a_server_trades_them() -> None:
    """By person, until they end, and none after one was given back."""
    news: list[str] = []
    tokens = SubjectTokens()
    tokens.note("ann", "one", 100.0)
    assert tokens.find("ann", 50.0) is None
    tokens.is_wanted, tokens.on_new = lambda: True, news.append
    tokens.note("ann", "one", 100.0)
    tokens.note("ann", "one", 100.0)
    tokens.note("bob", "two", 100.0)
    assert (tokens.find("ann", 50.0), tokens.find("bob", 50.0), tokens.find("ann", 100.0)) == ("one", "two", None)
    assert news == ["ann", "bob"]
    assert "one" not in repr(tokens)
    tokens.forget()
    assert tokens.find("bob", 50.0) is None

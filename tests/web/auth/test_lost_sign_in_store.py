"""The sign-in of people while its store fails: nobody is told no, and what was begun goes on once it is back."""

import asyncio
import base64
import hashlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, SupportsFloat
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from asgi_server import listening
from key_value.aio.stores.memory import MemoryStore
from key_value.aio.wrappers.base import BaseWrapper
from openid_fakes import CLIENT_ID, CLIENT_SECRET, OpenIdProvider
from plain_http import plain_client
from pydantic import SecretStr

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.fastmcp_compat.auth.sign_in import SignInProxy
from smart_mcp_proxy.fastmcp_compat.auth.signing_keys import RotatingKeyVerifier
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth import sign_in_pages
from smart_mcp_proxy.web.auth.sign_in import BrowserSignIn

pytestmark = pytest.mark.anyio

BASE = "http://127.0.0.1:9"
BACK = "http://127.0.0.1:7/callback"
ELSEWHERE = {"origin": "https://agent.example"}
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
FIELDS = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)"')
JTI, UPSTREAM, CLIENTS = "mcp-jti-mappings", "mcp-upstream-tokens", "mcp-oauth-proxy-clients"
REGISTRATION = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none", "client_name": "c"}


class LosableStore(BaseWrapper):
    """A store that fails as the database does, at chosen operations.

    Attributes:
        fails: Whether it fails at an operation (`get`, `put`, `delete`), of a collection and a key.
    """

    def __init__(self) -> None:
        self.key_value = MemoryStore()
        self.fails: Callable[[str, str | None, str], bool] = lambda *_: False

    def fail_once(self, operation: str, collection: str) -> None:
        """Fails the next time at this, and no more."""
        left = [(operation, collection)]

        def fails(operation: str, collection: str | None, _key: str) -> bool:
            return bool(left and left[0] == (operation, collection) and left.pop())

        self.fails = fails

    def _try(self, operation: str, collection: str | None, key: str) -> None:
        if self.fails(operation, collection, key):
            raise CatalogError("The database does not answer.")

    async def get(self, key: str, *, collection: str | None = None) -> dict[str, Any] | None:
        self._try("get", collection, key)
        return await super().get(key, collection=collection)

    async def put(
        self, key: str, value: Mapping[str, Any], *, collection: str | None = None, ttl: SupportsFloat | None = None
    ) -> None:
        self._try("put", collection, key)
        await super().put(key, value, collection=collection, ttl=ttl)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        self._try("delete", collection, key)
        return await super().delete(key, collection=collection)


class Door:
    """The sign-in over a store that can be lost, and a person's browser at it.

    Attributes:
        client: The browser, and what programs ask with.
        proxy: What serves the sign-in.
    """

    def __init__(
        self, client: httpx2.AsyncClient, store: LosableStore, provider: OpenIdProvider, sign_in: BrowserSignIn
    ) -> None:
        self.client, self.store, self.provider, self.tokens = client, store, provider, sign_in.tokens
        assert isinstance(sign_in.tokens.verifier, SignInProxy)
        self.proxy = sign_in.tokens.verifier
        self.client_id = ""

    async def unlost(self, method: str, url: str, **given: Any) -> httpx2.Response:
        """The answer to a request: first while the store is lost, which is looked at, and then with it."""
        self.store.fails = lambda *_: True
        is_page = urlsplit(url).path not in ("/register", "/token", "/revoke")
        require_unavailable(await self.client.request(method, url, headers=ELSEWHERE, **given), is_page=is_page)
        self.store.fails = lambda *_: False
        return await self.client.request(method, url, headers=ELSEWHERE, **given)

    async def authorize(self) -> dict[str, str]:
        """Registers a client; the query with which it begins."""
        self.client_id = (await self.client.post("/register", json=REGISTRATION)).json()["client_id"]
        return {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": BACK,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "its-own",
        }

    async def callback(self) -> str:
        """Where the provider sends the browser back to."""
        begun = await self.client.get("/authorize", params=await self.authorize())
        page = await self.client.get(begun.headers["location"])
        form = dict(FIELDS.findall(page.text)) | {"action": "approve"}
        gone = await self.client.post(str(page.url), data=form)
        return str((await self.client.get(gone.headers["location"])).headers["location"])

    async def code(self) -> dict[str, str]:
        """The form with which a client asks for its tokens."""
        return self.form(await self.client.get(await self.callback()))

    def form(self, back: httpx2.Response) -> dict[str, str]:
        """The same, from the answer that sends the browser back to the client."""
        return {
            "grant_type": "authorization_code",
            "code": parse_qs(urlsplit(back.headers["location"]).query)["code"][0],
            "redirect_uri": BACK,
            "client_id": self.client_id,
            "code_verifier": VERIFIER,
        }

    async def tokens_of_somebody(self) -> dict[str, str]:
        """What a client gets."""
        reply = await self.client.post("/token", data=await self.code())
        assert reply.status_code == 200, reply.text
        tokens: dict[str, str] = reply.json()
        return tokens


def require_unavailable(reply: httpx2.Response, *, is_page: bool) -> None:
    """Passes if an answer says that it is for now, to whom it is for."""
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "5"), reply.text
    assert reply.headers["cache-control"] == "no-store"
    if is_page:
        assert reply.headers["content-type"].startswith("text/html") and "5 seconds" in reply.text
        assert "default-src 'none'" in reply.headers["content-security-policy"]
    else:
        assert reply.json()["error"] == "temporarily_unavailable" and "5 s" in reply.json()["error_description"]
        assert reply.headers["access-control-allow-origin"] == "*"


@asynccontextmanager
async def opened_door(monkeypatch: pytest.MonkeyPatch, provider: OpenIdProvider) -> AsyncIterator[Door]:
    """Everything, opened."""
    store = LosableStore()
    monkeypatch.setattr(sign_in_pages, "open_store", lambda *_: (store, bytes(32)))
    async with listening(provider.app) as provider.base:
        settings = Settings(
            oidc_url=provider.config_url,
            oidc_client_id=CLIENT_ID,
            oidc_client_secret=SecretStr(CLIENT_SECRET),
            oidc_users=("ann@example.com=write",),
            public_url=BASE,
        )
        sign_in = await sign_in_pages.open_oidc_login(settings)
        transport = httpx2.ASGITransport(app=sign_in.pages, raise_app_exceptions=False)
        async with plain_client(base_url=BASE, mounts={BASE: transport}) as client:
            yield Door(client, store, provider, sign_in)


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    async with opened_door(monkeypatch, OpenIdProvider()) as made:
        yield made


@pytest.mark.long  # a third of a second of processor time
async def test_a_sign_in_goes_on_where_it_was_once_the_store_is_back(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """Each request is answered 503 as its sender reads it, without a traceback in the log, and is good afterwards."""
    assert (await door.unlost("POST", "/register", json=REGISTRATION)).status_code == 201
    begun = await door.unlost("GET", "/authorize", params=await door.authorize())
    page = await door.unlost("GET", begun.headers["location"])
    form = dict(FIELDS.findall(page.text)) | {"action": "approve"}
    gone = await door.unlost("POST", begun.headers["location"], data=form)
    back = (await door.client.get(gone.headers["location"])).headers["location"]
    given = await door.unlost("GET", back)
    tokens = (await door.unlost("POST", "/token", data=door.form(given))).json()
    renewal = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": door.client_id}
    fresh = (await door.unlost("POST", "/token", data=renewal)).json()
    assert await door.proxy.load_access_token(fresh["access_token"]) is not None
    revoked = await door.unlost("POST", "/revoke", data={"token": fresh["access_token"], "client_id": door.client_id})
    assert revoked.status_code == 200
    assert await door.proxy.load_access_token(fresh["access_token"]) is None
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize(
    ("operation", "collection"), [("get", CLIENTS), ("put", "mcp-oauth-transactions")], ids=["client", "sign-in"]
)
async def test_a_sign_in_that_cannot_be_begun_is_not_refused_to_the_client(
    door: Door, operation: str, collection: str
) -> None:
    """One failure is enough: what the library makes of it, asking again, is not what happened."""
    query = await door.authorize()
    door.store.fail_once(operation, collection)
    require_unavailable(await door.client.get("/authorize", params=query), is_page=True)


async def test_a_code_that_cannot_be_kept_sends_nobody_back(door: Door) -> None:
    """The page says what to do, as the provider's code is spent."""
    back = await door.callback()
    door.store.fail_once("put", "mcp-authorization-codes")
    reply = await door.client.get(back)
    require_unavailable(reply, is_page=True)
    assert "begin the sign-in again" in reply.text


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("collection", [JTI, UPSTREAM])
async def test_one_failed_read_makes_no_good_token_bad(door: Door, collection: str) -> None:
    """Whatever is read after it; whoever was known stays so."""
    token = (await door.tokens_of_somebody())["access_token"]
    door.store.fail_once("get", collection)
    with pytest.raises(CatalogError):
        await door.proxy.load_access_token(token)
    who = await door.tokens.verify(token.encode())
    assert who is not None
    door.store.fail_once("get", collection)
    assert await door.tokens.verify(token.encode()) == who


@pytest.mark.long  # a third of a second of processor time
async def test_a_failed_read_says_nothing_of_another_request(door: Door) -> None:
    """Each of those that are under way at once has its own answer."""
    lost, good, over = [(await door.tokens_of_somebody())["access_token"] for _ in range(3)]
    await door.proxy._forget(door.proxy._claims(over))
    key = door.proxy._claims(lost)["jti"]
    door.store.fails = lambda _operation, _collection, asked: asked == key
    answers = await asyncio.gather(
        *(door.proxy.load_access_token(token) for token in (over, lost, good, lost, over)), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers] == [
        "NoneType",
        "CatalogError",
        "AccessToken",
        "CatalogError",
        "NoneType",
    ]


@pytest.mark.long  # a third of a second of processor time
async def test_a_grant_that_was_made_stands_whatever_is_noted_after_it(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """The code is spent by then. The log says so, without it; the client is kept for good with the next renewal."""
    form = await door.code()
    door.store.fails = lambda operation, collection, _: operation == "put" and collection in (CLIENTS, "redeemed-codes")
    with caplog.at_level(logging.WARNING):
        reply = await door.client.post("/token", data=form)
    assert reply.status_code == 200, reply.text
    tokens = reply.json()
    assert await door.proxy.load_access_token(tokens["access_token"]) is not None
    told = [record.getMessage() for record in caplog.records if "was granted" in record.getMessage()]
    assert len(told) == 2
    assert not [line for line in told if form["code"] in line or tokens["access_token"] in line]
    door.store.fails = lambda *_: False
    assert (await door.proxy._client_store.ttl(door.client_id))[1] is not None
    renewal = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": door.client_id}
    assert (await door.client.post("/token", data=renewal)).status_code == 200
    assert (await door.proxy._client_store.ttl(door.client_id))[1] is None


@pytest.mark.long  # a third of a second of processor time
async def test_somebody_who_cannot_be_told_is_not_turned_away(door: Door) -> None:
    """While the provider's keys cannot be fetched nothing is said against them, and their code stays good."""
    form = await door.code()
    door.provider.has_keys = False
    refused = await door.client.post("/token", data=form)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    words = refused.json()["error_description"]
    assert "keys cannot be fetched" in words and "not as somebody" not in words
    door.provider.has_keys = True
    verifier = door.proxy._token_validator
    assert isinstance(verifier, RotatingKeyVerifier)
    verifier._jwks_last_refresh_attempt = None  # it asks twice a minute at most
    assert (await door.client.post("/token", data=form)).status_code == 200


async def test_who_is_not_let_in_has_nothing_that_could_be_used_later(door: Door) -> None:
    """Neither the code nor what the provider gave for it is kept."""
    door.provider.user = {"sub": "eve"}
    form = await door.code()
    refused = (await door.client.post("/token", data=form)).json()
    assert "not as somebody who may use this gateway" in refused["error_description"]
    assert await door.proxy._code_store.get(key=form["code"]) is None
    door.provider.user = {"sub": "ann-1", "email": "ann@example.com", "email_verified": True}
    assert (await door.client.post("/token", data=form)).json()["error"] == "invalid_grant"


async def test_tokens_are_given_back_here_also_where_the_provider_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients learn where, and the sign-in is over."""
    async with opened_door(monkeypatch, OpenIdProvider(takes_back=False)) as door:
        metadata = (await door.client.get("/.well-known/oauth-authorization-server")).json()
        assert metadata["revocation_endpoint"] == f"{BASE}/revoke"
        token = (await door.tokens_of_somebody())["access_token"]
        reply = await door.client.post("/revoke", data={"token": token, "client_id": door.client_id})
        assert (reply.status_code, reply.content) == (200, b"")
        assert await door.proxy.load_access_token(token) is None
        assert not door.provider.revoked

"""People who sign in at an OpenID Connect provider: who gets in, how far, for how long, and what is refused."""

import asyncio
import base64
import hashlib
import re
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
import httpx2
import keyring
import pytest
from fastmcp.server.auth import AccessToken
from fastmcp.server.auth.oauth_proxy.models import UpstreamTokenSet
from keyring.backends.fail import Keyring as NoKeyring
from mcp.server.auth.provider import TokenError
from openid_fakes import CLIENT_ID, CLIENT_SECRET, OpenIdProvider, consent
from plain_http import plain_client
from pydantic import SecretStr
from sign_in_fakes import Person
from signing_keys import RSAKeyPair
from transports import listening, odd_servers, opened_gateway, over_http

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError
from smart_mcp_proxy.fastmcp_compat.auth.sign_in import UNUSED_CLIENT_S, SignInProxy
from smart_mcp_proxy.fastmcp_compat.auth.signing_keys import RotatingKeyVerifier
from smart_mcp_proxy.models import Reach
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.upstream.oauth.auth_store import SignIn
from smart_mcp_proxy.web.auth.sign_in import Users, is_sign_in_enabled
from smart_mcp_proxy.web.auth.sign_in_pages import (
    PAGE_LIMIT_BYTES,
    REGISTRATION_LIMIT_BYTES,
    REGISTRATIONS_AT_ONCE,
    SIGN_IN_PAGES_AT_ONCE,
    open_oidc_login,
)
from smart_mcp_proxy.web.auth.sign_in_store import FOLDER
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.serve_http import serve_http

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.requirement("people-sign-in")]

NAMES = [f"{server}:{tool}" for server in ("old", "new") for tool in ("look", "echo", "erase")]


class World:
    """A provider, a gateway that lets people sign in there, and an agent's program with its own memory.

    Attributes:
        base: The gateway's address.
        provider: The provider.
        data_dir: The gateway's.
        proxy: What serves the sign-in there.
    """

    def __init__(self, base: str, provider: OpenIdProvider, tmp_path: Path, proxy: SignInProxy) -> None:
        self.base, self.provider, self.data_dir, self.proxy = base, provider, tmp_path / "data", proxy
        self.config = ServerConfig("gateway", "http", url=f"{base}/mcp", oauth={})
        self._sign_ins = SignIns(tmp_path / "agent")

    async def sign_in(self, person: Person | None = None) -> SignIn:
        """Signs in as MCP clients do."""
        async with (person or Person(consent)).browser() as browser:
            return await self._sign_ins.authorize_server(self.config, browser)

    async def sign_out(self) -> None:
        done = await self._sign_ins.sign_out(self.config)
        assert done.is_revoked, done

    async def renewed(self, held: SignIn) -> SignIn:
        return await self._sign_ins._flow(self.config).renew(held)

    async def given(self, held: SignIn) -> UpstreamTokenSet:
        """What the provider gave for a sign-in, as the gateway keeps it."""
        mapping = await self.proxy._jti_mapping_store.get(key=self.proxy._claims(held.access_token)["jti"])
        assert mapping is not None
        given = await self.proxy._upstream_token_store.get(key=mapping.upstream_token_id)
        assert given is not None
        return given

    async def status(self, token: str) -> int:
        """What a request with this token is answered with."""
        async with plain_client() as client:
            reply = await client.post(f"{self.base}/mcp", json={}, headers={"authorization": f"Bearer {token}"})
            return 401 if reply.status_code == 401 else 200


@asynccontextmanager
async def world(
    tmp_path: Path, *users: str, others: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[World]:
    """Everything, opened; `others` are more servers."""
    keyring.set_keyring(NoKeyring())
    provider = OpenIdProvider()
    ledger = tmp_path / "ledger"
    ledger.touch()
    listener = bind("127.0.0.1", 0)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with listening(provider.app, is_upstream=False) as provider.base:
        given = {
            "oidc_url": provider.config_url,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": SecretStr(CLIENT_SECRET),
            "oidc_users": users or ("ann@example.com=write",),
            "public_url": base,
        }
        async with opened_gateway(
            tmp_path / "data", {**odd_servers(ledger), **(others or {})}, **(given | settings)
        ) as gateway:
            sign_in = await open_oidc_login(gateway.settings)
            proxy = sign_in.tokens.verifier
            assert isinstance(proxy, SignInProxy)
            async with serve_http(gateway, listener, token=None, sign_in=sign_in):
                assert await gateway.wait_settled(20)
                yield World(base, provider, tmp_path, proxy)


@pytest.fixture(scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """One gateway for the tests after which it lets in whom it let in before."""
    async with world(tmp_path_factory.mktemp("door")) as here:
        yield here


@pytest.fixture(scope="module")
async def open_door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The same that lets in everybody whose token is good."""
    async with world(tmp_path_factory.mktemp("open_door"), "*=destructive") as here:
        yield here


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_a_person_signs_in_and_reaches_what_is_allowed_to_them(tmp_path: Path, era: Any) -> None:
    """Discovery, registration, consent, the provider's page, PKCE on both ways; then calls as that person."""
    async with world(tmp_path) as here:
        async with plain_client() as client:
            challenge = (await client.post(f"{here.base}/mcp", json={})).headers["www-authenticate"]
        metadata = f'resource_metadata="{here.base}/.well-known/oauth-protected-resource/mcp"'
        assert challenge == f'Bearer {metadata}, scope="openid email"'
        held = await here.sign_in()
        (asked,) = here.provider.asked
        assert (asked["redirect_uri"], asked["scope"]) == (f"{here.base}/auth/callback", "openid email")
        assert held.access_token not in here.provider.given
        assert held.refresh_token not in here.provider.given
        async with over_http(here.base, era, {"authorization": f"Bearer {held.access_token}"}) as agent:
            reached = set()
            for name in NAMES:
                result = await agent.call("call_tool_destructive", name=name, args={"entry": 1})
                if not result.get("isError"):
                    reached.add(name)
        assert reached == {"old:look", "old:echo", "new:look", "new:echo"}
    with closing(sqlite3.connect(tmp_path / "data" / "proxy.db")) as database:
        signed_in = database.execute("SELECT principal, subject, detail FROM activity WHERE kind = 'access'").fetchall()
    assert signed_in == [(f"{here.provider.base}#ann-1", "gateway", '{"change":"signed in"}')]


async def test_a_sign_in_is_renewed_and_ends_with_its_revocation(tmp_path: Path) -> None:
    """The provider's refresh token works once; given back, every token of the sign-in is dead at once, there too."""
    async with world(tmp_path) as here:
        held = await here.sign_in()
        fresh = await here.renewed(held)
        assert len(here.provider.refreshes) == 1
        assert [await here.status(token) for token in (held.access_token, fresh.access_token)] == [200, 200]
        with pytest.raises(UpstreamAuthError):
            await here.renewed(held)
        again = await here.sign_in()
        assert await here.status(again.access_token) == 200
        await here.sign_out()
        assert here.provider.revoked[-1].startswith("rt-")
        assert await here.status(again.access_token) == 401
        with pytest.raises(UpstreamAuthError):
            await here.renewed(again)


@pytest.mark.parametrize("secret", [{}, {"client_secret": ""}], ids=["no-secret", "empty-secret"])
@pytest.mark.parametrize("kind", ["access_token", "refresh_token"])
async def test_a_token_that_is_given_back_ends_its_sign_in_here_and_at_the_provider(
    door: World, kind: str, secret: dict[str, str]
) -> None:
    """Whichever of the two it is, with a field for a secret or without; another client's word ends nothing."""
    here = door
    here.provider.revoked.clear()
    async with plain_client(base_url=here.base) as client:
        held = await here.sign_in()
        form = {"token": str(getattr(held, kind)), "token_type_hint": kind} | secret
        assert (await client.post("/revoke", data=form)).status_code == 400
        for wrong in ({"client_id": "another"}, {"client_id": held.client["client_id"], "token": "a.b.c"}):
            assert (await client.post("/revoke", data=form | wrong)).status_code == 200
            assert await here.status(held.access_token) == 200
        assert not here.provider.revoked
        reply = await client.post("/revoke", data=form | {"client_id": held.client["client_id"]})
        assert (reply.status_code, reply.content) == (200, b"")
        assert await here.status(held.access_token) == 401
        with pytest.raises(UpstreamAuthError):
            await here.renewed(held)
        (revoked,) = here.provider.revoked
        assert revoked.startswith("rt-")


@pytest.mark.parametrize("is_asked_for", [True, False], ids=["by the client", "by itself"])
async def test_a_sign_in_that_is_given_back_while_it_is_renewed_stays_dead(tmp_path: Path, is_asked_for: bool) -> None:
    """Neither its old tokens nor the new ones open anything, and the provider is given back what it gave last."""
    async with world(tmp_path) as here, plain_client(base_url=here.base) as client:
        held = await here.sign_in()

        async def give_back() -> None:
            form = {"token": held.refresh_token, "client_id": held.client["client_id"]}
            assert (await client.post("/revoke", data=form)).status_code == 200

        here.provider.before_refresh = give_back
        if is_asked_for:
            with pytest.raises(UpstreamAuthError):
                await here.renewed(held)
        else:
            with pytest.raises(TokenError):
                await here.proxy._try_transparent_refresh(await here.given(held))
        here.provider.before_refresh = None
        assert await here.status(held.access_token) == 401
        with pytest.raises(UpstreamAuthError):
            await here.renewed(held)
        assert len(here.provider.refreshes) == 1
        assert here.provider.revoked[-1] == next(word for word in reversed(here.provider.given) if word[:3] == "rt-")


async def test_a_client_that_nobody_signs_in_with_is_not_kept_for_good(tmp_path: Path) -> None:
    """For a day, for whoever is slow; one that somebody has signed in with stays."""
    registration = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none", "client_name": "c"}
    async with world(tmp_path) as here, plain_client(base_url=here.base) as client:
        here.provider.user = {"sub": "eve"}
        with pytest.raises(UpstreamAuthError):
            await here.sign_in()
        unused = (await client.post("/register", json=registration)).json()["client_id"]
        here.provider.user = {"sub": "ann-1", "email": "ann@example.com", "email_verified": True}
        used = (await here.sign_in()).client["client_id"]
        (_, until_s), (_, used_until_s) = [await here.proxy._client_store.ttl(key) for key in (unused, used)]
        assert until_s is not None and UNUSED_CLIENT_S - 600 < until_s <= UNUSED_CLIENT_S
        assert used_until_s is None


STRANGERS: list[dict[str, Any]] = [
    {"sub": "eve", "email": "eve@evil.example", "email_verified": True},
    {"sub": "eve", "email": "ann@example.com", "email_verified": False},
    {"sub": "eve", "email": "ann@example.com"},
    {"sub": "eve", "email": "ann@example.com", "email_verified": "yes"},
    {"sub": "eve", "email": "eve@notexample.com", "email_verified": True},
    {"sub": "ann@example.com"},
    {"sub": "ann@example.com", "email": 7, "email_verified": True},
    {"sub": "@example.com", "email": "ann@example.com", "email_verified": False},
    {"sub": "eve"},
]


@pytest.mark.parametrize("user", STRANGERS, ids=str)
async def test_who_may_not_use_the_gateway_gets_no_token_and_is_told_who_can_help(
    door: World, monkeypatch: pytest.MonkeyPatch, user: dict[str, Any]
) -> None:
    """The provider has signed them in; that is not enough."""
    monkeypatch.setattr(door.provider, "user", user)
    with pytest.raises(UpstreamAuthError, match="MCPPROXY_OIDC_USERS") as caught:
        await door.sign_in()
    assert "@" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-client"},
        {"exp": 1},
        {"sub": None},
        {"mcp_servers": 7},
        "another key",
    ],
    ids=str,
)
async def test_a_provider_token_that_is_not_for_this_gateway_opens_nothing(
    open_door: World, monkeypatch: pytest.MonkeyPatch, wrong: Any
) -> None:
    """Wrong issuer, audience, end, subject, servers or signature: whoever put it there."""
    with monkeypatch.context() as patch, pytest.raises(UpstreamAuthError):
        if isinstance(wrong, dict):
            patch.setattr(open_door.provider, "changes", wrong)
        else:
            patch.setattr(open_door.provider, "signing_key", RSAKeyPair.generate())
        await open_door.sign_in()
    assert await open_door.status((await open_door.sign_in()).access_token) == 200


async def test_a_token_is_for_this_gateway_whether_or_not_the_client_names_it(open_door: World) -> None:
    """Without `resource` it is bound to the gateway all the same; a client that wants another resource gets none."""
    async with plain_client(base_url=open_door.base) as client:
        assert "error=" not in await authorized(client, "")
        token = (await exchanged(client, await authorized(client, ""))).json()["access_token"]
        assert await open_door.status(token) == 200
        assert "error=invalid_target" in await authorized(client, "https://other.example/mcp")


async def test_a_relay_that_replays_what_it_saw_gets_nothing(door: World) -> None:
    """The provider's answer, the code and another browser's consent work once, and where they were asked for."""
    async with plain_client(base_url=door.base) as client:
        seen: list[str] = []
        location = await authorized(client, "", seen)
        (callback,) = [url for url in seen if "/auth/callback" in url]
        async with plain_client() as relay:
            assert (await relay.get(callback)).status_code == 400
        assert (await client.get(callback)).status_code == 400
        refused = await exchanged(client, location, verifier="x" * 43)
        assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
        other = await client.post("/token", data={"grant_type": "refresh_token", "client_id": "nobody"})
        assert (other.status_code, other.json()["error"]) == (401, "invalid_client")


async def test_a_code_that_is_used_twice_ends_its_sign_in(door: World) -> None:
    """Nobody can tell which of the two has stolen it; another client that has seen the code ends nothing."""
    here = door
    async with plain_client(base_url=here.base) as client:
        location = await authorized(client, "")
        first = await exchanged(client, location)
        token = first.json()["access_token"]
        async with plain_client(base_url=here.base) as eve:
            await authorized(eve, "")
            assert (await exchanged(eve, location)).json()["error"] == "invalid_grant"
        assert await here.status(token) == 200
        second = await exchanged(client, location)
        assert (second.status_code, second.json()["error"]) == (400, "invalid_grant")
        assert await here.status(token) == 401
        assert here.provider.revoked[-1].startswith("rt-")


async def test_a_code_that_comes_twice_at_once_brings_no_token_that_is_good(tmp_path: Path) -> None:
    """However the two requests interleave."""
    async with world(tmp_path) as here, plain_client(base_url=here.base) as client:
        for _ in range(5):
            location = await authorized(client, "")
            replies = await asyncio.gather(exchanged(client, location), exchanged(client, location))
            assert 400 in [reply.status_code for reply in replies]
            for reply in replies:
                assert reply.status_code == 400 or await here.status(reply.json()["access_token"]) == 401


async def test_a_client_whose_address_has_a_fragment_is_not_registered(open_door: World) -> None:
    """A browser would not send what stands behind it, and puts the code before it."""
    async with plain_client(base_url=open_door.base) as client:
        for fragment, status in (("#x", 400), ("#", 400), ("%23", 201)):
            registration = {"redirect_uris": [BACK + fragment], "token_endpoint_auth_method": "none"}
            reply = await client.post("/register", json=registration)
            assert reply.status_code == status, reply.text
            assert reply.json().get("error") == ("invalid_redirect_uri" if status == 400 else None)


@pytest.mark.parametrize(
    ("address", "is_plain"),
    [
        ("http://user@127.0.0.1:9/back", False),
        ("http://:word@127.0.0.1:9/back", False),
        ("http://127.0.0.1:9/back\r\nX: y", False),
        ("http://127.0.0.1:9/back%0d%0aX", False),
        ("http://127.0.0.1:9/b\tack", False),
        ("http://127.0.0.1:9/back?mail=a@b", True),
        ("com.example.app:/back", True),
    ],
)
async def test_an_address_that_is_not_what_it_seems_is_not_registered(
    address: str, is_plain: bool, open_door: World
) -> None:
    """User info hides the host, and parsers drop control characters or end a header at them."""
    async with plain_client(base_url=open_door.base) as client:
        registration = {"redirect_uris": [address], "token_endpoint_auth_method": "none"}
        reply = await client.post("/register", json=registration)
        assert reply.status_code == (201 if is_plain else 400), reply.text
        if not is_plain:
            assert (
                reply.json()["error"] == "invalid_redirect_uri" and "redirect_uris" in reply.json()["error_description"]
            )


async def test_pages_of_the_sign_in_run_no_script_and_stand_in_no_frame(open_door: World) -> None:
    """The page that consents, and those that say what went wrong."""
    async with plain_client(base_url=open_door.base) as client:
        seen: list[str] = []
        await authorized(client, "", seen)
        (consenting,) = [url for url in seen if "/consent" in url]
        for url in (consenting, "/auth/callback?code=x&state=y"):
            page = await client.get(url)
            assert page.headers["content-type"].startswith("text/html")
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


async def test_a_key_that_the_provider_replaces_is_noticed(tmp_path: Path) -> None:
    """Also where it keeps its id."""
    async with world(tmp_path) as here:
        await here.sign_in()
        here.provider.key = here.provider.signing_key = RSAKeyPair.generate()
        verifier = here.proxy._token_validator
        assert isinstance(verifier, RotatingKeyVerifier) and verifier._jwks_last_refresh_attempt is not None
        verifier._jwks_last_refresh_attempt -= verifier._jwks_refresh_interval
        assert await here.status((await here.sign_in()).access_token) == 200


async def test_consent_belongs_to_the_browser_that_gave_it(door: World) -> None:
    """A link to a sign-in that somebody else has begun brings nobody's token to them."""
    async with plain_client(base_url=door.base) as client:
        seen: list[str] = []
        async with plain_client(base_url=door.base) as eve:
            await authorized(eve, "", seen, stops_at="/auth/callback")
        reply = await client.get(seen[-1])
        assert reply.status_code in (400, 403)
        assert "code=" not in reply.headers.get("location", "")


async def test_what_is_kept_of_sign_ins_is_encrypted_and_for_the_owner(tmp_path: Path) -> None:
    """Neither a token nor the client's secret is found in any file; a restart goes on with what there is."""
    async with world(tmp_path) as here:
        held = await here.sign_in()
        secrets = [CLIENT_SECRET, held.access_token, held.refresh_token, *here.provider.given]
        files = [path for path in here.data_dir.rglob("*") if path.is_file()]
        assert len([path for path in files if FOLDER in path.parts]) > 3
        for path in files:
            data = path.read_bytes()
            assert not any(secret.encode() in data for secret in secrets), path
        assert (here.data_dir / FOLDER).stat().st_mode & 0o077 == 0


async def test_who_registers_without_end_is_told_to_wait(tmp_path: Path) -> None:
    """Anybody who reaches the gateway may register a client, and each is kept; other pages go on."""
    registration = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none", "client_name": "c"}
    async with world(tmp_path) as here, plain_client(base_url=here.base) as client:
        replies = [await client.post("/register", json=registration) for _ in range(REGISTRATIONS_AT_ONCE + 1)]
        assert [reply.status_code for reply in replies] == [201] * REGISTRATIONS_AT_ONCE + [429]
        assert re.search(r"Too many clients .* Try again in \d+ s", replies[-1].json()["error_description"])
        assert (await client.get("/authorize")).status_code == 400


async def test_who_begins_to_sign_in_without_end_is_told_to_wait(tmp_path: Path) -> None:
    """Each beginning is kept for a while: of what a stranger sends no more than a known number of files comes."""
    registration = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none", "client_name": "c"}
    async with world(tmp_path) as here, plain_client(base_url=here.base) as client:
        client_id = (await client.post("/register", json=registration)).json()["client_id"]
        query = {"response_type": "code", "client_id": client_id, "redirect_uri": BACK, "code_challenge": "c" * 43}
        address = "/authorize?" + urlencode(query | {"code_challenge_method": "S256"})
        page = (await client.get(address)).headers["location"]
        statuses = set()
        for _ in range(SIGN_IN_PAGES_AT_ONCE // 2):
            statuses |= {(await client.get(one)).status_code for one in (address, page)}
        assert {200, 302} <= statuses <= {200, 302, 429}
        with anyio.fail_after(60):  # it is let through now and then
            while (reply := await client.get(address)).status_code != 429:
                pass
        assert re.search(r"Too many people .* Try again in \d+ s", reply.json()["error_description"])
        assert int(reply.headers["retry-after"]) >= 1


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "chunked"])
async def test_no_page_of_the_sign_in_takes_a_long_body(tmp_path: Path, is_declared: bool) -> None:
    """Nothing of it is kept, whether its length is told before or not; what fits is taken."""

    async def chunked(body: bytes) -> AsyncIterator[bytes]:
        yield body

    start, end = b'{"redirect_uris":["' + BACK.encode() + b'"],"client_name":"', b'"}'
    fitting = start + b"c" * (REGISTRATION_LIMIT_BYTES - len(start) - len(end)) + end
    headers = {"content-type": "application/json"}
    async with world(tmp_path) as here, plain_client(base_url=here.base) as client:
        kept = here.data_dir / FOLDER
        before = sorted(kept.rglob("*"))
        for path in ("/register", "/token", "/revoke", "/consent", "/authorize"):
            limit_bytes = len(fitting) if path == "/register" else PAGE_LIMIT_BYTES
            body = fitting.ljust(limit_bytes + 1)
            reply = await client.post(path, content=body if is_declared else chunked(body), headers=headers)
            assert reply.status_code == 413, path
            assert reply.json() == {
                "error": "invalid_request",
                "error_description": f"The body is longer than {limit_bytes:,} bytes. Send less.",
            }
        assert sorted(kept.rglob("*")) == before
        reply = await client.post("/register", content=fitting if is_declared else chunked(fitting), headers=headers)
        assert reply.status_code == 201


async def test_the_pages_of_the_sign_in_answer_to_the_gateways_names_only(open_door: World) -> None:
    """A page that has its own name lead here learns nothing."""
    async with plain_client(base_url=open_door.base) as client:
        for path in ("/authorize", "/consent", "/token", "/register", "/.well-known/oauth-authorization-server"):
            reply = await client.get(path, headers={"host": "evil.example"})
            assert reply.status_code == 421, path


@pytest.mark.parametrize(
    ("entries", "claims", "reach"),
    [
        (["ann@example.com=write", "@example.com", "*"], {"sub": "1", "email": "ANN@example.com"}, "write"),
        (["@example.com=destructive", "ann@example.com"], {"sub": "1", "email": "ann@example.com"}, "read"),
        (["@example.com=destructive", "*"], {"sub": "1", "email": "bob@example.com"}, "destructive"),
        (["@example.com", "*=write"], {"sub": "1", "email": "bob@sub.example.com"}, "write"),
        (["Sub-1=write", "@example.com"], {"sub": "Sub-1", "email": "bob@example.com"}, "write"),
        (["sub-1"], {"sub": "Sub-1"}, None),
        (["@example.com"], {"sub": "1", "email": "bob@example.com@evil.example"}, None),
        (["*", "boss@example.com=destructive"], {"sub": "boss@example.com"}, "read"),
    ],
    ids=str,
)
def test_the_entry_that_names_somebody_most_exactly_counts(
    entries: list[str], claims: dict[str, Any], reach: str | None
) -> None:
    """Subject, then address, then domain, then anybody; an address that nobody verified is none."""
    given = {"email_verified": True} | claims if "email" in claims else claims
    token = AccessToken(token="t", client_id="c", scopes=[], claims=given)
    found = Users(entries, "mcp_servers").resolve_reach(token)
    assert (None if found is None else found.access) == reach


@pytest.mark.parametrize("user", STRANGERS, ids=str)
def test_nobody_is_taken_for_who_has_an_address_that_is_not_verified_to_be_theirs(user: dict[str, Any]) -> None:
    """Neither for one person nor for one of a domain; a subject that looks like an address is none."""
    token = AccessToken(token="t", client_id="c", scopes=[], claims=user)
    assert Users(["@example.com=write", "ann@example.com=destructive"], "mcp_servers").resolve_reach(token) is None


def test_a_claim_narrows_the_servers_somebody_reaches() -> None:
    """As it does for tokens that the provider has signed for programs."""
    claims = {"sub": "1", "mcp_servers": ["docs"]}
    token = AccessToken(token="t", client_id="c", scopes=[], claims=claims)
    assert Users(["*"], "mcp_servers").resolve_reach(token) == Reach(frozenset({"docs"}), "read")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"oidc_url": "https://id.example/x"},
            "MCPPROXY_OIDC_CLIENT_ID and MCPPROXY_OIDC_USERS and MCPPROXY_PUBLIC_URL are not",
        ),
        (
            {"oidc_url": "https://id.example/x", "oidc_client_id": "a", "oidc_users": ("*",)},
            "MCPPROXY_PUBLIC_URL is not",
        ),
        ({"oidc_client_id": "a"}, "MCPPROXY_OIDC_URL is not set"),
    ],
)
def test_half_a_configuration_is_refused(settings: dict[str, Any], words: str) -> None:
    """An endpoint that lets nobody sign in, or everybody, is nothing that anyone meant."""
    with pytest.raises(ConfigError, match=words):
        is_sign_in_enabled(Settings(**settings))


@pytest.mark.parametrize("public_url", ["http://127.0.0.1:1", "http://gateway.example"])
async def test_a_provider_or_an_address_that_cannot_be_used_stops_the_start(tmp_path: Path, public_url: str) -> None:
    """The message names the settings."""
    async with listening(OpenIdProvider().app, is_upstream=False) as base:
        address = f"{base}/nothing-here" if "127" in public_url else f"{base}/.well-known/openid-configuration"
        settings = Settings(
            data_dir=tmp_path, oidc_url=address, oidc_client_id="a", oidc_users=("*",), public_url=public_url
        )
        with pytest.raises(ConfigError, match="MCPPROXY_OIDC_URL or MCPPROXY_PUBLIC_URL cannot be used"):
            await open_oidc_login(settings)


async def test_a_data_directory_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """A file where a folder should be is told as everything else is that is wrong with it."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "state").touch()
    address = "http://127.0.0.1:1"
    settings = Settings(data_dir=tmp_path, oidc_url=address, oidc_client_id="a", oidc_users=("*",), public_url=address)
    with pytest.raises(ConfigError, match=f"Sign-ins cannot be kept under .*{FOLDER}"):
        await open_oidc_login(settings)


VERIFIER = "v" * 43
FIELDS = re.compile(r'<input type="hidden" name="([^"]*)" value="([^"]*)"')
BACK = "http://127.0.0.1:9/callback"


async def authorized(
    client: httpx2.AsyncClient, resource: str, seen: list[str] | None = None, stops_at: str = BACK
) -> str:
    """Where a browser that says yes everywhere is sent in the end; every address on the way is put into `seen`."""
    registration = {"redirect_uris": [BACK], "token_endpoint_auth_method": "none", "client_name": "c"}
    client.headers["x-client-id"] = (await client.post("/register", json=registration)).json()["client_id"]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
    query = {
        "response_type": "code",
        "client_id": client.headers["x-client-id"],
        "redirect_uri": BACK,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "state": "its-own",
    } | ({"resource": resource} if resource else {})
    reply = await client.get("/authorize?" + urlencode(query))
    while True:
        if reply.has_redirect_location:
            location = str(reply.next_request.url) if reply.next_request else ""
            if seen is not None:
                seen.append(location)
            if stops_at in location:
                return location
            reply = await client.get(location)
        else:
            fields = dict(FIELDS.findall(reply.text))
            reply = await client.post(str(reply.url), data=fields | {"action": "approve"})


async def exchanged(client: httpx2.AsyncClient, location: str, verifier: str = VERIFIER) -> httpx2.Response:
    """What the code at `location` is worth."""
    form = {
        "grant_type": "authorization_code",
        "code": parse_qs(urlsplit(location).query)["code"][0],
        "redirect_uri": BACK,
        "client_id": client.headers["x-client-id"],
        "code_verifier": verifier,
    }
    return await client.post("/token", data=form)

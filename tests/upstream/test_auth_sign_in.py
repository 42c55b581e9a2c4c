"""Signing in: what is asked of whom, and what is refused, against FastMCP's authorization server on loopback."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import anyio
import httpx2
import keyring
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from sign_in_fakes import METADATA, RESOURCE, SCOPES, Guarded, Nobody, Person, follow, guarded, redirect_of

from smart_mcp_proxy.errors import ConfigError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.upstream import Connector, SignIns
from smart_mcp_proxy.upstream.http_failures import HttpFailure, TlsContext, build_failure_error
from smart_mcp_proxy.upstream.oauth.auth_http import AuthHttp

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_keyring() -> None:
    """The desktop's keyring is none of the tests' business."""
    keyring.set_keyring(NoKeyring())


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded() as made:
        yield made


@pytest.fixture
def sign_ins(tmp_path: Path) -> SignIns:
    return SignIns(tmp_path)


async def sign_in(sign_ins: SignIns, server: Guarded, person: Person | None = None, **oauth: Any) -> Any:
    """Signs in as a person does."""
    async with (person or Person()).browser() as browser:
        return await sign_ins.authorize_server(server.config(oauth), browser)


async def call(sign_ins: SignIns, server: Guarded, **changes: Any) -> bytes:
    """The result of one call with the stored sign-in."""
    async with Connector(sign_ins=sign_ins) as dial:
        session = await dial(server.config(**changes), environ={}, era=None, on_event=lambda _: None)
        try:
            return (await session.request("tools/call", {"name": "whoami", "arguments": {}}, timeout_s=10)).text
        finally:
            await session.close()


async def test_a_person_signs_in_and_the_gateway_calls_with_the_token(sign_ins: SignIns, server: Guarded) -> None:
    """Discovery, registration, PKCE with S256, the resource in every request, and at the end a tool that answers."""
    person = Person()
    got = await sign_in(sign_ins, server, person)
    assert (got.issuer.rstrip("/"), got.scope, bool(got.refresh_token)) == (server.base, SCOPES[0], True)
    asked = person.query
    assert (asked["code_challenge_method"], asked["response_type"], asked["resource"]) == ("S256", "code", server.url)
    (exchange,) = server.asked("/token", grant_type="authorization_code")
    challenge = base64.urlsafe_b64encode(hashlib.sha256(exchange.form["code_verifier"].encode()).digest())
    assert challenge.decode().rstrip("=") == asked["code_challenge"]
    assert exchange.form["resource"] == server.url
    assert len(server.asked("/register")) == 1
    assert b"somebody" in await call(sign_ins, server)


async def test_nothing_is_sent_before_somebody_has_signed_in(sign_ins: SignIns, server: Guarded) -> None:
    """A connection without a sign-in fails at once with the command that helps; the server hears nothing."""
    with pytest.raises(UpstreamAuthError, match="Nobody is signed in at server 'web'") as caught:
        await call(sign_ins, server)
    assert caught.value.hint == "Sign in with: mcpproxy server login web"
    assert server.wire == []


async def test_the_older_transport_carries_the_sign_in_too(sign_ins: SignIns) -> None:
    """An SSE server is signed in to and called in the same way."""
    async with guarded("sse") as server:
        await sign_in(sign_ins, server, None)
        assert b"somebody" in await call(sign_ins, server, transport="sse")


async def test_configured_scopes_and_client_are_used_instead_of_asking_for_others(
    sign_ins: SignIns, server: Guarded
) -> None:
    """A registered client is not registered again, and asks for exactly the configured scopes."""
    scopes = ["tools:write", "tools:read"]
    first = await sign_in(sign_ins, server, scopes=scopes)
    person = Person()
    registered = dict(first.client)
    async with person.browser(port=urlsplit(registered["redirect_uris"][0]).port) as browser:
        oauth = {"client_id": registered["client_id"], "scopes": scopes}
        got = await sign_ins.authorize_server(server.config(oauth), browser)
    assert len(server.asked("/register")) == 1
    assert (person.query["client_id"], person.query["scope"]) == (registered["client_id"], "tools:write tools:read")
    assert set(got.scope.split()) == set(SCOPES)


async def test_a_configured_resource_is_named_and_has_to_be_the_servers(sign_ins: SignIns, server: Guarded) -> None:
    """`resource` goes into every request; a server that says it is another one is refused."""
    server.resource_says(resource="https://api.example/mcp")
    person = Person()
    await sign_in(sign_ins, server, person, resource="https://api.example/mcp")
    (exchange,) = server.asked("/token", grant_type="authorization_code")
    assert person.query["resource"] == exchange.form["resource"] == "https://api.example/mcp"
    with pytest.raises(UpstreamAuthError, match="does not match the configured one"):
        await sign_ins.authorize_server(server.config({"resource": "https://other.example/"}), Nobody())


async def test_a_client_metadata_document_takes_the_place_of_registration(sign_ins: SignIns, server: Guarded) -> None:
    """Where the authorization server accepts one, its address is the client id."""
    server.metadata_says(client_id_metadata_document_supported=True)
    shown: list[str] = []

    async def deny(url: str) -> None:
        shown.append(url)
        query = dict(parse_qsl(urlsplit(url).query))
        await follow(f"{query['redirect_uri']}?{urlencode({'error': 'access_denied', 'state': query['state']})}")

    with pytest.raises(UpstreamAuthError, match="access_denied"):
        await sign_in(sign_ins, server, Person(deny), client_metadata_url="https://me.example/client.json")
    assert "client_id=https%3A%2F%2Fme.example%2Fclient.json" in shown[0]
    assert server.asked("/register") == []


async def test_a_program_signs_in_without_a_person(sign_ins: SignIns, server: Guarded) -> None:
    """client_credentials: no page, no registration, the secret in the Authorization header; done at the first call."""
    server.give_to_programs("robot", "robot-secret")
    oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "robot-secret"}
    assert b"somebody" in await call(sign_ins, server, oauth=oauth | {"issuer": server.base})
    (asked,) = server.asked("/token")
    assert asked.form["resource"] == server.url
    assert "robot-secret" not in asked.body.decode()
    assert b"somebody" in await call(sign_ins, server, oauth=oauth)
    assert len(server.asked("/token")) == 1  # the stored token serves until it ends
    wrong = oauth | {"client_secret": "another"}
    with pytest.raises(UpstreamAuthError, match=r"does not accept the configured client_id 'robot' \(invalid_client\)"):
        await sign_ins.authorize_server(server.config(wrong), None)


async def test_a_secret_goes_to_the_configured_issuer_only(sign_ins: SignIns, server: Guarded) -> None:
    """A server that leads to another authorization server than the configured one gets nothing sent."""
    server.give_to_programs("robot", "robot-secret")
    oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "robot-secret"}
    with pytest.raises(UpstreamAuthError, match="issuer"):
        await sign_ins.authorize_server(server.config(oauth | {"issuer": "https://auth.example"}), None)
    with pytest.raises(UpstreamAuthError, match="not to the configured issuer"):
        await sign_ins.authorize_server(server.config({"issuer": "https://auth.example"}), Nobody())
    assert server.asked("/token") == server.asked("/register") == []


@pytest.mark.parametrize("forged", [{"state": "x" * 43}, {"state": ""}, {}], ids=["wrong", "empty", "absent"])
async def test_an_answer_with_another_state_changes_nothing(
    sign_ins: SignIns, server: Guarded, forged: dict[str, str]
) -> None:
    """A forged answer and a repeated one are turned away; the person's own counts."""
    statuses: list[int] = []

    async def attacked(url: str) -> None:
        back = await redirect_of(url)
        place = back.partition("?")[0]
        statuses.append((await follow(f"{place}?{urlencode({'code': 'stolen'} | forged)}")).status_code)
        statuses.append((await follow(place.replace("/callback", "/other"))).status_code)
        replies = await asyncio.gather(follow(back), follow(back))
        statuses.extend(sorted(reply.status_code for reply in replies))

    person = Person(attacked)
    assert (await sign_in(sign_ins, server, person)).access_token
    assert statuses == [400, 404, 200, 400]
    (exchange,) = server.asked("/token", grant_type="authorization_code")
    assert exchange.form["code"] != "stolen"


async def test_an_answer_of_another_issuer_is_refused(sign_ins: SignIns, server: Guarded) -> None:
    """RFC 9207: the code of one authorization server is never shown to another."""

    async def mixed_up(url: str) -> None:
        await follow(await redirect_of(url) + "&iss=https%3A%2F%2Fevil.example")

    with pytest.raises(UpstreamAuthError, match="iss mismatch"):
        await sign_in(sign_ins, server, Person(mixed_up))
    assert server.asked("/token") == []


async def test_metadata_of_another_issuer_is_refused(sign_ins: SignIns, server: Guarded) -> None:
    """RFC 8414, 3.3: metadata that names another issuer than the one it was asked for is not used."""
    server.metadata_says(issuer="https://evil.example/")
    with pytest.raises(UpstreamAuthError, match="issuer mismatch"):
        await sign_ins.authorize_server(server.config(), Nobody())
    assert server.asked("/register") == []


async def test_a_resource_that_is_not_the_server_is_refused(sign_ins: SignIns, server: Guarded) -> None:
    """RFC 9728: metadata for another resource would bring a token for somebody else."""
    server.resource_says(resource="https://bank.example/mcp")
    with pytest.raises(UpstreamAuthError, match="does not match"):
        await sign_ins.authorize_server(server.config(), Nobody())


async def test_metadata_without_a_resource_leads_nowhere_else(sign_ins: SignIns, server: Guarded) -> None:
    """RFC 9728 requires it; metadata that leaves it out is not followed: only the server's own origin is asked."""
    server.resource_says(resource=None, authorization_servers=["https://evil.example/"])
    person = Person()
    got = await sign_in(sign_ins, server, person)
    assert got.issuer.rstrip("/") == server.base
    assert person.query["resource"].rstrip("/") == server.url


async def test_a_sign_in_without_a_proof_key_is_refused(sign_ins: SignIns, server: Guarded) -> None:
    """An authorization server that does not say it knows PKCE with S256 is not signed in to."""
    for methods in (None, ["plain"]):
        server.metadata_says(code_challenge_methods_supported=methods)
        with pytest.raises(UpstreamAuthError, match="PKCE"):
            await sign_ins.authorize_server(server.config(), Nobody())


@pytest.mark.parametrize("status", [404, 405, 401])
async def test_a_server_without_metadata_is_signed_in_to_at_the_places_of_old(
    sign_ins: SignIns, server: Guarded, status: int
) -> None:
    """MCP 2025-03-26: /authorize, /token and /register of its own origin; the sign-in is renewed there as well."""
    server.answers[METADATA] = server.answers[RESOURCE] = lambda _: (status if _.path == METADATA else 404, {})
    person = Person()
    got = await sign_in(sign_ins, server, person)
    assert (got.issuer, person.query["code_challenge_method"]) == (server.base, "S256")
    assert [urlsplit(person.pages[0]).path, len(server.asked("/register"))] == ["/authorize", 1]
    assert b"somebody" in await call(sign_ins, server)
    assert (await sign_ins._flow(server.config()).renew(got)).access_token != got.access_token


async def test_the_places_of_old_are_not_guessed_where_another_server_is_named(
    sign_ins: SignIns, server: Guarded
) -> None:
    """Nor where the metadata cannot be had at present, or is none."""
    server.answers[METADATA] = lambda _: (404, {})
    with pytest.raises(UpstreamAuthError, match="does not say where to sign in"):
        await sign_ins.authorize_server(server.config(), Nobody())
    server.answers[RESOURCE] = lambda _: (404, {})
    for answer in ((503, {}), (200, {"title": "a page"})):
        server.answers[METADATA] = lambda _, answer=answer: answer
        with pytest.raises(UpstreamAuthError, match="does not say where to sign in"):
            await sign_ins.authorize_server(server.config(), Nobody())
    assert server.asked("/register") == []


async def test_a_server_with_neither_metadata_nor_the_places_of_old_is_said_to_have_none(
    sign_ins: SignIns, server: Guarded
) -> None:
    """One that takes a token which somebody made by hand, say."""
    server.answers[METADATA] = server.answers[RESOURCE] = server.answers["/register"] = lambda _: (404, {})
    with pytest.raises(UpstreamAuthError, match=r"does not say where to sign in .*/register"):
        await sign_ins.authorize_server(server.config(), Nobody())


PLACES = [
    "http://169.254.169.254/",
    "https://169.254.169.254/",
    "http://2852039166/",
    "http://0xA9FEA9FE/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://[::ffff:169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[fe80::1]/",
    "http://100.100.100.200/",
    "http://0.0.0.0/",
]


@pytest.mark.parametrize("place", PLACES)
async def test_metadata_that_points_into_the_network_is_not_followed(
    sign_ins: SignIns, server: Guarded, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the spelling, no connection to a link-local or metadata address is tried."""
    hosts: list[str] = []
    connect = httpx2.AsyncHTTPTransport.handle_async_request

    async def watched(self: httpx2.AsyncHTTPTransport, request: httpx2.Request) -> httpx2.Response:
        hosts.append(request.url.host)
        return await connect(self, request)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", watched)
    server.resource_says(authorization_servers=[place])
    with pytest.raises(UpstreamAuthError, match="which is refused"):
        await sign_ins.authorize_server(server.config(), Nobody())
    assert set(hosts) == {"127.0.0.1"}


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
async def test_an_endpoint_without_tls_elsewhere_is_refused(server: Guarded, tmp_path: Path, endpoint: str) -> None:
    """http is for this machine only, and the person is never shown such a page."""

    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34"] if host == "evil.example" else ["127.0.0.1"]

    sign_ins = SignIns(tmp_path, resolve=resolve)
    server.metadata_says(**{endpoint: "http://evil.example/x"})
    person = Person()
    with pytest.raises(UpstreamAuthError, match=r"http://evil\.example, which is refused: it is not https"):
        await sign_in(sign_ins, server, person)
    assert len(person.pages) == (endpoint == "token_endpoint")


@pytest.mark.parametrize("scheme", ["javascript:alert(1)//", "data:text/html,x", "file:///etc/passwd", "vscode://x"])
async def test_a_sign_in_page_of_another_scheme_is_never_shown(sign_ins: SignIns, server: Guarded, scheme: str) -> None:
    """A browser is only led to web pages."""
    server.metadata_says(authorization_endpoint=scheme)
    with pytest.raises(UpstreamAuthError):
        await sign_ins.authorize_server(server.config(), Nobody())


async def test_a_connection_that_a_browser_opened_in_advance_keeps_nobody_waiting(
    sign_ins: SignIns, server: Guarded
) -> None:
    """Python 3.12 and later wait for it; it is closed when the sign-in is over."""

    async def act(url: str) -> Any:
        port = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0]).port
        person.silent = await asyncio.open_connection("127.0.0.1", port)
        return await follow(url)

    person = Person(act)
    await sign_in(sign_ins, server, person)
    reader, writer = person.silent
    with anyio.fail_after(2):  # a head is waited for longer
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()


async def test_a_server_elsewhere_cannot_lead_us_to_this_machine() -> None:
    """A listening port on loopback hears nothing of a public server's metadata, nor of a name that leads there."""
    heard: list[object] = []
    canary = await asyncio.start_server(lambda *streams: heard.append(streams), "127.0.0.1", 0)
    port = canary.sockets[0].getsockname()[1]

    async def resolve(host: str, _: int) -> list[str]:
        return {"mcp.example": ["93.184.216.34"], "both.example": ["93.184.216.34", "127.0.0.1"]}.get(host, [host])

    http = AuthHttp("web", "https://mcp.example/mcp", TlsContext(), resolve)
    for place in (f"http://127.0.0.1:{port}/", f"https://both.example:{port}/", f"https://10.0.0.1:{port}/"):
        with pytest.raises(UpstreamAuthError, match="closer to this machine"):
            await http.send(httpx2.Request("GET", place))
    canary.close()
    await canary.wait_closed()
    assert heard == []


async def test_a_name_is_connected_to_as_it_was_judged(server: Guarded) -> None:
    """The address is looked up once: a name that changes its mind afterwards changes nothing."""
    lookups: list[str] = []

    async def resolve(host: str, _: int) -> list[str]:
        lookups.append(host)
        return ["127.0.0.1"] if lookups.count(host) == 1 else ["169.254.169.254"]

    place = server.base.replace("127.0.0.1", "auth.example")
    http = AuthHttp("web", server.url, TlsContext(), resolve)
    response = await http.send(httpx2.Request("GET", f"{place}{METADATA}"))
    assert (response.status_code, lookups) == (200, ["127.0.0.1", "auth.example"])
    assert server.wire[-1].headers["host"] == urlsplit(place).netloc


async def test_an_endless_answer_is_cut_off(server: Guarded) -> None:
    """Metadata of more than a mebibyte is not read to its end."""
    server.answers["/long"] = lambda _: (200, "x" * (2 << 20))
    with pytest.raises(UpstreamError, match="more than 1,048,576 bytes"):
        await AuthHttp("web", server.url, TlsContext()).send(httpx2.Request("GET", f"{server.base}/long"))


async def test_an_authorization_server_that_is_down_is_told_from_one_that_refuses(
    sign_ins: SignIns, server: Guarded
) -> None:
    """Nobody is there: the words say who, and it is no matter of signing in."""
    server.resource_says(authorization_servers=["http://127.0.0.1:9/"])
    with pytest.raises(UpstreamError, match=r"127\.0\.0\.1, needed for its sign-in, cannot be asked") as caught:
        await sign_ins.authorize_server(server.config(), Nobody())
    assert not isinstance(caught.value, UpstreamAuthError)


async def test_a_person_who_does_not_come_is_not_waited_for_forever(sign_ins: SignIns, server: Guarded) -> None:
    """The wait ends, nothing is stored, and the port is free again."""

    async def nothing(_: str) -> None:
        return

    with pytest.raises(UpstreamAuthError, match=r"Nobody signed in to server 'web' within 0\.05 s"):
        await sign_in(sign_ins, server, Person(nothing, timeout_s=0.05))
    with pytest.raises(UpstreamAuthError, match="Nobody is signed in"):
        await sign_ins.bearer(server.config())


async def test_a_port_in_use_is_said_before_anybody_is_asked(server: Guarded) -> None:
    """A fixed redirect port that is taken ends the command with the field to change."""
    port = urlsplit(server.base).port
    with pytest.raises(ConfigError, match=f"Port {port} on 127.0.0.1") as caught:
        async with Person().browser(port):
            pass
    assert "redirect_port" in caught.value.hint


async def test_rubbish_at_the_port_of_the_browser_does_no_harm(sign_ins: SignIns, server: Guarded) -> None:
    """Broken requests, other methods and other pages are turned away while the person signs in."""

    async def disturbed(url: str) -> None:
        port = urlsplit(dict(parse_qsl(urlsplit(url).query))["redirect_uri"]).port
        for rubbish in (b"\x00\xff\r\n\r\n", b"POST /callback?code=1 HTTP/1.1\r\n\r\n", b"GET //[ HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rubbish)
            answer = await reader.read()
            assert b" 200 " not in answer
            writer.close()
        await follow(url)

    with anyio.fail_after(20):
        assert (await sign_in(sign_ins, server, Person(disturbed))).access_token


async def test_signing_out_revokes_and_forgets(sign_ins: SignIns, server: Guarded) -> None:
    """The authorization server is told, the file is gone; where it is down the file is gone all the same."""
    got = await sign_in(sign_ins, server)
    assert got.refresh_token in server.provider.refresh_tokens
    done = await sign_ins.sign_out(server.config())
    assert (done.was_signed_in, done.is_revoked, done.problem) == (True, True, "")
    assert server.provider.refresh_tokens == server.provider.access_tokens == {}
    with pytest.raises(UpstreamAuthError, match="Nobody is signed in"):
        await sign_ins.bearer(server.config())
    assert not (await sign_ins.sign_out(server.config())).was_signed_in
    await sign_in(sign_ins, server)
    server.answers["/revoke"] = lambda _: (503, {})
    done = await sign_ins.sign_out(server.config())
    assert (done.was_signed_in, done.is_revoked) == (True, False)
    assert "HTTP 503" in done.problem


@pytest.mark.long  # much work for one test
async def test_a_last_slash_is_no_other_issuer(sign_ins: SignIns, server: Guarded) -> None:
    """In the metadata: many servers add one to an issuer that has none. `iss` is the metadata's, letter by letter."""
    server.metadata_says(issuer=server.base, authorization_response_iss_parameter_supported=True)

    def naming(iss: str) -> Person:
        async def named(url: str) -> None:
            await follow(await redirect_of(url) + "&" + urlencode({"iss": iss}))

        return Person(named)

    assert (await sign_in(sign_ins, server, naming(server.base))).access_token
    for other in (f"{server.base}/", server.base.upper(), ""):
        with pytest.raises(UpstreamAuthError, match="iss"):
            await sign_in(sign_ins, server, naming(other))
    assert len(server.asked("/token")) == 1
    server.wire.clear()
    with pytest.raises(UpstreamAuthError, match="missing iss"):
        await sign_in(sign_ins, server)


async def test_a_server_that_names_its_sign_in_needs_no_oauth_in_its_entry(sign_ins: SignIns, server: Guarded) -> None:
    """Refused, it names the one command that mends it; signed in to, it is called with the token; then forgotten."""
    with pytest.raises(UpstreamAuthError) as caught:
        await call(sign_ins, server, oauth=None)
    assert caught.value.hint == "Sign in with: mcpproxy server login web"
    async with Person().browser() as browser:
        await sign_ins.authorize_server(server.config(oauth=None), browser)
    assert b"somebody" in await call(sign_ins, server, oauth=None)
    await sign_ins.sign_out(server.config())
    with pytest.raises(UpstreamAuthError):
        await call(sign_ins, server, oauth=None)


async def test_a_sign_in_by_another_process_is_taken_up_where_a_server_refused(
    sign_ins: SignIns, server: Guarded, tmp_path: Path
) -> None:
    """The gateway that was refused is told to try again, though it had no sign-in to watch."""
    with pytest.raises(UpstreamAuthError):
        await call(sign_ins, server, oauth=None)
    told = asyncio.Event()
    watching = asyncio.get_running_loop().create_task(sign_ins.watch(lambda name, person: told.set()))
    await sign_in(SignIns(tmp_path), server)
    with anyio.fail_after(10):
        await told.wait()
    watching.cancel()
    assert b"somebody" in await call(sign_ins, server, oauth=None)


@pytest.mark.parametrize(
    ("headers", "raw", "words"),
    [
        ({"Authorization": "Bearer stale"}, {}, "mcpproxy server patch web headers.Authorization="),
        ({}, {"oauth": False}, "mcpproxy server login web"),
    ],
)
async def test_a_refused_static_token_has_a_hint_of_its_own(
    sign_ins: SignIns, server: Guarded, headers: dict[str, str], raw: dict[str, Any], words: str
) -> None:
    """The header's name and the command that changes it; its value nowhere. A stored sign-in is not used instead."""
    await sign_in(sign_ins, server)
    server.answers["/mcp"] = lambda seen: (401, {}) if headers else None
    with pytest.raises(UpstreamAuthError) as caught:
        await call(sign_ins, server, oauth=None, headers=headers, raw=raw)
    assert words in caught.value.hint
    assert "stale" not in str(caught.value)
    sent = [seen.headers.get("authorization", "") for seen in server.wire if seen.path == "/mcp"][-1]
    assert sent == headers.get("Authorization", sent if headers else "")


def test_a_refused_key_in_a_header_of_another_name_is_named() -> None:
    """Some servers take a key of their own; one that also names a sign-in has both ways in its hint."""
    config = ServerConfig("web", "http", url="https://h.example/mcp", headers={"X-Api-Key": "k", "X-Team": "t"})
    assert config.credential_headers == ("X-Api-Key",)
    failure = HttpFailure("answered with HTTP 401 Unauthorized", 401, names_sign_in=True)
    error = build_failure_error("web", failure, is_signed_in=False, sent=config.credential_headers)
    assert error.hint.endswith("mcpproxy server patch web headers.X-Api-Key='${env:TOKEN}'")
    assert "(mcpproxy server patch web headers.X-Api-Key=null), then: mcpproxy server login web." in error.hint

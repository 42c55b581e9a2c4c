"""Requests that need more than a sign-in was granted: what is said, what goes on, what the next sign-in asks for."""

from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from sign_in_fakes import Guarded, Person, call, guarded, linked

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.upstream.http_failures import parse_missing_scope

pytestmark = pytest.mark.anyio

CALL = b'"tools/call"'


@pytest.fixture(autouse=True)
def no_keyring() -> None:
    """The desktop's keyring is none of the tests' business."""
    keyring.set_keyring(NoKeyring())


@pytest.fixture
def sign_ins(tmp_path: Path) -> SignIns:
    return SignIns(tmp_path)


async def asked_scope(sign_ins: SignIns, server: Guarded, **changes: Any) -> str:
    """The scope that a person who signs in is asked to grant."""
    person = Person()
    async with person.browser() as browser:
        await sign_ins.authorize_server(server.config(**changes), browser)
    return person.query["scope"]


MESSAGE = "Server 'web' needs the scope 'tools:write', which has not been granted (HTTP 403)."
HINT = "Sign in with: mcpproxy server login web (it asks for that scope as well)"


@pytest.mark.long  # a third of a second of processor time
async def test_what_a_request_lacks_is_said_and_asked_for_by_the_next_sign_in(sign_ins: SignIns) -> None:
    """The session goes on with what was granted; the next sign-in asks for that and for what was lacking."""
    async with guarded() as server:
        assert await asked_scope(sign_ins, server) == "tools:read"
        server.demand("tools:write", of=CALL)
        async with linked(sign_ins, server) as session:
            for _ in range(2):
                with pytest.raises(UpstreamAuthError) as caught:
                    await call(session)
                assert (caught.value.message, caught.value.hint) == (MESSAGE, HINT)
                assert b"whoami" in (await session.request("tools/list", {}, timeout_s=10)).text
        assert await asked_scope(sign_ins, server) == "tools:read tools:write"
        async with linked(sign_ins, server) as session:
            assert b"somebody" in await call(session)
        assert await asked_scope(sign_ins, server) == "tools:read tools:write"
        await sign_ins.sign_out(server.config())
        assert await asked_scope(sign_ins, server) == "tools:read"


BODIES = {
    "RFC 6750": {"error": "insufficient_scope", "error_description": "write is missing", "scope": "tools:write"},
    "an interface's": {"error": {"code": 403, "message": "write is missing"}},
    "JSON-RPC": {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "write is missing"}},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_json_body_does_not_hide_what_a_request_lacks(sign_ins: SignIns, body: dict[str, Any]) -> None:
    """The challenge stands in the head, whatever the body says; so it is with a token that is refused."""
    async with guarded() as server:
        await asked_scope(sign_ins, server)
        challenge = 'Bearer error="insufficient_scope", scope="tools:write"'
        server.answers["/mcp"] = lambda seen: (403, body, challenge) if CALL in seen.body else None
        async with linked(sign_ins, server) as session:
            with pytest.raises(UpstreamAuthError) as caught:
                await call(session)
            assert (caught.value.message, caught.value.hint) == (MESSAGE, HINT)
        server.answers.clear()
        assert await asked_scope(sign_ins, server) == "tools:read tools:write"
        invalid = {"error": "invalid_token", "error_description": "it has expired"}
        async with linked(sign_ins, server) as session:
            server.answers["/mcp"] = lambda seen: (401, invalid, "Bearer") if CALL in seen.body else None
            with pytest.raises(UpstreamAuthError, match=r"HTTP 401|signed in"):
                await call(session)


async def test_the_older_transport_says_it_too(sign_ins: SignIns) -> None:
    """And the session goes on, too."""
    async with guarded("sse") as server:
        changes: dict[str, Any] = {"transport": "sse", "oauth": {"scopes": ["tools:read"]}}
        assert await asked_scope(sign_ins, server, **changes) == "tools:read"
        server.demand("tools:write", of=CALL)
        async with linked(sign_ins, server, **changes) as session:
            for _ in range(2):
                with pytest.raises(UpstreamAuthError) as caught:
                    await call(session)
                assert (caught.value.message, caught.value.hint) == (MESSAGE, HINT)
                assert b"whoami" in (await session.request("tools/list", {}, timeout_s=10)).text
        assert await asked_scope(sign_ins, server, **changes) == "tools:read tools:write"


async def test_what_is_lacking_comes_on_top_of_configured_scopes_and_outlives_a_renewal(sign_ins: SignIns) -> None:
    """Who renews the token meanwhile keeps what it is to be granted next."""
    async with guarded() as server:
        server.provider.lifetime_s = 4
        configured = {"oauth": {"scopes": ["tools:read"]}}
        await asked_scope(sign_ins, server, **configured)
        server.demand("tools:write", of=CALL)
        async with linked(sign_ins, server, **configured) as session:
            with pytest.raises(UpstreamAuthError):
                await call(session)
            await server.until(lambda: bool(server.refreshes))
        assert await asked_scope(sign_ins, server, **configured) == "tools:read tools:write"


async def test_a_program_asks_for_what_was_lacking_by_itself_the_next_time(sign_ins: SignIns) -> None:
    """client_credentials: no person is needed, so the token after this one has it."""
    async with guarded() as server:
        server.provider.lifetime_s = 2
        server.give_to_programs("robot", "robot-secret")
        oauth = {"grant": "client_credentials", "client_id": "robot", "client_secret": "robot-secret"}
        server.answers["/mcp"] = lambda seen: (
            (403, {}, 'Bearer error="insufficient_scope", scope="tools:admin"') if CALL in seen.body else None
        )
        async with linked(sign_ins, server, oauth=oauth) as session:
            with pytest.raises(UpstreamAuthError, match="tools:admin"):
                await call(session)
            await server.until(lambda: "tools:admin" in server.asked("/token")[-1].form.get("scope", ""))


@pytest.mark.parametrize(
    ("challenge", "scope"),
    [
        ('Bearer error="insufficient_scope", scope="a b"', "a b"),
        ("Bearer scope=a, error=insufficient_scope", "a"),
        ('Bearer realm="x", error="insufficient_scope"', ""),
        ('Bearer error="invalid_token", scope="a"', ""),
        ('Bearer error="insufficient_scope", scope="a \x1b[2J b\u202e c"', "a c"),
        (f'Bearer error="insufficient_scope", scope="{"x" * 201} y"', "y"),
        (f'Bearer error="insufficient_scope", scope="{" ".join(map(str, range(99)))}"', " ".join(map(str, range(50)))),
        ("", ""),
    ],
)
def test_only_scopes_as_oauth_writes_them_are_taken_from_a_refusal(challenge: str, scope: str) -> None:
    """What a server says there is shown to people and sent to others."""
    assert parse_missing_scope(403, challenge) == scope
    assert parse_missing_scope(401, challenge) == ""


@pytest.mark.long  # a third of a second of processor time
async def test_a_server_that_wants_ever_more_does_not_stand_in_the_way_of_a_sign_in(
    sign_ins: SignIns, tmp_path: Path
) -> None:
    """What it wants is kept within bounds, and is left out again once the authorization server would not have it."""
    async with guarded() as server:
        await asked_scope(sign_ins, server)
        (file,) = (tmp_path / "sign-ins").glob("*.json")
        size = file.stat().st_size
        wanted = iter(f"scope-{number}-{'x' * 150}" for number in range(40))
        server.answers["/mcp"] = lambda seen: (
            (403, {}, f'Bearer error="insufficient_scope", scope="{next(wanted)}"') if CALL in seen.body else None
        )
        async with linked(sign_ins, server) as session:
            for _ in range(40):
                with pytest.raises(UpstreamError):
                    await call(session)
        assert file.stat().st_size < size + 4_000
        with pytest.raises(UpstreamAuthError, match="scopes are not valid"):
            await asked_scope(sign_ins, server)
        assert await asked_scope(sign_ins, server) == "tools:read"

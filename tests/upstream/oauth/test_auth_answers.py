"""Answers of authorization servers that are not as the SDK expects them."""

import socket
from typing import Any

import pytest
from sign_in_fakes import METADATA, Guarded, Person, guarded, linked

from smart_mcp_proxy.errors import UpstreamAuthError, UpstreamError
from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio


async def sign_in(sign_ins: SignIns, server: Guarded, **oauth: Any) -> Any:
    async with Person(timeout_s=2).browser(None) as browser:
        return await sign_ins.authorize_server(server.config(oauth), browser)


# --- registration


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (
            403,
            {"error": "access_denied", "error_description": "Registration is closed"},
            "Registration is closed, HTTP 403",
        ),
        (401, None, "HTTP 401"),
        (400, {"error": "invalid_client_metadata"}, "invalid_client_metadata, HTTP 400"),
        (404, {"detail": "Not Found"}, "HTTP 404"),
        (405, [], "HTTP 405"),
    ],
)
async def test_a_refused_registration_says_to_configure_a_client(sign_ins, server, status, body, words) -> None:
    """And not to repeat the command that has just failed."""
    server.answers["/register"] = lambda _: (status, body)
    with pytest.raises(UpstreamAuthError) as caught:
        await sign_in(sign_ins, server)
    assert caught.value.message == (f"Server 'web': its authorization server registers no client by itself ({words}).")
    assert "oauth.client_id, oauth.client_secret" in caught.value.hint
    assert caught.value.hint.endswith("mcpproxy server patch web oauth.client_id=CLIENT_ID")
    assert "server login" not in caught.value.hint


@pytest.mark.parametrize("status", [503, 429])
async def test_a_registration_that_fails_for_a_while_may_be_tried_again(sign_ins, server, status) -> None:
    """With the same way out."""
    server.answers["/register"] = lambda _: (status, {})
    with pytest.raises(UpstreamError) as caught:
        await sign_in(sign_ins, server)
    assert not isinstance(caught.value, UpstreamAuthError)
    assert f"at present (HTTP {status})" in caught.value.message
    assert caught.value.hint.startswith("Try again later, or put the id")


# --- tokens


@pytest.mark.parametrize(
    ("lifetime", "expires_s"),
    [
        (3599.9, 3599),
        ("3599.9", 3599),
        ("3600", 3600),
        (3.6e3, 3600),
        ("", None),
        ("soon", None),
        (True, None),
        (-1.5, 0),
    ],
)
@pytest.mark.parametrize(
    ("scope", "granted"),
    [(["tools:read", "tools:write"], "tools:read tools:write"), (["tools:read", ""], "tools:read"), ("a b", "a b")],
)
async def test_lifetimes_and_scopes_of_odd_forms_are_understood(
    sign_ins, server, clock, lifetime, expires_s, scope, granted
) -> None:
    """Rounded down, joined with blanks; one that says nothing counts as not said."""
    answer = {
        "access_token": "t1",
        "token_type": "bearer",
        "expires_in": lifetime,
        "scope": scope,
        "refresh_token": "r1",
    }
    server.answers["/token"] = lambda _: (200, answer)
    server.answers["/mcp"] = lambda seen: (200, {}) if "authorization" in seen.headers else None
    signed_in = await sign_in(sign_ins, server)
    assert (signed_in.access_token, signed_in.refresh_token, signed_in.scope) == ("t1", "r1", granted)
    assert signed_in.expires_at_s == (0.0 if expires_s is None else signed_in.obtained_at_s + expires_s)


# --- several authorization servers


def nobody() -> str:
    """An address at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"


@pytest.mark.parametrize("first", ["nobody there", "broken", "no metadata", "not to be asked"])
async def test_another_authorization_server_is_used_where_the_first_is_down(sign_ins, server, first) -> None:
    """Of those that the resource names, in their order."""
    async with guarded() as other:
        other.answers[METADATA] = lambda _: (503, {}) if first == "broken" else (200, {"hello": "world"})
        away = {"nobody there": nobody(), "not to be asked": "http://169.254.169.254/"}.get(first, other.base + "/")
        server.resource_says(authorization_servers=[away, server.base + "/"])
        signed_in = await sign_in(sign_ins, server)
        assert signed_in.issuer.rstrip("/") == server.base
        async with linked(sign_ins, server):
            pass


async def test_the_first_authorization_server_is_used_while_it_answers(sign_ins, server) -> None:
    """And of several the configured issuer, wherever it stands."""
    async with guarded() as other:
        named = [server.base + "/", other.base + "/"]
        server.resource_says(authorization_servers=named)
        await sign_in(sign_ins, server)
        assert other.wire == []
        server.resource_says(authorization_servers=named[::-1])
        signed_in = await sign_in(sign_ins, server, issuer=server.base)
        assert signed_in.issuer.rstrip("/") == server.base


async def test_where_none_of_several_answers_the_first_is_named(sign_ins, server) -> None:
    """As where it is the only one."""
    server.resource_says(authorization_servers=[nobody(), nobody()])
    with pytest.raises(UpstreamError, match=r"127\.0\.0\.1, needed for its sign-in"):
        await sign_in(sign_ins, server)

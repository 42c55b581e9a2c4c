"""Our registration at an authorization server: made at each sign-in, and never in place of a configured client."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from sign_in_fakes import Guarded, Person, WallClock, call, follow, linked

from smart_mcp_proxy.errors import UpstreamAuthError
from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio


async def sign_in(sign_ins: SignIns, server: Guarded, port: int | None = None, **oauth: Any) -> Any:
    """Signs in as a person does who gives up soon; the browser comes back to `port`."""
    async with Person(timeout_s=2).browser(port) as browser:
        return await sign_ins.authorize_server(server.config(oauth), browser)


def port_of(signed_in: Any) -> int | None:
    return urlsplit(signed_in.client["redirect_uris"][0]).port


@pytest.mark.long  # much work for one test
async def test_an_authorization_server_that_forgot_us_is_registered_at_anew(
    sign_ins: SignIns, server: Guarded, clock: WallClock, tmp_path: Path
) -> None:
    """A renewal it refuses says to sign in; that registers once, replaces what is stored, also for other processes."""
    first = await sign_in(sign_ins, server)
    server.provider.clients.clear()
    clock.ahead_s = 7200
    other = SignIns(tmp_path, now=clock)
    for one in (sign_ins, other):
        with pytest.raises(UpstreamAuthError) as caught:
            await one.bearer(server.config())
        assert caught.value.hint == "Sign in with: mcpproxy server login web"
    assert (len(server.refreshes), len(server.asked("/register"))) == (1, 1)
    second = await sign_in(sign_ins, server, port_of(first))
    assert (len(server.asked("/register")), second.client != first.client) == (2, True)
    held, _ = await other.store.read("web", server.url)
    assert held is not None
    assert held.client == second.client
    async with linked(other, server) as session:
        assert b"somebody" in await call(session)


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("code", ["invalid_client", "unauthorized_client"])
async def test_a_configured_client_that_is_not_known_is_said_to_be_and_never_replaced(
    sign_ins: SignIns, server: Guarded, clock: WallClock, code: str
) -> None:
    """Its id and the keys to check, at the sign-in and at a renewal; nothing is registered."""
    first = await sign_in(sign_ins, server)
    port, oauth = port_of(first), {"client_id": first.client["client_id"]}
    await sign_in(sign_ins, server, port, **oauth)
    server.answers["/token"] = lambda _: (401, {"error": code})
    with pytest.raises(UpstreamAuthError) as caught:
        await sign_in(sign_ins, server, port, **oauth)
    clock.ahead_s = 7200
    with pytest.raises(UpstreamAuthError) as renewing:
        await sign_ins.bearer(server.config(oauth))
    for error in (caught.value, renewing.value):
        assert f"client_id '{oauth['client_id']}' ({code})" in error.message
        assert "'client_id'" in error.hint
    assert len(server.asked("/register")) == 1


async def test_a_refusal_at_the_page_names_its_code(sign_ins: SignIns, server: Guarded) -> None:
    """The description is for people; the code is what can be looked up."""

    async def refuse(url: str) -> None:
        query = dict(parse_qsl(urlsplit(url).query))
        told = {"error": "unauthorized_client", "error_description": "Not you", "state": query["state"]}
        await follow(f"{query['redirect_uri']}?{urlencode(told)}")

    with pytest.raises(UpstreamAuthError, match=r"was refused: Not you \(unauthorized_client\)"):
        async with Person(refuse).browser() as browser:
            await sign_ins.authorize_server(server.config(), browser)

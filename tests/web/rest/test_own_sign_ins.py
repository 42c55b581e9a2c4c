"""Each person's own sign-ins: listed and forgotten over REST and at the page, by them alone."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from page_gateway import Browser, Opened, opened, stranger, tool
from plain_http import plain_client
from sign_in_fakes import Guarded, Person, guarded

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.models import Role
from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio

PERSONAL = {"per_user": True}


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    keyring.set_keyring(NoKeyring())
    async with guarded() as made:
        yield made


@pytest.fixture
async def there(tmp_path: Path, server: Guarded) -> AsyncIterator[Opened]:
    """A gateway with a server of which each person has a sign-in, and one that all share."""
    others = {"web": {"url": server.url, "oauth": PERSONAL}, "shared": {"url": server.url, "oauth": {}}}
    async with opened(tmp_path, [tool("a")], others) as found:
        yield found


async def make_person(there: Opened, name: str, role: Role | None = None) -> tuple[str, dict[str, str]]:
    """Somebody with a token: their id, and the header."""
    made = await there.gateway.admin.agent_tokens.create(name, Scope(None, "read", role=role))
    return made.token.principal_id, {"authorization": f"Bearer {made.secret}"}


async def sign_in(tmp_path: Path, server: Guarded, person: str) -> None:
    """Signs somebody in, in another process."""
    async with Person().browser() as browser:
        await SignIns(tmp_path / "data").authorize_server(server.config(PERSONAL, person=person), browser)


async def ask(there: Opened, headers: Mapping[str, str], method: str = "GET", path: str = "sign-ins") -> Any:
    async with plain_client(base_url=there.base, headers=dict(headers), timeout=60) as client:
        reply = await client.request(method, f"/api/v1/{path}")
        return reply.json()


async def find_state(there: Opened, headers: Mapping[str, str]) -> tuple[str, float | None]:
    (only,) = (await ask(there, headers))["sign_ins"]
    assert only["server"] == "web"
    return only["state"], only["since_s"]


@pytest.mark.long  # a third of a second of processor time
async def test_each_sees_and_forgets_their_own_alone(tmp_path: Path, there: Opened, server: Guarded) -> None:
    """With any token of theirs, a role or none; the operator's token is the gateway's user's."""
    ann, as_ann = await make_person(there, "ann")
    bob, as_bob = await make_person(there, "bob", "viewer")
    token = tmp_path / "data" / "operator.token"
    as_operator = {"authorization": f"Bearer {token.read_text().strip()}"}
    for headers in (as_ann, as_bob, as_operator):
        assert await find_state(there, headers) == ("none", None)
    await sign_in(tmp_path, server, ann)
    state, since_s = await find_state(there, as_ann)
    assert state == "signed_in" and since_s is not None and since_s >= token.stat().st_mtime
    assert await find_state(there, as_bob) == await find_state(there, as_operator) == ("none", None)
    await sign_in(tmp_path, server, bob)
    assert (await ask(there, as_bob, "DELETE", "sign-ins/web")) == {
        "was_signed_in": True,
        "is_revoked": True,
        "problem": "",
    }
    assert await find_state(there, as_bob) == ("none", None)
    assert (await find_state(there, as_ann)) == ("signed_in", since_s)
    assert not (await ask(there, as_operator, "DELETE", "sign-ins/web"))["was_signed_in"]
    assert (await find_state(there, as_ann))[0] == "signed_in"
    left: list[tuple[str, str]] = []
    async with asyncio.timeout(60):
        while not left:
            left = [(one["principal"], one["server"]) for one in await there.records("access") if one["server"]]
    assert left == [(bob, "web")]


@pytest.mark.long  # a third of a second of processor time
async def test_nobody_without_a_token_and_no_other_server(there: Opened) -> None:
    """Who says nothing of themselves has nothing of their own; what all share is nobody's own."""
    assert (await ask(there, {}))["error"]["code"] == "unauthorized"
    assert (await ask(there, {}, "DELETE", "sign-ins/web"))["error"]["code"] == "unauthorized"
    _, as_ann = await make_person(there, "ann")
    for name in ("shared", "s", "unknown"):
        assert (await ask(there, as_ann, "DELETE", f"sign-ins/{name}"))["error"]["code"] == "server_not_found"


@pytest.mark.long  # a third of a second of processor time
async def test_who_does_not_reach_a_server_does_not_learn_of_it(there: Opened) -> None:
    """A token for another server lists no sign-in at this one, and forgets none."""
    made = await there.gateway.admin.agent_tokens.create("eve", Scope(("s",), "read"))
    as_eve = {"authorization": f"Bearer {made.secret}"}
    assert (await ask(there, as_eve))["sign_ins"] == []
    assert (await ask(there, as_eve, "DELETE", "sign-ins/web"))["error"]["code"] == "server_not_found"


async def test_while_the_store_fails_nobody_is_called_signed_out(
    there: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be looked up is an error, and not an answer."""

    async def fail(server: str, url: str) -> None:
        raise UpstreamError("The store fails.", hint="")

    _, as_ann = await make_person(there, "ann")
    monkeypatch.setattr(there.gateway.upstreams.sign_ins.store, "read", fail)
    assert (await ask(there, as_ann))["error"]["code"] == "upstream_failed"


@pytest.mark.long  # a third of a second of processor time
async def test_an_operator_who_begins_a_sign_in_begins_their_own(there: Opened) -> None:
    """Nobody connects an account to another one, nor sees the address that another one was given."""
    _, as_ann = await make_person(there, "ann", "operator")
    _, as_bob = await make_person(there, "bob", "operator")
    begun = await ask(there, as_ann, "POST", "servers/web/login")
    assert begun["state"] == "waiting"
    assert (await ask(there, as_ann, path="servers/web/login"))["url"] == begun["url"]
    assert (await ask(there, as_bob, path="servers/web/login"))["state"] == "none"
    shared = await ask(there, as_ann, "POST", "servers/shared/login")
    assert (await ask(there, as_bob, path="servers/shared/login"))["url"] == shared["url"]


@pytest.mark.long  # a third of a second of processor time
async def test_the_page_shows_the_visitors_own_and_signs_them_out(
    tmp_path: Path, there: Opened, server: Guarded
) -> None:
    """By a link that a token made, which is its holder."""
    ann, as_ann = await make_person(there, "ann", "viewer")
    bob, _ = await make_person(there, "bob", "viewer")
    await sign_in(tmp_path, server, ann)
    await sign_in(tmp_path, server, bob)
    async with stranger(there) as browser:
        await browser.enter((await ask(there, as_ann, "POST", "page/links"))["url"])
        assert 'href="/ui/sign-ins"' in (await browser.get("servers")).text
        assert "signed in" in (await browser.get("sign-ins")).text
        await browser.send("sign-ins/forget", name="web")
        assert "Forgot your sign-in at web." in browser.text and "not signed in" in browser.text
    held = [
        (await SignIns(tmp_path / "data").store.read(*server.config(PERSONAL, person=person).sign_in_place))[0]
        for person in (ann, bob)
    ]
    assert held[0] is None and held[1] is not None
    async with stranger(there) as browser:
        await enter_as_operator(there, browser)
        assert "not signed in" in (await browser.get("sign-ins")).text


async def enter_as_operator(there: Opened, browser: Browser) -> None:
    await browser.enter(await there.link())

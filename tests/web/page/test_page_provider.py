"""The page with sign-in at an OpenID Connect provider: who is an operator there comes in without a link."""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import keyring
import pytest
from asgi_server import listening
from keyring.backends.fail import Keyring as NoKeyring
from openid_fakes import CLIENT_ID, CLIENT_SECRET, OpenIdProvider
from page_gateway import Browser, opened, stranger, tool
from pydantic import SecretStr
from sign_in_fakes import guarded

from smart_mcp_proxy.upstream import SignIns
from smart_mcp_proxy.web.auth.sign_in_pages import ADDRESS_SHARE, REGISTRATIONS_AT_ONCE
from smart_mcp_proxy.web.listening import bind

pytestmark = [pytest.mark.anyio, pytest.mark.long]

FORM = re.compile(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
FIELD = re.compile(r'name="([^"]+)"[^>]*value="([^"]*)"')


@asynccontextmanager
async def world(
    folder: Path, takes_back: bool = True, others: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[Browser, OpenIdProvider]]:
    """A browser that nobody let in, at a gateway whose people sign in at a provider; Ann may use the gateway."""
    keyring.set_keyring(NoKeyring())
    provider = OpenIdProvider(takes_back=takes_back)
    listener = bind("127.0.0.1", 0)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with listening(provider.app) as provider.base:
        given = {
            "oidc_url": provider.config_url,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": SecretStr(CLIENT_SECRET),
            "oidc_users": ("ann@example.com=write",),
            "public_url": base,
        }
        gateway = opened(folder, [tool("a")], others, listener=listener, **(given | settings))
        async with gateway as there, stranger(there) as browser:
            yield browser, provider


async def signed_in(browser: Browser, begin: str = "/ui/sign-in") -> None:
    """Goes the whole way and says yes on every page."""
    page = await browser.client.get(begin, follow_redirects=True)
    while (form := FORM.search(page.text)) is not None:
        fields = {name: unescape(value) for name, value in FIELD.findall(form[2])}
        fields |= {"action": "approve"} if "action" in fields else {"login": "somebody", "password": "something"}
        address = urljoin(str(page.url), unescape(form[1]))
        own = {"origin": "{0.scheme}://{0.netloc}".format(urlsplit(address))}
        page = await browser.client.post(address, data=fields, headers=own, follow_redirects=True)
    browser.text = page.text


def read_access(folder: Path) -> list[tuple[str, str, str, Any]]:
    """Who signed in where, with which outcome, as a gateway that has ended recorded it."""
    with closing(sqlite3.connect(folder / "data" / "proxy.db")) as database:
        rows = database.execute("SELECT principal, subject, outcome, detail FROM activity WHERE kind = 'access'")
        return [(*texts, json.loads(detail)) for *texts, detail in rows]


@pytest.mark.parametrize("takes_back", [True, False], ids=["takes tokens back", "takes none back"])
async def test_an_operator_signs_in_at_the_provider(tmp_path: Path, takes_back: bool) -> None:
    """And has the rights of the network: what they add is quarantined. A provider that takes tokens back gets them."""
    async with world(tmp_path, takes_back, oidc_operators=("ann@example.com",)) as (browser, provider):
        assert 'href="/ui/sign-in"' in (await browser.get()).text
        await signed_in(browser)
        assert "You are in" in browser.text
        assert (await browser.get()).status_code == 200
        assert bool(provider.revoked) == takes_back
        await browser.get("servers/new")
        await browser.send("servers/add", name="new", entry='{"command": "true"}')
        assert '"quarantined": true' in (tmp_path / "mcp_config.json").read_text()
    assert read_access(tmp_path) == [(f"{provider.base}#ann-1", "page", "ok", {"change": "signed in", "role": "admin"})]


async def test_who_may_use_the_gateway_alone_does_not_see_the_page(tmp_path: Path) -> None:
    """Nor does a browser that did not begin the sign-in."""
    async with world(tmp_path, oidc_operators=("bob@example.com",)) as (browser, _):
        await signed_in(browser)
        assert "not as somebody who may use this page" in browser.text
        assert (await browser.get()).status_code == 401
        reply = await browser.client.get("/ui/signed-in?code=x&state=y")
        assert reply.status_code == 403 and "not begun in this browser" in reply.text


async def test_a_person_connects_their_own_account_at_a_server_by_the_link(tmp_path: Path) -> None:
    """Ann's sign-in is stored for Ann; a stranger, a forged way back and another server's link bring nothing."""
    async with guarded() as server:
        others = {"web": {"url": server.url, "oauth": {"per_user": True}}}
        async with world(tmp_path, others=others) as (browser, provider):
            reply = await browser.client.get("/ui/connected?code=x&state=y")
            assert reply.status_code == 403 and "not begun in this browser" in reply.text
            await signed_in(browser, "/ui/connect/s")
            assert "You sign in to no server named" in browser.text
            await signed_in(browser, "/ui/connect/web")
            assert "You come back from signing in" in browser.text
            sign_ins = SignIns(tmp_path / "data")
            held = None
            async with asyncio.timeout(60):
                while held is None:
                    await asyncio.sleep(0)
                    ann = server.config({"per_user": True}, person=f"{provider.base}#ann-1")
                    held, _ = await sign_ins.store.read(*ann.sign_in_place)
            assert held.access_token in server.provider.access_tokens
            for person in ("", "local", f"{provider.base}#bob-1"):
                config = server.config({"per_user": True}, person=person)
                assert (await sign_ins.store.read(*config.sign_in_place))[0] is None
            provider.user = {"sub": "eve-1", "email": "eve@example.com", "email_verified": True}
            browser.client.cookies.clear()
            await signed_in(browser, "/ui/connect/web")
            assert "You come back" not in browser.text
        signed = (f"{provider.base}#ann-1", "web", "ok", {"change": "signed in"})
        assert [one for one in read_access(tmp_path) if one[2] == "ok"] == [signed]


REGISTRATION = {"redirect_uris": ["http://127.0.0.1:9/back"], "token_endpoint_auth_method": "none"}


async def count_registrations(browser: Browser, **headers: str) -> int:
    """How many a stranger gets through with these header fields, until one is refused."""
    for number in range(2 * REGISTRATIONS_AT_ONCE):
        reply = await browser.client.post("/register", json=REGISTRATION, headers=headers)
        if reply.status_code == 429:
            return number
        assert reply.status_code == 201, reply.text
    return 2 * REGISTRATIONS_AT_ONCE


async def test_strangers_who_register_do_not_stop_a_sign_in_to_the_page(tmp_path: Path) -> None:
    """As many as may, so that nobody else can; the page registers nothing, today and the next time.

    Addresses that strangers claim, or that a balancer adds which is not trusted, give nobody a share of their own.
    """
    async with world(tmp_path, oidc_operators=("ann@example.com",)) as (browser, _):
        counts = [await count_registrations(browser, **{"x-forwarded-for": one}) for one in ("203.0.113.7", "::2")]
        assert counts == [REGISTRATIONS_AT_ONCE, 0]
        for _visit in range(2):
            await signed_in(browser)
            assert "You are in" in browser.text


async def test_strangers_behind_a_trusted_balancer_have_a_share_each(tmp_path: Path) -> None:
    """By the address that it adds."""
    share = REGISTRATIONS_AT_ONCE // ADDRESS_SHARE
    async with world(tmp_path, trusted_proxies=("127.0.0.1",)) as (browser, _):
        for one in ("203.0.113.7", "2001:db8:0:1::1"):
            named = [{"x-forwarded-for": f"{claimed}, {one}"} for claimed in ("198.51.100.1", "198.51.100.2")]
            counted = [await count_registrations(browser, **fields) for fields in named]
            assert counted == [share, 0]


async def test_without_operators_there_is_no_such_way(tmp_path: Path) -> None:
    """The link of the command line is the only one."""
    async with world(tmp_path) as (browser, _):
        assert "/ui/sign-in" not in (await browser.get()).text
        assert (await browser.client.get("/ui/sign-in")).status_code == 404
        assert (await browser.client.get("/ui/signed-in")).status_code == 404

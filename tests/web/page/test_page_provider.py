"""The page with sign-in at an OpenID Connect provider: who is an operator there comes in without a link."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

from smart_mcp_proxy.web.auth.sign_in_pages import ADDRESS_SHARE, REGISTRATIONS_AT_ONCE
from smart_mcp_proxy.web.listening import bind

pytestmark = [pytest.mark.anyio, pytest.mark.long]

FORM = re.compile(r'<form[^>]*action="([^"]*)"[^>]*>(.*?)</form>', re.DOTALL)
FIELD = re.compile(r'name="([^"]+)"[^>]*value="([^"]*)"')


@asynccontextmanager
async def world(
    folder: Path, takes_back: bool = True, **settings: Any
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
        gateway = opened(folder, [tool("a")], listener=listener, **(given | settings))
        async with gateway as there, stranger(there) as browser:
            yield browser, provider


async def signed_in(browser: Browser) -> None:
    """Goes the whole way and says yes on every page."""
    page = await browser.client.get("/ui/sign-in", follow_redirects=True)
    while (form := FORM.search(page.text)) is not None:
        fields = {name: unescape(value) for name, value in FIELD.findall(form[2])}
        fields |= {"action": "approve"} if "action" in fields else {"login": "somebody", "password": "something"}
        address = urljoin(str(page.url), unescape(form[1]))
        own = {"origin": "{0.scheme}://{0.netloc}".format(urlsplit(address))}
        page = await browser.client.post(address, data=fields, headers=own, follow_redirects=True)
    browser.text = page.text


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


async def test_who_may_use_the_gateway_alone_does_not_see_the_page(tmp_path: Path) -> None:
    """Nor does a browser that did not begin the sign-in."""
    async with world(tmp_path, oidc_operators=("bob@example.com",)) as (browser, _):
        await signed_in(browser)
        assert "not as somebody who may use this page" in browser.text
        assert (await browser.get()).status_code == 401
        reply = await browser.client.get("/ui/signed-in?code=x&state=y")
        assert reply.status_code == 403 and "not begun in this browser" in reply.text


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
    """As many as may, so that nobody else can; the page registers nothing, today and the next time."""
    async with world(tmp_path, oidc_operators=("ann@example.com",)) as (browser, _):
        assert await count_registrations(browser) == REGISTRATIONS_AT_ONCE
        for _visit in range(2):
            await signed_in(browser)
            assert "You are in" in browser.text


async def test_strangers_behind_a_trusted_balancer_have_a_share_each(tmp_path: Path) -> None:
    """By the address that it adds; without the setting all behind it have its own."""
    share = REGISTRATIONS_AT_ONCE // ADDRESS_SHARE
    for folder in (trusting := tmp_path / "trusting", other := tmp_path / "other"):
        folder.mkdir()
    async with world(trusting, trusted_proxies=("127.0.0.1",)) as (browser, _):
        for one in ("203.0.113.7", "2001:db8:0:1::1"):
            named = [{"x-forwarded-for": f"{claimed}, {one}"} for claimed in ("198.51.100.1", "198.51.100.2")]
            counted = [await count_registrations(browser, **fields) for fields in named]
            assert counted == [share, 0]
    async with world(other) as (browser, _):
        counts = [await count_registrations(browser, **{"x-forwarded-for": one}) for one in ("203.0.113.7", "::2")]
        assert counts == [REGISTRATIONS_AT_ONCE, 0]


async def test_without_operators_there_is_no_such_way(tmp_path: Path) -> None:
    """The link of the command line is the only one."""
    async with world(tmp_path) as (browser, _):
        assert "/ui/sign-in" not in (await browser.get()).text
        assert (await browser.client.get("/ui/sign-in")).status_code == 404
        assert (await browser.client.get("/ui/signed-in")).status_code == 404

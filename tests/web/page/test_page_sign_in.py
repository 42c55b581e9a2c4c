"""Signing in to a server from the page: begun there, finished in the same browser or with a pasted address."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from page_gateway import Browser, Opened, browser, opened, tool
from sign_in_fakes import Guarded, follow, guarded, redirect_of

from smart_mcp_proxy.models import ServerState

# Marked long: a gateway and a sign-in server of their own.
pytestmark = [pytest.mark.anyio, pytest.mark.long]

LIMIT_S = 60


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    """A server that wants a sign-in."""
    async with guarded() as made:
        yield made


@pytest.fixture
async def there(server: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Opened]:
    """A gateway in front of it."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    async with opened(tmp_path, [tool("a")], {"web": {"url": server.url, "oauth": True}}) as found:
        yield found


async def ready(there: Opened) -> None:
    """Waits until the server is."""
    async with asyncio.timeout(LIMIT_S):
        while there.gateway.upstreams.fleet.upstreams["web"].status.state is not ServerState.READY:
            await there.gateway.base.changes.wait()


async def address_on(page: Browser) -> str:
    """Where the page sends the person."""
    found = re.search(r'href="(http[^"]+)" target="_blank" rel="noopener noreferrer"', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


async def test_a_sign_in_is_begun_on_the_page_and_finished_in_the_browser(there: Opened, server: Guarded) -> None:
    """The server is ready a moment later; no page shows a token."""
    async with browser(there) as page:
        assert "needs auth" in page.text and "Sign in" in page.text
        await page.send("server/login", name="web")
        await follow(await address_on(page))
        await ready(there)
        assert "Sign in" not in (await page.get("server?name=web")).text
        assert not any(token in page.text for token in server.provider.access_tokens)


async def test_a_browser_elsewhere_pastes_where_it_ended(there: Opened) -> None:
    """Another address is not taken, and nothing is lost by it."""
    async with browser(there) as page:
        await page.send("server/login", name="web")
        ended = await redirect_of(await address_on(page))
        wrong = await page.send("server/login/address", name="web", address=ended.replace("state=", "state=x"))
        assert wrong.status_code == 409
        await page.get("server?name=web")
        assert "Taken." in (await page.send("server/login/address", name="web", address=ended)).text
        await ready(there)


async def test_what_nobody_signs_in_to_says_so(there: Opened, server: Guarded) -> None:
    """A program, an unknown server, and one that refuses; whoever begins again gets another address."""
    async with browser(there) as page:
        assert (await page.send("server/login", name="s")).status_code == 400
        await page.get()
        assert (await page.send("server/login", name="nobody")).status_code == 404
        await page.get()
        await page.send("server/login", name="web")
        first = await address_on(page)
        await page.send("server/login/address", name="web", address="http://127.0.0.1:1/callback?code=x&state=y")
        await page.get()
        await page.send("server/login", name="web")
        assert await address_on(page) != first
        server.answers["/token"] = lambda _: (400, {"error": "invalid_grant"})
        await follow(await address_on(page))
        async with asyncio.timeout(LIMIT_S):
            while (await there.gateway.admin.server_sign_ins.of("web")).state == "waiting":
                await there.gateway.base.changes.wait()
        assert (await there.gateway.admin.server_sign_ins.of("web")).state == "failed"
        assert "Sign in" in (await page.get("server?name=web")).text

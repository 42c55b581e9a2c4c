"""Codes and refresh tokens that come to two gateways, or workers, in the same moment: each works once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import keyring
import pytest
from asgi_server import listening
from fastmcp.server.auth.oauth_proxy.models import UpstreamTokenSet
from keyring.backends.fail import Keyring as NoKeyring
from mcp.server.auth.provider import TokenError
from openid_fakes import CLIENT_ID, CLIENT_SECRET, OpenIdProvider
from plain_http import plain_client
from postgres_server import PostgresServer
from pydantic import SecretStr
from test_lost_sign_in_store import BASE, Door, LosableStore

from smart_mcp_proxy.catalog import Catalog, open_catalog
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.sign_in_pages import open_oidc_login

pytestmark = pytest.mark.anyio


class Doors:
    """The sign-ins of two gateways on one database, or of two workers.

    Attributes:
        one: The first gateway's.
        two: The second one's.
        provider: Of both.
        catalogs: Of the first and the second.
    """

    def __init__(self, provider: OpenIdProvider, doors: list[Door], catalogs: list[Catalog]) -> None:
        self.provider = provider
        self.one, self.two = doors
        self.catalogs = catalogs

    async def begin_at_two(self, ask: Callable[[], Awaitable[Any]]) -> "asyncio.Future[Any]":
        """Ask at the second gateway; returns once it is done there, or something is about to be written."""
        is_there, catalog = asyncio.Event(), self.catalogs[1]
        write = catalog.write

        async def noted(*given: Any, **more: Any) -> Any:
            is_there.set()
            return await write(*given, **more)

        setattr(catalog, "write", noted)  # noqa: B010
        asked = asyncio.ensure_future(ask())
        asked.add_done_callback(lambda _: is_there.set())
        with anyio.fail_after(20):
            await is_there.wait()
        return asked

    async def kept(self, access_token: str) -> UpstreamTokenSet:
        """What the provider gave, as the gateways keep it."""
        mapping = await self.one.proxy._jti_mapping_store.get(key=self.one.proxy._claims(access_token)["jti"])
        assert mapping is not None
        kept = await self.one.proxy._upstream_token_store.get(key=mapping.upstream_token_id)
        assert kept is not None
        return kept


@pytest.fixture(params=["gateways", "workers"])
async def doors(postgres: PostgresServer, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Doors]:
    keyring.set_keyring(NoKeyring())
    is_shared = request.param == "gateways"
    provider, url = OpenIdProvider(), SecretStr(postgres.url(postgres.new_database()))
    made, catalogs = [], []
    async with AsyncExitStack() as stack:
        provider.base = await stack.enter_async_context(listening(provider.app))
        for name in "ab":
            settings = Settings(
                data_dir=tmp_path / (name if is_shared else "of both"),
                workers=1 if is_shared else 2,
                database_url=url if is_shared else None,
                secret_key=SecretStr("a-key-of-the-tests-with-32-characters"),
                oidc_url=provider.config_url,
                oidc_client_id=CLIENT_ID,
                oidc_client_secret=SecretStr(CLIENT_SECRET),
                oidc_users=("ann@example.com=write",),
                public_url=BASE,
            )
            catalogs.append(await stack.enter_async_context(open_catalog(settings, reset=False)))
            sign_in = await open_oidc_login(settings, catalogs[-1])
            transport = httpx2.ASGITransport(app=sign_in.pages, raise_app_exceptions=False)
            client = await stack.enter_async_context(plain_client(base_url=BASE, mounts={BASE: transport}))
            made.append(Door(client, LosableStore(), provider, sign_in))
        yield Doors(provider, made, catalogs)


async def renewed(door: Door, refresh_token: str, client_id: str) -> httpx2.Response:
    """The answer to a client that renews its tokens."""
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
    return await door.client.post("/token", data=form)


async def test_a_sign_in_that_is_renewed_at_both_at_once_asks_the_provider_once(doors: Doors) -> None:
    """Programs that share a sign-in do so. Both get tokens that are good; who comes later with the old one does not."""
    one, two = doors.one, doors.two
    held = await one.tokens_of_somebody()
    other: list[asyncio.Future[httpx2.Response]] = []

    async def beside() -> None:
        if not other:
            ask = doors.begin_at_two(lambda: renewed(two, held["refresh_token"], one.client_id))
            other.append(await ask)

    doors.provider.before_refresh = beside
    first = await renewed(one, held["refresh_token"], one.client_id)
    second = await other[0]
    assert (first.status_code, second.status_code) == (200, 200), second.text
    assert len(doors.provider.refreshes) == 1
    for got in (first.json(), second.json()):
        for door in (one, two):
            assert await door.tokens.verify(got["access_token"].encode()) is not None
    assert (await renewed(two, held["refresh_token"], one.client_id)).status_code == 400
    for got in (first.json(), second.json()):
        again = await renewed(two, got["refresh_token"], one.client_id)
        assert again.status_code == 200, again.text
    assert len(set(doors.provider.refreshes)) == 3


async def test_tokens_at_their_end_are_renewed_once_by_the_gateways_themselves(doors: Doors) -> None:
    """Calls that come to both in the last second of a token."""
    held = await doors.one.tokens_of_somebody()
    kept = [await doors.kept(held["access_token"]) for _ in range(2)]
    other: list[asyncio.Future[UpstreamTokenSet]] = []

    async def beside() -> None:
        if not other:
            ask = doors.begin_at_two(lambda: doors.two.proxy._try_transparent_refresh(kept[1]))
            other.append(await ask)

    doors.provider.before_refresh = beside
    first = await doors.one.proxy._try_transparent_refresh(kept[0])
    assert (await other[0]).access_token == first.access_token
    assert len(doors.provider.refreshes) == 1


@pytest.mark.parametrize("is_spent", [False, True], ids=["before it is spent", "after"])
async def test_a_code_that_comes_to_both_at_once_brings_no_token_that_is_good(
    doors: Doors, monkeypatch: pytest.MonkeyPatch, is_spent: bool
) -> None:
    """Of the two who had it one has stolen it, and nobody can tell which."""
    one, two = doors.one, doors.two
    form = await one.code()
    other: list[asyncio.Future[httpx2.Response]] = []
    delete = one.proxy._code_store.delete

    async def beside(*given: Any, **more: Any) -> bool:
        gone = is_spent and await delete(*given, **more)
        other.append(await doors.begin_at_two(lambda: two.client.post("/token", data=form)))
        return gone or await delete(*given, **more)

    monkeypatch.setattr(one.proxy._code_store, "delete", beside)
    replies = [await one.client.post("/token", data=form), await other[0]]
    assert [reply.status_code for reply in replies] == [200, 400], replies[1].text
    for door in (one, two):
        assert await door.tokens.verify(replies[0].json()["access_token"].encode()) is None


async def test_a_sign_in_that_was_given_back_before_its_turn_is_not_renewed(doors: Doors) -> None:
    """Its tokens were read before: the provider does not hear of them again."""
    held = await doors.one.tokens_of_somebody()
    kept = await doors.kept(held["access_token"])
    form = {"token": held["access_token"], "client_id": doors.one.client_id}
    assert (await doors.one.client.post("/revoke", data=form)).status_code == 200
    with pytest.raises(TokenError):
        await doors.two.proxy._try_transparent_refresh(kept)
    assert doors.provider.refreshes == []
    assert await doors.two.proxy._upstream_token_store.get(key=kept.upstream_token_id) is None


async def test_where_sign_ins_lie_in_files_they_do_without_the_catalog(
    doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they lie in the database they cannot."""

    async def fail(*_: Any, **__: Any) -> None:
        raise CatalogError("The catalog is lost.")

    one = doors.one
    form = await one.code()
    is_shared = doors.catalogs[0].is_shared
    monkeypatch.setattr(doors.catalogs[0], "write", fail)
    granted = await one.client.post("/token", data=form)
    assert granted.status_code == (503 if is_shared else 200), granted.text
    if not is_shared:
        again = await renewed(one, granted.json()["refresh_token"], one.client_id)
        assert again.status_code == 200, again.text

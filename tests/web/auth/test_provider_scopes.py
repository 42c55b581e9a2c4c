"""Scopes at the provider: all of ours are asked for, and one that it grants otherwise shuts nobody out."""

from collections.abc import AsyncIterator

import pytest
from openid_fakes import OpenIdProvider
from test_lost_sign_in_store import Door, opened_door

pytestmark = pytest.mark.anyio


@pytest.fixture
async def door(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Door]:
    async with opened_door(monkeypatch, OpenIdProvider()) as made:
        yield made


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("granted", ["openid", "openid https://provider.example/auth/userinfo.email"])
async def test_a_person_is_let_in_whatever_scopes_the_provider_says_it_granted(door: Door, granted: str) -> None:
    """Some leave out `offline_access`, some name scopes by their addresses; the id token says who it is."""
    door.provider.granted = granted
    tokens = await door.tokens_of_somebody()
    found = await door.proxy.load_access_token(tokens["access_token"])
    assert found is not None and found.claims["sub"] == "ann-1"
    renewal = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": door.client_id}
    fresh = (await door.client.post("/token", data=renewal)).json()
    assert await door.proxy.load_access_token(fresh["access_token"]) is not None


@pytest.mark.long  # a third of a second of processor time
async def test_a_client_that_names_no_scopes_asks_for_all_of_ours(door: Door) -> None:
    """The provider hears them, and clients read them in the metadata."""
    await door.tokens_of_somebody()
    assert door.provider.asked[-1]["scope"] == "openid email"
    metadata = (await door.client.get("/.well-known/oauth-authorization-server")).json()
    assert metadata["scopes_supported"] == ["openid", "email"]


async def test_a_client_that_names_one_scope_asks_for_that_one(door: Door) -> None:
    """A scope of ours is no condition."""
    begun = await door.client.get("/authorize", params=await door.authorize() | {"scope": "openid"})
    page = await door.client.get(begun.headers["location"])
    assert "openid" in page.text and "email" not in page.text

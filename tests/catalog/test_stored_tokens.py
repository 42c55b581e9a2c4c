"""Tokens that gateways made for themselves, as they are stored: one of a kind each, for a day."""

from collections.abc import Mapping
from functools import partial

import pytest
from store_places import StorePlace

from smart_mcp_proxy.catalog import Catalog, TokenKind, agent_tokens

pytestmark = pytest.mark.anyio

NOW_S = 1_700_000_000.0
DAY_S = 86_400.0


async def confirm(catalog: Catalog, replica: str, digests: Mapping[TokenKind, str], now_s: float = NOW_S) -> None:
    await catalog.write(partial(agent_tokens.confirm_gateway_tokens, replica=replica, digests=digests, now_s=now_s))


async def found(catalog: Catalog, now_s: float = NOW_S) -> set[tuple[str, ...]]:
    return set(await catalog.read(partial(agent_tokens.find_gateway_tokens, now_s=now_s)))


async def test_a_gateway_has_the_tokens_that_it_confirmed_last(store: StorePlace) -> None:
    """Every other process sees them; those of the others stay."""
    async with store.opened() as one, store.opened() as two:
        await confirm(one, "a", {"agents": "a1", "operator": "a2"})
        await confirm(two, "b", {"agents": "b1"})
        assert await found(two) == {("agents", "a", "a1"), ("operator", "a", "a2"), ("agents", "b", "b1")}
        await confirm(one, "a", {"operator": "a3"})
        assert await found(two) == {("operator", "a", "a3"), ("agents", "b", "b1")}
        await confirm(one, "a", {})
        assert await found(one) == {("agents", "b", "b1")}


async def test_a_token_is_good_for_a_day_and_is_then_removed(store: StorePlace) -> None:
    """A clock that was set back, or a time that is far ahead, makes none last longer."""
    async with store.opened() as catalog:
        await confirm(catalog, "a", {"agents": "a1"})
        for now_s, is_good in ((NOW_S + DAY_S - 1, True), (NOW_S + DAY_S, False), (NOW_S - DAY_S, False)):
            assert bool(await found(catalog, now_s)) == is_good
        await confirm(catalog, "a", {"agents": "a1"}, NOW_S + DAY_S - 1)
        assert await found(catalog, NOW_S + DAY_S) == {("agents", "a", "a1")}
        await confirm(catalog, "b", {}, NOW_S + 2 * DAY_S)
        assert store.rows("SELECT * FROM gateway_tokens") == []

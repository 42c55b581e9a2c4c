"""Toolsets in the catalog's file: kept for whoever asks by handle, a bounded number for each principal."""

from functools import partial
from typing import Any

import pytest

from smart_mcp_proxy.catalog import Catalog, Toolset, toolsets
from smart_mcp_proxy.catalog.tables.toolsets import KEPT_PER_PRINCIPAL

pytestmark = pytest.mark.anyio

NOW_S = 1_700_000_000.0
DAY_S = 86_400.0


def made(handle: str, principal: str = "local", expires_s: float = NOW_S + 3600) -> Toolset:
    return Toolset(handle, principal, "work", ((7, "sha256:aa"), (3, "sha256:bb")), expires_s)


async def stored(catalog: Catalog, toolset: Toolset, now_s: float = NOW_S) -> None:
    await catalog.write(partial(toolsets.store, toolset=toolset, now_s=now_s))


async def found(catalog: Catalog, handle: str) -> Toolset | None:
    return await catalog.read(partial(toolsets.find, handle=handle))


async def test_a_toolset_is_found_by_its_handle_in_every_process(store: Any) -> None:
    """Whole, and in the order of its tools; the letter counts."""
    async with store.opened() as catalog, store.opened() as other:
        await stored(catalog, made("aB"))
        assert await found(other, "aB") == made("aB")
        assert await found(other, "ab") is None


async def test_of_many_handles_those_that_are_kept_are_found_at_once(store: Any) -> None:
    """As many as a gateway holds in memory; the letter counts here too."""
    async with store.opened() as catalog:
        for handle in ("aB", "cd"):
            await stored(catalog, made(handle))
        asked = ["aB", "ab", "cd", *map(str, range(1_021))]
        assert await catalog.read(partial(toolsets.filter_stored, handles=asked)) == {"aB", "cd"}
        assert await catalog.read(partial(toolsets.filter_stored, handles=[])) == frozenset()


@pytest.mark.long  # half a second of work and more
async def test_the_oldest_of_a_principal_leave_first(store: Any) -> None:
    """Each has room for 256; nobody's pushes out another's."""
    async with store.opened() as catalog:
        await stored(catalog, made("other", "someone"))
        for number in range(KEPT_PER_PRINCIPAL + 2):
            await stored(catalog, made(str(number)))
        kept = [number for number in range(KEPT_PER_PRINCIPAL + 2) if await found(catalog, str(number))]
        assert kept == list(range(2, KEPT_PER_PRINCIPAL + 2))
        assert await found(catalog, "other")


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_wall_clock_that_jumps_a_day_drops_nothing(store: Any, jump_s: float) -> None:
    """What is dropped for its age ended days ago."""
    async with store.opened() as catalog:
        await stored(catalog, made("used"))
        await stored(catalog, made("new", expires_s=NOW_S + jump_s + 3600), NOW_S + jump_s)
        assert await found(catalog, "used")
        await stored(catalog, made("late"), NOW_S + 4 * DAY_S)
        assert await found(catalog, "used") is None

"""Sealed values and leases: kept until they end, the oldest making room, one holder at a time."""

import asyncio
import sys
import threading
from functools import partial
from typing import Any

import anyio
import pytest
from store_places import HandClock, StorePlace

from smart_mcp_proxy.catalog import Catalog, SealedValue, sealed
from smart_mcp_proxy.errors import CatalogError

pytestmark = pytest.mark.anyio

KEY_TAKER = """
import asyncio, secrets, sys
from functools import partial
from pathlib import Path
from smart_mcp_proxy.catalog import Catalog, gateway_key

async def main():
    async with Catalog.open(Path(sys.argv[1]), name_limit=60, url=sys.argv[2] or None) as catalog:
        sys.stdout.write("ready\\n"); sys.stdout.flush()
        sys.stdin.readline()
        take = partial(gateway_key, name="k", made=secrets.token_bytes(32))
        sys.stdout.write((await catalog.write(take, is_ordered=False)).hex())

asyncio.run(main())
"""


async def write(catalog: Catalog, work: Any, **given: Any) -> Any:
    return await catalog.write(partial(work, **given), is_ordered=False)


async def find(catalog: Catalog, key: str) -> bytes | None:
    value = await catalog.read(partial(sealed.find, kind="k", key=key, now_s=catalog.now_s()))
    return None if value is None else value.box


async def test_a_value_is_kept_until_it_ends(store: StorePlace, clock: HandClock) -> None:
    """Then it is as if there were none; a later one takes an earlier one's place, and has another stamp."""
    async with store.opened(clock=clock) as catalog:
        assert await find(catalog, "a") is None
        for box, stamp in ((b"first", "1"), (b"second", "2")):
            await write(catalog, sealed.store, value=SealedValue("k", "a", box, stamp, clock.now_s + 10))
        await write(catalog, sealed.store, value=SealedValue("other", "a", b"another", "3", None))
        assert await find(catalog, "a") == b"second"
        assert await catalog.read(partial(sealed.read_stamps, kind="k")) == {"a": "2"}
        clock.now_s += 10
        assert await find(catalog, "a") is None
        assert await write(catalog, sealed.drop, kind="k", key="a")
        assert not await write(catalog, sealed.drop, kind="k", key="a")


async def test_who_waits_no_longer_leaves_the_work_as_it_is(store: StorePlace) -> None:
    """A store that stands still is given up for a request; it is not lost, and does what it was asked for."""
    may_go_on = threading.Event()
    value = SealedValue("k", "a", b"late", "1", None)
    async with store.opened() as catalog:
        stands = threading.Event()
        standing = asyncio.create_task(catalog.read(lambda _: (stands.set(), may_go_on.wait(20))[1]))
        await asyncio.to_thread(stands.wait, 20)
        try:
            with pytest.raises(CatalogError, match=r"has not answered for 0\.01 s"):
                await catalog.write(partial(sealed.store, value=value), is_ordered=False, limit_s=0.01)
            with pytest.raises(CatalogError, match=r"has not answered for 0\.01 s"):
                await catalog.read(partial(sealed.read_stamps, kind="k"), limit_s=0.01)
            assert not standing.done()
        finally:
            may_go_on.set()
        assert await standing
        assert await find(catalog, "a") == b"late"
        assert (catalog.problem, catalog.lost_since) == (None, None)


async def test_what_ends_first_makes_room(store: StorePlace, clock: HandClock) -> None:
    """Of its kind alone; what has ended goes, whatever its kind."""
    async with store.opened(clock=clock) as catalog:
        for number in range(5):
            until_s = clock.now_s + 10 + number
            await write(catalog, sealed.store, value=SealedValue("k", str(number), bytes(100), "", until_s))
        await write(catalog, sealed.store, value=SealedValue("other", "x", bytes(1000), "", clock.now_s + 1))
        await write(catalog, sealed.store, value=SealedValue("other", "y", bytes(1000), "", None))
        clock.now_s += 2
        await write(catalog, sealed.drop_oldest, kind="k", most_bytes=250, now_s=clock.now_s)
    assert store.rows("SELECT kind, key FROM sealed ORDER BY kind, key") == [("k", "3"), ("k", "4"), ("other", "y")]


async def test_a_lease_has_one_holder_until_it_is_given_back_or_ends(store: StorePlace, clock: HandClock) -> None:
    """A holder that died holds others up for its time; a clock set back holds up nobody for longer."""
    async with store.opened(clock=clock) as catalog:

        async def take(holder: str) -> bool:
            return bool(await write(catalog, sealed.take_lease, name="l", holder=holder, now_s=clock.now_s, life_s=60))

        assert [await take("a"), await take("b")] == [True, False]
        await write(catalog, sealed.drop_lease, name="l", holder="b")
        assert not await take("b")
        await write(catalog, sealed.drop_lease, name="l", holder="a")
        assert [await take("b"), await take("a")] == [True, False]
        clock.now_s += 60
        assert await take("a")
        clock.now_s -= 1
        assert not await take("b")  # another machine's clock, or one who has waited for the store
        clock.now_s -= 3600
        assert await take("b")


async def test_a_holder_renews_its_lease(store: StorePlace) -> None:
    """It has it for its whole time from then on."""
    async with store.opened() as catalog:
        for at_s, holder, has in (
            (0, "a", True),
            (50, "a", True),
            (100, "b", False),
            (110, "b", True),
            (110, "a", False),
        ):
            assert await write(catalog, sealed.take_lease, name="l", holder=holder, now_s=at_s, life_s=60) == has


async def test_all_on_a_store_have_the_key_that_the_first_has_made(store: StorePlace) -> None:
    """Of each name; once it is there a later process makes none, whatever it brings."""
    made = [bytes([number]) * 32 for number in range(4)]
    async with store.opened() as one, store.opened() as two:
        assert await write(one, sealed.gateway_key, name="k", made=made[0]) == made[0]
        assert await write(two, sealed.gateway_key, name="k", made=made[1]) == made[0]
        assert await write(two, sealed.gateway_key, name="other", made=made[2]) == made[2]
    async with store.opened() as later:
        assert await write(later, sealed.gateway_key, name="k", made=made[3]) == made[0]


@pytest.mark.long
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.soak)])
async def test_processes_that_ask_for_a_key_at_once_get_the_same(store: StorePlace, count: int) -> None:
    """It is one of those that they brought, and the store holds no other."""
    async with store.opened():
        pass
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-c", KEY_TAKER, str(store.data_dir), store.url or "")
    with anyio.fail_after(60):
        takers = [
            await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe) for _ in range(count)
        ]
        for taker in takers:
            assert taker.stdout is not None
            assert await taker.stdout.readline() == b"ready\n"
        ends = await asyncio.gather(*(taker.communicate(b"go\n") for taker in takers))
    assert [stderr for _, stderr in ends] == [b""] * count
    (key,) = {stdout for stdout, _ in ends}
    assert [bytes(kept).hex() for (kept,) in store.rows("SELECT key FROM gateway_keys WHERE name <> 'approvals'")] == [
        key.decode()
    ]

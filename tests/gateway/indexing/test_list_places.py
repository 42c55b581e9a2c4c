"""Places for lists that are read at the same time."""

import asyncio

import anyio

from smart_mcp_proxy.gateway.indexing.list_sync import UNKNOWN_ITEMS, ListPlaces

LIMIT_S = 5.0


async def hold(places: ListPlaces, items: int, inside: asyncio.Event, end: asyncio.Event) -> None:
    async with places.place(items):
        inside.set()
        await end.wait()


async def test_a_large_list_waits_for_the_one_that_is_read_and_a_small_one_does_not() -> None:
    """So that the memory that lists take for a moment does not grow with the number of servers."""
    places, end = ListPlaces(1_000, patience_s=60), asyncio.Event()
    first, second, small = (asyncio.Event() for _ in range(3))
    with anyio.fail_after(LIMIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(hold, places, 800, first, end)
            await first.wait()
            group.start_soon(hold, places, 800, second, asyncio.Event())
            group.start_soon(hold, places, 10, small, end)
            await small.wait()
            assert not second.is_set()
            end.set()
            await second.wait()
            group.cancel_scope.cancel()


async def test_a_list_that_is_larger_than_all_places_is_read_alone() -> None:
    """Nor does an unknown one count as nothing."""
    places, inside = ListPlaces(UNKNOWN_ITEMS, patience_s=60), asyncio.Event()
    with anyio.fail_after(LIMIT_S):
        async with places.place(50_000):
            waiting = asyncio.create_task(hold(places, 0, inside, inside))
            await anyio.wait_all_tasks_blocked()
            assert not inside.is_set()
        await waiting


async def test_servers_that_do_not_answer_keep_the_others_waiting_for_a_moment_only() -> None:
    """Where no list is finished for so long, the next one is read beside them."""
    places = ListPlaces(1_000, patience_s=0.01)
    with anyio.fail_after(LIMIT_S):
        async with places.place(1_000), places.place(1_000):
            assert repr(places) == "<ListPlaces 2000 of 1000 items>"

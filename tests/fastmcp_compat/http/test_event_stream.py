"""A session's event stream has one holder: who asks last."""

import asyncio
from functools import partial

import anyio
import pytest

from smart_mcp_proxy.fastmcp_compat.http.sessions import EventStream

pytestmark = pytest.mark.anyio


async def test_a_stream_whose_client_does_not_read_is_given_up() -> None:
    """It does not end when it is told to, and the next one is not kept waiting for it."""
    told: list[str] = []

    async def end() -> None:
        told.append("end")

    stream, second_is_served = EventStream(), asyncio.Event()

    async def stuck() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("given up")

    async def second() -> None:
        told.append("served")
        second_is_served.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(partial(stream.serve, stuck, end=end))
            await anyio.wait_all_tasks_blocked()
            group.start_soon(partial(stream.serve, second, end=end))
            await second_is_served.wait()
    assert told == ["end", "given up", "served"]


async def test_of_several_that_come_at_once_the_last_one_has_it() -> None:
    """Each ends the one before, and none is left over."""
    told: list[str] = []
    present = asyncio.Event()

    async def end() -> None:
        present.set()

    stream = EventStream()

    async def hold(number: int) -> None:
        async def answer() -> None:
            nonlocal present
            own = present = asyncio.Event()
            told.append(f"{number} begins")
            await own.wait()
            told.append(f"{number} ends")

        await stream.serve(answer, end=end)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(hold, number)
            await anyio.wait_all_tasks_blocked()
            assert told == ["0 begins", "0 ends", "1 begins", "1 ends", "2 begins"]
            present.set()

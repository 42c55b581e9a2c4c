"""The limit on a request's time: it ends what takes longer, and leaves other cancellations alone."""

import asyncio

import anyio
import pytest

from smart_mcp_proxy.upstream.http.raw_http import Deadline

pytestmark = pytest.mark.anyio


async def test_what_takes_longer_ends_with_a_timeout_and_nothing_else_is_cancelled() -> None:
    with anyio.fail_after(20):
        with pytest.raises(TimeoutError), Deadline(0.01):
            await asyncio.Event().wait()
        await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_what_ends_in_time_is_left_alone() -> None:
    with Deadline(30) as deadline:
        await asyncio.sleep(0)
    deadline.expire()  # too late to matter
    await asyncio.sleep(0)


async def test_it_can_be_brought_forward() -> None:
    async def work() -> str:
        try:
            with deadline:
                await asyncio.Event().wait()
        except TimeoutError:
            return "out of time"
        return "done"

    deadline = Deadline(3_600)
    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    deadline.expire()
    deadline.expire()
    with anyio.fail_after(20):
        assert await task == "out of time"


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def work() -> None:
        with deadline:
            await asyncio.Event().wait()

    for is_late in (False, True):
        deadline = Deadline(3_600)
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        if is_late:
            deadline.expire()
        with anyio.fail_after(20), pytest.raises(asyncio.CancelledError):
            await task

"""The one thread in which a store's SQL runs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from smart_mcp_proxy.telemetry import await_shielded

T = TypeVar("T")


class StoreThread:
    """Runs work one after the other, away from the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalog")

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in the store's thread, to its end even if the caller is cancelled."""
        return await await_shielded(self.submit(work))

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Let `work` begin when its turn comes."""
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        done.add_done_callback(_take_note)
        return done

    async def end(self, last: Callable[[], None]) -> None:
        """Runs `last` after all other work and ends the thread."""
        closed = self._thread.submit(last)
        self._thread.shutdown(wait=False)
        await await_shielded(asyncio.wrap_future(closed))


def _take_note(done: asyncio.Future[T]) -> None:
    """Looks at the error of work whose caller has gone: asyncio would report it as forgotten."""
    if not done.cancelled():
        done.exception()

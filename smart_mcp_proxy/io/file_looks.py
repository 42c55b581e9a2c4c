"""Waiting until files change: one thread looks at them once a second, for all who wait.

Refused: notifications of the system. They need a thread or descriptors as well, differ by system, tell of each write of
our own, and do not come for file systems of a network, so that one would look all the same.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

LOOK_S: Final = 1.0

Stamp = Callable[[], object]
"""Another value after a change. It is called in a thread, and raises nothing."""


class _Waiter(NamedTuple):
    stamp: Stamp
    seen: object
    future: asyncio.Future[object]

    def tell(self, found: object) -> None:
        if not self.future.done():
            self.future.set_result(found)


class FileLooks:
    """The thread, which sleeps while nobody waits."""

    def __init__(self) -> None:
        self._waiters: set[_Waiter] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<FileLooks for {len(self._waiters)}>"

    async def wait(self, stamp: Stamp, seen: object, limit_s: float | None = None) -> object:
        """The stamp once it is not `seen` any more, or `seen` after `limit_s`."""
        waiter = _Waiter(stamp, seen, asyncio.get_running_loop().create_future())
        with self._changed:
            self._waiters.add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="file looks", daemon=True)
                self._thread.start()
            self._changed.notify()
        try:
            async with asyncio.timeout(limit_s):
                return await waiter.future
        except TimeoutError:
            return seen
        finally:
            with self._changed:
                self._waiters.discard(waiter)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiters)
            time.sleep(LOOK_S)
            with self._changed:
                waiters = tuple(self._waiters)
            for waiter in waiters:
                if (found := waiter.stamp()) != waiter.seen:
                    with suppress(RuntimeError):  # its loop has ended
                        waiter.future.get_loop().call_soon_threadsafe(waiter.tell, found)


file_looks: Final = FileLooks()
"""A process has one."""

"""An event loop in a thread of its own: work on it ends at its deadline, whatever the other side does."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for threads that wait no longer than they want to.

    A socket's own timeout starts again with every byte; a coroutine can be cancelled, which closes its connection.

    Args:
        name: Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def run_and_wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run `work` on the loop and wait for it; callable from any thread but the loop's.

        Raises:
            TimeoutError: It took longer than `timeout_s`, and was cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()  # nothing happens to what is done

    def close(self, last: Coroutine[Any, Any, object]) -> None:
        """Ends the thread after `last`; does not wait for it."""

        async def end() -> None:
            try:
                await last
            finally:
                self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

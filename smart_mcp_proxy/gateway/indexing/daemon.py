"""Long work in a thread that does not hold up the end of the process."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def run_in_daemon(work: Callable[[], T], name: str) -> T:
    """Run `work` in a daemon thread; returns what it returns, raises what it raises.

    Loading a model takes many seconds and cannot be interrupted: a pool's thread would be waited for at the end.
    Whoever is cancelled meanwhile leaves the thread to itself.
    """
    future: Future[T] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except Exception as exc:  # noqa: BLE001  # boundary: it is raised where the work was asked for
            future.set_exception(exc)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(future)

"""A limit on the time that a request may take."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Deadline:
    """Time limit of a `with` block, like `asyncio.timeout` for a third of the cost.

    Args:
        seconds: From entering on.
        renewed_until_s: Asked then whether it ends later, on the event loop's clock; None if it never does.
    """

    __slots__ = ("_cancelling", "_handle", "_is_expired", "_is_over", "_renewed_until_s", "_seconds", "_task")

    def __init__(self, seconds: float, renewed_until_s: Callable[[], float] | None = None) -> None:
        self._seconds = seconds
        self._renewed_until_s = renewed_until_s
        self._is_expired = self._is_over = False

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._handle = loop.call_later(self._seconds, self._look)
        return self

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if self._renewed_until_s is not None and (until_s := self._renewed_until_s()) > loop.time():
            self._handle = loop.call_at(until_s, self._look)
        else:
            self.expire()

    def expire(self) -> None:
        """Ends the block now, if it has not ended."""
        if not self._is_over:
            self._handle.cancel()
            self._is_expired = self._is_over = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        self._is_over = True
        if self._is_expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

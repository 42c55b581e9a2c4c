"""A limit on the time that a request may take."""

import asyncio
from types import TracebackType
from typing import Self

__all__ = ["Deadline"]


class Deadline:
    """Time limit of a `with` block, like `asyncio.timeout` for a third of the cost.

    Args:
        seconds: From entering on.
    """

    __slots__ = ("_cancelling", "_handle", "_is_expired", "_is_over", "_seconds", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_expired = self._is_over = False

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._handle = loop.call_later(self._seconds, self.expire)
        return self

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

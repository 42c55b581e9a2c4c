"""Progress of one call: only forwards, not too often, and never in the way of the reply."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable
from dataclasses import replace
from typing import Final, TypeVar

from smart_mcp_proxy.models import OnProgress, Progress
from smart_mcp_proxy.telemetry import get_logger, spawn

__all__ = ["NO_FEED", "ProgressFeed"]

_PROMPT_REPORTS = 10
"""So many reports of a call are passed on as they come: a short call is told whole."""
_INTERVAL_S = 0.1
"""Of later ones at most ten a second reach the caller; a server may send thousands."""
_LAST_WORD_S = 1.0
"""How long a finished call may be held up by a listener that takes its last report."""
_MESSAGE_CHARS: Final = 1 << 16
"""Of one report, as of every other notification of a server that a client is told of."""

ResultT = TypeVar("ResultT")

_log = get_logger("upstream")


class ProgressFeed:
    """Relays one call's progress in its own task; cheap to create, as most calls have none.

    Args:
        on_progress: Where they go; None drops them.
    """

    __slots__ = ("_highest", "_is_over", "_offered", "_on_progress", "_pump", "_waiting")

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._highest: float | None = None
        self._offered = 0
        self._waiting: deque[Progress] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._is_over: asyncio.Event | None = None

    async def around(self, request: Awaitable[ResultT]) -> ResultT:
        """The result of the request whose reports come here, once the caller has the last of them."""
        try:
            result = await request
            if self._is_over is not None:
                await self._finish(self._is_over)
            return result
        finally:
            self._on_progress = None  # what comes late is dropped
            if self._pump is not None:
                self._pump.cancel()

    def offer(self, report: Progress) -> None:
        """Takes a report; one that does not go beyond the last is dropped, a late one that waits is replaced."""
        if self._on_progress is None or (self._highest is not None and report.progress <= self._highest):
            return
        if self._waiting is None or self._is_over is None:
            self._waiting, self._is_over = deque(), asyncio.Event()
        self._highest = report.progress
        self._offered += 1
        if self._offered > _PROMPT_REPORTS and self._waiting:
            self._waiting.pop()
        self._waiting.append(_bounded(report))
        if self._pump is None or self._pump.done():
            self._pump = spawn(self._deliver_all(self._waiting, self._is_over), "upstream-progress")

    async def _finish(self, is_over: asyncio.Event) -> None:
        """Delivers the last report, if it still waits and its listener takes it."""
        is_over.set()
        if self._pump is not None:
            await asyncio.wait({self._pump}, timeout=_LAST_WORD_S)

    async def _deliver_all(self, waiting: deque[Progress], is_over: asyncio.Event) -> None:
        while waiting:
            await self._deliver(waiting.popleft())
            if self._offered < _PROMPT_REPORTS:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await is_over.wait()

    async def _deliver(self, report: Progress) -> None:
        if self._on_progress is None:
            return
        try:
            await self._on_progress(report)
        except Exception as exc:  # noqa: BLE001  # boundary: callback fan-out; a listener must not fail the call
            _log.warning("a progress listener failed: %s", exc)


def _bounded(report: Progress) -> Progress:
    """The report without words that are longer than any that somebody reads: several wait at a time."""
    size = len(report.message or "")
    if size <= _MESSAGE_CHARS:
        return report
    return replace(report, message=f"(a message of {size:,} characters is left out)")


NO_FEED = ProgressFeed(None)
"""Of every call whose progress nobody asked for."""

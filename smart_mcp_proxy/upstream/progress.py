"""Progress of one call: only forwards, not too often, and never in the way of the reply."""

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import Self

from smart_mcp_proxy.models import OnProgress, Progress
from smart_mcp_proxy.telemetry import get_logger, spawn

__all__ = ["NO_FEED", "ProgressFeed"]

_PROMPT_REPORTS = 10
"""So many reports of a call are passed on as they come: a short call is told whole."""
_INTERVAL_S = 0.1
"""Of later ones at most ten a second reach the caller; a server may send thousands."""
_LAST_WORD_S = 1.0
"""How long a finished call may be held up by a listener that takes its last report."""

_log = get_logger("upstream")


class ProgressFeed:
    """Passes the reports of one call on, in its own task; on leaving, the last one is delivered if it still waits.

    Args:
        on_progress: Where they go; None drops them.
    """

    def __init__(self, on_progress: OnProgress | None) -> None:
        self._on_progress = on_progress
        self._highest: float | None = None
        self._offered = 0
        self._waiting: deque[Progress] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()

    def offer(self, report: Progress) -> None:
        """Takes a report; one that does not go beyond the last is dropped, a late one that waits is replaced."""
        if self._on_progress is None or (self._highest is not None and report.progress <= self._highest):
            return
        self._highest = report.progress
        self._offered += 1
        if self._offered > _PROMPT_REPORTS and self._waiting:
            self._waiting.pop()
        self._waiting.append(report)
        if self._pump is None or self._pump.done():
            self._pump = spawn(self._deliver_all(), "upstream-progress")

    async def _deliver_all(self) -> None:
        while self._waiting:
            await self._deliver(self._waiting.popleft())
            if self._offered < _PROMPT_REPORTS:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._is_over.wait()

    async def _deliver(self, report: Progress) -> None:
        if self._on_progress is None:
            return
        try:
            await self._on_progress(report)
        except Exception as exc:  # noqa: BLE001  # boundary: callback fan-out; a listener must not fail the call
            _log.warning("a progress listener failed: %s", exc)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pump is None:
            return
        self._is_over.set()
        if exc is None:
            await asyncio.wait({self._pump}, timeout=_LAST_WORD_S)
        self._pump.cancel()
        await asyncio.wait({self._pump})


NO_FEED = ProgressFeed(None)
"""Of every call whose progress nobody asked for."""

"""Progress of one call: only forwards, not too often, and never in the way of the reply."""

import asyncio
import contextlib
from collections import deque
from dataclasses import replace
from typing import Final

from smart_mcp_proxy.models import OnProgress, ProgressReport
from smart_mcp_proxy.telemetry import get_logger, spawn

_PROMPT_REPORTS = 10
"""So many reports of a call are passed on as they come: a short call is told whole."""
_INTERVAL_S = 0.1
"""Of later ones at most ten a second reach the caller; a server may send thousands."""
_LAST_WORD_S = 1.0
"""How long a finished call may be held up by a listener that takes its last report."""
_MESSAGE_CHARS: Final = 1 << 16
"""Of one report, as of every other notification of a server that a client is told of."""

_log = get_logger("upstream")


class ProgressFeed:
    """Relays one call's progress in its own task.

    Args:
        on_progress: Where the reports go.
    """

    __slots__ = ("_highest", "_is_over", "_offered", "_on_progress", "_pump", "_waiting")

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress: OnProgress | None = on_progress
        self._highest: float | None = None
        self._offered = 0
        self._waiting = deque[ProgressReport]()
        self._pump: asyncio.Task[None] | None = None
        self._is_over = asyncio.Event()

    def offer(self, report: ProgressReport) -> None:
        """Takes a report; one that does not go beyond the last is dropped, a late one that waits is replaced."""
        if self._on_progress is None or (self._highest is not None and report.progress <= self._highest):
            return
        self._highest = report.progress
        self._offered += 1
        if self._offered > _PROMPT_REPORTS and self._waiting:
            self._waiting.pop()
        self._waiting.append(_drop_long_message(report))
        if self._pump is None or self._pump.done():
            self._pump = spawn(self._deliver_all(), "upstream-progress")

    async def finish(self) -> None:
        """Delivers the last report, if it still waits and its listener takes it."""
        self._is_over.set()
        if self._pump is not None:
            await asyncio.wait({self._pump}, timeout=_LAST_WORD_S)

    def close(self) -> None:
        """Drops what comes late, and what still waits."""
        self._on_progress = None
        if self._pump is not None:
            self._pump.cancel()

    async def _deliver_all(self) -> None:
        while self._waiting:
            await self._deliver(self._waiting.popleft())
            if self._offered < _PROMPT_REPORTS:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._is_over.wait()

    async def _deliver(self, report: ProgressReport) -> None:
        if self._on_progress is None:
            return
        try:
            await self._on_progress(report)
        except Exception as exc:  # noqa: BLE001  # boundary: callback fan-out; a listener must not fail the call
            _log.warning("a progress listener failed: %s", exc)


def _drop_long_message(report: ProgressReport) -> ProgressReport:
    """The report without words that are longer than any that somebody reads: several wait at a time."""
    size = len(report.message or "")
    if size <= _MESSAGE_CHARS:
        return report
    return replace(report, message=f"(a message of {size:,} characters is left out)")

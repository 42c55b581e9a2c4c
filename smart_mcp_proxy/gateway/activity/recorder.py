"""Records, of activity above all, written in batches off the call path."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Generic, Protocol, Self, TypeVar

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity.write_ahead_log import Journal
from smart_mcp_proxy.telemetry import get_logger, spawn

BATCH_S = 0.25
RETRY_S = 1.0
"""Pause before a batch that was refused is offered again."""
WAITING_LIMIT = 10_000
"""Records kept in memory while the store does not take any; older ones go first, and the log says how many.
Of long ones fewer: no more than the journal has room for."""

log = get_logger("recorder")

RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)


class Listener(Protocol[RecordT_contra]):
    """Follows what is recorded."""

    def note(self, record: RecordT_contra, /) -> None:
        """Takes a record in the middle of a call: keeps it, and does no more."""

    def fold(self) -> None:
        """Looks at the records that it keeps, and lets them go; never fails."""


@dataclass(eq=False, repr=False)
class Recorder(Generic[RecordT]):
    """Collects records and hands them to the store a few times a second.

    Attributes:
        store: Takes a batch; may fail with CatalogError, then the batch is kept for the next time.
        noun: What the log calls the records.
        batch_s: How long a batch is collected.
        retry_s: Pause before a batch that was refused is offered again.
        journal: Keeps what the store does not have yet; None where a quarter of a second may be lost with a kill.
        listener: Follows what is recorded; None where nobody does.
    """

    store: Callable[[Sequence[RecordT]], Awaitable[None]]
    _: KW_ONLY
    noun: str = "activity records"
    batch_s: float = BATCH_S
    retry_s: float = RETRY_S
    journal: Journal | None = None
    listener: Listener[RecordT] | None = None

    def __post_init__(self) -> None:
        self._note = None if self.listener is None else self.listener.note
        self._is_refused = False
        self._storing = asyncio.Lock()
        self._waiting: deque[RecordT] = deque(maxlen=WAITING_LIMIT)
        self._dropped = 0
        self._most = WAITING_LIMIT
        self._under_way = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = spawn(self._run(), f"recorder of {self.noun}")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            async with self._storing:  # a batch on its way to the store must arrive
                self._task.cancel()
            await asyncio.wait([self._task])
        await self._flush()
        if self.journal is not None:
            await asyncio.to_thread(self.journal.close, is_stored=not (self._waiting or self._dropped))
        if left := len(self._waiting) + self._dropped:
            log.warning("%d %s %s: the catalog could not take them", left, self.noun, _fate(self.journal))

    def record(self, record: RecordT) -> None:
        """Takes one record; never waits and never fails."""
        if self.journal is None or self.journal.write(record):
            self._most = WAITING_LIMIT
        else:
            self._tighten()
        if self._note is not None:
            self._note(record)
        if len(self._waiting) >= self._most:
            self._waiting.popleft()
            self._dropped += 1
            self._fold()  # the listener keeps no more than is kept here
        self._waiting.append(record)
        self._wake.set()

    def _tighten(self) -> None:
        """Let no more records wait than there were when long ones filled the journal."""
        if self._most == WAITING_LIMIT:
            self._most = min(WAITING_LIMIT, max(1, len(self._waiting) + self._under_way))

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(self.batch_s)
            await self._flush()
            if self._is_refused:
                await asyncio.sleep(self.retry_s)
                self._wake.set()

    def _fold(self) -> None:
        if self.listener is not None:
            self.listener.fold()

    async def _flush(self) -> None:
        self._fold()
        async with self._storing:
            batch = list(self._waiting)
            self._waiting.clear()
            if not batch:
                return
            if self.journal is not None:
                self.journal.turn()
            self._under_way = len(batch)
            try:
                await self.store(batch)
            except CatalogError as exc:
                surplus = max(0, len(batch) + len(self._waiting) - self._most)
                self._dropped += len(batch[:surplus])
                self._waiting.extendleft(reversed(batch[surplus:]))
                # Once: a full disk stays full for a while, and agents go on calling.
                level = logging.DEBUG if self._is_refused else logging.WARNING
                log.log(level, "%d %s wait: %s", len(self._waiting), self.noun, exc)
                self._is_refused = True
                return
            finally:
                self._under_way = 0
            await self._settle()
        self._is_refused = False

    async def _settle(self) -> None:
        """Drop the journal's records that are stored now.

        Where others were dropped from memory the journal has those.
        """
        dropped, self._dropped = self._dropped, 0  # more may be dropped at any moment from here on
        if self.journal is None:
            if dropped:
                log.warning("%d %s were dropped", dropped, self.noun)
        elif not dropped:
            await asyncio.to_thread(self.journal.discard_stored)
        # Not in a thread: a record that is written meanwhile must find the old files or the new ones.
        elif self.journal.leave():
            log.warning(
                "%d %s were too many to hold; they are stored from the journal, as far as it took them",
                dropped,
                self.noun,
            )
        else:
            self._dropped += dropped


def _fate(journal: Journal | None) -> str:
    """Describe for the log what becomes of records that were not stored."""
    if journal is None:
        return "are lost"
    return "wait for the next gateway" + (", as far as the journal took them" if journal.has_missed else "")

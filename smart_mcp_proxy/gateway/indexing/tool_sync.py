"""Synchronises catalog and index with the servers' tools: merges repeats, polls, follows."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anyio import move_on_after, to_thread

from smart_mcp_proxy.catalog import Catalog, Diff, Snapshot
from smart_mcp_proxy.errors import CatalogError, ProxyError
from smart_mcp_proxy.gateway.indexing.documents import document_of
from smart_mcp_proxy.gateway.shared.readiness import FIRST_LIST_S
from smart_mcp_proxy.gateway.shared.refusals import tool_differs_here
from smart_mcp_proxy.models import Review, ServerState, ServerStatus, ToolRecord
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream import Fleet

__all__ = ["AskPolicy", "Indexer", "Pace"]

MERGE_S = 0.2
"""Notifications within this time are answered by one listing."""
POLL_S = 300.0
"""Source: seeds/3_mcp_protocol_surface.md, Tool Change Notifications."""
RETRY_S = 15.0
"""Pause after a listing that failed while the server stayed connected; half a listing's limit."""
FOLLOW_S = 1.0
"""How often other processes' writes are looked for; they must be seen within 2 s."""

AskPolicy = Callable[[str, Sequence[Mapping[str, Any]]], Awaitable[Review | None]]
"""What the policy of the named server says to its list."""

log = get_logger("indexer")


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals of the sync worker.

    Attributes:
        merge_s: Notifications within this time are answered by one listing.
        poll_s: How often a server that says nothing is listed again.
        retry_s: Pause after a listing that failed.
        follow_s: How often other processes' writes are looked for.
    """

    merge_s: float = MERGE_S
    poll_s: float = POLL_S
    retry_s: float = RETRY_S
    follow_s: float = FOLLOW_S


_PACE = Pace()


class Indexer:
    """Lists servers and brings what changed to the catalog and from there to the index.

    One worker per server; a notification that arrives while a listing runs starts another one after it.

    Args:
        catalog: The truth.
        index: Follows it, as far as tools are visible.
        sees: Whether a tool is visible.
        clock: Monotonic seconds.
        pace: How often it looks.
        review: What a server's policy says to a list; None for the catalog's own default.
        uses_examples: Whether questions learned from use are searched with.
    """

    def __init__(
        self,
        catalog: Catalog,
        index: SearchIndex,
        sees: Callable[[ToolRecord], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        pace: Pace = _PACE,
        review: AskPolicy | None = None,
        uses_examples: bool = False,
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._sees = sees
        self._indexed: dict[int, ToolRecord] = {}
        self._indexing = threading.Lock()
        self._brought: Snapshot | None = None
        """What the index holds the visible tools of."""
        self._clock = clock
        self._pace = pace
        self._review = review
        self._uses_examples = uses_examples
        self._fleet: Fleet | None = None
        self._dirty: dict[str, asyncio.Event] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._listed_s: dict[str, float] = {}
        self._fresh: set[str] = set()
        self._failed: set[str] = set()
        self._changed = asyncio.Event()
        self.loaded = asyncio.Event()
        self.problems: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<Indexer {len(self._index)} tools, {len(self._fresh)} servers fresh>"

    def start(self, fleet: Fleet) -> None:
        """Loads the stored catalog into the index and follows `fleet` from then on."""
        self._fleet = fleet
        self._tasks = [spawn(self._load(), "index load"), spawn(self._follow(), "catalog follow")]

    async def close(self) -> None:
        """Ends all workers."""
        tasks = [*self._tasks, *self._workers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def is_fresh(self, server: str) -> bool:
        """Whether the server's tools were listed on its present connection."""
        return server in self._fresh

    def is_done(self, server: str) -> bool:
        """Whether nothing is to be waited for: the server is listed, or its last listing failed."""
        return server in self._fresh or server in self._failed

    def age_s(self, servers: Iterable[str]) -> float | None:
        """Seconds since the last successful listing of any of `servers`; None if there was none.

        The listing of any process counts.

        Within this process by the monotonic clock; what came from the store has only the time of day.
        """
        if self._listed_s:
            return self._clock() - max(self._listed_s.values())
        stored = [at_s for server in servers if (at_s := self._catalog.last_sync_s(server)) is not None]
        return max(0.0, time.time() - max(stored)) if stored else None

    def tools_changed(self, server: str) -> None:
        """Lists the server again, soon; callable from any callback."""
        if server not in self._dirty:
            self._dirty[server] = asyncio.Event()
            self._workers[server] = spawn(self._work(server), f"index {server}")
        self._dirty[server].set()

    def status_changed(self, status: ServerStatus) -> None:
        """Marks a server's tools stale when it is not ready, and lists them when it becomes so."""
        self._failed.discard(status.name)
        if status.state is ServerState.READY:
            self.tools_changed(status.name)
        else:
            self._fresh.discard(status.name)
        self.announce()

    def announce(self) -> None:
        """Wakes whoever waits for a change now; who comes later waits for the next one."""
        self._changed.set()
        self._changed = asyncio.Event()

    def next_change(self) -> asyncio.Event:
        """Set when a listing ends, whatever the outcome, a server changes its state, or the tools change."""
        return self._changed

    async def wait_changed(self) -> None:
        """Returns at the next change."""
        await self._changed.wait()

    async def _load(self) -> None:
        await self._reconcile()
        self.loaded.set()
        log.debug("%d stored tools are searchable", len(self._index))

    async def _reconcile(self) -> None:
        """Brings the index to the present snapshot and visibility: only what differs is indexed."""
        await to_thread.run_sync(self._bring_up)
        self.announce()

    def _bring_up(self) -> None:
        # Done to its end under the lock even if the task that asked for it was cancelled: its server was removed.
        with self._indexing:
            snapshot = self._catalog.snapshot
            wanted = {id_: record for id_, record in snapshot.by_id.items() if self._sees(record)}
            changed = [record for id_, record in wanted.items() if self._indexed.get(id_) is not record]
            added = [document_of(record, has_examples=self._uses_examples) for record in changed]
            removed = self._indexed.keys() - wanted.keys()
            if added or removed:
                self._index.update(added, removed)
            self._indexed = wanted
            self._brought = snapshot

    async def _work(self, server: str) -> None:
        dirty, pace = self._dirty[server], self._pace
        await self.loaded.wait()
        while True:
            await _wait_or_timeout(dirty, pace.retry_s if server in self._failed else pace.poll_s)
            await asyncio.sleep(pace.merge_s if server in self._fresh else 0)
            dirty.clear()
            await self._list(server)

    async def _list(self, server: str) -> None:
        """One listing; a failure leaves the last good one in place, marked stale."""
        upstream = self._fleet.get(server) if self._fleet else None
        if upstream is None or upstream.status.state is not ServerState.READY:
            return
        connection = upstream.status.restarts
        try:
            listing = await upstream.list_tools()
            diff = await self._sync(server, listing.definitions)
        except ProxyError as exc:
            self._fresh.discard(server)
            self._failed.add(server)
            log.warning("tools of '%s' could not be listed, the last list stays: %s", server, exc)
            self.announce()
            return
        self._report(server, listing.problems)
        await self._reconcile()
        if upstream.status.state is ServerState.READY and upstream.status.restarts == connection:
            self._listed_s[server] = self._clock()
            self._fresh.add(server)
            self._failed.discard(server)
        log.info(
            "'%s': %d tools (%d new, %d changed, %d gone)",
            server,
            len(listing.definitions),
            len(diff.added),
            len(diff.changed),
            len(diff.removed),
        )
        self.announce()

    async def _sync(self, server: str, definitions: Sequence[Mapping[str, Any]]) -> Diff:
        if self._review is None:
            return await self._catalog.sync(server, definitions)
        return await self._catalog.sync(server, definitions, await self._review(server, definitions))

    async def wait_listed(self, server: str, limit_s: float = FIRST_LIST_S) -> None:
        """Waits for the first list of the server's present connection, at most `limit_s`."""
        with move_on_after(limit_s):
            while self.is_awaited(server):
                await self.wait_changed()

    def require_approved(self, record: ToolRecord) -> None:
        """Require the tool as approved in the list of this process, or no list yet.

        Raises:
            QuarantinedError: The server's own list holds another definition, or none.
        """
        listed = self._catalog.listed_hash(record.key)
        if listed is not None and listed != record.change_hash:
            raise tool_differs_here(record.key)

    def is_awaited(self, server: str) -> bool:
        """Whether a first list of the server's present connection is on its way."""
        if server in self._fresh:
            return False
        upstream = self._fleet.get(server) if self._fleet else None
        coming = (ServerState.CONNECTING, ServerState.READY)
        return upstream is not None and upstream.status.state in coming and not self.is_done(server)

    def _report(self, server: str, problems: tuple[str, ...]) -> None:
        if problems != self.problems.get(server, ()):
            for problem in problems:
                log.warning("%s", problem)
        self.problems[server] = problems

    async def forget(self, keep: Iterable[str]) -> None:
        """Removes the tools of servers that are neither in `keep` nor in use by another process."""
        keep = set(keep)
        self._fresh &= keep
        self._failed &= keep
        for server in (self._listed_s.keys() | self.problems.keys()) - keep:
            self._listed_s.pop(server, None)
            self.problems.pop(server, None)
        for server in self._workers.keys() - keep:
            self._workers.pop(server).cancel()
            del self._dirty[server]
        await self._catalog.forget_servers(keep)
        await self._reconcile()

    async def catch_up(self) -> None:
        """Update the index to the present snapshot, after a write to something other than tools."""
        await self.loaded.wait()
        await self._reconcile()

    async def follow(self) -> None:
        """Brings to the index what was written to the catalog, by whichever process, as far as it can be read."""
        await self.loaded.wait()
        try:
            changed = await self._catalog.refresh()
        except CatalogError as exc:
            log.warning("the catalog cannot be read, the last state serves: %s", exc)
            return
        # Another one may have read the change, and be about to bring it, or have been cancelled before it could.
        if changed or self._brought is not self._catalog.snapshot:
            await self._reconcile()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(self._pace.follow_s)
            await self.follow()


async def _wait_or_timeout(event: asyncio.Event, timeout_s: float) -> None:
    with move_on_after(timeout_s):
        await event.wait()

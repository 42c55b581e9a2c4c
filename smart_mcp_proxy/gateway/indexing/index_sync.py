"""Keeps the search index equal to the catalog's visible tools, other processes' writes included."""

import asyncio
import threading
from collections.abc import Callable

from anyio import to_thread

from smart_mcp_proxy.catalog import Catalog, Snapshot
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.indexing.documents import document_of
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.models import ToolRecord
from smart_mcp_proxy.search import SearchIndex
from smart_mcp_proxy.telemetry import get_logger, spawn

__all__ = ["FOLLOW_S", "IndexSync"]

FOLLOW_S = 1.0
"""How often other processes' writes are looked for; they must be seen within 2 s."""

log = get_logger("index")


class IndexSync:
    """Brings what changed in the catalog to the index.

    Args:
        catalog: The truth.
        index: Follows it, as far as tools are visible.
        sees: Whether a tool is visible.
        changes: Told when the index has changed.
        follow_s: How often other processes' writes are looked for.
        uses_examples: Whether questions learned from use are searched with.
    """

    def __init__(
        self,
        catalog: Catalog,
        index: SearchIndex,
        sees: Callable[[ToolRecord], bool],
        changes: Changes,
        *,
        follow_s: float = FOLLOW_S,
        uses_examples: bool = False,
    ) -> None:
        self._catalog = catalog
        self.index = index
        self.changes = changes
        self._sees = sees
        self._follow_s = follow_s
        self._uses_examples = uses_examples
        self._indexed: dict[int, ToolRecord] = {}
        self._indexing = threading.Lock()
        self._brought: Snapshot | None = None
        """What the index holds the visible tools of."""
        self._tasks: list[asyncio.Task[None]] = []
        self.loaded = asyncio.Event()

    def __repr__(self) -> str:
        return f"<IndexSync {len(self.index)} tools, {'loaded' if self.loaded.is_set() else 'loading'}>"

    def start(self) -> None:
        """Loads the stored catalog into the index and follows it from then on."""
        self._tasks = [spawn(self._load(), "index load"), spawn(self._keep_following(), "catalog follow")]

    async def close(self) -> None:
        """Ends the work in the background."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def catch_up(self) -> None:
        """Brings the index to the present snapshot and visibility: only what differs is indexed."""
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

    async def _load(self) -> None:
        await self._reconcile()
        self.loaded.set()
        log.debug("%d stored tools are searchable", len(self.index))

    async def _reconcile(self) -> None:
        await to_thread.run_sync(self._bring_up)
        self.changes.announce()

    def _bring_up(self) -> None:
        # Done to its end under the lock even if the task that asked for it was cancelled: its server was removed.
        with self._indexing:
            snapshot = self._catalog.snapshot
            wanted = {id_: record for id_, record in snapshot.by_id.items() if self._sees(record)}
            changed = [record for id_, record in wanted.items() if self._indexed.get(id_) is not record]
            added = [document_of(record, has_examples=self._uses_examples) for record in changed]
            removed = self._indexed.keys() - wanted.keys()
            if added or removed:
                self.index.update(added, removed)
            self._indexed = wanted
            self._brought = snapshot

    async def _keep_following(self) -> None:
        while True:
            await asyncio.sleep(self._follow_s)
            await self.follow()

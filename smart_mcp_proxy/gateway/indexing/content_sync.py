"""Synchronises stored prompts, resources and templates with the servers' lists.

The catalog holds them as it holds tools, on shelves of their own: the same digests, the same approvals, the same
guarantee that nothing unapproved is ever served.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from anyio import move_on_after

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.gateway.indexing.tool_sync import AskPolicy, Pace
from smart_mcp_proxy.gateway.shared.readiness import FIRST_LIST_S
from smart_mcp_proxy.gateway.shared.refusals import content_differs_here
from smart_mcp_proxy.models import ContentKind, ServerState, ServerStatus, ToolRecord
from smart_mcp_proxy.names import IDENTITIES, server_of, shelf
from smart_mcp_proxy.telemetry import get_logger, spawn
from smart_mcp_proxy.upstream import Fleet, ToolListing, Upstream

__all__ = ["Shelves"]

METHOD_NOT_FOUND = -32601
_COMING = (ServerState.CONNECTING, ServerState.READY)
_PACE = Pace()

log = get_logger("contents")


class Shelves:
    """Lists what servers have besides tools and brings it to the catalog; one worker per server.

    Args:
        catalog: The truth.
        review: What a server's policy says to a list.
        catch_up: Called when the catalog has changed, with it maybe what another process wrote of tools.
        pace: How often it looks.
    """

    def __init__(
        self, catalog: Catalog, review: AskPolicy, catch_up: Callable[[], Awaitable[None]], *, pace: Pace = _PACE
    ) -> None:
        self.catalog = catalog
        self._review = review
        self._catch_up = catch_up
        self._pace = pace
        self._fleet: Fleet | None = None
        self._dirty: dict[str, asyncio.Event] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._fresh: set[str] = set()
        self._failed: set[str] = set()
        self._changed = asyncio.Event()
        self._problems: dict[str, tuple[str, ...]] = {}
        self._missed: set[str] = set()
        """Shelves whose first list did not arrive while nothing of their servers was known."""

    def __repr__(self) -> str:
        return f"<Shelves of {len(self._fresh)} servers>"

    def start(self, fleet: Fleet) -> None:
        """Asks the servers of `fleet` from now on."""
        self._fleet = fleet

    async def close(self) -> None:
        """Ends all workers."""
        for task in self._workers.values():
            task.cancel()
        if self._workers:
            await asyncio.wait(self._workers.values())

    def hearing(self, on_change: Callable[[ServerStatus], None]) -> Callable[[ServerStatus], None]:
        """`on_change`, with every change of a server's state heard here too."""

        def hear(status: ServerStatus) -> None:
            on_change(status)
            self._failed.discard(status.name)
            if status.state is ServerState.READY:
                self.changed(status.name)
            else:
                self._fresh.discard(status.name)
            self._wake()

        return hear

    def changed(self, server: str) -> None:
        """Lists the server again, soon; callable from any callback."""
        if server not in self._dirty:
            self._dirty[server] = asyncio.Event()
            self._workers[server] = spawn(self._work(server), f"contents of {server}")
        self._dirty[server].set()

    def forget(self, keep: Collection[str]) -> None:
        """Ends the work for servers that are not in `keep`."""
        keep = set(keep)
        self._fresh &= keep
        self._failed &= keep
        self._missed = {place for place in self._missed if server_of(place) in keep}
        for server in self._workers.keys() - keep:
            self._workers.pop(server).cancel()
            del self._dirty[server]
            self._problems.pop(server, None)

    def is_expected(self, server: str, kind: ContentKind) -> bool:
        """Whether nobody knows yet if the server has any: it was never listed, and is going to be."""
        upstream = self._fleet.get(server) if self._fleet else None
        if upstream is None or self.catalog.last_sync_s(shelf(server, kind)) is not None:
            return False
        return upstream.status.state in (*_COMING, ServerState.DISCONNECTED) and server not in self._failed

    async def wait_known(self, servers: Collection[str], kind: ContentKind, limit_s: float = FIRST_LIST_S) -> None:
        """Waits for the first lists of servers of which nobody knows yet if they have any, at most `limit_s`."""
        with move_on_after(limit_s):
            while any(self.is_expected(server, kind) for server in servers):
                await self._changed.wait()

    async def wait_listed(self, server: str, limit_s: float = FIRST_LIST_S) -> None:
        """Waits for the first list of the server's present connection, at most `limit_s`."""
        with move_on_after(limit_s):
            while self.is_awaited(server):
                await self._changed.wait()

    def require_approved(self, record: ToolRecord) -> None:
        """Require the item as approved in the list of this process, or no list yet.

        Raises:
            QuarantinedError: The server's own list holds another definition, or none.
        """
        listed = self.catalog.listed_hash(record.key)
        if listed is not None and listed != record.change_hash:
            raise content_differs_here(record.key)

    def is_awaited(self, server: str) -> bool:
        """Whether a first list of the server's present connection is on its way."""
        if server in self._fresh:
            return False
        upstream = self._fleet.get(server) if self._fleet else None
        return upstream is not None and upstream.status.state in _COMING and server not in self._failed

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _work(self, server: str) -> None:
        dirty, pace = self._dirty[server], self._pace
        while True:
            with move_on_after(pace.retry_s if server in self._failed else pace.poll_s):
                await dirty.wait()
            await asyncio.sleep(pace.merge_s if server in self._fresh else 0)
            dirty.clear()
            await self._list(server)

    async def _list(self, server: str) -> None:
        """One listing of all kinds; where one fails, its last good list stays in place."""
        upstream = self._fleet.get(server) if self._fleet else None
        if upstream is None or upstream.status.state is not ServerState.READY:
            return
        connection, before, problems = upstream.status.restarts, self.catalog.snapshot, list[str]()
        failures: dict[str, ProxyError] = {}
        for kind in IDENTITIES:
            try:
                problems += await self._list_kind(upstream, kind)
            except ProxyError as exc:
                failures[kind] = exc
        if failures:
            self._failed.add(server)
            kinds, why = ", ".join(failures), next(iter(failures.values()))
            log.warning("%s of '%s' could not be listed, the last lists stay: %s", kinds, server, why)
        else:
            self._report(server, tuple(problems))
            if upstream.status.state is ServerState.READY and upstream.status.restarts == connection:
                self._fresh.add(server)
                self._failed.discard(server)
        if self.catalog.snapshot is not before:
            log.debug("'%s': the catalog has other prompts or resources now", server)
            await self._catch_up()
        self._wake()

    async def _list_kind(self, upstream: Upstream, kind: ContentKind) -> tuple[str, ...]:
        """Brings one kind to the catalog; returns what was left out of it.

        Raises:
            ProxyError: It cannot be listed, or not stored.
        """
        place = shelf(upstream.name, kind)
        if place in self._missed:
            await self._close_first_list(place)
        try:
            listing = await _listed(upstream, kind)
        except UpstreamError as exc:
            self._missed.add(place)
            await self._close_first_list(place, has_answered=exc.was_answered)
            raise
        self._missed.discard(place)
        review = await self._review(place, listing.definitions)
        await self.catalog.sync(place, listing.definitions, review)
        return listing.problems

    async def _close_first_list(self, place: str, *, has_answered: bool = False) -> None:
        """Counts a first list that failed as empty, so that what comes later waits for the user.

        A first list is agreed to with its server, not at whatever later time the server likes to give it. That one
        failed is forgiven only where nothing of the server is known yet and it did not answer at all: its connection
        broke. Known servers that were never asked, those of a catalog without shelves, still have their first list.
        """
        is_late = has_answered or self.catalog.is_known(server_of(place))
        if is_late and not self.catalog.is_known(place):
            await self.catalog.sync(place, [])

    def _report(self, server: str, problems: tuple[str, ...]) -> None:
        if problems != self._problems.get(server, ()):
            for problem in problems:
                log.warning("%s", problem)
        self._problems[server] = problems


async def _listed(upstream: Upstream, kind: ContentKind) -> ToolListing:
    """List a server's items; empty where it does not know the method, whatever it declares."""
    try:
        return await upstream.list_contents(kind)
    except UpstreamError as exc:
        if (exc.data or {}).get("rpc_code") != METHOD_NOT_FOUND:
            raise
        return ToolListing()

"""Keeps the catalog equal to what servers list: tools, prompts, resources and templates alike.

All are stored, digested and approved in the same way; prompts, resources and templates under names of their own
(`names.shelf`). Nothing unapproved is ever served.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from logging import DEBUG, INFO
from typing import Any, Final

import msgspec
from anyio import move_on_after, to_thread

from smart_mcp_proxy.catalog import Catalog, Diff
from smart_mcp_proxy.conditions import CONDITIONS, LeftOut, Remark, build_left_out_remark, output_schemas
from smart_mcp_proxy.errors import ProxyError, UpstreamError
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.results.cleaning import clean_message
from smart_mcp_proxy.gateway.shared.output_schemas import why_uncompilable
from smart_mcp_proxy.io.memory import give_back
from smart_mcp_proxy.models import ContentKind, Review, ServerState, ServerStatus
from smart_mcp_proxy.names import IDENTITIES, extract_server_name, shelf
from smart_mcp_proxy.servers import ToolFilter
from smart_mcp_proxy.telemetry import fields, get_logger, redact, spawn
from smart_mcp_proxy.upstream import Fleet, PersonalUpstream, ToolListing, Upstream

MERGE_S = 0.2
"""Notifications within this time are answered by one listing."""
POLL_S = 300.0
"""Source: docs/design/protocol-surface.md#changes-of-lists"""
RETRY_S = 15.0
"""Pause after a listing that failed while the server stayed connected; half a listing's limit."""
METHOD_NOT_FOUND = -32601
_SAID_CHARS = 300
"""Characters of a server's words about a list that failed; they stand in every table, and in every search."""
LARGE_ITEMS = 1_000
"""A list after which freed memory is given back: it took some megabytes, and the next one takes others."""
LONGEST_PAUSE_S: Final = 8.0
"""Between readings of a server whose notices bring nothing new: a real change is seen within it."""
_GROWTH: Final = 4.0
"""Factor by which the pause grows with each such reading: 5 of them in the first 20 s instead of 80."""
MOST_ITEMS: Final = 4_000
"""Reading so many definitions takes 30 MB for a moment; small lists of some hundred servers together have no more."""
UNKNOWN_ITEMS: Final = 125
"""Items that a list counts as which nobody has seen before."""
PATIENCE_S: Final = 2.0
"""If no list was finished for so long, those that are read wait for servers, and the next one waits no longer."""

_OWN_FAULT = ProxyError("The gateway failed while it read the list.", hint="Its log says where: report it.")
_COMING = (ServerState.CONNECTING, ServerState.READY)

AskPolicy = Callable[[str, Sequence[Mapping[str, Any]]], Awaitable[Review | None]]
"""Function that asks the policy of the named server about its list."""
Wait = Callable[[asyncio.Event, float], Awaitable[None]]
"""Returns when the event is set, at the latest after so many seconds."""

log = get_logger("lists")


class Kind(msgspec.Struct, frozen=True):
    """Kind of definition that servers list, such as tools or prompts.

    Attributes:
        name: As users read it.
        fetch: Lists all that a server has of it; empty where it has none. Raises `UpstreamError`.
        place: The catalog's name for what the named server lists.
        is_closed_by_failure: Whether a first list that fails counts as an empty one, so that what comes later waits
            for the user.
    """

    name: str
    fetch: Callable[[Upstream], Awaitable[ToolListing]]
    place: Callable[[str], str]
    is_closed_by_failure: bool


async def _contents(upstream: Upstream, kind: ContentKind) -> ToolListing:
    """List a server's items; empty where it does not know the method, whatever it declares."""
    try:
        return await upstream.list_contents(kind)
    except UpstreamError as exc:
        if (exc.data or {}).get("rpc_code") != METHOD_NOT_FOUND:
            raise
        return ToolListing()


TOOLS = (Kind("tools", lambda upstream: upstream.list_tools(), str, is_closed_by_failure=False),)
CONTENTS = tuple(
    Kind(kind, partial(_contents, kind=kind), partial(shelf, kind=kind), is_closed_by_failure=True)
    for kind in IDENTITIES
)


async def wait_at_most(event: asyncio.Event, limit_s: float) -> None:
    """Return when the event is set, at the latest after `limit_s`."""
    with move_on_after(limit_s):
        await event.wait()


class Pace(msgspec.Struct, frozen=True):
    """Intervals of a worker, and how they pass.

    Attributes:
        merge_s: Notifications within this time are answered by one listing.
        longest_s: Longest pause between listings of a server that announces changes and makes none.
        poll_s: How often a server that says nothing is listed again.
        retry_s: Pause after a listing that failed.
        clock: Monotonic seconds.
        wait: Waits for an event.
    """

    merge_s: float = MERGE_S
    longest_s: float = LONGEST_PAUSE_S
    poll_s: float = POLL_S
    retry_s: float = RETRY_S
    clock: Callable[[], float] = time.monotonic
    wait: Wait = wait_at_most


_PACE = Pace()


class Notices:
    """Notices of one server; some servers send one whenever they are read.

    Those within `merge_s` are read together. With each reading that shows nothing new the next one waits longer. A
    notice that comes during a pause is read at its end.

    Args:
        merge_s: The shortest pause.
        longest_s: The longest one.
        clock: Monotonic seconds.
        wait: Waits for an event.
    """

    def __init__(self, merge_s: float, longest_s: float, clock: Callable[[], float], wait: Wait) -> None:
        self._merge_s = merge_s
        self._longest_s = longest_s
        self._clock = clock
        self._wait = wait
        self._pause_s = merge_s
        self._read_s = -math.inf
        self._has_any = asyncio.Event()
        self._is_urgent = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Notices {'waiting' if self._has_any.is_set() else 'none'}, pause {self._pause_s:g} s>"

    def note(self) -> None:
        """Have the lists read after the pause."""
        self._has_any.set()

    def hurry(self) -> None:
        """Have the lists read at once: the server has just connected, or a user asks."""
        self._pause_s = self._merge_s
        self._is_urgent.set()
        self._has_any.set()

    async def due(self, limit_s: float) -> None:
        """Return when the lists are to be read.

        Args:
            limit_s: When that is without any notice.
        """
        await self._wait(self._has_any, limit_s)
        idle_s = self._clock() - self._read_s
        if idle_s > self._longest_s:  # no answer to a reading, so no loop
            self._pause_s = self._merge_s
        await self._wait(self._is_urgent, max(self._merge_s, self._pause_s - idle_s))
        self._has_any.clear()
        self._is_urgent.clear()

    def read(self, *, is_changed: bool) -> None:
        """Note that the lists were read, and whether they held anything new."""
        self._read_s = self._clock()
        self._pause_s = self._merge_s if is_changed else min(self._longest_s, self._pause_s * _GROWTH)


class ListPlaces:
    """Lets a list be read while those that are read have few items together; one always may.

    Args:
        most_items: Of all lists that are read.
        patience_s: The next one does not wait longer while none is finished.
    """

    def __init__(self, most_items: int = MOST_ITEMS, patience_s: float = PATIENCE_S) -> None:
        self._most_items = most_items
        self._patience_s = patience_s
        self._items = 0
        self._finished = asyncio.Event()

    def __repr__(self) -> str:
        return f"<ListPlaces {self._items} of {self._most_items} items>"

    @asynccontextmanager
    async def place(self, known_items: int) -> AsyncIterator[None]:
        """A place for a list, as long as it is inside.

        Args:
            known_items: How many it had the last time; 0 for one that is unknown.
        """
        items = known_items or UNKNOWN_ITEMS
        while self._items and self._items + items > self._most_items:
            with move_on_after(self._patience_s) as waiting:
                await self._finished.wait()
            if waiting.cancelled_caught:
                break
        self._items += items
        try:
            yield
        finally:
            self._items -= items
            self._finished.set()
            self._finished = asyncio.Event()


@dataclass(eq=False)
class ListSync:
    """Lists servers and brings what changed to the catalog; one worker per server.

    A notification that arrives while a listing runs starts another one after it.

    Attributes:
        state: What has been listed, kept up to date here.
        fleet: The servers.
        catalog: The truth.
        kinds: What is listed; a server is fresh when it has listed all of them on its present connection.
        bring: Brings the catalog's changes to the index, before a server counts as fresh.
        review: What a server's policy says to a list; None for the catalog's own default.
        pace: How often it looks.
        loaded: Returns when the stored index serves; nothing is listed before, so that it serves sooner.
    """

    state: ListState
    fleet: Fleet
    catalog: Catalog
    kinds: Sequence[Kind]
    bring: Callable[[], Awaitable[None]]
    _: KW_ONLY
    review: AskPolicy | None = None
    pace: Pace = _PACE
    loaded: Callable[[], Awaitable[object]] | None = None

    def __post_init__(self) -> None:
        self._make_notices = partial(Notices, self.pace.merge_s, self.pace.longest_s, self.pace.clock, self.pace.wait)
        self._notices: dict[str, Notices] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._places = ListPlaces()
        self._partly_s: dict[str, float] = {}
        """Since when servers fail to list to some people."""
        self._missed: set[str] = set()
        """Places whose first list did not arrive while nothing of their servers was known."""
        self.problems: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<ListSync of {self._names()}, {len(self._workers)} servers>"

    async def close(self) -> None:
        """Ends all workers."""
        for task in self._workers.values():
            task.cancel()
        if self._workers:
            await asyncio.wait(self._workers.values())

    def list_soon(self, server: str) -> None:
        """Lists the server again, soon; callable from any callback."""
        self._ensure_notices(server).note()

    def list_now(self, server: str) -> None:
        """List the server again without a pause; callable from any callback."""
        self._ensure_notices(server).hurry()

    def status_changed(self, status: ServerStatus) -> None:
        """Marks a server's lists stale when it is not ready, and lists it when it becomes so."""
        if status.state is ServerState.READY:
            (self.list_soon if self.state.is_fresh(status.name) else self.list_now)(status.name)
        self.state.connection_changed(status)

    def forget(self, keep: Collection[str]) -> None:
        """Ends the work for servers that are not in `keep`."""
        keep = set(keep)
        self.state.forget(keep)
        self._missed = {place for place in self._missed if extract_server_name(place) in keep}
        self.problems = {server: problems for server, problems in self.problems.items() if server in keep}
        for server in self._workers.keys() - keep:
            self._workers.pop(server).cancel()
            del self._notices[server]

    def _ensure_notices(self, server: str) -> Notices:
        if server not in self._notices:
            self._notices[server] = self._make_notices()
            self._workers[server] = spawn(self._work(server), f"{self._names()} of {server}")
        return self._notices[server]

    def _count_stored_items(self, place: str) -> int:
        return len(self.catalog.snapshot.by_server.get(place, ()))

    def _names(self) -> str:
        return ", ".join(kind.name for kind in self.kinds)

    async def _work(self, server: str) -> None:
        notices = self._notices[server]
        if self.loaded is not None:
            await self.loaded()
        while True:
            await notices.due(self._find_pause_s(server))
            before = self._read_listed_hashes(server)
            try:
                await self._list(server)
            except Exception:  # boundary: top of a background task; one list must not end the worker
                log.exception("%s of '%s' could not be listed, an error of the gateway", self._names(), server)
                self._note_failure(server, self._names(), _OWN_FAULT)
            notices.read(is_changed=self._read_listed_hashes(server) != before)

    def _find_pause_s(self, server: str) -> float:
        """Find how long a quiet server is left alone; the longer, the longer it fails for some people."""
        if self.state.has_failed(server):
            return self.pace.retry_s
        upstream, now_s = self.fleet.upstreams.get(server), self.pace.clock()
        unlisted = upstream.unlisted if isinstance(upstream, PersonalUpstream) else {}
        if not any(unlisted.get(kind.name) for kind in self.kinds):
            self._partly_s.pop(server, None)
            return self.pace.poll_s
        return min(self.pace.poll_s, max(self.pace.retry_s, now_s - self._partly_s.setdefault(server, now_s)))

    def _read_listed_hashes(self, server: str) -> list[Mapping[str, str] | None]:
        return [self.catalog.get_listed_hashes(kind.place(server)) for kind in self.kinds]

    async def _list(self, server: str) -> None:
        """List all kinds of one server; where one fails, its last good list stays, marked stale."""
        upstream = self.fleet.upstreams.get(server)
        if upstream is None or not upstream.is_ready:
            return
        connection, before = upstream.status.restarts, self.catalog.snapshot
        found: dict[str, ToolListing] = {}
        failures: dict[str, ProxyError] = {}
        turn = asyncio.Lock()

        async def list_one(kind: Kind) -> None:
            try:
                found[kind.name] = await self._list_kind(upstream, kind, turn)
            except ProxyError as exc:
                failures[kind.name] = exc
            if self._count_stored_items(kind.place(server)) >= LARGE_ITEMS:
                await to_thread.run_sync(give_back)

        async with asyncio.TaskGroup() as group:  # side by side: what a server does not have is stored together
            for kind in self.kinds:
                group.create_task(list_one(kind))
        if self.catalog.snapshot is not before:
            await self.bring()
        is_same = upstream.is_ready and upstream.status.restarts == connection
        if failures:
            failed = [kind.name for kind in self.kinds if kind.name in failures]
            kinds, why = ", ".join(failed), failures[failed[0]]
            if is_same:  # else its state says why
                self._note_failure(server, kinds, why)
            log.warning("%s of '%s' could not be listed, the last list stays: %s", kinds, server, why)
        else:
            self._report(server, tuple(problem for kind in self.kinds for problem in found[kind.name].problems))
            unusable: tuple[LeftOut, ...] = ()
            remarks: tuple[Remark, ...] = ()
            if "tools" in found:  # in a thread: each definition is read
                unusable, remarks = await to_thread.run_sync(_inspect_listing, upstream.config.tools, found["tools"])
            is_same = is_same and upstream.is_ready and upstream.status.restarts == connection
            self.state.note_listing_success(server, is_present=is_same, left_out=unusable, remarks=remarks)

    def _note_failure(self, server: str, kinds: str, why: ProxyError) -> None:
        known = any(self._count_stored_items(kind.place(server)) for kind in self.kinds)
        self.state.note_listing_failure(server, *_failure(server, kinds, why, self.pace.retry_s, has_list=known))

    async def _list_kind(self, upstream: Upstream, kind: Kind, turn: asyncio.Lock) -> ToolListing:
        """Brings one kind to the catalog, and returns its list.

        Args:
            upstream: The server.
            kind: What is listed.
            turn: The server is asked for one kind at a time: it may take its time for each.

        Raises:
            ProxyError: It cannot be listed, or not stored.
        """
        place = kind.place(upstream.name)
        async with AsyncExitStack() as stack:
            async with turn:
                await stack.enter_async_context(self._places.place(self._count_stored_items(place)))
                listing = await self._fetch(upstream, kind, place)
            diff = await self._store(place, listing)
        log.log(
            INFO if listing.definitions or diff else DEBUG,
            "'%s': %d %s (%d new, %d changed, %d gone)",
            upstream.name,
            len(listing.definitions),
            kind.name,
            len(diff.added),
            len(diff.changed),
            len(diff.removed),
            extra=fields(server=upstream.name, kind=kind.name, listed=len(listing.definitions)),
        )
        return listing

    async def _fetch(self, upstream: Upstream, kind: Kind, place: str) -> ToolListing:
        if place in self._missed:
            await self._close_first_list(place)
        try:
            listing = await kind.fetch(upstream)
        except UpstreamError as exc:
            if kind.is_closed_by_failure:
                self._missed.add(place)
                await self._close_first_list(place, has_answered=exc.was_answered)
            raise
        self._missed.discard(place)
        return listing

    async def _store(self, place: str, listing: ToolListing) -> Diff:
        if self.review is None:
            return await self.catalog.sync(place, listing.definitions, folders=listing.folders, keep=listing.keep)
        review = await self.review(place, listing.definitions)
        return await self.catalog.sync(place, listing.definitions, review, listing.folders, listing.keep)

    async def _close_first_list(self, place: str, *, has_answered: bool = False) -> None:
        """Counts a first list that failed as empty, so that what comes later waits for the user.

        A first list is agreed to with its server, not at whatever later time the server likes to give it. That one
        failed is forgiven only where nothing of the server is known yet and it did not answer at all: its connection
        broke. Known servers that were never asked, those of a catalog of an older layout, still have their first list.
        """
        if has_answered or self.catalog.is_known(extract_server_name(place)):
            await self.catalog.close_first_list(place)

    def _report(self, server: str, problems: tuple[str, ...]) -> None:
        if problems != self.problems.get(server, ()):
            for problem in problems:
                log.warning("%s", problem)
        self.problems[server] = problems


def _failure(
    server: str, kinds: str, error: ProxyError, retry_s: float, *, has_list: bool
) -> tuple[UpstreamError, Remark]:
    """The error of calls for tools of a list that failed, and the remark for people."""
    row = CONDITIONS["list_stale" if has_list else "list_failed"]
    head = f"{row.message(server=server, kinds=kinds)} {error.message.removesuffix(error.said).rstrip()}"
    said = clean_message(error.said, is_cleaned=True)
    said = said if len(said) <= _SAID_CHARS else f"{said[:_SAID_CHARS]}..."
    hint = f"{row.hint.format(retry_s=retry_s)} {error.hint}".rstrip()
    told = UpstreamError(head, hint=hint, said=said, data={"state": "unlisted"}, retry_after_s=retry_s)
    end = "" if told.message.endswith((".", "!", "?")) else "."
    return told, Remark(told.message + end, hint, row.severity, told.message, said)


def _inspect_listing(tools: ToolFilter, listing: ToolListing) -> tuple[tuple[LeftOut, ...], tuple[Remark, ...]]:
    """The tools that cannot be used, and remarks on the list; without tools that the entry excludes."""
    remarks = []
    named = tuple(LeftOut(redact(each.name), each.cause) for each in listing.left_out if tools.allows(each.name))
    if named:
        count = listing.unusable - len(listing.left_out) + len(named)
        remarks.append(build_left_out_remark("tools", named, count, len(listing.definitions) + count))
    offered = (each for each in listing.definitions if tools.allows(each["name"]))
    kept = [(each["name"], why_uncompilable(each.get("outputSchema"))) for each in offered]
    if schemas := [LeftOut(redact(name), cause) for name, cause in kept if cause]:
        remarks.append(output_schemas(schemas))
    return named, tuple(remarks)

"""Freshness of servers' lists, waiting for a first list, and whether a server's list is here."""

import time
from collections.abc import Callable, Collection
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Final

from anyio import move_on_after

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.conditions import CONDITIONS, LeftOut, Remark
from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.gateway.shared.refusals import differs_here
from smart_mcp_proxy.models import PENDING_STATES, ContentKind, ServerState, ServerStatus, ToolRecord
from smart_mcp_proxy.names import extract_server_name, shelf
from smart_mcp_proxy.upstream import Fleet

FIRST_LIST_S = 5.0
"""Longest a request waits for the first list of a new connection. A server that has not shown any by then has not shown
another definition than the approved one either."""
_COMING = (ServerState.CONNECTING, ServerState.READY)


class ListState:
    """Freshness of the lists of all servers: of their tools, or of their prompts and resources.

    Args:
        fleet: The servers.
        catalog: Holds what was listed.
        changes: Told of every listing that ends and of every change of a server's state.
        clock: Monotonic seconds.
    """

    def __init__(
        self, fleet: Fleet, catalog: Catalog, changes: Changes, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.catalog = catalog
        self._fleet = fleet
        self._changes = changes
        self._clock = clock
        self._listed_s: dict[str, float] = {}
        self._fresh: set[str] = set()
        self._failed: dict[str, tuple[UpstreamError, Remark]] = {}
        self._left_out: dict[str, tuple[LeftOut, ...]] = {}
        self._remarks: dict[str, tuple[Remark, ...]] = {}

    def __repr__(self) -> str:
        return f"<ListState, {len(self._fresh)} servers fresh>"

    def connection_changed(self, status: ServerStatus) -> None:
        """Note that a server connected or went away: what is known of it is stale while it is not ready."""
        self._failed.pop(status.name, None)
        if status.state is not ServerState.READY:
            self._fresh.discard(status.name)
        self._changes.announce()

    def note_listing_success(
        self, server: str, *, is_present: bool, left_out: tuple[LeftOut, ...] = (), remarks: tuple[Remark, ...] = ()
    ) -> None:
        """Note a listing that was brought to catalog and index.

        Args:
            server: Configured name.
            is_present: Whether the connection that it came from is still the server's own.
            left_out: The definitions that cannot be used.
            remarks: On these and others.
        """
        if is_present:
            self._listed_s[server] = self._clock()
            self._fresh.add(server)
            self._failed.pop(server, None)
            self._left_out[server], self._remarks[server] = left_out, remarks
        self._changes.announce()

    def note_listing_failure(self, server: str, error: UpstreamError, remark: Remark) -> None:
        """Note a listing that failed: the error for calls, and the remark for people."""
        self._fresh.discard(server)
        self._failed[server] = (error, remark)
        self._changes.announce()

    def remarks(self, server: str) -> tuple[Remark, ...]:
        """Remarks on the server's present list; empty where all of it can be used."""
        if (failed := self._failed.get(server)) is not None:
            return (failed[1],)
        return self._remarks[server] if server in self._fresh else ()

    def failure(self, server: str) -> UpstreamError | None:
        """Why the last listing on the server's present connection failed; None if it did not."""
        failed = self._failed.get(server)
        return None if failed is None else copy(failed[0])

    def why_left_out(self, server: str, tool: str) -> UpstreamError | None:
        """Why a tool that the server lists cannot be used; None for every other name."""
        if server not in self._fresh:
            return None
        cause = next((each.cause for each in self._left_out[server] if each.name == tool), None)
        if cause is None:
            return None
        row = CONDITIONS["tool_left_out"]
        return UpstreamError(
            row.message(server=server, tool=tool, cause=cause), hint=row.hint, data={"state": "left_out"}
        )

    def forget(self, keep: Collection[str]) -> None:
        """Forget servers that are not in `keep`."""
        self._fresh.intersection_update(keep)
        self._failed = {server: failed for server, failed in self._failed.items() if server in keep}
        self._left_out = {server: left_out for server, left_out in self._left_out.items() if server in keep}
        self._remarks = {server: remarks for server, remarks in self._remarks.items() if server in keep}
        self._listed_s = {server: at_s for server, at_s in self._listed_s.items() if server in keep}

    def has_failed(self, server: str) -> bool:
        """Whether the last listing on the server's present connection failed."""
        return server in self._failed

    def is_fresh(self, server: str) -> bool:
        """Whether the server was listed on its present connection."""
        return server in self._fresh

    def is_done(self, server: str) -> bool:
        """Whether nothing is to be waited for: the server is listed, or its last listing failed."""
        return server in self._fresh or server in self._failed

    def is_settled(self, status: ServerStatus) -> bool:
        """Whether the server is listed or has failed."""
        if status.state is ServerState.READY:
            return self.is_done(status.name)
        # Of one that is tried again a whole try has failed.
        return status.state not in PENDING_STATES or bool(status.last_error)

    def is_awaited(self, server: str) -> bool:
        """Whether a first list of the server's present connection is on its way."""
        if server in self._fresh:
            return False
        upstream = self._fleet.upstreams.get(server)
        return upstream is not None and upstream.status.state in _COMING and server not in self._failed

    async def wait_listed(self, server: str, limit_s: float = FIRST_LIST_S) -> None:
        """Waits for the first list of the server's present connection, at most `limit_s`."""
        with move_on_after(limit_s):
            while self.is_awaited(server):
                await self._changes.wait()

    def is_expected(self, server: str, kind: ContentKind) -> bool:
        """Whether nobody knows yet if the server has any: it was never listed, and is going to be."""
        upstream = self._fleet.upstreams.get(server)
        if upstream is None or self.catalog.last_sync_s(shelf(server, kind)) is not None:
            return False
        return upstream.status.state in (*_COMING, ServerState.DISCONNECTED) and server not in self._failed

    async def wait_known(self, servers: Collection[str], *kinds: ContentKind, limit_s: float = FIRST_LIST_S) -> bool:
        """Waits for the first lists of servers that have not listed yet, at most `limit_s` in all.

        Returns:
            Whether there was any to wait for.
        """

        def are_expected() -> bool:
            return any(self.is_expected(server, kind) for server in servers for kind in kinds)

        if not are_expected():
            return False
        with move_on_after(limit_s):
            while are_expected():
                await self._changes.wait()
        return True

    async def wait_changed(self) -> None:
        """Returns at the next change of a list, a server's state or the tools."""
        await self._changes.wait()

    def require_approved(self, record: ToolRecord) -> None:
        """Require the item as approved in the list of this process, or no list yet.

        What a server listed to a person at another process alone is not missing here: it stands in their list.

        Raises:
            QuarantinedError: The server's own list holds another definition, or none.
        """
        listed = self.catalog.get_listed_hash(record.key)
        if listed is not None and listed != record.change_hash and (listed or not self._is_personal(record)):
            raise differs_here(record.key)

    def _is_personal(self, record: ToolRecord) -> bool:
        upstream = self._fleet.upstreams.get(extract_server_name(record.key.server))
        return upstream is not None and upstream.is_personal

    def age_s(self, servers: Collection[str]) -> float | None:
        """Seconds since the last successful listing of any of `servers`; None if there was none.

        The listing of any process counts.

        Within this process by the monotonic clock; what came from the store has only the time of day.
        """
        if self._listed_s:
            return self._clock() - max(self._listed_s.values())
        stored = [at_s for server in servers if (at_s := self.catalog.last_sync_s(server)) is not None]
        return max(0.0, self.catalog.now_s() - max(stored)) if stored else None


RETRY_S: Final = 2.0
"""The pause suggested to a caller while a server is on its way: connecting anew takes a second or two."""


@dataclass(eq=False, repr=False)
class Presence:
    """Waits for servers that are connecting, and says of those that list nothing why.

    Attributes:
        fleet: The servers' sessions.
        lists: What they have listed.
        is_brought: Whether what a server listed to a person, where each has their own, has reached the catalog.
        wait_s: Longest wait for a connection and its first list together.
        clock: Monotonic seconds.
    """

    fleet: Fleet
    lists: ListState
    _: KW_ONLY
    is_brought: Callable[[str, str], bool] = lambda person, server: True
    wait_s: float = FIRST_LIST_S
    clock: Callable[[], float] = time.monotonic

    def is_settled(self) -> bool:
        """Whether every server is listed or has failed."""
        return all(self.lists.is_settled(upstream.status) for upstream in self.fleet)

    async def wait_settled(self, timeout_s: float) -> bool:
        """Whether every server is listed or has failed within `timeout_s`."""
        with move_on_after(timeout_s):
            while not self.is_settled():
                await self.lists.wait_changed()
            return True
        return False

    async def absence(self, server: str, person: str = "") -> UpstreamError | None:
        """Why the server's present tools are not known, after a short wait; None if they are.

        Args:
            server: Configured name.
            person: Whose tools, where each person is listed their own; empty for everybody's.
        """
        upstream = self.fleet.upstreams.get(server)
        if upstream is not None and upstream.is_personal and person:
            return await self._absence_to(server, person)
        if upstream is None or self.lists.is_fresh(server):
            return None
        began_s = self.clock()
        if await upstream.ready(self.wait_s):
            await self.lists.wait_listed(server, max(0.0, self.wait_s - (self.clock() - began_s)))
        if self.lists.is_fresh(server):
            return None
        state = upstream.status.state
        if state is ServerState.READY:
            return self._build_unlisted_error(server)
        if state in PENDING_STATES:
            message = f"Server '{server}' is still connecting, so its tools are not known yet."
            return _build_later_error(message, state.value, upstream.status.cause)
        return upstream.not_ready()

    async def _absence_to(self, server: str, person: str) -> UpstreamError | None:
        """Why a person's own tools of a server are not known, after a short wait; None if they are."""
        theirs = self.fleet.find(server, person)
        assert theirs is not None
        with move_on_after(self.wait_s):
            if await theirs.ready(self.wait_s):
                while not self.is_brought(person, server):
                    await self.lists.wait_changed()
                return None
        if theirs.is_ready:
            return self._build_unlisted_error(server)
        if theirs.status.state in PENDING_STATES:
            message = f"Server '{server}' is still connecting, so its tools are not known yet."
            return _build_later_error(message, theirs.status.state.value, theirs.status.cause)
        return theirs.not_ready()

    def _build_unlisted_error(self, server: str) -> UpstreamError:
        message = f"Server '{server}' is connected and has not listed its tools yet."
        return self.lists.failure(server) or _build_later_error(message, "unlisted")


def _build_later_error(message: str, state: str, said: str = "") -> UpstreamError:
    """The reason of a server that is on its way."""
    hint = f"Try the same again in {RETRY_S:g} s."
    return UpstreamError(message, hint=hint, data={"state": state}, retry_after_s=RETRY_S, said=said)

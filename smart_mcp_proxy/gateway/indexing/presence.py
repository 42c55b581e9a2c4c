"""Presence of a server's list; a connecting server gets a short time to list its tools."""

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from anyio import move_on_after

from smart_mcp_proxy.errors import UpstreamError
from smart_mcp_proxy.gateway.indexing.list_state import FIRST_LIST_S, ListState
from smart_mcp_proxy.models import ServerState, ServerStatus
from smart_mcp_proxy.upstream import Fleet

RETRY_S: Final = 2.0
"""The pause suggested to a caller while a server is on its way: connecting anew takes a second or two."""

_ON_ITS_WAY: Final = frozenset({ServerState.DISCONNECTED, ServerState.CONNECTING, ServerState.AUTHENTICATING})


@dataclass(eq=False, repr=False)
class Presence:
    """Waits for servers that are connecting, and says of those that list nothing why.

    Attributes:
        fleet: The servers' sessions.
        lists: What they have listed.
        wait_s: Longest wait for a connection and its first list together.
        clock: Monotonic seconds.
    """

    fleet: Fleet
    lists: ListState
    _: KW_ONLY
    wait_s: float = FIRST_LIST_S
    clock: Callable[[], float] = time.monotonic

    def is_settled(self) -> bool:
        """Whether every server is listed or has failed."""
        return all(self._is_done(upstream.status) for upstream in self.fleet)

    async def wait_settled(self, timeout_s: float) -> bool:
        """Whether every server is listed or has failed within `timeout_s`."""
        with move_on_after(timeout_s):
            while not self.is_settled():
                await self.lists.wait_changed()
            return True
        return False

    def _is_done(self, status: ServerStatus) -> bool:
        if status.state is ServerState.READY:
            return self.lists.is_done(status.name)
        # Of one that is tried again a whole try has failed.
        return status.state not in _ON_ITS_WAY or bool(status.last_error)

    async def absence(self, server: str) -> UpstreamError | None:
        """Why the server's present tools are not known, after a short wait; None if they are."""
        upstream = self.fleet.upstreams.get(server)
        if upstream is None or self.lists.is_fresh(server):
            return None
        began_s = self.clock()
        if await upstream.ready(self.wait_s):
            await self.lists.wait_listed(server, max(0.0, self.wait_s - (self.clock() - began_s)))
        if self.lists.is_fresh(server):
            return None
        state = upstream.status.state
        if state is ServerState.READY:
            message = f"Server '{server}' is connected and has not listed its tools yet."
            return self.lists.failure(server) or _build_later_error(message, "unlisted")
        if state in _ON_ITS_WAY:
            message = f"Server '{server}' is still connecting, so its tools are not known yet."
            return _build_later_error(message, state.value, upstream.status.cause)
        return upstream.not_ready()


def _build_later_error(message: str, state: str, said: str = "") -> UpstreamError:
    """The reason of a server that is on its way."""
    hint = f"Try the same again in {RETRY_S:g} s."
    return UpstreamError(message, hint=hint, data={"state": state}, retry_after_s=RETRY_S, said=said)

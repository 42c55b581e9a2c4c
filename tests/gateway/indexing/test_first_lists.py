"""The first search of a gateway that has no lists from before waits for those that are on their way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, HandClock, Parts, definition

from smart_mcp_proxy.conditions import Remark
from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.gateway.indexing.list_state import FIRST_LIST_S, ListState
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.models import ServerState

TOOLS = [definition("work")]


@dataclass
class Desk:
    """The state of some servers' lists.

    Args:
        parts: The catalog.
        servers: In the states that they have.
    """

    parts: Parts
    servers: Sequence[FakeUpstream]

    def __post_init__(self) -> None:
        fleet: Any = FakeFleet(*self.servers)
        self.clock = HandClock()
        self.lists = ListState(fleet, self.parts.catalog, Changes(), clock=self.clock)

    async def is_waiting(self) -> bool:
        """Whether a search that comes now waits for a list."""
        with anyio.move_on_after(0.01) as scope:
            await self.lists.wait_first()
        return scope.cancelled_caught

    async def list(self, server: FakeUpstream) -> None:
        """Have a server connected and listed."""
        server.move(ServerState.READY)
        await self.parts.catalog.sync(server.name, TOOLS)
        self.lists.note_listing_success(server.name, is_present=True)


@pytest.fixture
def desk(parts: Parts) -> Desk:
    """Two servers of somebody who has just connected."""
    servers = [FakeUpstream("alpha"), FakeUpstream("beta")]
    for server, state in zip(servers, (ServerState.DISCONNECTED, ServerState.CONNECTING), strict=True):
        server.move(state)
    return Desk(parts, servers)


async def test_a_first_search_waits_until_each_server_is_listed_or_has_failed(desk: Desk) -> None:
    """A part of them is not enough."""
    alpha, beta = desk.servers
    assert await desk.is_waiting()
    await desk.list(alpha)
    assert await desk.is_waiting()
    beta.move(ServerState.READY)
    assert await desk.is_waiting()
    desk.lists.note_listing_failure("beta", UpstreamTimeoutError("late"), Remark("late", "", "error", "late"))
    assert not await desk.is_waiting()


@pytest.mark.parametrize("state", [ServerState.ERROR, ServerState.NEEDS_AUTH, ServerState.DISABLED])
async def test_a_server_that_will_not_come_by_itself_is_not_waited_for(desk: Desk, state: ServerState) -> None:
    """It is named in the answer instead."""
    await desk.list(desk.servers[0])
    desk.servers[1].move(state)
    assert not await desk.is_waiting()


async def test_the_wait_ends_and_does_not_come_again(desk: Desk) -> None:
    """A server that hangs delays no later search."""
    assert await desk.is_waiting()
    desk.clock.now_s += FIRST_LIST_S
    assert not await desk.is_waiting()


async def test_with_lists_from_before_nobody_waits(desk: Desk) -> None:
    """They are served meanwhile."""
    await desk.parts.catalog.sync("beta", TOOLS)
    assert not await desk.is_waiting()

"""Searches that come before any server has listed a tool wait for the first ones, and no longer than for these."""

import asyncio
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, definition

from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.retrieval.retrieval import Question, Retrieval
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.models import ServerState

pytestmark = pytest.mark.anyio

PAINT = definition("paint_wall", "Paint a wall in a colour.")
LATE_S = 1_000_000.0


class Loaded:
    """An index that has been loaded."""

    def __init__(self, parts: Parts) -> None:
        self.index, self.waiting, self.loaded = parts.index, {}, asyncio.Event()
        self.loaded.set()


class FirstTools:
    """Alpha and beta, which are connecting and have listed nothing."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.upstreams = {name: FakeUpstream(name) for name in ("alpha", "beta")}
        fleet: Any = FakeFleet(*self.upstreams.values())
        self.lists = ListState(fleet, parts.catalog, Changes())
        index, notebook = Loaded(parts), parts.notebook
        given: Any = (parts.visible, parts.catalog, index, self.lists, self.statuses, notebook)
        self.retrieval = Retrieval(*given)
        self.retrieval.first_tools_s = LATE_S
        for name in self.upstreams:
            self.move(name, ServerState.CONNECTING)

    def statuses(self) -> list[Any]:
        return [upstream.status for upstream in self.upstreams.values()]

    def move(self, server: str, state: ServerState, **facts: Any) -> None:
        self.upstreams[server].move(state, **facts)
        self.lists.connection_changed(self.upstreams[server].status)

    async def list_tools(self, server: str, *tools: dict[str, Any]) -> None:
        self.move(server, ServerState.READY)
        await self.parts.sync(server, list(tools))
        self.lists.note_listing_success(server, is_present=True)

    async def ask(self, *servers: str) -> tuple[list[str], list[str]]:
        """Names of the tools found and of the servers not covered."""
        answer = await self.retrieval.retrieve(Question("paint a wall", 5, servers=servers))
        return [tool["name"] for tool in answer["tools"]], [row["server"] for row in answer["not_covered"]]

    async def begin(self, *servers: str) -> "asyncio.Task[tuple[list[str], list[str]]]":
        """A search that waits now."""
        asking = asyncio.ensure_future(self.ask(*servers))
        await anyio.wait_all_tasks_blocked()
        assert not asking.done()
        return asking


@pytest.fixture
async def first(parts: Parts) -> FirstTools:
    return FirstTools(parts)


@pytest.fixture(autouse=True)
async def limit() -> Any:
    async with asyncio.timeout(20):
        yield


async def test_a_search_waits_for_the_first_tools_alone(first: FirstTools) -> None:
    """The answer names the server that is still missing."""
    asking = await first.begin()
    first.move("alpha", ServerState.READY)
    await anyio.wait_all_tasks_blocked()
    assert not asking.done()
    await first.list_tools("alpha", PAINT)
    assert await asking == (["alpha:paint_wall"], ["beta"])
    assert await first.ask() == (["alpha:paint_wall"], ["beta"])


async def test_a_server_without_tools_does_not_end_the_wait_while_another_connects(first: FirstTools) -> None:
    asking = await first.begin()
    await first.list_tools("alpha")
    await anyio.wait_all_tasks_blocked()
    assert not asking.done()
    first.move("beta", ServerState.ERROR, error="It ended with exit code 2.")
    assert await asking == ([], ["beta"])


async def test_named_servers_are_waited_for_although_others_have_tools(first: FirstTools) -> None:
    await first.list_tools("alpha", PAINT)
    asking = await first.begin("beta")
    await first.list_tools("beta", PAINT)
    assert await asking == (["beta:paint_wall"], [])


@pytest.mark.parametrize("state", [ServerState.ERROR, ServerState.NEEDS_AUTH, ServerState.DISABLED])
async def test_nothing_is_waited_for_where_no_tool_will_come(first: FirstTools, state: ServerState) -> None:
    """Nor for a server that is tried again after a failure."""
    first.move("alpha", state)
    first.move("beta", ServerState.CONNECTING, last_error="It ended with exit code 2.")
    assert (await first.ask())[0] == []


async def test_nothing_is_waited_for_without_servers(first: FirstTools) -> None:
    first.parts.visible.reconfigure({})
    assert await first.ask() == ([], [])


async def test_tools_of_an_earlier_run_answer_at_once(first: FirstTools) -> None:
    await first.parts.sync("alpha", [PAINT])
    assert await first.ask() == (["alpha:paint_wall"], ["alpha", "beta"])


async def test_a_search_waits_for_a_limited_time(first: FirstTools) -> None:
    first.retrieval.first_tools_s = 0
    assert await first.ask() == ([], ["alpha", "beta"])


async def test_a_search_that_waits_can_be_cancelled(first: FirstTools) -> None:
    asking = await first.begin()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

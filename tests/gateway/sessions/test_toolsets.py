"""Toolsets: made of what a search found, served to one principal, never changed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from gateway_fakes import NO_CALLS, HandClock, Parts, config, definition, opened_parts
from sqlalchemy import delete

from smart_mcp_proxy.catalog import DATABASE_NAME
from smart_mcp_proxy.catalog.tables.schema import toolsets as stored_toolsets
from smart_mcp_proxy.errors import CatalogError, RequestError, UnverifiedError
from smart_mcp_proxy.fastmcp_compat.paths import bind_request_path
from smart_mcp_proxy.gateway.sessions.toolsets import RECHECK_S, TOOLS_LIMIT, Toolsets, ToolsetTools
from smart_mcp_proxy.models import LOCAL, Principal, ToolRecord
from smart_mcp_proxy.telemetry import spawn

pytestmark = pytest.mark.anyio

ENDPOINT = "http://gateway:8000/mcp"
HOUR_S = 3600.0
DAY_S = 86_400.0
LIMIT_S = 60.0
NOTICED_S = 2.0
"""Source: docs/design/processes.md#several-gateways"""


@pytest.fixture(autouse=True)
async def endpoint() -> AsyncIterator[None]:
    """The address that requests come in at; set where the tests run, in a task that may be older than this fixture."""
    with bind_request_path("", lambda: ENDPOINT):
        yield


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    """Two servers; alpha has three tools."""
    async with opened_parts(tmp_path, {name: config(name) for name in ("alpha", "beta")}) as opened:
        await opened.sync("alpha", [definition(name) for name in ("one", "two", "three")])
        yield opened


class WallClock(HandClock):
    """Seconds since the epoch."""


def opened(
    parts: Parts, wall_clock: WallClock | None = None, pause: Callable[[float], Awaitable[None]] = anyio.sleep
) -> Toolsets:
    wall = wall_clock or WallClock()
    return Toolsets(parts.catalog, lambda profile, reach: parts.visible, NO_CALLS, parts.clock, wall, pause)


class Follower:
    """Toolsets that follow the store when they are told to; each pause passes at once, by the clock alone.

    Attributes:
        toolsets: What follows.
        took_s: What passed by the clock meanwhile.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._left = 0
        self._is_over = anyio.Event()
        self.toolsets = opened(parts, pause=self._pause)
        self.took_s = 0.0

    async def look(self, looks: int = 1) -> None:
        """Lets them look so many times."""
        self._left, self._is_over, self.took_s = looks, anyio.Event(), 0.0
        following = spawn(self.toolsets.follow(), "test")
        with anyio.fail_after(LIMIT_S):
            await self._is_over.wait()
        following.cancel()

    async def look_to_the_last(self) -> None:
        """Lets them look until they wait for another toolset."""
        self._left, self.took_s = 10, 0.0
        following = spawn(self.toolsets.follow(), "test")
        await anyio.wait_all_tasks_blocked()
        following.cancel()

    async def _pause(self, seconds: float) -> None:
        if not self._left:
            self._is_over.set()
            await anyio.sleep_forever()
        self._left -= 1
        self.took_s += seconds
        self._parts.clock.now_s += seconds


def tools(parts: Parts, *names: str) -> list[ToolRecord]:
    found = [parts.visible.find(f"alpha:{name}") for name in names]
    return [record for record in found if record is not None]


async def made(toolsets: Toolsets, found: list[ToolRecord], extends: str | None = None) -> str:
    toolset = await toolsets.make(found, principal="local", profile="", extends=extends)
    assert toolset is not None
    return str(toolset["handle"])


async def listed(toolsets: Toolsets, handle: str) -> list[str]:
    assert await toolsets.serves(handle)
    offer = toolsets.at(handle, LOCAL)
    assert offer is not None
    return [str(tool["name"]) for tool in offer.definitions("modern")]


async def test_a_handle_is_128_random_bits_in_an_address(parts: Parts) -> None:
    """Of letters that an address may hold."""
    toolset = await opened(parts).make(tools(parts, "one"), principal="local", profile="")
    assert toolset is not None
    assert toolset == {"handle": toolset["handle"], "url": f"{ENDPOINT}/t/{toolset['handle']}", "expires_in_s": 3600}
    assert len(toolset["handle"]) == 22
    assert set(toolset["handle"]) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize("change", ["changed", "removed"])
async def test_a_tool_that_changed_or_left_leaves_the_toolset(parts: Parts, change: str) -> None:
    """It was made for the definition as it was; a tool of that name that comes back is another one."""
    toolsets = opened(parts)
    handle = await made(toolsets, tools(parts, "three", "one", "two"))
    assert await listed(toolsets, handle) == ["alpha__three", "alpha__one", "alpha__two"]
    kept = [definition("one"), definition("three")]
    await parts.sync("alpha", kept if change == "removed" else [*kept, definition("two", "Does something else.")])
    assert await listed(toolsets, handle) == ["alpha__three", "alpha__one"]
    offer = toolsets.at(handle, LOCAL)
    assert offer is not None and not offer.has("alpha__two")
    if change == "removed":
        await parts.sync("alpha", [*kept, definition("two")])
        assert await listed(toolsets, handle) == ["alpha__three", "alpha__one"]


async def test_the_list_is_the_same_object_by_object_until_something_changes(parts: Parts) -> None:
    """Two lists in a row are equal to the byte, so caches hold."""
    toolsets = opened(parts)
    handle = await made(toolsets, tools(parts, "two", "one"))
    offer = toolsets.at(handle, LOCAL)
    assert offer is not None
    state, shown = offer.state(), offer.definitions("modern")
    await parts.sync("beta", [definition("four")])
    assert (offer.state(), offer.definitions("modern")) == (state, shown)


async def test_extending_puts_new_tools_behind_the_old_ones(parts: Parts) -> None:
    """A tool that is in it already keeps its place; one that has changed is there as it is now."""
    toolsets = opened(parts)
    old = await made(toolsets, tools(parts, "two", "one"))
    await parts.sync("alpha", [definition(name) for name in ("one", "three")] + [definition("two", "Other words.")])
    new = await made(toolsets, tools(parts, "three", "two"), extends=old)
    assert await listed(toolsets, new) == ["alpha__two", "alpha__one", "alpha__three"]
    assert await listed(toolsets, old) == ["alpha__one"]


async def test_a_toolset_holds_a_hundred_tools_at_most(parts: Parts) -> None:
    """However often it is extended; the error says what to do."""
    await parts.sync("beta", [definition(f"tool_{number}") for number in range(TOOLS_LIMIT)])
    toolsets = opened(parts)
    full = await made(toolsets, list(parts.visible.of_server("beta")))
    with pytest.raises(RequestError, match="would hold 101 tools") as caught:
        await toolsets.make(tools(parts, "one"), principal="local", profile="", extends=full)
    assert "Leave toolset out" in caught.value.hint


async def test_a_toolset_is_its_principals_alone_for_an_hour(parts: Parts) -> None:
    """Nobody else can look at it or extend it, and nobody at all once it is over."""
    toolsets = opened(parts)
    handle = await made(toolsets, tools(parts, "one"))
    offer = toolsets.at(handle, LOCAL)
    assert isinstance(offer, ToolsetTools)
    assert toolsets.at(handle, Principal("somebody")) is None
    with pytest.raises(RequestError, match="There is no toolset"):
        await toolsets.make(tools(parts, "two"), principal="somebody", profile="", extends=handle)
    parts.clock.now_s += HOUR_S - 1
    assert offer.list_ttl_ms == 1000
    assert toolsets.at(handle, LOCAL) is offer
    parts.clock.now_s += 1
    assert not await toolsets.serves(handle)
    assert toolsets.at(handle, LOCAL) is None
    assert (offer.definitions("modern"), offer.list_ttl_ms) == ([], 0)
    with pytest.raises(RequestError, match="There is no toolset"):
        await toolsets.make(tools(parts, "two"), principal="local", profile="", extends=handle)


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
async def test_a_wall_clock_that_jumps_a_day_changes_nothing(parts: Parts, jump_s: float) -> None:
    """Where it was made; elsewhere it lives for an hour at most, whatever the clock says."""
    wall_clock = WallClock()
    toolsets = opened(parts, wall_clock)
    handle = await made(toolsets, tools(parts, "one"))
    wall_clock.now_s += jump_s
    await made(toolsets, tools(parts, "two"))
    parts.clock.now_s += HOUR_S / 2
    assert await listed(toolsets, handle) == ["alpha__one"]
    parts.clock.now_s += HOUR_S / 2
    assert not await toolsets.serves(handle)
    elsewhere = opened(parts, wall_clock)
    if await elsewhere.serves(handle):
        parts.clock.now_s += HOUR_S
        assert not await elsewhere.serves(handle)


@pytest.mark.long  # much work for one test
async def test_what_left_the_store_is_not_served_for_long(parts: Parts) -> None:
    """A principal's oldest leave, in whichever process they were made, also where nobody has asked for them since."""
    follower = Follower(parts)
    toolsets = follower.toolsets
    first = await made(toolsets, tools(parts, "one"))
    elsewhere = opened(parts)
    kept = [await made(elsewhere, tools(parts, "two")) for _ in range(256)][-1]
    assert await listed(toolsets, kept) == ["alpha__two"]
    await follower.look()
    assert follower.took_s <= NOTICED_S
    assert toolsets.at(first, LOCAL) is None
    assert not await toolsets.serves(first)
    assert await listed(toolsets, kept) == ["alpha__two"]


async def test_what_another_process_dropped_ends_within_the_bound(parts: Parts) -> None:
    """Whether or not it is called meanwhile; until then it is served, and no look at the store is waited for."""
    follower = Follower(parts)
    handle = await made(follower.toolsets, tools(parts, "one"))
    await follower.look(3)
    assert follower.toolsets.at(handle, LOCAL) is not None
    await parts.catalog.write(lambda connection: connection.execute(delete(stored_toolsets)))
    assert follower.toolsets.at(handle, LOCAL) is not None
    await follower.look()
    assert follower.took_s <= NOTICED_S
    assert follower.toolsets.at(handle, LOCAL) is None
    assert not await follower.toolsets.serves(handle)


async def test_the_store_is_asked_about_nothing_that_is_over(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where nothing is held: a gateway at rest stays at rest."""
    follower = Follower(parts)
    handle = await made(follower.toolsets, tools(parts, "one"))
    parts.clock.now_s += HOUR_S
    asked = []
    monkeypatch.setattr(parts.catalog, "read", asked.append)
    await follower.look_to_the_last()
    assert not await follower.toolsets.serves(handle)
    assert asked == []
    assert follower.took_s == RECHECK_S


async def test_a_store_that_fails_costs_the_toolset_and_not_the_search(parts: Parts, tmp_path: Path) -> None:
    """Those in memory are served on; others cannot be looked up, and extending one fails."""
    follower = Follower(parts)
    toolsets = follower.toolsets
    handle = await made(toolsets, tools(parts, "one"))
    (tmp_path / DATABASE_NAME).unlink()
    await follower.look(2)
    assert await listed(toolsets, handle) == ["alpha__one"]
    assert await toolsets.make(tools(parts, "two"), principal="local", profile="") is None
    with pytest.raises(CatalogError):
        await toolsets.make(tools(parts, "two"), principal="local", profile="", extends=handle)
    for ask in (toolsets.serves("another"), toolsets.make([], principal="local", profile="", extends="another")):
        with pytest.raises(UnverifiedError) as refused:
            await ask
        assert refused.value.retry_after_s


async def test_without_an_address_there_is_no_toolset(parts: Parts) -> None:
    """Nor for nothing."""
    assert await opened(parts).make([], principal="local", profile="") is None
    with bind_request_path(""):
        assert await opened(parts).make(tools(parts, "one"), principal="local", profile="") is None


async def test_toolsets_of_the_same_tools_share_what_they_show(parts: Parts) -> None:
    """Thousands are kept, and a definition can be large."""
    toolsets = opened(parts)
    shown = []
    for _ in range(2):
        handle = await made(toolsets, tools(parts, "one", "two"))
        offer = toolsets.at(handle, LOCAL)
        assert offer is not None
        shown.append(offer.definitions("modern"))
    assert all(one is other for one, other in zip(*shown, strict=True))


async def test_what_is_over_leaves_the_memory_when_another_one_is_made(parts: Parts) -> None:
    """Not only when a thousand others have come."""
    toolsets = opened(parts)
    for _ in range(3):
        await made(toolsets, tools(parts, "one"))
    assert repr(toolsets) == "<Toolsets, 3 in memory>"
    parts.clock.now_s += HOUR_S
    await made(toolsets, tools(parts, "one"))
    assert repr(toolsets) == "<Toolsets, 1 in memory>"

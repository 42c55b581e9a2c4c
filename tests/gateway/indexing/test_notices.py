"""A server that announces changes and makes none is read ever more rarely, and a real change is still seen soon."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count, pairwise
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, HandClock, Parts, definition

from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.indexing.list_sync import CONTENTS, LONGEST_PAUSE_S, TOOLS, ListSync, Notices, Pace
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.models import ServerState
from smart_mcp_proxy.telemetry import spawn
from smart_mcp_proxy.upstream import ToolListing

pytestmark = pytest.mark.anyio

Listed = Callable[[int], object]


class Time:
    """Hours that pass at once, up to an end: what waits longer waits for good.

    Args:
        end_s: From the start of the clock.
    """

    def __init__(self, end_s: float) -> None:
        self.clock = HandClock()
        self._start_s = self.clock.now_s
        self._end_s = self._start_s + end_s
        self.is_over = asyncio.Event()

    @property
    def now_s(self) -> float:
        return round(self.clock.now_s - self._start_s, 3)

    async def wait(self, event: asyncio.Event, limit_s: float) -> None:
        """The pauses of the worker under test."""
        await anyio.lowlevel.checkpoint()
        if not event.is_set() and self.clock.now_s + limit_s > self._end_s:
            self.is_over.set()
            await event.wait()
        elif not event.is_set():
            self.clock.now_s += limit_s


class RestlessUpstream(FakeUpstream):
    """Announces a changed list, in the middle of each listing."""

    def begin(self, time: Time, notice: Callable[[], None], on_listed: Listed = lambda number: None) -> None:
        self.times_s: list[float] = []
        self._time, self._notice, self._on_listed = time, notice, on_listed

    def _listed(self) -> None:
        self.times_s.append(self._time.now_s)
        self._on_listed(len(self.times_s))
        self._notice()

    async def list_tools(self) -> ToolListing:
        self._listed()
        return await super().list_tools()

    async def list_contents(self, kind: Any) -> ToolListing:
        if kind == "prompts":
            self._listed()
        return await super().list_contents(kind)


@asynccontextmanager
async def opened_sync(
    parts: Parts, time: Time, kinds: Any = TOOLS, on_listed: Listed = lambda number: None
) -> AsyncIterator[tuple[ListSync, RestlessUpstream]]:
    """A worker for such a server, connected."""
    upstream = RestlessUpstream("alpha", [definition("work")])
    fleet: Any = FakeFleet(upstream)
    state = ListState(fleet, parts.catalog, Changes(), clock=time.clock)

    async def bring() -> None:
        """There is no index."""

    sync = ListSync(state, fleet, parts.catalog, kinds, bring, pace=Pace(clock=time.clock, wait=time.wait))
    upstream.begin(time, lambda: sync.list_soon("alpha"), on_listed)
    sync.status_changed(upstream.move(ServerState.READY))
    try:
        yield sync, upstream
    finally:
        await sync.close()


async def over(time: Time) -> None:
    with anyio.fail_after(20):
        await time.is_over.wait()


@pytest.mark.parametrize("kinds", [TOOLS, CONTENTS], ids=["tools", "prompts"])
async def test_a_list_that_never_changes_is_read_ever_more_rarely(parts: Parts, kinds: Any) -> None:
    """A few times in the first twenty seconds, then every eight."""
    time = Time(60)
    async with opened_sync(parts, time, kinds) as (_, upstream):
        await over(time)
    first = [at_s for at_s in upstream.times_s if at_s <= 20]
    assert len(first) <= 6
    pauses = [round(after - before, 1) for before, after in pairwise(upstream.times_s)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


async def test_a_real_change_is_seen_within_the_longest_pause_and_ends_the_waiting(parts: Parts) -> None:
    """However long the server was restless before; from then on notices are read at once again."""
    time = Time(120)

    def change(number: int) -> None:
        if time.now_s > 60 and len(upstream.tools) == 1:
            upstream.tools.append(definition("play"))

    async with opened_sync(parts, time, on_listed=change) as (_, upstream):
        await over(time)
    at = next(number for number, at_s in enumerate(upstream.times_s) if at_s > 60)
    assert upstream.times_s[at] - upstream.times_s[at - 1] <= LONGEST_PAUSE_S
    assert upstream.times_s[at + 1] - upstream.times_s[at] < 1
    assert len(upstream.tools) == 2


def _another_description(upstream: FakeUpstream, number: int) -> None:
    upstream.tools = [definition("work", f"Does work number {number}.")]


def _another_order(upstream: FakeUpstream, number: int) -> None:
    upstream.tools = [definition("work"), definition("play")][:: 1 if number % 2 else -1]


def _failure(upstream: FakeUpstream, number: int) -> None:
    upstream.list_error = UpstreamTimeoutError("Too slow.")


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize(
    ("behave", "is_change"),
    [
        pytest.param(_another_order, False, id="another-order"),
        pytest.param(_failure, False, id="failure"),
        pytest.param(_another_description, True, id="waiting-definition-changes"),
    ],
)
async def test_only_what_changes_a_definition_is_a_change(
    parts: Parts, behave: Callable[[FakeUpstream, int], None], is_change: bool
) -> None:
    """One that waits for its approval may change again; order and failures are nothing new."""
    time = Time(20)
    async with opened_sync(parts, time, on_listed=lambda number: behave(upstream, number)) as (_, upstream):
        await over(time)
    assert (len(upstream.times_s) > 20) == is_change


async def test_a_new_connection_is_read_at_once(parts: Parts) -> None:
    """In the middle of a pause, too."""
    time = Time(20)
    async with opened_sync(parts, time) as (sync, upstream):
        await over(time)
        before = len(upstream.times_s)
        for state in (ServerState.ERROR, ServerState.READY):
            sync.status_changed(upstream.move(state, restarts=1))
        with anyio.fail_after(20):
            while len(upstream.times_s) == before:
                await anyio.lowlevel.checkpoint()


async def test_a_request_of_the_user_is_read_at_once(parts: Parts) -> None:
    """Whatever the server has announced."""
    time = Time(20)
    async with opened_sync(parts, time) as (sync, upstream):
        await over(time)
        before = len(upstream.times_s)
        sync.list_now("alpha")
        with anyio.fail_after(20):
            while len(upstream.times_s) == before:
                await anyio.lowlevel.checkpoint()


async def test_notices_that_come_by_themselves_are_read_at_once() -> None:
    """One that comes longer than the longest pause after the last reading answers none."""
    time = Time(1e6)
    notices = Notices(0.2, LONGEST_PAUSE_S, time.clock, time.wait)
    for number in count(1):
        notices.note()
        noted_s = time.now_s
        await notices.due(300)
        assert time.now_s - noted_s == pytest.approx(0.2)
        notices.read(is_changed=False)
        time.clock.now_s += LONGEST_PAUSE_S + 1
        if number == 20:
            break


async def test_a_notice_during_a_pause_is_read_at_its_end() -> None:
    """None is lost, and several are one."""
    time = Time(1e6)
    notices = Notices(0.2, LONGEST_PAUSE_S, time.clock, time.wait)
    notices.hurry()
    await notices.due(300)
    for _ in range(3):
        notices.read(is_changed=False)
    assert repr(notices) == "<Notices none, pause 8 s>"
    spawned = spawn(notices.due(300), "due")
    notices.note()
    notices.note()
    assert repr(notices) == "<Notices waiting, pause 8 s>"
    await spawned
    assert time.now_s == LONGEST_PAUSE_S
    assert repr(notices) == "<Notices none, pause 8 s>"

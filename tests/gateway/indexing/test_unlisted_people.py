"""A person whose own list failed: it is tried again soon, and at once when they ask for something."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, config, definition
from test_notices import Time, over

from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.gateway.indexing.list_state import ListState
from smart_mcp_proxy.gateway.indexing.list_sync import CONTENTS, POLL_S, RETRY_S, TOOLS, ListSync, Pace
from smart_mcp_proxy.gateway.indexing.person_lists import PersonLists, for_people
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.upstream import PersonalUpstream, ToolListing

pytestmark = pytest.mark.anyio


class Connected(FakeUpstream):
    """A person's connection, which notes when it is listed."""

    def begin(self, time: Time) -> None:
        self.time, self.times_s = time, list[float]()
        self.tools = [definition("work")]

    async def list_tools(self) -> ToolListing:
        self.times_s.append(self.time.now_s)
        return await super().list_tools()

    async def list_contents(self, kind: Any) -> ToolListing:
        if kind == "prompts":
            self.times_s.append(self.time.now_s)
            if self.list_error is not None:
                raise self.list_error
        return await super().list_contents(kind)


class Team(PersonalUpstream):
    """A server to which Ann and Bob are connected."""

    def begin(self, time: Time) -> None:
        self._people = {"ann": Connected("alpha"), "bob": Connected("alpha")}  # type: ignore[dict-item]
        for each in self._people.values():
            each.begin(time)  # type: ignore[attr-defined]

    def __getitem__(self, person: str) -> Connected:
        return self._people[person]  # type: ignore[return-value]


@asynccontextmanager
async def opened_team(parts: Parts, time: Time, kinds: Any) -> AsyncIterator[Team]:
    """A worker for such a server; Ann's list fails."""
    given: Any = dict.fromkeys(("on_change", "open_session", "start_gate", "on_tools_changed"))
    team = Team(config("alpha"), environ={}, clock=time.clock, **given)
    team.begin(time)
    team["ann"].list_error = UpstreamTimeoutError("Too slow.")
    fleet: Any = FakeFleet(team)  # type: ignore[arg-type]
    state = ListState(fleet, parts.catalog, Changes(), clock=time.clock)

    async def bring() -> None:
        """There is no index."""

    listed = for_people(kinds, PersonLists(parts.catalog, lambda: None), parts.catalog)
    sync = ListSync(state, fleet, parts.catalog, listed, bring, pace=Pace(clock=time.clock, wait=time.wait))
    team.on_tools_changed, team.on_contents_changed = (sync.list_soon, print)[:: 1 if kinds is TOOLS else -1]
    sync.list_now("alpha")
    try:
        yield team
    finally:
        await sync.close()


@pytest.mark.parametrize("kinds", [TOOLS, CONTENTS], ids=["tools", "prompts"])
async def test_it_is_tried_again_ever_more_rarely(parts: Parts, kinds: Any) -> None:
    """Once it is there, as rarely as any other list."""
    time = Time(3_600)
    async with opened_team(parts, time, kinds) as team:
        await over(time)
    pauses = [round(after - before) for before, after in pairwise(team["ann"].times_s)]
    assert pauses[0] == RETRY_S
    assert pauses == sorted(pauses) and pauses[2] < POLL_S / 3
    assert pauses[-1] == POLL_S


@pytest.mark.parametrize("kinds", [TOOLS, CONTENTS], ids=["tools", "prompts"])
async def test_whoever_lacks_theirs_has_it_tried_again_by_asking(parts: Parts, kinds: Any) -> None:
    """Nobody else does, nor they once it is there."""
    time = Time(5)
    async with opened_team(parts, time, kinds) as team:
        await over(time)
        ann, bob = team["ann"], team["bob"]
        ann.list_error = None
        team.use("bob")
        await anyio.wait_all_tasks_blocked()
        assert len(ann.times_s) == len(bob.times_s) == 1
        team.use("ann")
        with anyio.fail_after(20):
            while len(ann.times_s) == 1:
                await anyio.lowlevel.checkpoint()
        assert ann.times_s[1] - ann.times_s[0] <= 5
        with anyio.fail_after(20):
            while team.unlisted != {kind.name: set() for kind in kinds}:
                await asyncio.sleep(0)
        team.use("ann")
        await anyio.wait_all_tasks_blocked()
        assert len(ann.times_s) == 2

"""Names whose server has listed nothing to this process: it is waited for briefly, and its state is told."""

import asyncio
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, config, definition

from smart_mcp_proxy.errors import RefusedError, ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway.indexing.list_state import ListState, Presence
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView, NarrowedView
from smart_mcp_proxy.models import Reach, ServerState
from smart_mcp_proxy.servers import Profile, ToolFilter

pytestmark = pytest.mark.anyio


class Lists:
    """What servers have listed, set by hand."""

    def __init__(self) -> None:
        self.fresh: set[str] = set()
        self.failed: set[str] = set()
        self.changed = asyncio.Event()
        self.waited: list[str] = []

    def is_fresh(self, server: str) -> bool:
        return server in self.fresh

    def is_done(self, server: str) -> bool:
        return server in self.fresh | self.failed

    is_settled = ListState.is_settled

    def failure(self, server: str) -> UpstreamError | None:
        if server not in self.failed:
            return None
        return UpstreamError("Its tools cannot be listed.", data={"state": "unlisted"})

    async def wait_changed(self) -> None:
        await self.changed.wait()

    async def wait_listed(self, server: str, limit_s: float) -> None:
        self.waited.append(server)
        with anyio.move_on_after(limit_s):
            while not self.is_done(server):
                await self.changed.wait()

    def listed(self, server: str) -> None:
        self.fresh.add(server)
        self.changed.set()
        self.changed = asyncio.Event()


class Waiting(FakeUpstream):
    """A server whose connection is waited for no longer than asked, and not at all once it has failed."""

    async def ready(self, timeout_s: float) -> bool:
        on_its_way = (ServerState.CONNECTING, ServerState.DISCONNECTED)
        with anyio.move_on_after(timeout_s):
            while self.status.state in on_its_way:
                self.awaited.set()
                await self.moved.wait()
        return self.status.state is ServerState.READY

    def not_ready(self) -> UpstreamError:
        return UpstreamError(f"Server '{self.name}' is not ready ({self.status.state}): {self.status.error}")


class PresenceSetup:
    """Alpha, listed, and beta, which has listed nothing."""

    def __init__(self, parts: Parts, wait_s: float = 0.0) -> None:
        self.parts = parts
        self.lists = Lists()
        self.lists.fresh.add("alpha")
        self.beta = Waiting("beta")
        fleet: Any = FakeFleet(FakeUpstream("alpha"), self.beta)
        self.presence = Presence(fleet, self.lists, wait_s=wait_s)
        servers = {name: config(name) for name in ("alpha", "beta")}
        self.visible = CatalogView(parts.catalog, servers, parts.index.nearest_names, absence=self.presence.absence)

    async def error(self, name: str, visible: CatalogView | None = None) -> Any:
        with pytest.raises((ToolNotFoundError, UpstreamError, RefusedError)) as caught:
            await (visible or self.visible).require(name)
        return caught.value


@pytest.mark.parametrize("name", ["beta:query", "beta__query"])
@pytest.mark.parametrize("state", [ServerState.ERROR, ServerState.NEEDS_ENV, ServerState.NEEDS_AUTH])
async def test_a_server_that_failed_before_its_first_list_is_named_with_its_state(
    parts: Parts, state: ServerState, name: str
) -> None:
    """Not "no tool has that name", and no tool of another server is suggested."""
    await parts.sync("alpha", [definition("execute_query")])
    setup = PresenceSetup(parts)
    setup.beta.move(state, error="It ended with exit code 2.")
    error = await setup.error(name)
    assert isinstance(error, UpstreamError)
    assert str(error) == f"Server 'beta' is not ready ({state}): It ended with exit code 2."


async def test_a_server_that_is_tried_again_has_failed_once_for_those_who_wait_for_all(parts: Parts) -> None:
    """Many servers that fail are hardly ever all between two tries at the same time."""
    setup = PresenceSetup(parts)
    setup.beta.move(ServerState.CONNECTING)
    assert not setup.presence.is_settled()
    setup.beta.move(ServerState.CONNECTING, last_error="It ended with exit code 2.")
    assert setup.presence.is_settled()


@pytest.mark.parametrize("state", [ServerState.CONNECTING, ServerState.DISCONNECTED])
async def test_a_server_that_is_still_connecting_is_named_with_a_time_to_try_again(
    parts: Parts, state: ServerState
) -> None:
    setup = PresenceSetup(parts)
    setup.beta.move(state)
    error = await setup.error("beta:query")
    assert (error.data, error.retry_after_s, error.delivery) == ({"state": state.value}, 2.0, "not_sent")
    assert "still connecting" in error.message


async def test_a_list_that_arrives_meanwhile_answers(parts: Parts) -> None:
    """The first call after a start needs no second one."""
    setup = PresenceSetup(parts, wait_s=30.0)
    setup.beta.move(ServerState.CONNECTING)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def list_late() -> None:
                await setup.beta.awaited.wait()
                setup.beta.move(ServerState.READY)
                await parts.sync("beta", [definition("query")])
                setup.lists.listed("beta")

            tasks.start_soon(list_late)
            record = await setup.visible.require("beta:query")
    assert str(record.key) == "beta:query"
    assert isinstance(await setup.error("beta:qurey"), ToolNotFoundError)


async def test_a_connected_server_without_a_list_says_whether_one_is_on_its_way(parts: Parts) -> None:
    setup = PresenceSetup(parts)
    assert "has not listed its tools yet" in (await setup.error("beta:query")).message
    setup.lists.failed.add("beta")
    failed = await setup.error("beta:query")
    assert "cannot be listed" in failed.message
    assert failed.data == {"state": "unlisted"}


async def test_of_a_server_with_a_list_of_old_other_names_are_suggested(parts: Parts) -> None:
    """And its state is said beside them: the tool may be new."""
    await parts.sync("beta", [definition("query")])
    setup = PresenceSetup(parts)
    setup.beta.move(ServerState.ERROR, error="It is down.")
    error = await setup.error("beta:qurey")
    assert isinstance(error, ToolNotFoundError)
    assert "beta:query" in error.hint and "It is down." in error.hint


@pytest.mark.parametrize("name", ["beta:query", "beta__query"])
async def test_a_disabled_server_is_named_by_each_form_of_a_tools_name(parts: Parts, name: str) -> None:
    setup = PresenceSetup(parts)
    setup.visible.reconfigure({"alpha": config("alpha"), "beta": config("beta", disabled=True)})
    assert (await setup.error(name)).error_code == "server_disabled"


@pytest.mark.parametrize("name", ["beta:query", "beta__query"])
async def test_who_may_not_see_a_server_learns_nothing_of_its_state(parts: Parts, name: str) -> None:
    """By token, by profile, by a filter of its entry: the answer is that for a server that does not exist."""
    setup = PresenceSetup(parts)
    setup.beta.move(ServerState.ERROR, error="It is down.")
    servers = {name: config(name) for name in ("alpha", "beta")}
    filtered = servers | {"beta": config("beta", tools=ToolFilter(exclude=("query",)))}

    async def seen_by(visible: CatalogView) -> str:
        error = await setup.error(name, visible)
        other = await setup.error(name.replace("beta", "zeta"), visible)
        assert isinstance(error, ToolNotFoundError)
        assert (error.hint, error.data, error.error_code) == (other.hint, other.data, other.error_code)
        return str(error)

    token = NarrowedView(setup.visible, Reach(frozenset({"alpha"})), {}.get)
    assert "down" not in await seen_by(token)
    held = NarrowedView(setup.visible, Reach(profile="work"), {"work": Profile("work", tools=("look",))}.get)
    assert "down" not in await seen_by(held)
    setup.visible.reconfigure(servers, Profile("work", servers=("alpha",)))
    assert "down" not in await seen_by(setup.visible)
    setup.visible.reconfigure(filtered)
    assert "down" not in await seen_by(setup.visible)
    assert setup.lists.waited == []


async def test_nobody_waits_for_a_server_whose_list_is_known(parts: Parts) -> None:
    """A wrong name at a healthy server is answered at once."""
    await parts.sync("alpha", [definition("look")])
    setup = PresenceSetup(parts, wait_s=1000.0)
    with anyio.fail_after(20):
        assert isinstance(await setup.error("alpha:lok"), ToolNotFoundError)
        assert isinstance(await setup.error("nobody:lok"), ToolNotFoundError)
    assert setup.lists.waited == []

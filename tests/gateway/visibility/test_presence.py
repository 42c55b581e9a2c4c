"""Names whose server has listed nothing to this process: it is waited for briefly, and its state is told."""

import asyncio
from typing import Any

import anyio
import pytest
from gateway_fakes import FakeFleet, FakeUpstream, Parts, config, definition

from smart_mcp_proxy.errors import RefusedError, ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway.visibility.presence import Presence
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


class Scene:
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
    scene = Scene(parts)
    scene.beta.move(state, error="It ended with exit code 2.")
    error = await scene.error(name)
    assert isinstance(error, UpstreamError)
    assert str(error) == f"Server 'beta' is not ready ({state}): It ended with exit code 2."


@pytest.mark.parametrize("state", [ServerState.CONNECTING, ServerState.DISCONNECTED])
async def test_a_server_that_is_still_connecting_is_named_with_a_time_to_try_again(
    parts: Parts, state: ServerState
) -> None:
    scene = Scene(parts)
    scene.beta.move(state)
    error = await scene.error("beta:query")
    assert (error.data, error.retry_after_s, error.delivery) == ({"state": state.value}, 2.0, "not_sent")
    assert "still connecting" in error.message


async def test_a_list_that_arrives_meanwhile_answers(parts: Parts) -> None:
    """The first call after a start needs no second one."""
    scene = Scene(parts, wait_s=30.0)
    scene.beta.move(ServerState.CONNECTING)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def list_late() -> None:
                await scene.beta.awaited.wait()
                scene.beta.move(ServerState.READY)
                await parts.sync("beta", [definition("query")])
                scene.lists.listed("beta")

            tasks.start_soon(list_late)
            record = await scene.visible.require("beta:query")
    assert str(record.key) == "beta:query"
    assert isinstance(await scene.error("beta:qurey"), ToolNotFoundError)


async def test_a_connected_server_without_a_list_says_whether_one_is_on_its_way(parts: Parts) -> None:
    scene = Scene(parts)
    assert "has not listed its tools yet" in (await scene.error("beta:query")).message
    scene.lists.failed.add("beta")
    failed = await scene.error("beta:query")
    assert "cannot be listed" in failed.message
    assert failed.data == {"state": "unlisted"}


async def test_of_a_server_with_a_list_of_old_other_names_are_suggested(parts: Parts) -> None:
    """And its state is said beside them: the tool may be new."""
    await parts.sync("beta", [definition("query")])
    scene = Scene(parts)
    scene.beta.move(ServerState.ERROR, error="It is down.")
    error = await scene.error("beta:qurey")
    assert isinstance(error, ToolNotFoundError)
    assert "beta:query" in error.hint and "It is down." in error.hint


@pytest.mark.parametrize("name", ["beta:query", "beta__query"])
async def test_a_disabled_server_is_named_by_each_form_of_a_tools_name(parts: Parts, name: str) -> None:
    scene = Scene(parts)
    scene.visible.reconfigure({"alpha": config("alpha"), "beta": config("beta", disabled=True)})
    assert (await scene.error(name)).error_code == "server_disabled"


@pytest.mark.parametrize("name", ["beta:query", "beta__query"])
async def test_who_may_not_see_a_server_learns_nothing_of_its_state(parts: Parts, name: str) -> None:
    """By token, by profile, by a filter of its entry: the answer is that for a server that does not exist."""
    scene = Scene(parts)
    scene.beta.move(ServerState.ERROR, error="It is down.")
    servers = {name: config(name) for name in ("alpha", "beta")}
    filtered = servers | {"beta": config("beta", tools=ToolFilter(exclude=("query",)))}

    async def seen_by(visible: CatalogView) -> str:
        error = await scene.error(name, visible)
        other = await scene.error(name.replace("beta", "zeta"), visible)
        assert isinstance(error, ToolNotFoundError)
        assert (error.hint, error.data, error.error_code) == (other.hint, other.data, other.error_code)
        return str(error)

    token = NarrowedView(scene.visible, Reach(frozenset({"alpha"})), {}.get)
    assert "down" not in await seen_by(token)
    held = NarrowedView(scene.visible, Reach(profile="work"), {"work": Profile("work", tools=("look",))}.get)
    assert "down" not in await seen_by(held)
    scene.visible.reconfigure(servers, Profile("work", servers=("alpha",)))
    assert "down" not in await seen_by(scene.visible)
    scene.visible.reconfigure(filtered)
    assert "down" not in await seen_by(scene.visible)
    assert scene.lists.waited == []


async def test_nobody_waits_for_a_server_whose_list_is_known(parts: Parts) -> None:
    """A wrong name at a healthy server is answered at once."""
    await parts.sync("alpha", [definition("look")])
    scene = Scene(parts, wait_s=1000.0)
    with anyio.fail_after(20):
        assert isinstance(await scene.error("alpha:lok"), ToolNotFoundError)
        assert isinstance(await scene.error("nobody:lok"), ToolNotFoundError)
    assert scene.lists.waited == []

"""Catalog and index stay equal to the servers: after changes, failures, restarts and other processes' writes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from gateway_fakes import NAME_LIMIT, FakeFleet, FakeUpstream, Parts, ToolWork, config, definition
from trusting import TrustingCatalog

from smart_mcp_proxy.errors import UpstreamTimeoutError
from smart_mcp_proxy.gateway.indexing.index_sync import FOLLOW_S
from smart_mcp_proxy.gateway.indexing.list_sync import POLL_S, Pace
from smart_mcp_proxy.models import ServerState

pytestmark = pytest.mark.anyio

NEVER_S = 3600.0
SOON_S = 0.02


class Shelf:
    """Lists at work, with its servers, its index and what may be seen."""

    def __init__(self, parts: Parts, work: ToolWork, upstreams: dict[str, FakeUpstream]) -> None:
        self.parts = parts
        self.work = work
        self.upstreams = upstreams
        self.alpha = upstreams["alpha"]
        self._others = asyncio.all_tasks()

    def workers(self) -> list[str]:
        """The servers that have a worker here; other tests may have left gateways open."""
        return sorted(
            task.get_name().removeprefix("tools of ")
            for task in asyncio.all_tasks() - self._others
            if task.get_name().startswith("tools of ")
        )

    def found(self, query: str) -> list[str]:
        """The tools that a search finds, by canonical name."""
        hits = self.parts.index.search(query, limit=10).hits
        return sorted(str(self.parts.catalog.snapshot.by_id[hit.id].key) for hit in hits)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns once the condition holds; it is looked at whenever a change is reported."""
        with anyio.fail_after(20):
            while not condition():
                await self.work.changes.wait()

    async def listed(self, times: int) -> None:
        """Returns once alpha has been listed so often and its list is in."""
        await self.until(lambda: self.alpha.listings == times and self.work.lists.is_fresh("alpha"))

    async def connected(self, *tools: dict[str, Any]) -> None:
        """Alpha becomes ready with these tools, and is listed."""
        self.alpha.tools = list(tools)
        self.work.sync.status_changed(self.alpha.move(ServerState.READY))
        await self.listed(1)


@asynccontextmanager
async def opened_shelf(parts: Parts, sees: Any = None, **times: float) -> AsyncIterator[Shelf]:
    """Workers for the servers alpha and beta, both not connected yet; nothing happens by itself unless asked."""
    upstreams = {name: FakeUpstream(name) for name in ("alpha", "beta")}
    for upstream in upstreams.values():
        upstream.move(ServerState.DISCONNECTED)
    follow_s = times.pop("follow_s", NEVER_S)
    pace, sees = Pace(**{"merge_s": 0.0, "poll_s": NEVER_S} | times), sees or parts.visible.sees
    fleet = FakeFleet(*upstreams.values())
    work = ToolWork(fleet, parts.catalog, parts.index, sees, parts.clock, pace=pace, follow_s=follow_s)
    work.index_sync.start()
    try:
        with anyio.fail_after(20):
            await work.index_sync.loaded.wait()
        yield Shelf(parts, work, upstreams)
    finally:
        await work.close()


@pytest.fixture
async def shelf(parts: Parts) -> AsyncIterator[Shelf]:
    async with opened_shelf(parts) as opened:
        yield opened


async def test_a_server_that_connects_is_listed_and_searchable(shelf: Shelf) -> None:
    """Fresh from then on, with an age that grows by the clock."""
    assert not shelf.work.lists.is_fresh("alpha")
    assert shelf.work.lists.age_s(["alpha"]) is None
    await shelf.connected(definition("paint"), definition("measure"))
    assert shelf.found("paint") == ["alpha:paint"]
    assert [str(key) for key in shelf.parts.catalog.snapshot.by_key] == ["alpha:paint", "alpha:measure"]
    shelf.parts.clock.now_s += 7
    assert shelf.work.lists.age_s(["alpha"]) == 7
    assert repr(shelf.work.lists) == "<ListState, 1 servers fresh>"
    assert repr(shelf.work.sync) == "<ListSync of tools, 1 servers>"
    assert repr(shelf.work.index_sync) == "<IndexSync 2 tools, loaded>"


async def test_a_change_reaches_catalog_and_index(shelf: Shelf) -> None:
    """New, changed and gone tools alike."""
    await shelf.connected(definition("paint"), definition("measure"))
    shelf.alpha.tools = [definition("paint", "Lacquer something."), definition("sand")]
    shelf.work.sync.changed("alpha")
    await shelf.listed(2)
    assert (shelf.found("lacquer"), shelf.found("sand"), shelf.found("measure")) == (
        ["alpha:paint"],
        ["alpha:sand"],
        [],
    )


async def test_notifications_within_a_moment_are_one_listing(parts: Parts) -> None:
    """However many a server sends."""
    async with opened_shelf(parts, merge_s=0.1) as shelf:
        await shelf.connected(definition("paint"))
        for _ in range(20):
            shelf.work.sync.changed("alpha")
            await anyio.lowlevel.checkpoint()
        assert shelf.alpha.listings == 1
        await shelf.until(lambda: shelf.alpha.listings > 1)
        await shelf.listed(2)
        shelf.work.sync.changed("alpha")
        await shelf.until(lambda: shelf.alpha.listings > 2)
        assert shelf.alpha.listings == 3


async def test_a_change_during_a_listing_is_not_lost(shelf: Shelf) -> None:
    """The list on its way may be the old one, so another follows."""
    await shelf.connected(definition("paint"))
    shelf.alpha.gate = asyncio.Event()
    shelf.alpha.busy.clear()
    shelf.work.sync.changed("alpha")
    with anyio.fail_after(20):
        await shelf.alpha.busy.wait()
    shelf.alpha.tools = [definition("varnish")]
    shelf.work.sync.changed("alpha")
    shelf.alpha.gate.set()
    await shelf.listed(3)
    await shelf.until(lambda: shelf.found("varnish") == ["alpha:varnish"])
    assert shelf.found("paint") == []


async def test_one_slow_server_does_not_hold_up_another(shelf: Shelf) -> None:
    """Each has a worker of its own."""
    shelf.alpha.gate = asyncio.Event()
    beta = shelf.upstreams["beta"]
    beta.tools = [definition("measure")]
    for upstream in (shelf.alpha, beta):
        shelf.work.sync.status_changed(upstream.move(ServerState.READY))
    await shelf.until(lambda: shelf.work.lists.is_fresh("beta"))
    assert not shelf.work.lists.is_fresh("alpha")
    assert shelf.found("measure") == ["beta:measure"]


async def test_a_failed_listing_leaves_the_last_good_one_and_marks_it_stale(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    """Until a later one succeeds."""
    await shelf.connected(definition("paint"))
    shelf.alpha.list_error = UpstreamTimeoutError("Too slow.")
    shelf.work.sync.changed("alpha")
    await shelf.until(lambda: not shelf.work.lists.is_fresh("alpha"))
    assert shelf.found("paint") == ["alpha:paint"]
    assert shelf.work.lists.is_done("alpha")
    assert "tools of 'alpha' could not be listed, the last list stays: Too slow." in caplog.text
    shelf.alpha.list_error = None
    shelf.work.sync.changed("alpha")
    await shelf.listed(3)


async def test_a_server_is_done_when_it_is_listed_or_has_failed(shelf: Shelf) -> None:
    """A new connection is waited for again."""
    assert not shelf.work.lists.is_done("alpha")
    shelf.alpha.list_error = UpstreamTimeoutError("Too slow.")
    shelf.work.sync.status_changed(shelf.alpha.move(ServerState.READY))
    assert not shelf.work.lists.is_done("alpha")
    await shelf.until(lambda: shelf.work.lists.is_done("alpha"))
    assert not shelf.work.lists.is_fresh("alpha")
    shelf.alpha.list_error, shelf.alpha.gate = None, asyncio.Event()
    shelf.work.sync.status_changed(shelf.alpha.move(ServerState.READY, restarts=1))
    assert not shelf.work.lists.is_done("alpha")
    shelf.alpha.gate.set()
    await shelf.listed(2)
    assert shelf.work.lists.is_done("alpha")


async def test_an_honest_empty_list_is_honoured(shelf: Shelf) -> None:
    """A server may have no tools any more."""
    await shelf.connected(definition("paint"))
    shelf.alpha.tools = []
    shelf.work.sync.changed("alpha")
    await shelf.listed(2)
    assert shelf.found("paint") == []
    assert not shelf.parts.catalog.snapshot.by_id
    assert len(shelf.parts.index) == 0


async def test_a_server_that_is_not_ready_keeps_its_tools_as_stale_ones(shelf: Shelf) -> None:
    """It is not asked for its list while it is away."""
    await shelf.connected(definition("paint"))
    shelf.work.sync.status_changed(shelf.alpha.move(ServerState.ERROR))
    assert not shelf.work.lists.is_fresh("alpha")
    shelf.work.sync.changed("alpha")
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    assert shelf.alpha.listings == 1
    assert shelf.found("paint") == ["alpha:paint"]


@pytest.mark.parametrize("state", [ServerState.ERROR, ServerState.READY], ids=["lost", "reconnected"])
async def test_a_list_of_a_connection_that_is_over_is_not_fresh(shelf: Shelf, state: ServerState) -> None:
    """It is used, but the present connection has not confirmed it."""
    shelf.alpha.tools = [definition("paint")]
    shelf.alpha.gate = asyncio.Event()
    shelf.work.sync.status_changed(shelf.alpha.move(ServerState.READY))
    with anyio.fail_after(20):
        await shelf.alpha.busy.wait()
    shelf.alpha.move(state, restarts=1)
    shelf.alpha.gate.set()
    await shelf.until(lambda: shelf.found("paint") == ["alpha:paint"])
    assert not shelf.work.lists.is_fresh("alpha")


async def test_a_server_that_says_nothing_is_listed_again_by_and_by(parts: Parts) -> None:
    """Every 300 s; some servers never announce a change."""
    assert POLL_S == 300
    async with opened_shelf(parts, poll_s=SOON_S) as shelf:
        await shelf.connected(definition("paint"))
        shelf.alpha.tools = [definition("varnish")]
        await shelf.until(lambda: shelf.found("varnish") == ["alpha:varnish"])
        assert shelf.alpha.listings >= 2


async def test_the_stored_catalog_is_searchable_before_any_server_is_connected(parts: Parts) -> None:
    """As stale tools, with the age that the store knows."""
    await parts.catalog.sync("alpha", [definition("paint")])
    async with opened_shelf(parts) as shelf:
        assert shelf.found("paint") == ["alpha:paint"]
        assert not shelf.work.lists.is_fresh("alpha")
        age_s = shelf.work.lists.age_s(["alpha"])
        assert age_s is not None
        assert 0 <= age_s < 60
        assert shelf.work.lists.age_s(["beta"]) is None


async def test_another_processs_writes_are_followed(parts: Parts, tmp_path: Path) -> None:
    """Within two seconds: it is looked for every second."""
    assert FOLLOW_S <= 2
    async with (
        opened_shelf(parts, follow_s=SOON_S) as shelf,
        TrustingCatalog.open(tmp_path, name_limit=NAME_LIMIT) as other,
    ):
        await other.sync("beta", [definition("measure")])
        with anyio.fail_after(20):
            while shelf.found("measure") != ["beta:measure"]:
                await anyio.lowlevel.checkpoint()
        await other.sync("beta", [])
        with anyio.fail_after(20):
            while len(shelf.parts.index):
                await anyio.lowlevel.checkpoint()


async def test_whoever_follows_returns_when_the_index_has_it_whoever_read_it(parts: Parts, tmp_path: Path) -> None:
    """Else a tool that was just approved could be missing from the next search: the other one looks every second."""
    begun, go_on = threading.Event(), threading.Event()

    def sees(record: Any) -> bool:
        begun.set()
        assert go_on.wait(5)
        return True

    async with (
        opened_shelf(parts, sees) as shelf,
        TrustingCatalog.open(tmp_path, name_limit=NAME_LIMIT) as other,
    ):
        await other.sync("beta", [definition("measure")])
        with anyio.fail_after(20):
            first = asyncio.ensure_future(shelf.work.index_sync.follow())
            await anyio.to_thread.run_sync(begun.wait, 5)
            second = asyncio.ensure_future(shelf.work.index_sync.follow())
            await asyncio.wait({second}, timeout=0.1)
            has_returned = second.done()
            go_on.set()
            await second
            assert not has_returned
            assert shelf.found("measure") == ["beta:measure"]
            await first


async def test_a_removed_server_is_forgotten_with_its_worker(shelf: Shelf) -> None:
    """Its tools, its age, its problems; others keep theirs, and it may come back."""
    shelf.alpha.problems = ("Server 'alpha': tool 'x' is left out.",)
    await shelf.connected(definition("paint"))
    assert shelf.work.sync.problems == {"alpha": shelf.alpha.problems}
    beta = shelf.upstreams["beta"]
    beta.tools = [definition("measure")]
    shelf.work.sync.status_changed(beta.move(ServerState.READY))
    await shelf.until(lambda: shelf.work.lists.is_fresh("beta"))
    assert shelf.workers() == ["alpha", "beta"]
    await shelf.work.forget(["beta"])
    await anyio.lowlevel.checkpoint()
    assert shelf.workers() == ["beta"]
    assert (shelf.found("paint"), shelf.found("measure")) == ([], ["beta:measure"])
    assert shelf.work.sync.problems == {"beta": ()}
    assert not shelf.work.lists.is_fresh("alpha")
    shelf.work.sync.status_changed(shelf.alpha.move(ServerState.READY))
    await shelf.listed(2)
    assert shelf.found("paint") == ["alpha:paint"]


async def test_a_server_removed_while_it_is_being_indexed_leaves_nothing_behind(parts: Parts) -> None:
    """Work in a thread cannot be stopped; what it still does must not stay."""
    begun, go_on, updated = threading.Event(), threading.Event(), threading.Event()
    update = parts.index.update

    def telling_update(*args: Any) -> None:
        update(*args)
        updated.set()

    parts.index.update = telling_update  # type: ignore[method-assign]  # says when the thread is done with it

    def sees(record: Any) -> bool:
        begun.set()
        assert go_on.wait(5)
        return True

    async with opened_shelf(parts, sees) as shelf:
        shelf.alpha.tools = [definition("paint")]
        shelf.work.sync.status_changed(shelf.alpha.move(ServerState.READY))
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync(begun.wait, 5)
            forgetting = asyncio.ensure_future(shelf.work.forget([]))
            while shelf.workers() or parts.catalog.snapshot.by_id:
                await anyio.lowlevel.checkpoint()
            for _ in range(500):  # time for whoever does not wait for the thread
                await anyio.lowlevel.checkpoint()
            go_on.set()
            await forgetting
            await anyio.to_thread.run_sync(updated.wait, 5)
        assert len(parts.index) == 0


async def test_hidden_tools_are_listed_but_not_searchable(parts: Parts) -> None:
    """Until the configuration shows them; `forget` brings the index in line."""
    parts.visible.reconfigure({"alpha": config("alpha", disabled=True)})
    async with opened_shelf(parts) as shelf:
        await shelf.connected(definition("paint"))
        assert shelf.found("paint") == []
        parts.visible.reconfigure({"alpha": config("alpha")})
        await shelf.work.forget(["alpha"])
        assert shelf.found("paint") == ["alpha:paint"]


async def test_a_problem_of_a_list_is_told_once(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    """And again when it is another one."""
    problem = "Server 'alpha': tool 'x' is left out, it has no name."
    shelf.alpha.problems = (problem,)
    await shelf.connected()
    shelf.work.sync.changed("alpha")
    await shelf.listed(2)
    assert [record.getMessage() for record in caplog.records].count(problem) == 1
    assert shelf.work.sync.problems["alpha"] == (problem,)
    shelf.alpha.problems = ()
    shelf.work.sync.changed("alpha")
    await shelf.listed(3)
    await shelf.until(lambda: shelf.work.sync.problems["alpha"] == ())


async def test_closing_ends_every_worker(parts: Parts) -> None:
    """Whatever they are doing; closing twice does no harm."""
    async with opened_shelf(parts) as shelf:
        await shelf.connected(definition("paint"))
        shelf.alpha.gate = asyncio.Event()
        shelf.alpha.busy.clear()
        shelf.work.sync.changed("alpha")
        with anyio.fail_after(20):
            await shelf.alpha.busy.wait()
            await shelf.work.close()
        assert shelf.workers() == []

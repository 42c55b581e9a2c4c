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


class ListSyncSetup:
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
async def opened_shelf(parts: Parts, sees: Any = None, **times: float) -> AsyncIterator[ListSyncSetup]:
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
        yield ListSyncSetup(parts, work, upstreams)
    finally:
        await work.close()


@pytest.fixture
async def setup(parts: Parts) -> AsyncIterator[ListSyncSetup]:
    async with opened_shelf(parts) as opened:
        yield opened


async def test_a_server_that_connects_is_listed_and_searchable(setup: ListSyncSetup) -> None:
    """Fresh from then on, with an age that grows by the clock."""
    assert not setup.work.lists.is_fresh("alpha")
    assert setup.work.lists.age_s(["alpha"]) is None
    await setup.connected(definition("paint"), definition("measure"))
    assert setup.found("paint") == ["alpha:paint"]
    assert [str(key) for key in setup.parts.catalog.snapshot.by_key] == ["alpha:paint", "alpha:measure"]
    setup.parts.clock.now_s += 7
    assert setup.work.lists.age_s(["alpha"]) == 7
    assert repr(setup.work.lists) == "<ListState, 1 servers fresh>"
    assert repr(setup.work.sync) == "<ListSync of tools, 1 servers>"
    assert repr(setup.work.index_sync) == "<IndexSync 2 tools, loaded>"


async def test_a_change_reaches_catalog_and_index(setup: ListSyncSetup) -> None:
    """New, changed and gone tools alike."""
    await setup.connected(definition("paint"), definition("measure"))
    setup.alpha.tools = [definition("paint", "Lacquer something."), definition("sand")]
    setup.work.sync.list_soon("alpha")
    await setup.listed(2)
    assert (setup.found("lacquer"), setup.found("sand"), setup.found("measure")) == (
        ["alpha:paint"],
        ["alpha:sand"],
        [],
    )


async def test_notifications_within_a_moment_are_one_listing(parts: Parts) -> None:
    """However many a server sends."""
    async with opened_shelf(parts, merge_s=0.1) as setup:
        await setup.connected(definition("paint"))
        for _ in range(20):
            setup.work.sync.list_soon("alpha")
            await anyio.lowlevel.checkpoint()
        assert setup.alpha.listings == 1
        await setup.until(lambda: setup.alpha.listings > 1)
        await setup.listed(2)
        setup.work.sync.list_soon("alpha")
        await setup.until(lambda: setup.alpha.listings > 2)
        assert setup.alpha.listings == 3


async def test_a_change_during_a_listing_is_not_lost(setup: ListSyncSetup) -> None:
    """The list on its way may be the old one, so another follows."""
    await setup.connected(definition("paint"))
    setup.alpha.gate = asyncio.Event()
    setup.alpha.busy.clear()
    setup.work.sync.list_soon("alpha")
    with anyio.fail_after(20):
        await setup.alpha.busy.wait()
    setup.alpha.tools = [definition("varnish")]
    setup.work.sync.list_soon("alpha")
    setup.alpha.gate.set()
    await setup.listed(3)
    await setup.until(lambda: setup.found("varnish") == ["alpha:varnish"])
    assert setup.found("paint") == []


async def test_one_slow_server_does_not_hold_up_another(setup: ListSyncSetup) -> None:
    """Each has a worker of its own."""
    setup.alpha.gate = asyncio.Event()
    beta = setup.upstreams["beta"]
    beta.tools = [definition("measure")]
    for upstream in (setup.alpha, beta):
        setup.work.sync.status_changed(upstream.move(ServerState.READY))
    await setup.until(lambda: setup.work.lists.is_fresh("beta"))
    assert not setup.work.lists.is_fresh("alpha")
    assert setup.found("measure") == ["beta:measure"]


async def test_a_failed_listing_leaves_the_last_good_one_and_marks_it_stale(
    setup: ListSyncSetup, caplog: pytest.LogCaptureFixture
) -> None:
    """Until a later one succeeds."""
    await setup.connected(definition("paint"))
    setup.alpha.list_error = UpstreamTimeoutError("Too slow.")
    setup.work.sync.list_soon("alpha")
    await setup.until(lambda: not setup.work.lists.is_fresh("alpha"))
    assert setup.found("paint") == ["alpha:paint"]
    assert setup.work.lists.is_done("alpha")
    assert "tools of 'alpha' could not be listed, the last list stays: Too slow." in caplog.text
    setup.alpha.list_error = None
    setup.work.sync.list_soon("alpha")
    await setup.listed(3)


async def test_an_error_of_the_gateway_does_not_end_a_servers_listing(
    setup: ListSyncSetup, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts as a failed listing, with its trace in the log, and the next one counts again."""
    setup.alpha.list_error = ValueError("odd")
    setup.work.sync.status_changed(setup.alpha.move(ServerState.READY))
    await setup.until(lambda: setup.work.lists.is_done("alpha"))
    assert "ValueError: odd" in caplog.text
    assert setup.workers() == ["alpha"]
    setup.alpha.list_error, setup.alpha.tools = None, [definition("paint")]
    setup.work.sync.list_soon("alpha")
    await setup.listed(2)
    assert setup.found("paint") == ["alpha:paint"]


async def test_a_server_is_done_when_it_is_listed_or_has_failed(setup: ListSyncSetup) -> None:
    """A new connection is waited for again."""
    assert not setup.work.lists.is_done("alpha")
    setup.alpha.list_error = UpstreamTimeoutError("Too slow.")
    setup.work.sync.status_changed(setup.alpha.move(ServerState.READY))
    assert not setup.work.lists.is_done("alpha")
    await setup.until(lambda: setup.work.lists.is_done("alpha"))
    assert not setup.work.lists.is_fresh("alpha")
    setup.alpha.list_error, setup.alpha.gate = None, asyncio.Event()
    setup.work.sync.status_changed(setup.alpha.move(ServerState.READY, restarts=1))
    assert not setup.work.lists.is_done("alpha")
    setup.alpha.gate.set()
    await setup.listed(2)
    assert setup.work.lists.is_done("alpha")


async def test_an_honest_empty_list_is_honoured(setup: ListSyncSetup) -> None:
    """A server may have no tools any more."""
    await setup.connected(definition("paint"))
    setup.alpha.tools = []
    setup.work.sync.list_soon("alpha")
    await setup.listed(2)
    assert setup.found("paint") == []
    assert not setup.parts.catalog.snapshot.by_id
    assert len(setup.parts.index) == 0


async def test_a_server_that_is_not_ready_keeps_its_tools_as_stale_ones(setup: ListSyncSetup) -> None:
    """It is not asked for its list while it is away."""
    await setup.connected(definition("paint"))
    setup.work.sync.status_changed(setup.alpha.move(ServerState.ERROR))
    assert not setup.work.lists.is_fresh("alpha")
    setup.work.sync.list_soon("alpha")
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
    assert setup.alpha.listings == 1
    assert setup.found("paint") == ["alpha:paint"]


@pytest.mark.parametrize("state", [ServerState.ERROR, ServerState.READY], ids=["lost", "reconnected"])
async def test_a_list_of_a_connection_that_is_over_is_not_fresh(setup: ListSyncSetup, state: ServerState) -> None:
    """It is used, but the present connection has not confirmed it."""
    setup.alpha.tools = [definition("paint")]
    setup.alpha.gate = asyncio.Event()
    setup.work.sync.status_changed(setup.alpha.move(ServerState.READY))
    with anyio.fail_after(20):
        await setup.alpha.busy.wait()
    setup.alpha.move(state, restarts=1)
    setup.alpha.gate.set()
    await setup.until(lambda: setup.found("paint") == ["alpha:paint"])
    assert not setup.work.lists.is_fresh("alpha")


async def test_a_server_that_says_nothing_is_listed_again_by_and_by(parts: Parts) -> None:
    """Every 300 s; some servers never announce a change."""
    assert POLL_S == 300
    async with opened_shelf(parts, poll_s=SOON_S) as setup:
        await setup.connected(definition("paint"))
        setup.alpha.tools = [definition("varnish")]
        await setup.until(lambda: setup.found("varnish") == ["alpha:varnish"])
        assert setup.alpha.listings >= 2


async def test_the_stored_catalog_is_searchable_before_any_server_is_connected(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As stale tools, with the age that the store knows."""
    await parts.catalog.sync("alpha", [definition("paint")])
    async with opened_shelf(parts) as setup:
        assert setup.found("paint") == ["alpha:paint"]
        assert not setup.work.lists.is_fresh("alpha")
        stored_s = parts.catalog.last_sync_s("alpha")
        assert stored_s is not None
        monkeypatch.setattr(parts.catalog, "now_s", lambda: stored_s + 30)
        assert setup.work.lists.age_s(["alpha"]) == pytest.approx(30)
        assert setup.work.lists.age_s(["beta"]) is None


async def test_another_processs_writes_are_followed(parts: Parts, tmp_path: Path) -> None:
    """Within two seconds: it is looked for every second."""
    assert FOLLOW_S <= 2
    async with (
        opened_shelf(parts, follow_s=SOON_S) as setup,
        TrustingCatalog.open(tmp_path, name_limit=NAME_LIMIT) as other,
    ):
        await other.sync("beta", [definition("measure")])
        with anyio.fail_after(20):
            while setup.found("measure") != ["beta:measure"]:
                await anyio.lowlevel.checkpoint()
        await other.sync("beta", [])
        with anyio.fail_after(20):
            while len(setup.parts.index):
                await anyio.lowlevel.checkpoint()


async def test_whoever_follows_returns_when_the_index_has_it_whoever_read_it(parts: Parts, tmp_path: Path) -> None:
    """Else a tool that was just approved could be missing from the next search: the other one looks every second."""
    begun, go_on = threading.Event(), threading.Event()

    def sees(record: Any) -> bool:
        begun.set()
        assert go_on.wait(5)
        return True

    async with opened_shelf(parts, sees) as setup, TrustingCatalog.open(tmp_path, name_limit=NAME_LIMIT) as other:
        await other.sync("beta", [definition("measure")])
        with anyio.fail_after(20):
            first = asyncio.ensure_future(setup.work.index_sync.follow())
            await anyio.to_thread.run_sync(begun.wait, 5)
            second = asyncio.ensure_future(setup.work.index_sync.follow())
            await asyncio.wait({second}, timeout=0.1)
            has_returned = second.done()
            go_on.set()
            await second
            assert not has_returned
            assert setup.found("measure") == ["beta:measure"]
            await first


async def test_a_removed_server_is_forgotten_with_its_worker(setup: ListSyncSetup) -> None:
    """Its tools, its age, its problems; others keep theirs, and it may come back."""
    setup.alpha.problems = ("Server 'alpha': tool 'x' is left out.",)
    await setup.connected(definition("paint"))
    assert setup.work.sync.problems == {"alpha": setup.alpha.problems}
    beta = setup.upstreams["beta"]
    beta.tools = [definition("measure")]
    setup.work.sync.status_changed(beta.move(ServerState.READY))
    await setup.until(lambda: setup.work.lists.is_fresh("beta"))
    assert setup.workers() == ["alpha", "beta"]
    await setup.work.forget(["beta"])
    await anyio.lowlevel.checkpoint()
    assert setup.workers() == ["beta"]
    assert (setup.found("paint"), setup.found("measure")) == ([], ["beta:measure"])
    assert setup.work.sync.problems == {"beta": ()}
    assert not setup.work.lists.is_fresh("alpha")
    setup.work.sync.status_changed(setup.alpha.move(ServerState.READY))
    await setup.listed(2)
    assert setup.found("paint") == ["alpha:paint"]


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

    async with opened_shelf(parts, sees) as setup:
        setup.alpha.tools = [definition("paint")]
        setup.work.sync.status_changed(setup.alpha.move(ServerState.READY))
        with anyio.fail_after(20):
            await anyio.to_thread.run_sync(begun.wait, 5)
            forgetting = asyncio.ensure_future(setup.work.forget([]))
            while setup.workers() or parts.catalog.snapshot.by_id:
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
    async with opened_shelf(parts) as setup:
        await setup.connected(definition("paint"))
        assert setup.found("paint") == []
        parts.visible.reconfigure({"alpha": config("alpha")})
        await setup.work.forget(["alpha"])
        assert setup.found("paint") == ["alpha:paint"]


async def test_a_problem_of_a_list_is_told_once(setup: ListSyncSetup, caplog: pytest.LogCaptureFixture) -> None:
    """And again when it is another one."""
    problem = "Server 'alpha': tool 'x' is left out, it has no name."
    setup.alpha.problems = (problem,)
    await setup.connected()
    setup.work.sync.list_soon("alpha")
    await setup.listed(2)
    assert [record.getMessage() for record in caplog.records].count(problem) == 1
    assert setup.work.sync.problems["alpha"] == (problem,)
    setup.alpha.problems = ()
    setup.work.sync.list_soon("alpha")
    await setup.listed(3)
    await setup.until(lambda: setup.work.sync.problems["alpha"] == ())


async def test_closing_ends_every_worker(parts: Parts) -> None:
    """Whatever they are doing; closing twice does no harm."""
    async with opened_shelf(parts) as setup:
        await setup.connected(definition("paint"))
        setup.alpha.gate = asyncio.Event()
        setup.alpha.busy.clear()
        setup.work.sync.list_soon("alpha")
        with anyio.fail_after(20):
            await setup.alpha.busy.wait()
            await setup.work.close()
        assert setup.workers() == []

"""Several gateways on one data directory: none gets in another's way, each sees what the others wrote."""

import asyncio
import gc
import json
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog
from smart_mcp_proxy.catalog.tables.instances import INSTANCE_STALE_S
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]

INDEXER = """
import asyncio, json, sys
from pathlib import Path
from smart_mcp_proxy.catalog import Catalog

async def main():
    sys.stdout.write("ready\\n"); sys.stdout.flush()
    sys.stdin.readline()
    async with Catalog.open(Path(sys.argv[1]), name_limit=60, url=sys.argv[2] or None) as catalog:
        await catalog.register_instance(1, ["s0"])
        for round_ in range(5):
            for server in (f"s{number}" for number in range(4)):
                numbers = range(round_, round_ + 20)
                await catalog.sync(server, [{"name": f"t{n}", "title": f"{round_}"} for n in numbers], lambda _: True)
                await catalog.heartbeat()
        await catalog.refresh()
        sys.stdout.write(json.dumps(sorted([*r.key, r.listed_name] for r in catalog.snapshot.by_id.values())) + "\\n")

asyncio.run(main())
"""


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.soak)])
@pytest.mark.long
async def test_processes_that_index_at_once_end_with_the_same_catalog(store: Any, count: int) -> None:
    """Creation, migration and every sync race; no error surfaces, and nothing is lost or doubled."""
    pipe = asyncio.subprocess.PIPE
    with anyio.fail_after(60):
        gateways = [
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                INDEXER,
                str(store.data_dir),
                store.url or "",
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
            )
            for _ in range(count)
        ]
        for gateway in gateways:
            assert gateway.stdout is not None
            assert await gateway.stdout.readline() == b"ready\n"
        ends = await asyncio.gather(*(gateway.communicate(b"go\n") for gateway in gateways))
    assert [(gateway.returncode, stderr) for gateway, (_, stderr) in zip(gateways, ends, strict=True)] == [
        (0, b"")
    ] * count

    async with store.opened() as catalog:
        records = catalog.snapshot.by_id.values()
        assert {record.key for record in records} == {
            ToolKey(f"s{server}", f"t{number}") for server in range(4) for number in range(4, 24)
        }
        assert len(records) == 80
        assert await catalog.instances() == ()
        last = [json.loads(stdout) for stdout, _ in ends]
        assert sorted([*record.key, record.listed_name] for record in records) in last


async def test_refresh_brings_what_another_process_wrote(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """Added, changed and removed tools come as one diff, and both snapshots agree."""
    async with open_catalog() as one, open_catalog() as two:
        await one.sync("s", [tool("edited"), tool("gone")])
        diff = await two.refresh()
        assert diff is not None
        assert len(diff.added) == 2
        before = two.snapshot
        await one.sync("s", [tool("edited", title="new"), tool("new")])
        diff = await two.refresh()
        assert diff is not None
        assert [record.key.tool for record in diff.added] == ["new"]
        assert [record.key.tool for record in diff.changed] == ["edited"]
        assert diff.removed == (before.by_key[ToolKey("s", "gone")].id,)
        assert two.snapshot == one.snapshot
        assert two.last_sync_s("s") == one.last_sync_s("s")


async def test_refresh_says_none_when_nobody_wrote_a_tool(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """Own writes are known already; heartbeats are no change."""
    async with open_catalog() as one, open_catalog() as two:
        await one.sync("s", [tool("a")])
        await two.refresh()
        await two.register_instance(2, ["s"])
        await two.heartbeat()
        assert await one.refresh() is None
        assert await two.refresh() is None


async def test_a_sync_reports_what_another_process_had_stored_first(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """The file needs no write, but this process's index has yet to hear of the tools, those of other servers too."""
    async with open_catalog() as one, open_catalog() as two:
        await one.sync("s", [tool("a")])
        await one.sync("t", [tool("b")])
        diff = await two.sync("s", [tool("a")])
        assert [record.key for record in diff.added] == [ToolKey("s", "a"), ToolKey("t", "b")]
        assert two.snapshot == one.snapshot


async def test_a_first_list_that_failed_takes_nothing_from_a_process_that_has_it(store: Any, tool: MakeTool) -> None:
    """Which has just stored it, unseen so far; where nobody has one, what comes later waits for the user."""
    async with store.opened() as late, store.opened() as early:
        await early.sync("s:prompts", [tool("a")])
        for place in ("s:prompts", "t:prompts"):
            assert not late.is_known(place)
            await late.close_first_list(place)
            assert late.is_known(place)
        await early.refresh()
        assert ToolKey("s:prompts", "a") in early.snapshot.by_key
        await early.sync("t:prompts", [tool("b")])
        for catalog in (late, early):
            await catalog.refresh()
            assert set(catalog.snapshot.by_key) == {ToolKey("s:prompts", "a")}
            assert set(catalog.snapshot.withheld) == {ToolKey("t:prompts", "b")}


async def test_a_name_limit_lowered_by_one_process_reaches_the_others(
    open_catalog: OpenCatalog, tool: MakeTool
) -> None:
    """A new listed name is a change of the tool, and the process with the higher limit keeps it."""
    async with open_catalog() as one:
        await one.sync("s", [tool("long" * 10)])
        async with open_catalog(name_limit=30):
            pass
        diff = await one.refresh()
        assert diff is not None
        assert [len(record.listed_name) for record in diff.changed] == [30]
        assert not await one.sync("s", [tool("long" * 10)])


async def test_servers_of_another_living_process_are_not_forgotten(
    open_catalog: OpenCatalog, tool: MakeTool, clock: Any
) -> None:
    """They are once it ends, or has not been heard of for 30 s."""
    async with open_catalog() as one:
        await one.register_instance(1, ["mine", "old"])
        for server in ("mine", "old", "theirs", "dead"):
            await one.sync(server, [tool("a")])
        async with open_catalog() as two, open_catalog() as three:
            await three.register_instance(3, ["dead"])
            clock.now_s += INSTANCE_STALE_S - 1
            await two.register_instance(2, ["theirs"])
            await one.forget_servers(["mine"])
            assert set(one.snapshot.by_server) == {"mine", "theirs", "dead"}
            clock.now_s += 1
            await one.forget_servers(["mine"])
            assert set(one.snapshot.by_server) == {"mine", "theirs"}
        await one.forget_servers(["mine"])
        assert set(one.snapshot.by_server) == {"mine"}


async def test_instances_lists_the_living(open_catalog: OpenCatalog, clock: Any) -> None:
    """One is there from its registration to its end, and dropped when its heartbeat stops."""
    async with open_catalog() as one:
        first = await one.register_instance(1, ["b", "a"])
        assert (first.pid, first.servers, first.started_s) == (1, ("a", "b"), clock.now_s)
        async with open_catalog() as two:
            second = await two.register_instance(2, [])
            assert await one.instances() == (first, second)
            clock.now_s += INSTANCE_STALE_S
            await one.heartbeat()
            assert [found.id for found in await two.instances()] == [first.id]
            await two.heartbeat()
            living = await one.instances()
            assert [(found.id, found.started_s) for found in living] == [
                (first.id, first.started_s),
                (second.id, second.started_s),
            ]
        assert [found.id for found in await one.instances()] == [first.id]


async def test_an_instance_registers_again_when_its_servers_change(open_catalog: OpenCatalog) -> None:
    """It keeps its id."""
    async with open_catalog() as catalog:
        first = await catalog.register_instance(1, ["a"])
        second = await catalog.register_instance(1, ["b"])
        assert await catalog.instances() == (second,)
        assert (second.id, second.servers) == (first.id, ("b",))


async def test_a_heartbeat_from_the_future_is_stale(open_catalog: OpenCatalog, clock: Any) -> None:
    """A clock set back by a day does not keep dead processes alive for that day."""
    async with open_catalog() as one, open_catalog() as two:
        await two.register_instance(2, ["s"])
        clock.now_s -= 86_400
        assert await one.instances() == ()


async def test_gateways_are_those_that_serve_as_of_the_last_heartbeat(open_catalog: OpenCatalog) -> None:
    """A command that opens a gateway for a moment does not count, and its own count has the others."""
    async with open_catalog() as one:
        first = await one.register_instance(1, ["a"])
        assert (one.gateways, one.other_gateways) == ((first,), ())
        async with open_catalog() as two, open_catalog() as command:
            second = await two.register_instance(2, ["b"])
            assert [found.id for found in two.other_gateways] == [first.id]
            registered = await command.register_instance(3, ["c"], serves=False)
            assert (registered.serves, command.other_gateways) == (False, (first, second))
            assert one.other_gateways == ()  # nothing is asked between heartbeats
            await one.heartbeat()
            await command.heartbeat()
            await one.heartbeat()
            assert one.other_gateways == (second,)
            assert [found.id for found in await one.instances()] == [first.id, second.id, registered.id]
        await one.heartbeat()
        assert [found.id for found in one.gateways] == [first.id]


async def test_a_gateway_that_was_killed_counts_until_it_is_stale(open_catalog: OpenCatalog, clock: Any) -> None:
    """For 30 s, by the clock of the store."""
    async with open_catalog() as one, open_catalog() as two:
        await one.register_instance(1, ["a"])
        await two.register_instance(2, ["a"])
        clock.now_s += INSTANCE_STALE_S - 1
        await one.heartbeat()
        assert len(one.other_gateways) == 1
        clock.now_s += 1
        await one.heartbeat()
        assert one.other_gateways == ()


async def test_gateways_stay_known_while_the_store_is_lost(store: Any, open_catalog: OpenCatalog) -> None:
    """Limits that were shared go on being shared."""
    async with open_catalog() as one, open_catalog() as two:
        await two.register_instance(2, ["a"])
        await one.register_instance(1, ["a"])
        store.lose()
        await one.heartbeat()
        assert len(one.other_gateways) == 1
        store.bring_back()


async def test_a_heartbeat_needs_a_registration(open_catalog: OpenCatalog) -> None:
    """Anything else is a bug of the caller."""
    async with open_catalog() as catalog:
        with pytest.raises(RuntimeError, match="register_instance"):
            await catalog.heartbeat()


async def test_a_write_waits_for_another_process(open_catalog: OpenCatalog, tool: MakeTool, store: Any) -> None:
    """While another transaction is open the sync is pending and reads go on; then it succeeds."""
    async with open_catalog() as catalog:
        other = store.connect()
        other.execute(store.hold)
        sync = asyncio.ensure_future(catalog.sync("s", [tool("a")]))
        await asyncio.wait([sync], timeout=0.1)
        assert not sync.done()
        assert catalog.snapshot.by_id == {}
        other.execute("COMMIT")
        other.close()
        with anyio.fail_after(20):
            assert len((await sync).added) == 1


async def test_a_lock_that_never_ends_is_a_catalog_error(
    open_catalog: OpenCatalog, tool: MakeTool, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting is bounded, and the message says what holds it up."""
    monkeypatch.setattr("smart_mcp_proxy.catalog.store.sqlite._BUSY_TIMEOUT_S", 0.01)
    monkeypatch.setattr("smart_mcp_proxy.catalog.store.sqlite._PAUSE_S", 0.0)
    async with open_catalog() as catalog:
        other = sqlite3.connect(data_dir / DATABASE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with anyio.fail_after(20), pytest.raises(CatalogError, match="database is locked") as caught:
            await catalog.sync("s", [tool("a")])
        assert "Another process" in caught.value.hint
        other.execute("ROLLBACK")
        other.close()
        assert len((await catalog.sync("s", [tool("a")])).added) == 1


async def test_work_that_fails_after_its_caller_has_gone_is_no_forgotten_error(
    open_catalog: OpenCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio would log a traceback when the future is collected."""
    left, may_fail = asyncio.Event(), threading.Event()

    def work(connection: Any) -> None:
        loop.call_soon_threadsafe(left.set)
        assert may_fail.wait(20)
        raise CatalogError("It failed.")

    loop = asyncio.get_running_loop()
    async with open_catalog() as catalog:
        reading = asyncio.ensure_future(catalog.read(work))
        with anyio.fail_after(20):
            await left.wait()
        reading.cancel()
        await asyncio.wait([reading])
        may_fail.set()
        await catalog.refresh()
    await asyncio.sleep(0)
    gc.collect()
    assert not caplog.records, caplog.text


async def test_a_cancelled_sync_is_still_done(open_catalog: OpenCatalog, tool: MakeTool, store: Any) -> None:
    """Its diff is lost with its caller; an index that keeps its snapshot finds the way by itself."""
    async with open_catalog() as catalog:
        indexed = catalog.snapshot
        other = store.connect()
        other.execute(store.hold)
        sync = asyncio.ensure_future(catalog.sync("s", [tool("a")]))
        await asyncio.wait([sync], timeout=0.05)
        sync.cancel()
        other.execute("COMMIT")
        other.close()
        with anyio.fail_after(20):
            assert not await catalog.refresh()
        assert sync.cancelled()
        assert [record.key for record in catalog.snapshot.since(indexed).added] == [ToolKey("s", "a")]

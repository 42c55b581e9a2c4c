"""Copies that fail, are interrupted or meet a gateway: nothing is changed, and nothing trusted that is not known."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from copied_catalogs import at, fill, is_closed, rows
from sqlalchemy import Connection
from store_places import KINDS, MakeTool, StorePlace

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.catalog.copying import copy_catalog
from smart_mcp_proxy.catalog.recovery.rollback_guard import Checkpoint, read_checkpoint
from smart_mcp_proxy.errors import CatalogError, ConfigError

pytestmark = pytest.mark.anyio


async def test_no_gateway_starts_on_a_database_that_is_being_filled(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path
) -> None:
    """It would approve first lists by what it read before; one that was about to register waits for the copy.

    Gateways on another schema of the same database go on meanwhile.
    """
    source, target = places("sqlite"), places("postgresql")
    await fill(source, tool)
    target.execute("CREATE SCHEMA other")
    begun, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def told(*_: object) -> None:
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait()

    copying = asyncio.ensure_future(copy_catalog(at(source), at(target), told=told))
    try:
        await begun.wait()
        with pytest.raises(ConfigError, match="is being filled") as caught:
            async with target.opened():
                pass
        assert "Start again" in caught.value.hint
        with pytest.raises(ConfigError, match="is being filled"):
            await copy_catalog(at(source), at(target), replaces=True)
        held = "SELECT count(*) FROM pg_locks WHERE relation = 'instances'::regclass AND mode = 'ShareRowExclusiveLock'"
        assert target.rows(held) == [(1,)]
        async with Catalog.open(tmp_path, url=f"{target.url}?options=-csearch_path%3Dother", name_limit=60) as beside:
            await beside.register_instance(1, ["s"])
            await beside.sync("s", [tool("beside")])
            assert beside.problem is None and len(beside.snapshot.by_key) == 1
    finally:
        goes_on.set()
        await copying
    assert not await is_closed(target, tool)


async def test_a_gateway_that_read_nothing_before_a_copy_goes_on_with_what_was_copied(
    places: Callable[[str], StorePlace], tool: MakeTool
) -> None:
    """It has lost no decision, and marks the new catalog with none lost."""
    source, target = places("sqlite"), places("postgresql")
    await fill(source, tool)
    async with target.opened() as catalog:
        await copy_catalog(at(source), at(target))
        await catalog.register_instance(1, ["s"])
        await catalog.sync("s", [tool("b")])
        assert catalog.problem is None and not catalog.is_closed
        assert {str(key) for key in catalog.snapshot.by_key} == {"t:c"}
    assert not await is_closed(target, tool)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("moment", ["copied", "compared"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_that_is_interrupted_counts_for_nothing(
    places: Callable[[str], StorePlace],
    tool: MakeTool,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    moment: str,
    times: int,
) -> None:
    """However often, and up to its last step: its thread has ended without a commit when the caller goes on."""
    source, target = places("sqlite"), places(kind)
    await fill(source, tool)
    async with target.opened() as catalog:
        await catalog.sync("other", [tool("kept")])
    before, loop, is_interrupted = rows(target), asyncio.get_running_loop(), threading.Event()

    def interrupt(left: int) -> None:
        copying.cancel()
        loop.call_soon(loop.call_soon, *((interrupt, left - 1) if left > 1 else (is_interrupted.set,)))

    def in_thread(*_: object) -> None:
        if not is_interrupted.is_set():
            loop.call_soon_threadsafe(interrupt, times)
            is_interrupted.wait()

    def compared(connection: Connection) -> Checkpoint:
        in_thread()
        return read_checkpoint(connection)

    if moment == "compared":
        monkeypatch.setattr("smart_mcp_proxy.catalog.copying.read_checkpoint", compared)
    told = in_thread if moment == "copied" else lambda *_: None
    copying = asyncio.ensure_future(copy_catalog(at(source), at(target), replaces=True, told=told))
    with pytest.raises(asyncio.CancelledError):
        await copying
    with closing(target.connect()) as connection:  # after the thread's transaction, were there one yet
        connection.execute("BEGIN IMMEDIATE" if target.url is None else "BEGIN")
        if target.url is not None:
            connection.execute("LOCK TABLE meta")
    assert rows(target) == before


async def test_a_copy_that_is_not_equal_counts_for_nothing(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path
) -> None:
    """Whatever changed a row on its way."""
    source, target = places("sqlite"), places("sqlite")
    await fill(source, tool)
    async with target.opened() as catalog:
        await catalog.sync("other", [tool("kept")])
    target.execute("CREATE TRIGGER spoils AFTER INSERT ON approvals BEGIN UPDATE approvals SET decided_by = 'me'; END")
    before = rows(target)
    with pytest.raises(CatalogError, match="table 'approvals' is not equal") as caught:
        await copy_catalog(at(source), at(target), replaces=True)
    assert "as it was" in caught.value.hint
    assert rows(target) == before


def empty(places: Callable[[str], StorePlace], kind: str) -> StorePlace:
    """A place without tables."""
    place = places(kind)
    if place.url is not None:
        place.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return place


def fails(*_: object) -> None:
    """A copy ends half way."""
    raise OSError("the source is gone")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_new_target_trusts_nothing_until_a_copy_succeeds(
    places: Callable[[str], StorePlace], tool: MakeTool, kind: str
) -> None:
    """Else a gateway that starts there approves what the source blocks; a second copy is the source's equal."""
    source, target = places("sqlite"), empty(places, kind)
    await fill(source, tool)
    with pytest.raises(CatalogError, match="the source is gone"):
        await copy_catalog(at(source), at(target), told=fails)
    async with target.opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")], lambda _: True)
        assert catalog.is_closed and not catalog.snapshot.by_key
    await copy_catalog(at(source), at(target), replaces=True)
    async with target.opened() as catalog:
        assert not catalog.is_closed
        assert {str(key) for key in catalog.snapshot.by_key} == {"s:a", "t:c"}


@pytest.mark.parametrize("held", [[], ["kept"]], ids=["empty", "filled"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_target_that_was_there_is_as_it_was_after_a_copy_that_failed(
    places: Callable[[str], StorePlace], tool: MakeTool, kind: str, held: list[str]
) -> None:
    """It trusted first lists, and still does."""
    source, target = places("sqlite"), places(kind)
    await fill(source, tool)
    async with target.opened() as catalog:
        for name in held:
            await catalog.sync("other", [tool(name)])
    before = rows(target)
    with pytest.raises(CatalogError, match="the source is gone"):
        await copy_catalog(at(source), at(target), replaces=True, told=fails)
    assert rows(target) == before
    assert not await is_closed(target, tool)


async def test_a_copy_is_given_the_time_that_it_takes(places: Callable[[str], StorePlace], tool: MakeTool) -> None:
    """Both databases end what others leave open for a moment; one side waits while the other one is read."""
    source, target = places("postgresql"), places("postgresql")
    await fill(source, tool)
    for place in (source, target):
        for setting in ("idle_in_transaction_session_timeout", "statement_timeout"):
            place.execute(
                f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {setting} = ''50ms''', current_database()); END $$"
            )

    waits = iter((source, target))

    def told(*_: object) -> None:
        for place in waits:
            place.execute("SET statement_timeout = 0; SELECT pg_sleep(0.06)")

    await copy_catalog(at(source), at(target), told=told)
    assert rows(source) == rows(target)


@pytest.mark.parametrize("newer", ["source", "target"])
async def test_what_a_newer_program_has_added_is_neither_left_out_nor_left_behind(
    places: Callable[[str], StorePlace], tool: MakeTool, newer: str
) -> None:
    """In a rolling upgrade the older one may use the database, but it does not know all that there is to copy."""
    known, added = places("sqlite"), places("postgresql")
    source, target = (added, known) if newer == "source" else (known, added)
    await fill(source, tool)
    async with target.opened():
        pass
    added.execute("CREATE TABLE next_notes (note TEXT); UPDATE mcpproxy_schema SET version = version + 1")
    before = rows(target)
    with pytest.raises(ConfigError, match="A newer program has added") as caught:
        await copy_catalog(at(source), at(target), replaces=True)
    assert "with that program" in caught.value.hint
    assert rows(target) == before


async def test_a_copy_from_a_database_that_stands_still_can_be_interrupted(
    places: Callable[[str], StorePlace], tool: MakeTool
) -> None:
    """Nobody has to kill it."""
    source, target = places("postgresql"), places("sqlite")
    await fill(source, tool)
    stopped: list[int] = []
    loop = asyncio.get_running_loop()

    def told(*_: object) -> None:
        own = "datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'smart-mcp-proxy'"
        stopped.extend(pid for (pid,) in source.rows(f"SELECT pid FROM pg_stat_activity WHERE {own}"))
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        loop.call_soon_threadsafe(copying.cancel)

    copying = asyncio.ensure_future(copy_catalog(at(source), at(target), told=told))
    try:
        done, _ = await asyncio.wait([copying], timeout=20)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert done and copying.cancelled() and stopped

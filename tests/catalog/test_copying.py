"""Copies of a whole catalog: equal row by row, decisions and their guard included, or nothing is changed."""

import asyncio
import errno
import os
import sqlite3
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from postgres_server import PostgresServer
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError
from store_places import KINDS, NAME_LIMIT, MakeTool, StorePlace

from smart_mcp_proxy.catalog import (
    DATABASE_NAME,
    AgentToken,
    Catalog,
    Lesson,
    SealedValue,
    Toolset,
    confirm_gateway_tokens,
    find_agent_tokens,
    find_gateway_tokens,
    gateway_key,
    revoke_agent_token,
    store_agent_token,
    store_links,
    store_sealed,
    store_toolset,
)
from smart_mcp_proxy.catalog.backups import backup_catalog, restore_catalog
from smart_mcp_proxy.catalog.copying import TABLES, Place, copy_catalog
from smart_mcp_proxy.catalog.recovery.rollback_guard import Checkpoint, read_checkpoint
from smart_mcp_proxy.catalog.store.postgres_tables import LOCK
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

A, B = ToolKey("s", "a"), ToolKey("s", "b")
NOW_S = 1_700_000_000.125


@pytest.fixture
def places(tmp_path: Path, postgres: PostgresServer) -> Callable[[str], StorePlace]:
    """Makes an empty place of either kind."""
    return lambda kind: StorePlace(
        tmp_path / str(len(list(tmp_path.iterdir()))) / "data", postgres if kind == "postgresql" else None
    )


def at(place: StorePlace) -> Place:
    return Place(place.url, place.data_dir)


def rows(place: StorePlace) -> dict[str, list[str]]:
    """What is stored, table by table."""
    columns = {table.name: ", ".join(table.c.keys()) for table in TABLES}
    found = {name: place.rows(f"SELECT {listed} FROM {name}") for name, listed in columns.items()}
    return {name: sorted(repr([comparable(value) for value in row]) for row in held) for name, held in found.items()}


def comparable(value: Any) -> Any:
    """PostgreSQL holds no character 0."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


async def fill(place: StorePlace, tool: MakeTool) -> None:
    """A row in every table; a tool that left, a block, ids that are used up, text that only one store can hold."""
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a", description="nul \0 and \u00e9"), tool("b"), tool("gone")])
        await catalog.sync("s", [tool("a", description="nul \0 and \u00e9"), tool("b")])
        await catalog.block(B, "ann")
        await catalog.sync("t", [tool("c")])
        await catalog.store_vectors("model", {"later": b"\0\1", "sooner": b"\2"})
        await catalog.learn([Lesson(A, "do \u00e9", "do", NOW_S), Lesson(A, "do it", "it", NOW_S)])
        await catalog.append_activity([record("nul \0", detail={"nul": "\0"}, arguments={"\u00e9": 0.1}), record("b")])
        await store_shared(catalog)


async def store_shared(catalog: Catalog) -> None:
    """What gateways share besides tools, decisions and records: a name twice, a link that was given anew, any byte."""
    for hash_ in ("1", "2"):
        await write(catalog, store_agent_token, token=AgentToken("ci", hash_, NOW_S, None, ("s",), "write", "work"))
        if hash_ == "1":
            await write(catalog, revoke_agent_token, name="ci", now_s=NOW_S + 1)
    tools = ((1, "sha256:aa"), (2, "sha256:bb"))
    await write(catalog, store_toolset, toolset=Toolset("aB", "local", "", tools, NOW_S), now_s=NOW_S)
    for uris in (["x:1", "x:2"], ["x:1"]):
        await write(catalog, store_links, principal="ann", server="s", uris=uris, now_s=NOW_S)
    for expires_s in (None, NOW_S):
        value = SealedValue("sign-in", f"until {expires_s}", bytes(range(256)), "stamp", expires_s)
        await write(catalog, store_sealed, value=value)


async def write(catalog: Catalog, work: Any, **given: Any) -> None:
    await catalog.write(partial(work, **given), is_ordered=False)


def record(subject: str, **more: Any) -> Activity:
    return Activity("call", "local", subject, "ok", duration_ms=0.1, at_s=NOW_S, **more)


@pytest.mark.parametrize(
    "kinds", [("sqlite", "postgresql"), ("postgresql", "sqlite"), ("sqlite", "sqlite")], ids="-".join
)
async def test_there_and_back_everything_is_equal(
    places: Callable[[str], StorePlace], tool: MakeTool, kinds: tuple[str, str]
) -> None:
    """And what was decided holds, at the other end and home again; no id is used twice."""
    first, second, home = places(kinds[0]), places(kinds[1]), places(kinds[0])
    await fill(first, tool)
    assert [name for name, held in rows(first).items() if not held] in ([], ["gone"])  # a table that is new needs a row
    told: list[tuple[str, int]] = []
    counts = await copy_catalog(at(first), at(second), told=lambda *step: told.append(step))
    assert (counts["tools"], counts["approvals"], counts["baselines"]) == (3, 4, 2)
    assert sum(count for _, count in told) == sum(counts.values())
    await copy_catalog(at(second), at(home))
    assert rows(home) == rows(first) == rows(second)
    for place in (second, home):
        async with place.opened() as catalog:
            assert not catalog.is_closed
            assert {str(key) for key in catalog.snapshot.by_key} == {"s:a", "t:c"}
            ids = {entry.id for entry in catalog.snapshot.by_key.values()}
            await catalog.sync("u", [tool("new")])
            (new,) = (entry.id for key, entry in catalog.snapshot.by_key.items() if key.server == "u")
            assert new == 5 and new not in ids
            await write(catalog, store_agent_token, token=AgentToken("new", "3", NOW_S, None))
            assert [token.id for token in await catalog.read(find_agent_tokens)] == [1, 2, 3]
            last = await catalog.last_activity_place()
            await catalog.append_activity([record("later")])
            assert await catalog.last_activity_place() > last > 0


async def lose_the_record(place: StorePlace, tool: MakeTool) -> None:
    """Approvals were in a file that is damaged, or that a new database does not know."""
    async with Catalog.open(place.data_dir, name_limit=NAME_LIMIT) as catalog:
        await catalog.sync("s", [tool("a")])
    if place.url is None:
        (place.data_dir / DATABASE_NAME).write_bytes(b"garbage" * 10_000)
    else:
        place.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


async def set_back(place: StorePlace, tool: MakeTool) -> None:
    """An older copy of the store takes its place; of a database its gateways notice it, of a file the next start."""
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(B, "ann")
        await catalog.refresh()
        place.execute("UPDATE meta SET value = value - 1 WHERE key = 'approvals_count'")
        await catalog.refresh()


async def is_closed(place: StorePlace, tool: MakeTool) -> bool:
    """Whether a start there trusts no first list."""
    async with place.opened() as catalog:
        await catalog.sync("new", [tool("a")], lambda _: True)
        assert catalog.is_closed != bool(catalog.snapshot.by_server.get("new"))
        return catalog.is_closed


BOTH_WAYS = pytest.mark.parametrize("kinds", [("sqlite", "postgresql"), ("postgresql", "sqlite")], ids="-".join)


@BOTH_WAYS
@pytest.mark.parametrize("close", [lose_the_record, set_back], ids=["record lost", "set back"])
async def test_a_closed_catalog_stays_closed(
    places: Callable[[str], StorePlace],
    tool: MakeTool,
    kinds: tuple[str, str],
    close: Callable[[StorePlace, MakeTool], Awaitable[None]],
) -> None:
    """A copy is no way around the user's look: neither there nor home again."""
    first, second, home = places(kinds[0]), places(kinds[1]), places(kinds[0])
    await close(first, tool)
    assert await is_closed(first, tool)
    await copy_catalog(at(first), at(second))
    await copy_catalog(at(second), at(home))
    for place in (second, home):
        assert await is_closed(place, tool)


@pytest.mark.parametrize("close", [lose_the_record, set_back], ids=["record lost", "set back"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_that_no_gateway_has_looked_at_yet_is_copied_closed(
    places: Callable[[str], StorePlace],
    tool: MakeTool,
    kind: str,
    close: Callable[[StorePlace, MakeTool], Awaitable[None]],
) -> None:
    """The copy is the first to find that decisions are missing."""
    source, target = places("sqlite"), places(kind)
    await close(source, tool)
    await copy_catalog(at(source), at(target))
    assert await is_closed(target, tool)
    assert await is_closed(source, tool)


@BOTH_WAYS
async def test_a_copy_that_is_set_back_later_closes(
    places: Callable[[str], StorePlace], tool: MakeTool, kinds: tuple[str, str]
) -> None:
    """The guard came along: what is beside the copy, or in the memory of its gateways, counts its decisions."""
    first, second = places(kinds[0]), places(kinds[1])
    await fill(first, tool)
    await copy_catalog(at(first), at(second))
    async with second.opened() as catalog:
        assert not catalog.is_closed
        second.execute("UPDATE meta SET value = value - 1 WHERE key = 'approvals_count'")
        await catalog.refresh()
    assert await is_closed(second, tool)


async def test_what_opens_gateways_on_one_store_opens_none_on_another(
    places: Callable[[str], StorePlace], store: StorePlace, tool: MakeTool
) -> None:
    """The tokens and the key that they made for themselves stay where they are; those of the target's own as well."""
    target = places("sqlite" if store.url is not None else "postgresql")
    await fill(store, tool)
    for place, replica in ((store, "here"), (target, "there")):
        async with place.opened() as catalog:
            digests = {"agents": "aa", "operator": "bb"}
            await write(catalog, confirm_gateway_tokens, replica=replica, digests=digests, now_s=NOW_S)
            await write(catalog, gateway_key, name="k", made=replica.ljust(32).encode())
    await copy_catalog(at(store), at(target), replaces=True)
    for place, replica in ((store, "here"), (target, "there")):
        async with place.opened() as catalog:
            found = await catalog.read(partial(find_gateway_tokens, now_s=NOW_S))
            assert {one.replica for one in found} == {replica}
        keys = [bytes(key) for (key,) in place.rows("SELECT key FROM gateway_keys")]
        assert keys == [replica.ljust(32).encode()]


async def test_a_target_that_holds_something_is_kept_unless_it_is_to_be_replaced(
    places: Callable[[str], StorePlace], tool: MakeTool, postgres: PostgresServer
) -> None:
    """Ids that it used up stay used up, and what caches know of it looks older than what comes."""
    source, target = places("sqlite"), places("postgresql")
    await fill(source, tool)
    async with target.opened() as catalog:
        await catalog.sync("other", [tool(name) for name in "uvwxyz"])
        before = catalog.snapshot.generation
    with pytest.raises(ConfigError, match=r"not empty: .*6 tools") as caught:
        await copy_catalog(at(source), at(target))
    assert "--replace" in caught.value.hint
    await copy_catalog(at(source), at(target), replaces=True)
    async with target.opened() as catalog:
        assert {str(key) for key in catalog.snapshot.by_key} == {"s:a", "t:c"}
        assert catalog.snapshot.generation > before
        await catalog.sync("u", [tool("new")])
        assert max(entry.id for entry in catalog.snapshot.by_key.values()) == 7


async def test_a_target_in_use_is_left_alone(places: Callable[[str], StorePlace], tool: MakeTool) -> None:
    """A gateway would go on from what it remembers."""
    source, target = places("sqlite"), places("sqlite")
    await fill(source, tool)
    async with target.opened() as catalog:
        await catalog.register_instance(1, [])
        with pytest.raises(ConfigError, match="1 gateways run on the target"):
            await copy_catalog(at(source), at(target), replaces=True)
    await copy_catalog(at(source), at(target), replaces=True)


async def test_no_gateway_starts_on_a_database_that_is_being_filled(
    places: Callable[[str], StorePlace], tool: MakeTool
) -> None:
    """It would approve first lists by what it read before; one that was about to register waits for the copy."""
    source, target = places("sqlite"), places("postgresql")
    await fill(source, tool)
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
        assert target.rows(f"SELECT pg_try_advisory_xact_lock({LOCK})") == [(False,)]
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


async def test_a_backup_is_one_file_and_comes_back(
    places: Callable[[str], StorePlace], store: StorePlace, tool: MakeTool, tmp_path: Path
) -> None:
    """Of either store to either; for the owner alone; the guard of the place it comes to is content."""
    await fill(store, tool)
    file = tmp_path / "catalog.backup"
    await backup_catalog(at(store), file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if "mcpproxy-data" in path.name] == []
    with pytest.raises(ConfigError, match="exists"):
        await backup_catalog(at(store), file)
    async with store.opened() as catalog:
        await catalog.unblock(B, "ann")
    await restore_catalog(file, at(store), replaces=True)
    other = places("postgresql" if store.url is None else "sqlite")
    await restore_catalog(file, at(other))
    for place in (store, other):
        async with place.opened() as catalog:
            assert not catalog.is_closed and catalog.problem is None
            assert {str(key) for key in catalog.snapshot.by_key} == {"s:a", "t:c"}


def no_room(*_: object) -> None:
    """A full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_pages(*_: object) -> None:
    """A full disk, as SQLite says it."""
    raise OperationalError("PRAGMA", {}, sqlite3.OperationalError("database or disk is full"))


async def test_a_full_temporary_folder_restores_nothing(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the reason is told, with the folder that needs room."""
    source, target = places("sqlite"), places("sqlite")
    await fill(source, tool)
    file = tmp_path / "catalog.backup"
    await backup_catalog(at(source), file)
    monkeypatch.setattr("shutil.copyfile", no_room)
    with pytest.raises(CatalogError, match=r"catalog\.backup' cannot be restored: No space left on device\.") as caught:
        await restore_catalog(file, at(target))
    assert tempfile.gettempdir() in caught.value.hint and "TMPDIR" in caught.value.hint
    assert not target.data_dir.exists()


@pytest.mark.parametrize("step", ["fold", "rename"])
async def test_a_backup_that_cannot_be_written_leaves_no_file(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """And the reason is told with the name that was given."""
    source, file = places("sqlite"), tmp_path / "catalog.backup"
    await fill(source, tool)
    if step == "fold":
        monkeypatch.setattr("smart_mcp_proxy.catalog.backups.engine_of", no_pages)
    reason = "database or disk is full" if step == "fold" else "Is a directory"

    def told(*_: object) -> None:
        if step == "rename":
            file.mkdir(exist_ok=True)

    with pytest.raises(CatalogError, match=rf"catalog\.backup' cannot be written: {reason}\."):
        await backup_catalog(at(source), file, told=told)
    assert not file.is_file()
    assert [path.name for path in tmp_path.iterdir() if "mcpproxy-data" in path.name] == []


async def test_a_newer_backup_is_refused_by_its_own_name(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path
) -> None:
    """Not by that of the copy that is looked at."""
    source, target, file = places("sqlite"), places("sqlite"), tmp_path / "catalog.backup"
    await fill(source, tool)
    await backup_catalog(at(source), file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 9999")
    with pytest.raises(ConfigError, match=r"catalog\.backup' has schema version 9999") as caught:
        await restore_catalog(file, at(target))
    assert caught.value.hint == "Upgrade smart-mcp-proxy. The target is as it was."


@pytest.mark.parametrize(("content", "said"), [(None, "cannot be read"), (b"", "no backup"), (b"x" * 100, "no backup")])
async def test_what_is_no_backup_is_refused(
    places: Callable[[str], StorePlace], tmp_path: Path, content: bytes | None, said: str
) -> None:
    """Before anything is touched."""
    file, target = tmp_path / "file", places("sqlite")
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        await restore_catalog(file, at(target))
    with pytest.raises(ConfigError, match="no catalog in"):
        await copy_catalog(at(places("sqlite")), at(target))
    assert not target.data_dir.exists()


@pytest.mark.parametrize("harm", ["cut off", "overwritten", "of another program"])
async def test_a_damaged_backup_replaces_nothing(
    places: Callable[[str], StorePlace], store: StorePlace, tool: MakeTool, tmp_path: Path, harm: str
) -> None:
    """What it would replace may be all that is left."""
    await fill(store, tool)
    file = tmp_path / "catalog.backup"
    await backup_catalog(at(store), file)
    if harm == "of another program":
        file.unlink()
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("CREATE TABLE theirs (id INTEGER)")
    else:
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        file.write_bytes(content[:middle] if harm == "cut off" else content[:4096] + b"\xff" * (len(content) - 4096))
    before = rows(store)
    with pytest.raises(ConfigError, match=r"is no backup|is damaged"):
        await restore_catalog(file, at(store), replaces=True)
    assert rows(store) == before

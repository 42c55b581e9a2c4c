"""The journal of the database or its index is removed while gateways use them: nothing that was stored is lost."""

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog
from smart_mcp_proxy.catalog.recovery import wal_files as companions
from smart_mcp_proxy.catalog.tables import agent_tokens
from smart_mcp_proxy.catalog.tables.agent_tokens import AgentToken
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]
REMOVED = pytest.mark.parametrize("removed", [("-shm",), ("-wal",), ("-wal", "-shm")], ids=" and ".join)
BLOCKED = ToolKey("s", "b")

NEWCOMER = """
import asyncio, sys
from pathlib import Path
from smart_mcp_proxy.catalog import Catalog

async def main():
    async with Catalog.open(Path(sys.argv[1]), name_limit=60) as catalog:
        await catalog.sync("late", [{"name": "z"}])
        await catalog.refresh()
        print(catalog.problem, sorted(r.key.tool for r in catalog.snapshot.by_id.values()), catalog.is_closed)

asyncio.run(main())
"""


def names(catalog: Catalog) -> set[str]:
    """The tools that may be seen."""
    return {record.key.tool for record in catalog.snapshot.by_id.values()}


def remove(data_dir: Path, endings: tuple[str, ...]) -> None:
    for ending in endings:
        (data_dir / f"{DATABASE_NAME}{ending}").unlink()


async def assert_whole(data_dir: Path, known: set[str]) -> None:
    """After a kill -9 of everybody, a start finds all tools, the block, and no reason to distrust."""
    left = shutil.copytree(data_dir, data_dir.with_name("left"))  # as a kill leaves it
    async with Catalog.open(left, name_limit=60) as catalog:
        assert (names(catalog), catalog.is_closed, catalog.problem) == (known, False, None)
        assert BLOCKED in catalog.snapshot.withheld
        assert not list(left.glob("*.corrupt-*"))
    found = sqlite3.connect(left / DATABASE_NAME)
    assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found.close()


@REMOVED
async def test_a_removed_journal_begins_anew_with_all_that_it_held(
    open_catalog: OpenCatalog, data_dir: Path, tool: MakeTool, caplog: Any, removed: tuple[str, ...]
) -> None:
    """F53: by the next write or look of each process; it is said once by each, and what is stored later is seen."""
    async with open_catalog() as one, open_catalog() as two:
        await one.sync("s", [tool("a"), tool("b")])
        await one.block(BLOCKED, "user")
        await two.refresh()
        remove(data_dir, removed)
        await one.sync("s", [tool("a"), tool("b"), tool("c")])
        await two.refresh()
        await two.sync("t", [tool("d")])
        await one.refresh()
        assert names(one) == names(two) == {"a", "c", "d"}
        assert (one.problem, two.problem) == (None, None)
        assert [record.levelname for record in caplog.records if "begins anew" in record.message] == ["WARNING"] * 2
        await assert_whole(data_dir, {"a", "c", "d"})


@REMOVED
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept", "lost"])
async def test_a_kill_before_it_was_noticed_takes_no_decision(
    open_catalog: OpenCatalog, data_dir: Path, tool: MakeTool, removed: tuple[str, ...], is_kept: bool
) -> None:
    """F53: what was told the user to be done is done, and what another reader kept in the journal alone is distrusted.

    What is lost with the journal are records and lists since the last checkpoint.
    """
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        token = AgentToken("late", "00" * 32, created_s=1.0, expires_s=None)
        await catalog.write_through(partial(agent_tokens.store, token=token, seals=catalog.seals))
        reader = sqlite3.connect(data_dir / DATABASE_NAME, isolation_level=None)
        if not is_kept:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM tools").fetchone()
        await catalog.block(BLOCKED, "user")
        await catalog.write_through(partial(agent_tokens.revoke, name="late", now_s=2.0, seals=catalog.seals))
        reader.close()
        await catalog.append_activity([Activity("call", "p", "s:a", "ok", 1.0, 3.0, {})])
        remove(data_dir, removed)
        left = shutil.copytree(data_dir, data_dir.with_name("left"))  # as a kill leaves it
    async with Catalog.open(left, name_limit=60) as catalog:
        is_whole = is_kept or "-wal" not in removed
        assert catalog.is_closed is not is_whole
        assert ("a" in names(catalog), "b" in names(catalog)) == (is_whole, False)
        held = await catalog.read(partial(agent_tokens.find, seals=catalog.seals))
        assert [one.revoked_s for one in held] == ([2.0] if is_whole else [])
        assert bool(list(left.glob("*.corrupt-*"))) is not is_whole


@REMOVED
@pytest.mark.long  # processes that wait for each other
async def test_who_starts_before_it_was_noticed_waits_for_it(
    open_catalog: OpenCatalog, data_dir: Path, tool: MakeTool, removed: tuple[str, ...]
) -> None:
    """F53: it neither takes what is missing for lost nor writes beside those who have it."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(BLOCKED, "user")
        remove(data_dir, removed)
        pipe = asyncio.subprocess.PIPE
        words = (sys.executable, "-c", NEWCOMER, str(data_dir))
        newcomer = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        with anyio.fail_after(30):
            ended = asyncio.ensure_future(newcomer.communicate())
            while not ended.done():
                await catalog.refresh()
                await asyncio.wait([ended], timeout=0.02)
            assert await ended == (b"None ['a', 'z'] False\n", b"")
        await catalog.refresh()
        await assert_whole(data_dir, {"a", "z"})


@pytest.mark.long  # starts and ends processes, seconds of it
async def test_where_nobody_notices_nothing_is_written(
    open_catalog: OpenCatalog, data_dir: Path, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F53: a gateway that starts beside one that stands still serves from memory until that is over."""
    monkeypatch.setattr(companions, "MOST_S", 0.0)
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(BLOCKED, "user")
        remove(data_dir, ("-wal", "-shm"))
        async with open_catalog() as newcomer:
            assert newcomer.problem is not None
            assert "was removed while other processes use it" in newcomer.problem
            await newcomer.sync("t", [tool("d")])
            with pytest.raises(CatalogError):
                await newcomer.block(ToolKey("t", "d"), "user")
            await catalog.refresh()
            await newcomer.refresh()
            assert newcomer.problem is None
            assert names(newcomer) >= {"a"}
            assert BLOCKED in newcomer.snapshot.withheld
            await catalog.refresh()
        assert "a" in names(catalog)
        assert not list(data_dir.glob("*.corrupt-*"))


def test_each_write_has_a_stamp_of_its_own(tmp_path: Path) -> None:
    """Also one that comes so soon that the time is the same; where nothing is written the stamp stays."""
    path, journal, index = (tmp_path / f"{DATABASE_NAME}{ending}" for ending in ("", "-wal", "-shm"))
    for file in (path, journal, index):
        file.write_bytes(b"1")
    assert companions.stamp_files(path) != companions.stamp_files(path)
    for file in (path, journal, index):
        os.utime(file, (1_000, 1_000))
    stamps = [companions.stamp_files(path), companions.stamp_files(path)]
    assert stamps[0] == stamps[1]
    journal.write_bytes(b"2")
    stamps.append(companions.stamp_files(path))
    os.utime(journal, (1_000, 1_000))
    index.unlink()
    stamps.append(companions.stamp_files(path))
    assert len(set(stamps)) == 3

"""Data directory, file and schema: what is created, migrated, refused."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from old_catalogs import FIRST_PROGRAM, version, write

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.tables import schema
from smart_mcp_proxy.errors import CatalogError, ConfigError

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]


async def test_the_directory_and_the_file_are_for_the_owner_only(open_catalog: OpenCatalog, data_dir: Path) -> None:
    """Directory 0700; the database and its companion files 0600."""
    async with open_catalog():
        assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700
        files = list(data_dir.iterdir())
        assert len(files) > 1
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_a_new_file_gets_the_latest_version(open_catalog: OpenCatalog, data_dir: Path) -> None:
    """And WAL, so that readers never wait for a writer."""
    async with open_catalog():
        assert version(data_dir) == versions.LATEST_VERSION
        connection = sqlite3.connect(data_dir / DATABASE_NAME)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()


@pytest.mark.parametrize("user_version", [0, 1])
async def test_an_older_file_is_migrated(
    open_catalog: OpenCatalog, data_dir: Path, tool: MakeTool, user_version: int
) -> None:
    """The earlier program's table (version 0 or 1) is taken over: its rows are listed anew, its ids stay used up."""
    write(data_dir, f"{FIRST_PROGRAM} PRAGMA user_version = {user_version};")
    async with open_catalog() as catalog:
        assert version(data_dir) == versions.LATEST_VERSION
        assert catalog.snapshot.by_id == {}
        (record,) = (await catalog.sync("s", [tool("old")])).added
        assert record.id == 42


@pytest.mark.parametrize("user_version", [0, 1])
async def test_a_failed_migration_leaves_the_file_as_it_was(
    open_catalog: OpenCatalog, data_dir: Path, user_version: int
) -> None:
    """F45: all steps are one transaction; nothing of those before the one that failed stays."""
    write(data_dir, f"{FIRST_PROGRAM} CREATE TABLE activity (x); PRAGMA user_version = {user_version};")
    with pytest.raises(CatalogError, match="activity already exists"):
        async with open_catalog():
            pass
    connection = sqlite3.connect(data_dir / DATABASE_NAME)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"tools", "activity"}
    assert connection.execute("SELECT * FROM tools").fetchall() == [(41, "old", "Does old.", "abc", "s", 41)]
    connection.close()
    assert version(data_dir) == user_version


NEWER = ("", "CREATE TABLE tools (definition BLOB); INSERT INTO tools VALUES (x'00');")


@pytest.mark.parametrize("layout", NEWER, ids=["empty", "of another layout"])
@pytest.mark.parametrize("is_needed", [True, False])
async def test_a_newer_file_is_refused(open_catalog: OpenCatalog, data_dir: Path, layout: str, is_needed: bool) -> None:
    """F45: the message names file, version and the way out. The file is left alone, and never taken for damaged."""
    write(data_dir, f"{layout} PRAGMA journal_mode = WAL; PRAGMA user_version = 99;")
    (data_dir / "approvals.mark").write_text("of another layout")
    before = (data_dir / DATABASE_NAME).read_bytes()
    with pytest.raises(ConfigError) as caught:
        async with open_catalog(is_needed=is_needed):
            pass
    assert caught.value.message == (
        f"Catalog '{data_dir / DATABASE_NAME}' has schema version 99; this program knows versions up to "
        f"{versions.LATEST_VERSION}."
    )
    assert "Upgrade" in caught.value.hint
    assert (data_dir / DATABASE_NAME).read_bytes() == before
    assert {path.name for path in data_dir.iterdir()} == {DATABASE_NAME, "approvals.mark"}


async def test_the_queries_know_the_columns_that_the_migrations_make(open_catalog: OpenCatalog, data_dir: Path) -> None:
    """The tables in code and in the file have the same columns."""
    async with open_catalog():
        connection = sqlite3.connect(data_dir / DATABASE_NAME)
        in_file = {
            table.name: [row[1] for row in connection.execute(f"PRAGMA table_info({table.name})")]
            for table in schema.metadata.sorted_tables
        }
        connection.close()
    assert in_file == {table.name: [column.name for column in table.columns] for table in schema.metadata.sorted_tables}


async def test_a_file_in_place_of_the_directory_is_refused(open_catalog: OpenCatalog, data_dir: Path) -> None:
    """The message names the path and what to set."""
    data_dir.write_text("not a directory")
    with pytest.raises(ConfigError) as caught:
        async with open_catalog():
            pass
    assert caught.value.message == f"Data directory '{data_dir}' cannot be used: it is not a directory."
    assert "MCPPROXY_DATA_DIR" in caught.value.hint
    assert data_dir.read_text() == "not a directory"


async def test_a_directory_in_place_of_the_file_is_refused(open_catalog: OpenCatalog, data_dir: Path) -> None:
    """SQLite cannot open it, and the message says where."""
    (data_dir / DATABASE_NAME).mkdir(parents=True)
    with pytest.raises(ConfigError, match="unable to open database file") as caught:
        async with open_catalog():
            pass
    assert str(data_dir) in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("has_file", [False, True])
async def test_a_read_only_directory_is_refused(open_catalog: OpenCatalog, data_dir: Path, has_file: bool) -> None:
    """Whether or not a catalog is in it."""
    data_dir.mkdir()
    if has_file:
        async with open_catalog():
            pass
        (data_dir / DATABASE_NAME).chmod(0o400)
    data_dir.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match="cannot be used"):
            async with open_catalog():
                pass
    finally:
        data_dir.chmod(0o700)


async def test_an_error_while_in_use_is_a_catalog_error(
    open_catalog: OpenCatalog, data_dir: Path, tool: MakeTool
) -> None:
    """The transaction is undone, the snapshot stays, and the catalog works again once the cause is gone."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a")])
        before = catalog.snapshot
        write(data_dir, "CREATE TRIGGER no BEFORE INSERT ON tools BEGIN SELECT RAISE(ABORT, 'no more'); END;")
        with pytest.raises(CatalogError, match="no more"):
            await catalog.sync("s", [tool("b")])
        assert catalog.snapshot is before
        assert await catalog.refresh() is None
        write(data_dir, "DROP TRIGGER no;")
        diff = await catalog.sync("s", [tool("b")])
        assert [record.key.tool for record in diff.added] == ["b"]

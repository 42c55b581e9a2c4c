"""Backups of a whole catalog in one file, and what is refused as one."""

import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from copied_catalogs import B, at, fill, rows
from sqlalchemy.exc import OperationalError
from store_places import MakeTool, StorePlace

from smart_mcp_proxy.catalog.backups import backup_catalog, restore_catalog
from smart_mcp_proxy.catalog.copying import copy_catalog
from smart_mcp_proxy.errors import CatalogError, ConfigError

pytestmark = pytest.mark.anyio


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
            if place is other:  # another key: nothing counts before its user says so
                assert not catalog.is_sealed and not catalog.snapshot.by_key
                await catalog.reseal()
                await catalog.refresh()
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
        monkeypatch.setattr("smart_mcp_proxy.catalog.backups.create_store_engine", no_pages)
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

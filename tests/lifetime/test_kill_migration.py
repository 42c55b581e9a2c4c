"""kill -9 while a file of an earlier program is brought to the latest version."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from old_catalogs import FIRST_PROGRAM, version, write
from sqlite_steps import stepping_connect

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import MIGRATIONS

pytestmark = pytest.mark.anyio


async def test_a_migration_killed_at_any_step_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F45: never one in between, and the next start finishes it."""
    data_dir = tmp_path / "data"
    write(data_dir, FIRST_PROGRAM)
    left: list[Path] = []

    def step() -> None:
        left.append(shutil.copytree(data_dir, data_dir.with_name(f"left-{len(left)}")))  # as a kill leaves it

    monkeypatch.setattr(sqlite3.dbapi2, "connect", stepping_connect(step))
    async with Catalog.open(data_dir, name_limit=60):
        pass
    monkeypatch.undo()
    statements = sum(len(migration.sqlite) for migration in MIGRATIONS)
    assert len(left) > statements
    found = [version(each) for each in left]
    assert set(found) == {0, versions.LATEST_VERSION}
    assert found.count(0) > statements
    for each in (left[found.index(versions.LATEST_VERSION) - 1], left[-1]):
        async with Catalog.open(each, name_limit=60):
            assert version(each) == versions.LATEST_VERSION

"""The gateway as a whole: a part that fails does not take the start with it."""

import json
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.catalog import DATABASE_NAME
from smart_mcp_proxy.catalog.store import database
from smart_mcp_proxy.gateway import Gateway
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio


async def test_a_locked_catalog_does_not_end_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old servers cannot be forgotten then; that is a warning, and no background task ends with an error."""
    monkeypatch.setattr(database, "_BUSY_TIMEOUT_S", 0)
    monkeypatch.setattr(database, "_ATTEMPTS", 1)
    entry = {"mcpServers": {"up": {"command": sys.executable, "args": ["-S", "-c", "input()"]}}}
    servers = load_servers(json.dumps(entry)).servers
    async with Gateway(Settings(data_dir=tmp_path), servers, environ={}) as gateway:
        lock = sqlite3.connect(tmp_path / DATABASE_NAME)
        lock.execute("BEGIN IMMEDIATE")
        gateway.start_upstreams()
        with anyio.fail_after(20):
            while "stay in the catalog" not in caplog.text:
                await anyio.lowlevel.checkpoint()
        lock.close()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    (told,) = [record.getMessage() for record in caplog.records if "stay in the catalog" in record.getMessage()]
    assert "database is locked" in told

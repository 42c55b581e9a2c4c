"""The gateway as a whole: a part that fails does not take the start with it."""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.catalog import DATABASE_NAME
from smart_mcp_proxy.catalog.store import sqlite
from smart_mcp_proxy.events import Event
from smart_mcp_proxy.gateway import configuration, open_gateway
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.mark.long  # half a second of work and more
async def test_a_locked_catalog_does_not_end_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old servers cannot be forgotten then; that is a warning, and no background task ends with an error."""
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_S", 0)
    monkeypatch.setattr(sqlite, "_ATTEMPTS", 1)
    entry = {"mcpServers": {"up": {"command": sys.executable, "args": ["-S", "-c", "input()"]}}}
    servers = load_servers(json.dumps(entry)).servers
    async with open_gateway(Settings(data_dir=tmp_path), servers, environ={}) as gateway:
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


async def test_a_system_without_a_sandbox_is_told_of_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line with the servers that run unconfined; none where the user has decided, or none is a process here."""
    monkeypatch.setattr(configuration, "find_way", lambda: None)
    here, remote = {"a": {"command": "x"}, "b": {"command": "y"}}, {"c": {"url": "http://127.0.0.1:9/mcp"}}
    for servers, isolation in ((here | remote, "auto"), (here, "none"), (remote, "auto")):
        file = load_servers(json.dumps({"mcpServers": servers}))
        settings = Settings(data_dir=tmp_path, isolation=isolation)
        async with open_gateway(settings, file.servers, environ={}):
            pass
    (told,) = [record.getMessage() for record in caplog.records if "no sandbox" in record.getMessage()]
    assert told.endswith("can approve themselves: a, b")


async def test_a_server_that_something_else_has_made_known_is_told_of_and_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, without those whose entries say how they are held."""
    monkeypatch.setattr(configuration, "find_way", lambda: "Landlock")
    entries = {"a": {"command": "x"}, "b": {"command": "x", "isolation": "none"}}
    servers = load_servers(json.dumps({"mcpServers": entries})).servers
    settings = Settings(data_dir=tmp_path)
    async with open_gateway(settings, servers, environ={}):
        pass
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as file, file:
        file.execute("INSERT INTO unconfined VALUES ('a', ''), ('b', ''), ('gone', '')")
    async with open_gateway(settings, servers, environ={}) as gateway:
        assert gateway.base.config.servers()["a"].isolation.mode == "sandbox"
    (told,) = [record.getMessage() for record in caplog.records if "something else" in record.getMessage()]
    assert told.endswith("so these are taken for new: a")


async def test_an_event_is_told_in_the_order_of_subscription() -> None:
    """To those who have subscribed by then."""
    told: list[str] = []
    event = Event[str]()
    event("nobody")
    event.subscribe(lambda text: told.append(f"first {text}"))
    event.subscribe(lambda text: told.append(f"second {text}"))
    event("x")
    assert told == ["first x", "second x"]
    assert repr(event) == "<Event with 2 subscribers>"

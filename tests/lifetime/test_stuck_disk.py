"""A disk that does not finish a write: nobody who does not need the disk waits for it."""

import asyncio
import json
import os
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from worlds import DEADLINE_S, ENVIRON, UPSTREAM, SmallServer, end, until

from smart_mcp_proxy.catalog import DATABASE_NAME
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.models import CallRequest, ToolKey
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

PATIENCE_S = 60.0
CALLS = 20


class Disk:
    """Holds every commit and every fsync up while it is stuck.

    Attributes:
        waiting: How many are held up, or were.
        on_loop: Those that the thread of the event loop waited for.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.on_loop: list[str] = []
        self._free = threading.Event()
        self._free.set()

    def stick(self) -> None:
        """From now on nothing is finished."""
        self._free.clear()

    def free(self) -> None:
        """What was held up goes on."""
        self._free.set()

    def finish(self, what: str) -> None:
        """Returns when it is finished."""
        if threading.current_thread() is threading.main_thread():
            self.on_loop.append(what)
        elif not self._free.is_set():
            self.waiting += 1
            assert self._free.wait(PATIENCE_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """What SQLite and we write to."""
    disk = Disk()
    connect, fsync = sqlite3.connect, os.fsync

    class Connection(sqlite3.Connection):
        def commit(self) -> None:
            disk.finish("commit")
            super().commit()

    def finish(descriptor: int) -> None:
        disk.finish("fsync")
        fsync(descriptor)

    monkeypatch.setattr(sqlite3.dbapi2, "connect", lambda *args, **more: connect(*args, **more, factory=Connection))
    monkeypatch.setattr(os, "fsync", finish)
    return disk


@asynccontextmanager
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Gateway, SmallServer]]:
    """A gateway that has listed its one server."""
    small = SmallServer(tmp_path / "world")
    entry = {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(small.directory)], "trust": "trusted"}
    servers = load_servers(json.dumps({"mcpServers": {"up": entry}})).servers
    try:
        async with open_gateway(Settings(data_dir=tmp_path / "data"), servers, environ=ENVIRON) as gateway:
            gateway.start_upstreams()
            await known(gateway, "wait")
            yield gateway, small
    finally:
        end(small.pids())


async def known(gateway: Gateway, name: str) -> None:
    """Returns when a tool can be called."""
    async with asyncio.timeout(DEADLINE_S):
        while ToolKey("up", name) not in {record.key for record in gateway.catalog.snapshot.by_id.values()}:
            await gateway.base.changes.wait()


async def said(gateway: Gateway, tool: str, text: str) -> Any:
    """The text that a call answers with."""
    raw = await gateway.calls.call(CallRequest(f"up:{tool}", {"text": text}, "write"))
    return json.loads(raw.text)["content"][0]["text"]


@pytest.mark.long  # a third of a second of processor time
async def test_calls_and_searches_do_not_wait_for_the_disk(tmp_path: Path, disk: Disk) -> None:
    """F56: nor does anything else on the event loop; what was held up is stored once the disk goes on."""
    async with opened(tmp_path) as (gateway, small):
        disk.stick()
        try:
            (small.directory / "tools").write_text("echo wait brand_new")
            await until(lambda: disk.waiting > 0)
            approving = asyncio.ensure_future(gateway.catalog.block(ToolKey("up", "wait"), "user"))
            async with asyncio.timeout(DEADLINE_S):
                for number in range(CALLS):
                    assert await said(gateway, "echo", str(number)) == f"said {number}"
                    found = await gateway.retrieval.retrieve(Question(query="does echo", limit=5))
                    assert found["tools"]
            assert not approving.done(), "a decision is not told before it is safe"
        finally:
            disk.free()
        await approving
        await known(gateway, "brand_new")
        assert await said(gateway, "brand_new", "x") == "said x"
    assert disk.on_loop == []
    with closing(sqlite3.connect(tmp_path / "data" / DATABASE_NAME)) as file:
        assert file.execute("SELECT count(*) FROM activity WHERE kind = 'call'").fetchone() == (CALLS + 1,)

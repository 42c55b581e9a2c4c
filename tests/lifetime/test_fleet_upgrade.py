"""A rolling upgrade: gateways of two versions on one database, each of which stores and decides for both."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from postgres_server import PostgresServer
from replicas import TOOLS, Replica, Story, replica
from worlds import until, until_so

from smart_mcp_proxy.catalog.store.versions import LATEST_VERSION

pytestmark = [pytest.mark.anyio, pytest.mark.long]

NEXT = (
    "-c",
    f"import runpy; runpy.run_path({str(Path(__file__).with_name('next_version.py'))!r}, run_name='__main__')",
)
VERSION = "SELECT version FROM mcpproxy_schema"


async def agree(one: Replica, other: Replica, tool: str) -> None:
    """A block at either holds at the other, and so does lifting it."""
    for decider, follower in ((one, other), (other, one)):
        await decider.decide("block", tool)
        assert not await decider.is_executed(tool)
        async with asyncio.timeout(20):
            while await follower.is_executed(tool):
                await asyncio.sleep(0.01)
        await decider.decide("unblock", tool)
        await until_so(lambda follower=follower: follower.is_executed(tool))


async def test_gateways_of_two_versions_serve_side_by_side(postgres: PostgresServer, tmp_path: Path) -> None:
    """The older one goes on, also where it starts anew, while the newer one has brought the tables a step further."""
    database = postgres.new_database()
    story = Story(tmp_path, postgres.url(database))
    is_over = asyncio.Event()
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(replica("old", story))
        stays = await stack.enter_async_context(replica("stays", story))
        await old.decide("block", TOOLS[0])
        assert postgres.value(VERSION, database) == LATEST_VERSION
        load = asyncio.ensure_future(_calls(stays, is_over))
        new = await stack.enter_async_context(replica("new", story._replace(main=NEXT)))
        assert postgres.value(VERSION, database) == LATEST_VERSION + 1
        for each in (old, new):
            assert not await each.is_executed(TOOLS[0])
        await agree(old, new, TOOLS[1])
        for lister, others, tool in ((old, (new, stays), "of_the_old"), (new, (old, stays), "of_the_new")):
            lister.list_tools(*TOOLS, tool)
            stored = f"SELECT count(*) FROM tools WHERE name = '{tool}'"
            await until(lambda stored=stored: postgres.value(stored, database) == 1)
            await until_so(lambda lister=lister, tool=tool: lister.is_executed(tool))
            for each in others:
                await until_so(lambda each=each, tool=tool: each.finds(tool))
        # One of the older version that dies and is started once more meanwhile.
        old.process.kill()
        await old.process.wait()
        again = await stack.enter_async_context(replica("old", story))
        assert not await again.is_executed(TOOLS[0])
        await agree(again, new, TOOLS[2])
        is_over.set()
        calls = await load
        stored = "SELECT count(*) FROM activity WHERE subject = 'up:echo' AND outcome = 'ok'"
        await until(lambda: postgres.value(stored, database) == calls)
        print(f"{calls:,} calls at the older version while the newer one came, each stored once")
        for each in (again, stays, new):
            assert await each.is_back() and await each.degraded() == "", each.log.read_text()
    for name in ("old", "stays", "new"):
        log = (tmp_path / name / "log").read_text()
        assert "ERROR" not in log and "Traceback" not in log, log


async def _calls(each: Replica, is_over: asyncio.Event) -> int:
    """Calls one after the other, none of which fails; returns how many."""
    for number in itertools.count():
        if is_over.is_set():
            return number
        assert await each.is_executed("echo")
        await asyncio.sleep(0.01)
    raise AssertionError

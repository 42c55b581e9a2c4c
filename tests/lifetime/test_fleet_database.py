"""Gateways whose database is lost under them, or is another one when it comes back: served on, nothing trusted."""

import asyncio
import itertools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from postgres_server import PASSWORD, USER, PostgresServer, running_server, standby_of
from replicas import TOOLS, Replica, Story, fleet, replica
from worlds import until, until_so

from smart_mcp_proxy.catalog import CALL_WAIT_S

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LOG_S = 1.0
"""A gateway looks for its database so often."""


# --- a standby that takes over


@contextmanager
def pair() -> Iterator[tuple[PostgresServer, PostgresServer, str]]:
    """A server, its standby, and the address of a database at whichever of them can be written."""
    with running_server() as primary, standby_of(primary) as standby:
        database = primary.new_database()
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (primary, standby))
        url = f"postgresql://{USER}:{PASSWORD}@{hosts}/{database}?target_session_attrs=read-write"
        yield primary, standby, url


async def catch_up(primary: PostgresServer, standby: PostgresServer, replicas: Sequence[Replica]) -> None:
    """Returns when nothing is under way at the gateways, and the standby has replayed all that was stored."""
    for each in replicas:
        await until_so(lambda each=each: _is_settled(each))
    stored = primary.value("SELECT pg_current_wal_insert_lsn()::text")
    await until(lambda: bool(standby.value(f"SELECT pg_last_wal_replay_lsn() >= '{stored}'::pg_lsn")))


async def fall_behind(standby: PostgresServer) -> None:
    """Lets the standby hear nothing more of its primary."""
    standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
    standby.execute("SELECT pg_reload_conf()")
    await until(lambda: standby.value("SELECT count(*) FROM pg_stat_wal_receiver") == 0)


def take_over(primary: PostgresServer, standby: PostgresServer) -> None:
    """The primary's machine dies, and its standby takes its place."""
    primary.kill()
    assert standby.value("SELECT pg_promote()")


async def _is_settled(each: Replica) -> bool:
    """Whether all that its servers offer is listed and stored."""
    headers = {"authorization": f"Bearer {each.operator}"}
    settled: bool = (await each.client.get(f"{each.base}/api/v1/status", headers=headers)).json()["is_settled"]
    return settled


def refuses(each: Replica, tool: str) -> Callable[[], Awaitable[bool]]:
    async def is_refused() -> bool:
        return not await each.is_executed(tool)

    return is_refused


async def test_a_standby_that_has_everything_takes_over(tmp_path: Path) -> None:
    """What was decided holds, and decisions are possible at all gateways a few seconds later."""
    with pair() as (primary, standby, url):
        async with fleet(tmp_path, url, 2) as (one, two):
            await one.decide("block", TOOLS[0])
            await catch_up(primary, standby, (one, two))
            take_over(primary, standby)
            began_s = time.monotonic()

            async def is_decided() -> bool:
                return (await two.asked_to("block", TOOLS[1])).status_code == 200

            await until_so(is_decided)
            print(f"decisions are possible {time.monotonic() - began_s:.1f} s after the standby took over")
            await until_so(refuses(one, TOOLS[1]))
            for each in (one, two):
                await until_so(each.is_back)
                assert not await each.is_executed(TOOLS[0])
                assert await each.is_executed(TOOLS[2])
                assert "has gone back" not in each.log.read_text()


async def test_a_standby_that_lacks_a_decision_is_not_trusted(tmp_path: Path) -> None:
    """The tool that was blocked meanwhile stays so at every gateway that knows, whatever is decided there later."""
    with pair() as (primary, standby, url):
        async with fleet(tmp_path, url, 2) as replicas:
            one, two = replicas
            await one.decide("block", TOOLS[0])
            await catch_up(primary, standby, replicas)
            await fall_behind(standby)
            await one.decide("block", TOOLS[1])
            await until_so(refuses(two, TOOLS[1]))
            take_over(primary, standby)
            for each in replicas:
                await until_so(each.is_lost)
                await until_so(lambda each=each: _says(each, "has gone back"))
                answer = await each.asked_to("unblock", TOOLS[0])
                assert answer.status_code == 503 and "has gone back: it lacks decisions" in answer.text
            async with replica("fresh", Story(tmp_path, url)) as fresh:
                # It counts more decisions than the others have seen, and still lacks that one.
                for tool in TOOLS[2:7]:
                    await fresh.decide("block", tool)
                await asyncio.sleep(3 * LOG_S)
                for each in replicas:
                    assert await each.is_lost()
                    assert not await each.is_executed(TOOLS[0])
                    assert not await each.is_executed(TOOLS[1])
                    assert await each.is_executed(TOOLS[8])
                assert "no first list is trusted" in fresh.log.read_text() or await fresh.degraded()


async def _says(each: Replica, words: str) -> bool:
    return words in await each.degraded()


# --- a disk without room


@contextmanager
def small_disk(size_mib: int) -> Iterator[Path]:
    """A disk of its own for a tablespace; a test is skipped where none can be mounted."""
    place = Path(tempfile.mkdtemp(prefix="disk-"))
    try:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(place)]
        if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
            pytest.skip("a small disk cannot be mounted here")
        try:
            shutil.chown(place, "postgres", "postgres")
            yield place
        finally:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
    finally:
        place.rmdir()


def fill(disk: Path) -> Path:
    """Leaves no room on the disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 12))
        except OSError:
            return filler


async def test_a_full_disk_of_the_database_costs_nothing_that_was_stored_or_heard(tmp_path: Path) -> None:
    """Calls go on; decisions are refused with the reason; all of it is stored once there is room."""
    with small_disk(96) as disk, running_server() as server:
        server.execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        database = server.new_database("TABLESPACE small")
        async with fleet(tmp_path, server.url(database), 2) as replicas:
            one, two = replicas
            await one.decide("block", TOOLS[0])
            await until_so(refuses(two, TOOLS[0]))
            filler = fill(disk)
            calls = 0
            async with asyncio.timeout(60):
                while not await one.is_lost():  # its records need room above all
                    calls += 1
                    assert await one.is_executed("echo")
            since = await one.lost_since()
            one.list_tools(*TOOLS, "heard_meanwhile")
            for _ in range(50):
                calls += 1
                assert await one.is_executed("echo")
                assert not await one.is_executed(TOOLS[0])
                assert await one.lost_since() == since, "it is not taken for found as long as the disk is full"
                await asyncio.sleep(0.1)
            refused = await one.asked_to("block", TOOLS[1])
            assert refused.status_code == 503 and "No space left on device" in refused.text, refused.text
            told = await one.degraded()
            assert "No space left on device" in told and "since" in told
            filler.unlink()
            await until_so(one.is_back)
            assert await one.degraded() == ""
            await one.decide("block", TOOLS[1])
            await until_so(refuses(two, TOOLS[1]))
            heard = "SELECT count(*) FROM tools WHERE name = 'heard_meanwhile'"
            await until(lambda: server.value(heard, database) == 1)
            assert await one.is_executed("heard_meanwhile")
            stored = "SELECT count(*) FROM activity WHERE subject = 'up:echo' AND outcome = 'ok'"
            await until(lambda: server.value(stored, database) == calls)
            for words, times in (("Tools are kept in memory", 1), ("activity records wait", 1), ("stored again", 1)):
                assert one.log.read_text().count(words) == times, one.log.read_text()


# --- a server that neither answers nor fails


class Pair(NamedTuple):
    """Two gateways that no test ends.

    Attributes:
        replicas: Both.
        role: Under which they use the database.
        database: Of both.
    """

    replicas: list[Replica]
    role: str
    database: str


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests here: gateways that no test ends serve several."""
    return "asyncio"


@pytest.fixture(scope="module")
async def same_pair(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Gateways that make toolsets and cut results, with a password of their own."""
    role, database = f"gateway_{time.time_ns()}", postgres.new_database()
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    postgres.execute(f"ALTER DATABASE {database} OWNER TO {role}")
    story = {"ROUTING_TYPE": "DYNAMIC", "TRUNCATE_OUTPUT_LEN": "300"}
    async with fleet(tmp_path_factory.mktemp("pair"), postgres.url(database, user=role), 2, **story) as replicas:
        yield Pair(replicas, role, database)


async def test_no_call_waits_for_a_database_that_stands_still(postgres: PostgresServer, same_pair: Pair) -> None:
    """Calls in both eras and at every address; what is stored for an answer is waited for briefly."""
    one, other = same_pair.replicas
    query, body = {"query": "up:echo"}, {"name": "agent", "access": "destructive"}
    found = (await other.ask("retrieve_tools", query))["structuredContent"]
    place = f"/mcp/t/{found['toolset']['handle']}"
    token = (await one.rest("POST", "tokens", body)).json()["token"]
    await until_so(lambda: one.admits(token))
    session = await one.new_session()
    await other.decide("block", TOOLS[0])
    await until_so(refuses(one, TOOLS[0]))
    words = {"name": "call_tool_destructive", "arguments": {"name": "up:echo", "args": {"text": "x"}}}

    async def in_session() -> bool:
        return (await one.in_session(session, "tools/call", words)).json()["result"].get("isError", False) is False

    async def in_toolset() -> bool:
        return not (await one.ask("up__echo", {"text": "x"}, place)).get("isError", False)

    ways = {
        "a plain call": lambda: one.is_executed("echo"),
        "an agent's token": lambda: one.admits(token),
        "a session": in_session,
        "a toolset": in_toolset,
        "a blocked tool": refuses(one, TOOLS[0]),
        "a new session": one.new_session,
    }
    storing = {"a search that makes a toolset": lambda: one.finds("echo"), "a cut result": lambda: reads_rest(one)}
    assert await in_toolset()  # the other one's is looked up once
    unseen = (await other.ask("retrieve_tools", query))["structuredContent"]["toolset"]["handle"]
    longest_s = dict.fromkeys(ways | storing, 0.0)
    with postgres.frozen():
        for _ in range(5):
            for way, ask in (ways | storing).items():
                began_s = time.monotonic()
                assert await ask(), way
                longest_s[way] = max(longest_s[way], time.monotonic() - began_s)
        unknown = await one.post("up__echo", {"text": "x"}, f"/mcp/t/{unseen}")
        assert unknown.status_code == 503 and unknown.headers["retry-after"], unknown.text
    print(", ".join(f"{way}: {seconds * 1e3:.1f} ms" for way, seconds in longest_s.items()))
    assert max(longest_s[way] for way in ways) < LOG_S, "a call waited for the database"
    assert max(longest_s.values()) < CALL_WAIT_S + LOG_S
    await until_so(one.is_back)
    assert (await one.post("up__echo", {"text": "x"}, f"/mcp/t/{unseen}")).status_code == 200


async def reads_rest(each: Replica) -> bool:
    """Whether the rest of a cut result is read at the gateway that cut it."""
    cut = await each.call("echo", "y" * 1_000)
    (key,) = [value["key"] for value in cut["_meta"].values() if isinstance(value, dict) and "key" in value]
    page = await each.ask("read_output", {"key": key})
    return "yyy" in page["content"][0]["text"]


# --- a password that does not fit any more


async def test_a_password_that_is_withdrawn_under_load_is_said_and_costs_no_call(
    postgres: PostgresServer, same_pair: Pair
) -> None:
    """Its connections end at the same moment. Neither password is told, and it goes on once the old one fits again."""
    replicas, role, database = same_pair
    one, two = replicas
    blocked, later, called = TOOLS[10:13]
    await one.decide("block", blocked)
    await until_so(refuses(two, blocked))
    is_over = asyncio.Event()

    async def load(each: Replica) -> int:
        for number in itertools.count():
            if is_over.is_set():
                return number
            assert await each.is_executed(called)
            await asyncio.sleep(0.005)
        raise AssertionError

    loads = [asyncio.ensure_future(load(each)) for each in replicas]
    postgres.execute(f"ALTER ROLE {role} PASSWORD 'an0ther'")
    postgres.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
    for each in replicas:
        await until_so(each.is_lost)
        answer = await each.asked_to("block", later)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), answer.text
        for text in (answer.text, await each.degraded()):
            assert "password authentication failed for user" in text and role in text
        assert not await each.is_executed(blocked)
    postgres.execute(f"ALTER ROLE {role} PASSWORD '{PASSWORD}'")
    for each in replicas:
        await until_so(each.is_back)
    is_over.set()
    calls = sum(await asyncio.gather(*loads))
    await one.decide("block", later)
    await until_so(refuses(two, later))
    stored = f"SELECT count(*) FROM activity WHERE subject = 'up:{called}' AND outcome = 'ok'"
    await until(lambda: postgres.value(stored, database) == calls)
    print(f"{calls:,} calls, each stored once")
    for each in replicas:
        log = each.log.read_text()
        assert PASSWORD not in log and "an0ther" not in log
        assert log.count("password authentication failed") <= 3, log

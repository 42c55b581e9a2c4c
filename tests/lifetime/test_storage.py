"""A catalog that cannot be trusted or written: moved aside with a message, or replaced by memory for a while."""

import asyncio
import json
import resource
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from full_disks import full_disk
from sqlite_steps import stepping_connect
from trusting import TrustingCatalog
from worlds import Client, SmallServer, connected, end, error_of, started, text_of, until_so

from smart_mcp_proxy.catalog import DATABASE_NAME, ActivityFilter, Catalog, Diff
from smart_mcp_proxy.catalog.recovery.seals import KEY_NAME
from smart_mcp_proxy.errors import CatalogError, ConfigError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

pytestmark = [pytest.mark.anyio, pytest.mark.long]

LINE = Activity("call", "local", "s:a", "ok", 1.0, 0.0)


def tool(name: str, size_chars: int = 0) -> dict[str, Any]:
    """A definition."""
    return {"name": name, "description": "x" * size_chars, "inputSchema": {"type": "object"}}


@asynccontextmanager
async def opened(data_dir: Path) -> AsyncIterator[Catalog]:
    """The catalog of a data directory."""
    async with TrustingCatalog.open(data_dir, name_limit=60) as catalog:
        yield catalog


def names(catalog: Catalog) -> set[str]:
    """The names of all tools that the catalog knows."""
    return {record.key.tool for record in catalog.snapshot.by_id.values()}


def stored_names(data_dir: Path) -> set[str]:
    """The names of all tools in the file."""
    with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as file:
        return {row[0] for row in file.execute("SELECT name FROM tools")}


def warnings_in(caplog: pytest.LogCaptureFixture, words: str) -> int:
    return sum(words in record.getMessage() for record in caplog.records if record.levelname == "WARNING")


# --- damaged files


TOOLS = [tool("small"), tool("large", 10_000), *(tool(f"t{number}") for number in range(5))]


async def filled(data_dir: Path) -> bytes:
    """The file of a catalog with tools of several pages and some activity, closed well."""
    async with opened(data_dir) as catalog:
        await catalog.sync("s", TOOLS)
        await catalog.append_activity([LINE] * 5)
    return (data_dir / DATABASE_NAME).read_bytes()


def damages(whole: bytes, stride: int) -> Iterator[tuple[str, bytes]]:
    """The content of damaged files, with what befell it; of its pages, each of so many is lost once."""
    page = 4096
    for at in range(0, len(whole), stride * page):
        yield f"page {at // page} zeroed", whole[:at] + bytes(page) + whole[at + page :]
    yield "cut in a page", whole[: len(whole) // 2 + 100]
    yield "cut between pages", whole[: page * 3]
    yield "garbage", b"not a database " * 400
    yield "another header", b"SQLite format 4\0" + whole[16:]


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])
async def test_a_damaged_file_is_moved_aside_and_filled_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stride: int
) -> None:
    """Whichever page is lost: one message that names both files, and everything works on a new one."""
    whole = await filled(tmp_path / "sound")
    assert len(whole) > 4096 * 12
    harmless = 0
    for damage, content in damages(whole, stride):
        data_dir = tmp_path / damage
        data_dir.mkdir()
        (data_dir / DATABASE_NAME).write_bytes(content)
        shutil.copy(tmp_path / "sound" / KEY_NAME, data_dir)
        caplog.clear()
        async with opened(data_dir) as catalog:
            aside = [path.name for path in data_dir.glob(f"{DATABASE_NAME}.corrupt-*") if "-wal" not in path.name]
            if not aside:  # a page that holds nothing any more
                assert [json.loads(record.raw) for record in catalog.snapshot.by_id.values()] == TOOLS, damage
                harmless += 1
                continue
            assert catalog.snapshot.by_id == {}
            assert catalog.problem is None
            assert catalog.is_closed
            assert not await catalog.sync("s", [tool("a")]), "what was approved is not known any more"
            key = ToolKey("s", "a")
            seen = {key: catalog.snapshot.withheld[key].record.change_hash}
            assert await catalog.approve(seen, "user", reopens=True) == {key}
            assert await catalog.refresh()
            assert names(catalog) == {"a"}
            await catalog.append_activity([LINE])
        assert stored_names(data_dir) == {"a"}
        assert (data_dir / aside[0]).read_bytes() == content
        messages = [record.getMessage() for record in caplog.records if record.levelno >= 30]
        assert len(messages) == 1, messages
        assert str(data_dir / DATABASE_NAME) in messages[0]
        assert aside[0] in messages[0]
    assert harmless < 4


async def test_the_journal_of_a_damaged_file_goes_with_it(tmp_path: Path) -> None:
    """What a killed process left in it is never mixed into the new file."""
    await filled(tmp_path / "live")
    async with opened(tmp_path / "live") as catalog:
        await catalog.sync("t", [tool("last")])
        data_dir = tmp_path / "data"
        shutil.copytree(tmp_path / "live", data_dir)  # as a kill leaves it
    (data_dir / DATABASE_NAME).write_bytes(b"garbage" * 10_000)
    assert (data_dir / f"{DATABASE_NAME}-wal").stat().st_size
    async with opened(data_dir) as catalog:
        assert names(catalog) == set() == stored_names(data_dir)
        assert list(data_dir.glob(f"{DATABASE_NAME}.corrupt-*"))


@pytest.mark.parametrize("what", ["file", "directory"])
async def test_a_removed_file_is_made_again(tmp_path: Path, what: str) -> None:
    """Somebody cleans up while the gateway runs; also with another process on the same directory."""
    data_dir = tmp_path / "data"
    async with opened(data_dir) as one, opened(data_dir) as two:
        await one.sync("s", [tool("a")])
        await two.refresh()
        if what == "file":
            for path in data_dir.glob(f"{DATABASE_NAME}*"):
                path.unlink()
        else:
            shutil.rmtree(data_dir)
        for catalog in (one, two):
            await catalog.refresh()
            await catalog.refresh()
            assert (catalog.problem, names(catalog)) == (None, {"a"})
        await two.sync("s", [tool("a"), tool("b")])
        await one.refresh()
        assert names(one) == {"a", "b"} == stored_names(data_dir)


# --- files that cannot be written


class Disk:
    """Lets so many statements through, and fails those that follow while it is broken."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.code = sqlite3.SQLITE_FULL
        self.steps = 0

    def step(self) -> None:
        """Counts a statement."""
        self.steps += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                error = sqlite3.OperationalError("the disk fails")
                error.sqlite_errorcode = self.code
                raise error

    @contextmanager
    def broken(self, after: int, code: int) -> Iterator[None]:
        """Fails every statement after the first few."""
        self.left, self.code = after, code
        try:
            yield
        finally:
            self.left = None


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """What SQLite writes to."""
    disk = Disk()
    monkeypatch.setattr(sqlite3.dbapi2, "connect", stepping_connect(disk.step))
    return disk


async def work(catalog: Catalog) -> Diff:
    """Some of everything that writes; activity may be refused, tools never are."""
    await catalog.register_instance(1, ["s"])
    await catalog.sync("s", [tool("a"), tool("new")])
    await catalog.heartbeat()
    try:
        await catalog.append_activity([LINE])
    except CatalogError:
        assert catalog.problem
    await catalog.sync("t", [tool("other")])
    await catalog.forget_servers(["s", "t"])
    return await catalog.sync("s", [tool("a"), tool("b")])


CODES = {"full": sqlite3.SQLITE_FULL, "read-only": sqlite3.SQLITE_READONLY, "failing": sqlite3.SQLITE_IOERR}


@pytest.mark.parametrize(
    ("code", "stride"),
    [
        *(pytest.param(code, 5, id=name) for name, code in CODES.items() if name != "full"),
        pytest.param(sqlite3.SQLITE_FULL, 2, id="full"),
        pytest.param(sqlite3.SQLITE_FULL, 1, id="full at every step", marks=pytest.mark.soak),
    ],
)
async def test_a_disk_that_fails_at_any_step_is_served_from_memory(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture, code: int, stride: int
) -> None:
    """At one step after the other until a run has no failure: nothing is half stored, and all once the disk is back."""
    async with opened(tmp_path / "before") as catalog:
        await catalog.sync("s", [tool("a"), tool("old")])
    for step in range(0, 200, stride):
        data_dir = tmp_path / str(step)
        shutil.copytree(tmp_path / "before", data_dir)
        async with opened(data_dir) as catalog:
            caplog.clear()
            disk.steps = 0
            with disk.broken(step, code):
                await work(catalog)
                steps = disk.steps
                assert names(catalog) == {"a", "b", "other"}
                assert warnings_in(caplog, "Tools are kept in memory") == (catalog.problem is not None)
                await catalog.refresh()
            await catalog.refresh()
            assert catalog.problem is None
            assert names(catalog) == {"a", "b", "other"} == stored_names(data_dir)
            assert [one.pid for one in await catalog.instances()] == [1]
            assert len({record.id for record in catalog.snapshot.by_id.values() if record.id < 100}) == 3
        if steps <= step:
            break
    assert step > 20
    async with opened(data_dir) as catalog:
        assert names(catalog) == {"a", "b", "other"}


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.soak)])
async def test_a_disk_that_is_full_at_the_start_is_waited_for(tmp_path: Path, disk: Disk, stride: int) -> None:
    """The gateway starts with what its servers tell, whichever of so many steps of the start fails first."""
    for step in range(0, 200, stride):
        data_dir = tmp_path / str(step)
        data_dir.mkdir()
        disk.steps = 0
        with disk.broken(step, sqlite3.SQLITE_FULL):
            catalog_open = opened(data_dir)
            catalog = await catalog_open.__aenter__()
            steps = disk.steps
            await catalog.sync("s", [tool("a")])
            assert names(catalog) == {"a"}
        await catalog.refresh()
        assert catalog.problem is None
        assert stored_names(data_dir) == {"a"}
        await catalog_open.__aexit__(None, None, None)
        if steps <= step:
            break
    assert step > 10


async def test_a_directory_that_cannot_be_written_at_the_start_is_refused(tmp_path: Path, disk: Disk) -> None:
    """Whoever sets it up is there to read the message."""
    with disk.broken(0, sqlite3.SQLITE_READONLY), pytest.raises(ConfigError, match="cannot be used"):
        async with opened(tmp_path):
            pass


async def test_activity_is_not_taken_for_stored_while_it_is_not(tmp_path: Path, disk: Disk) -> None:
    """Its keeper offers it again."""
    async with opened(tmp_path) as catalog:
        with disk.broken(0, sqlite3.SQLITE_FULL):
            for _ in range(2):
                with pytest.raises(CatalogError, match="the disk fails"):
                    await catalog.append_activity([LINE])
        await catalog.refresh()
        await catalog.append_activity([LINE])
        assert len(await catalog.activity_page(ActivityFilter(), 10)) == 1


async def test_damage_that_shows_while_in_use_is_repaired_from_memory(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """All tools are still there, and are stored in a new file."""
    await filled(tmp_path)
    async with opened(tmp_path) as catalog:
        await catalog.register_instance(1, ["s"])
        last_id = max(catalog.snapshot.by_id)
        (tmp_path / DATABASE_NAME).write_bytes(b"garbage" * 10_000)
        (tmp_path / f"{DATABASE_NAME}-wal").unlink()
        with disk.broken(0, sqlite3.SQLITE_CORRUPT):
            diff = await catalog.sync("t", [tool("new")])
        assert [record.key.tool for record in diff.added] == ["new"]
        await catalog.refresh()
        known = {"new", *(definition["name"] for definition in TOOLS)}
        assert (catalog.problem, names(catalog)) == (None, known)
        assert min(catalog.snapshot.by_id) > last_id, "an id was given to another tool"
        await catalog.append_activity([LINE])
        assert len(await catalog.instances()) == 1
        assert stored_names(tmp_path) == known
    assert warnings_in(caplog, "Tools are kept in memory") == 1
    assert warnings_in(caplog, "was damaged") == 1


# --- a gateway process on a full disk


async def test_a_gateway_on_a_full_disk_serves_says_so_and_recovers(tmp_path: Path) -> None:
    """Search and calls go on, new tools included; every answer says why it is worse; then all of it is stored."""
    small = SmallServer(tmp_path / "world")
    async with connected(tmp_path / "data", small) as client, asyncio.timeout(30):
        pid = client.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, limits[1]))  # as on a full disk, no file can be written
        reasons: list[str] = []

        async def is_degraded() -> bool:
            reasons[:] = (await client.search())["degraded"]
            return bool(reasons)

        await until_so(is_degraded)
        assert "kept in memory" in reasons[0]
        (small.directory / "tools").write_text("echo wait brand_new")
        call = {"name": "up:brand_new", "args": {"text": "x"}}
        while (result := await client.result(client.call("call_tool_write", call))).get("isError"):
            await asyncio.sleep(0.05)
        assert text_of(result) == "said x"
        assert "brand_new" not in stored_names(tmp_path / "data")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
        while await is_degraded():
            await asyncio.sleep(0.05)
        assert "brand_new" in stored_names(tmp_path / "data")
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_a_gateway_that_starts_on_a_full_disk_serves_what_it_knew(tmp_path: Path) -> None:
    """Approved tools are called as ever, a changed one is not; all of it is stored once there is room."""
    small = SmallServer(tmp_path / "world")
    servers = {"up": {name: value for name, value in small.entry.items() if name != "trust"}}
    try:
        async with served(tmp_path, servers) as client:
            await client.covered()
        (small.directory / "tools").write_text("echo brand_new")
        with full_disk():
            async with served(tmp_path, servers) as client, asyncio.timeout(30):
                while (found := await client.search())["not_covered"] != [
                    {"server": "up", "state": "partly_quarantined"}
                ]:
                    await asyncio.sleep(0.05)
                (reason,) = found["degraded"]
                assert f"'{tmp_path / 'data' / DATABASE_NAME}' cannot be used: the disk is full" in reason
                assert reason.endswith("Free some disk space.")
                call = client.call("call_tool_write", {"name": "up:echo", "args": {"text": "x"}})
                assert text_of(await client.result(call)) == "said x"
                refused = await client.result(client.call("call_tool_write", {"name": "up:brand_new"}))
                assert error_of(refused)["code"] == "quarantined"
                pid = client.process.pid
                limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
                while (await client.search())["degraded"]:
                    await asyncio.sleep(0.05)
        assert "brand_new" in stored_names(tmp_path / "data")
    finally:
        end(small.pids())


@asynccontextmanager
async def served(tmp_path: Path, servers: dict[str, Any]) -> AsyncIterator[Client]:
    """A client of a gateway over stdio that ends well."""
    async with started(tmp_path / "data", servers) as process:
        client = Client(process)
        await client.greet()
        yield client
        client.stdin.close()
        assert (await client.ended())[0] == 0

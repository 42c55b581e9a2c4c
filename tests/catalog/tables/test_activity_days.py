"""Days of the activity log on PostgreSQL."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psycopg
import pytest
from postgres_server import PostgresServer

from smart_mcp_proxy.catalog import ActivityFilter, Catalog
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import MIGRATIONS
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

DAY_S = 86_400
Opened = Callable[..., AbstractAsyncContextManager[Catalog]]
BEFORE = 12
"""The last version that kept the log in one table."""


class Database:
    """An empty database, gateways on it, and another program that looks."""

    def __init__(self, server: PostgresServer, data_dir: Path) -> None:
        self.url = server.url(server.new_database())
        self.opened: Opened = partial(Catalog.open, data_dir, url=self.url, name_limit=60)

    def rows(self, sql: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql).fetchall()  # type: ignore[call-overload]

    def days(self) -> list[str]:
        """The partitions' names, in order."""
        sql = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'activity'::regclass ORDER BY 1"
        return [name for (name,) in self.rows(sql)]

    def place_of(self, record: Activity) -> str:
        """The partition that holds a record."""
        ((name,),) = self.rows(f"SELECT tableoid::regclass::text FROM activity WHERE uid = '{record.id}'")
        return str(name)


@pytest.fixture
def database(postgres: PostgresServer, tmp_path: Path) -> Database:
    return Database(postgres, tmp_path)


def made(at_s: float, subject: str = "x") -> Activity:
    """A record that was made at a time."""
    record = Activity("call", "local", subject, "ok", duration_ms=1.0, at_s=at_s, detail={})
    return msgspec.structs.replace(record, id=f"{int(at_s * 1000):012x}{record.id[12:]}")


def midnight(days: int = 0) -> float:
    """The beginning of today, or of a day after it (UTC)."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp() + days * DAY_S


def until(days: int) -> str:
    """Name of the partition that ends at that midnight."""
    return f"activity_until_{datetime.fromtimestamp(midnight(days), UTC):%Y%m%d}"


async def test_each_day_has_its_partition_in_time(database: Database) -> None:
    """Four stand ready from the start on; days before the first are part of it."""
    async with database.opened() as catalog:
        await catalog.prepare_activity()
        assert database.days() == ["activity_rest", until(1), until(2), until(3), until(4)]
        await catalog.prepare_activity()
        assert len(database.days()) == 5
        records = [made(midnight(day) + offset_s) for day in range(5) for offset_s in (0, DAY_S - 0.001)]
        await catalog.append_activity([made(midnight(-30)), *records])
    assert [database.place_of(record) for record in records] == [
        *[until(day) for day in (1, 1, 2, 2, 3, 3, 4, 4)],
        *["activity_rest"] * 2,
    ]


async def test_a_day_is_dropped_when_all_of_it_is_too_old(database: Database) -> None:
    """Not before; what no day has taken is deleted by its own time."""
    async with database.opened() as catalog:
        await catalog.prepare_activity()
        today, later, late = made(midnight() + 5), made(midnight(1) + 5), made(midnight(9))
        await catalog.append_activity([today, later, late])
        await catalog.trim_activity(midnight(1) - 1)
        assert await catalog.find_activity(today.id) == today
        await catalog.trim_activity(midnight(1))
        assert await catalog.find_activity(today.id) is None
        assert until(1) not in database.days()
        await catalog.trim_activity(midnight(9) + 1)
        assert await catalog.last_activity_place() == 0
        assert database.days() == ["activity_rest"]
        # The days behind are not made again, those to come are.
        await catalog.prepare_activity()
        await catalog.append_activity([again := made(midnight() + 6)])
        assert database.place_of(again) == until(1)


async def test_records_that_found_no_day_move_into_it(database: Database) -> None:
    """Where no gateway of this version ran for days, and an earlier one did."""
    async with database.opened() as catalog:
        late = [made(midnight(2) + number, str(number)) for number in range(5)]
        await catalog.append_activity(late)
        assert {database.place_of(record) for record in late} == {"activity_rest"}
        places = await catalog.activity_page(ActivityFilter(), 10)
        await catalog.prepare_activity()
        assert {database.place_of(record) for record in late} == {until(3)}
        assert await catalog.activity_page(ActivityFilter(), 10) == places


async def test_a_record_is_stored_once_on_whatever_day(database: Database) -> None:
    """What a journal tells again after a crash is recognized by its id."""
    records = [made(midnight(day) + 1, str(day)) for day in (-40, 0, 1, 2, 30)]
    async with database.opened() as catalog:
        await catalog.append_activity(records)
        await catalog.prepare_activity()
        await catalog.append_activity(records)
        await catalog.append_activity(records[::-1])
        stored = [found.activity for found in await catalog.activity_page(ActivityFilter(), 100)]
    assert stored[::-1] == records


async def test_several_gateways_make_and_drop_the_days_at_the_same_moment(database: Database) -> None:
    """Each day once, and none fails."""
    async with database.opened() as one, database.opened() as two, database.opened() as three:
        for _ in range(5):
            async with anyio.create_task_group() as group:
                for catalog in (one, two, three):
                    group.start_soon(catalog.prepare_activity)
            assert len(database.days()) == 5
            async with anyio.create_task_group() as group:
                for catalog in (one, two, three):
                    group.start_soon(catalog.trim_activity, midnight(6))
                    group.start_soon(catalog.append_activity, [made(midnight(7))])
            assert database.days() == ["activity_rest"]


async def test_the_log_of_an_earlier_version_goes_on(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records, their places and the next place; also while a gateway of that version goes on writing."""
    old = [made(midnight(-20) + number, f"old {number}") for number in range(3)] + [made(midnight(12), "ahead")]
    with monkeypatch.context() as patch:
        patch.setattr(versions, "LATEST_VERSION", BEFORE)
        patch.setattr(versions, "MIGRATIONS", MIGRATIONS[:BEFORE])
        earlier = database.opened()
        former = await earlier.__aenter__()
        await former.append_activity(old)
        places = await former.activity_page(ActivityFilter(), 10)
        written = made(midnight() + 7, "by the earlier version")
    async with database.opened() as catalog:
        assert await catalog.activity_page(ActivityFilter(), 10) == places
        assert database.days() == ["activity_rest", until(1)]
        await former.append_activity([written, *old], limit_rows=100_000)
        page = await catalog.activity_page(ActivityFilter(), 10)
        assert [found.activity for found in page[::-1]] == [*old, written]
        assert page[0].place > places[0].place
        assert await former.activity_page(ActivityFilter(), 10) == page
        # Its way to remove old records.
        for sql in (f"DELETE FROM activity WHERE at_s < {midnight(-1)}", "DELETE FROM activity WHERE id <= 0"):
            with psycopg.connect(database.url, autocommit=True) as connection:
                connection.execute(sql)
        assert len(await catalog.activity_page(ActivityFilter(), 10)) == 2
    await earlier.__aexit__(None, None, None)

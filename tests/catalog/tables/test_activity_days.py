"""Days of the activity log on PostgreSQL."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psycopg
import pytest
from postgres_server import PASSWORD, PostgresServer
from store_places import open_earlier

from smart_mcp_proxy.catalog import ActivityFilter, Catalog, FiguresQuery
from smart_mcp_proxy.catalog.store import postgres as store
from smart_mcp_proxy.catalog.tables import activity, activity_days
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity.records import activity_page, parse_filter
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

DAY_S = 86_400
Opened = Callable[..., AbstractAsyncContextManager[Catalog]]
BEFORE = 12
"""The last version that kept the log in one table."""


class Database:
    """An empty database, gateways on it, and another program that looks."""

    def __init__(self, server: PostgresServer, data_dir: Path) -> None:
        self.url, self.data_dir = server.url(server.new_database()), data_dir
        self.opened: Opened = partial(Catalog.open, data_dir, url=self.url, name_limit=60)

    def rows(self, sql: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql).fetchall()  # type: ignore[call-overload]

    def write_as_before(self, records: list[Activity]) -> None:
        """Store those that are not there yet, as programs before there were days and chains did."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for one in records:
                connection.execute(
                    "INSERT INTO activity (uid, kind, principal, subject, outcome, duration_ms, at_s, detail, session,"
                    " server, tool, digest, delivery, parent) VALUES (%s, %s, %s, %s, %s, %s, %s, '{}', '', '', '', '',"
                    " '', '') ON CONFLICT DO NOTHING",
                    (one.id, one.kind, one.principal, one.subject, one.outcome, one.duration_ms, one.at_s),
                )

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


def wall() -> float:
    """The time by the machine's clock, which a test may set."""
    return time.time()


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
        await catalog.trim_activity(midnight(10))
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
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_earlier(database.url, database.data_dir, BEFORE, monkeypatch))
        database.write_as_before(old)
        places = database.rows("SELECT id, uid FROM activity ORDER BY id DESC")
        written = made(midnight() + 7, "by the earlier version")
        catalog = await stack.enter_async_context(database.opened())
        found = await catalog.activity_page(ActivityFilter(), 10)
        assert [(one.place, one.activity.id) for one in found] == places
        assert database.days() == ["activity_rest", until(1)]
        database.write_as_before([written, *old])
        page = await catalog.activity_page(ActivityFilter(), 10)
        assert [found.activity for found in page[::-1]] == [*old, written]
        assert page[0].place > places[0][0]
        # Its way to remove old records.
        for sql in (f"DELETE FROM activity WHERE at_s < {midnight(-1)}", "DELETE FROM activity WHERE id <= 0"):
            with psycopg.connect(database.url, autocommit=True) as connection:
                connection.execute(sql)
        assert len(await catalog.activity_page(ActivityFilter(), 10)) == 2


async def follow(catalog: Catalog, after: int) -> tuple[list[str], int]:
    """What a client that follows the log is told, and the place that it goes on from."""
    page = await activity_page(catalog, ActivityFilter(), 100, after=after)
    return [item.subject for item in page.items], page.last


async def test_who_follows_the_log_misses_no_record_that_is_committed_late(database: Database) -> None:
    """Of two gateways the one that took its places first may be the last to commit."""
    twice = made(midnight() + 1, "twice")
    async with database.opened() as one, database.opened() as two, database.opened() as reader:
        await one.append_activity([made(midnight(), "before")])
        place = await reader.last_activity_place()
        with psycopg.connect(database.url) as other:  # a third has stored one of them, and has not committed
            other.execute(
                "INSERT INTO activity SELECT nextval('activity_places'), %s, kind, principal, subject, outcome,"
                " duration_ms, at_s, detail, session, server, tool, digest, delivery, parent, arguments FROM activity",
                (twice.id,),
            )
            async with anyio.create_task_group() as group:
                group.start_soon(one.append_activity, [made(midnight() + 2, "early"), twice])
                while not database.rows("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                    await anyio.sleep(0.01)
                await two.append_activity([made(midnight() + 3, "late")])
                first, place = await follow(reader, place)
                other.rollback()
        second, place = await follow(reader, place)
        assert [*first, *second] == ["early", "twice", "late"]
        assert await follow(reader, place) == ([], place)


async def test_a_user_who_may_not_make_tables_keeps_the_log_all_the_same(
    database: Database, postgres: PostgresServer
) -> None:
    """Its records go where there is no day for them, and leave by their own time; the store is not lost over it."""
    async with database.opened() as catalog:
        await catalog.prepare_activity()
    user = f"user_{time.time_ns()}"
    name = database.url.rpartition("/")[2]
    postgres.execute(f"CREATE USER {user} PASSWORD '{PASSWORD}'")
    postgres.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}", name)
    postgres.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}", name)
    for day in (until(3), until(4)):
        postgres.execute(f"DROP TABLE {day}", name)
    old, new, next_day = made(midnight(-3)), made(midnight() + 1), made(midnight(2) + 1)
    async with database.opened(url=postgres.url(name, user=user)) as catalog:
        await catalog.prepare_activity()
        await catalog.append_activity([old, new, next_day])
        await catalog.trim_activity(midnight())
        assert await catalog.find_activity(old.id) is None
        assert await catalog.find_activity(new.id) == new
        assert catalog.problem is None
    async with database.opened() as catalog:
        await catalog.prepare_activity()
        assert database.place_of(next_day) == until(3)


async def test_old_records_are_deleted_in_steps(
    database: Database, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no table may be dropped: all of an hour at once would take longer than a store that is not lost."""
    monkeypatch.setattr(activity_days, "_BATCH_ROWS", 2)
    async with database.opened() as catalog:
        await catalog.append_activity([made(midnight(-3) + second) for second in range(5)])
    user = f"user_{time.time_ns()}"
    name = database.url.rpartition("/")[2]
    postgres.execute(f"CREATE USER {user} PASSWORD '{PASSWORD}'")
    for kind in ("TABLES", "SEQUENCES"):
        postgres.execute(f"GRANT ALL ON ALL {kind} IN SCHEMA public TO {user}", name)
    async with database.opened(url=postgres.url(name, user=user)) as catalog:
        await catalog.append_activity([kept := made(midnight() + 1)])
        await catalog.trim_activity(midnight())
        assert [one.activity for one in await catalog.activity_page(ActivityFilter(), 10)] == [kept]


async def test_a_table_that_somebody_else_has_attached_stops_nothing(database: Database) -> None:
    """Its name says of no day when it ends."""
    async with database.opened() as catalog:
        with psycopg.connect(database.url, autocommit=True) as other:
            other.execute("CREATE TABLE archive PARTITION OF activity FOR VALUES FROM ('f') TO ('g')")
        await catalog.prepare_activity()
        await catalog.trim_activity(midnight(1))
        assert database.days() == ["activity_rest", *(until(day) for day in (2, 3, 4)), "archive"]


async def test_a_look_that_takes_too_long_loses_no_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of records may be there: who asks for too many of them is told so, and nobody else notices."""
    monkeypatch.setattr(activity, "_TIME", "SET LOCAL statement_timeout = '50ms'", raising=False)
    monkeypatch.setattr(store, "LIMIT_S", 1.0)
    async with database.opened() as catalog:
        await catalog.append_activity([made(midnight())])
        with psycopg.connect(database.url) as other:
            other.execute("LOCK TABLE activity_rest")
            for look in (
                catalog.activity_page(ActivityFilter(kind="search"), 10),
                catalog.activity_figures(FiguresQuery(0, midnight(1))),
                catalog.find_activity("abcdef"),
            ):
                with pytest.raises(CatalogError, match="too long") as caught:
                    await look
                assert "Ask for less" in caught.value.hint
        await catalog.append_activity([made(midnight() + 1)])
        assert catalog.problem is None
        assert len(await catalog.activity_page(ActivityFilter(), 10)) == 2


async def test_days_before_the_time_that_is_asked_for_are_not_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the one before it: clocks differ."""
    monkeypatch.setattr(activity, "_TIME", "SET LOCAL statement_timeout = '2s'", raising=False)
    async with database.opened() as catalog:
        await catalog.prepare_activity()
        await catalog.append_activity([made(midnight()), record := made(midnight(2) + 1)])
        with psycopg.connect(database.url) as other:
            other.execute(f"LOCK TABLE {until(1)}")
            found = await catalog.activity_page(ActivityFilter(since_s=midnight(2)), 10)
            assert [one.activity for one in found] == [record]
            assert await catalog.activity_figures(FiguresQuery(midnight(2), midnight(3))) == ()


async def test_records_are_dated_by_the_clock_of_the_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway whose own is an hour behind has done nothing an hour ago."""
    right = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: right() - 3_600)
        async with database.opened(clock=wall) as late:
            await late.append_activity([made(wall(), "now")])
            assert parse_filter({"since": "30m"}, late.now_s).since_s == pytest.approx(right() - 1_800, abs=60)
    async with database.opened() as catalog:
        (found,) = await catalog.activity_page(parse_filter({"since": "30m"}, catalog.now_s), 10)
        assert found.activity.at_s == pytest.approx(right(), abs=60)

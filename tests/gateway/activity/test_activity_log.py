"""The activity log where clocks are wrong, the store takes nothing for long, or a record comes too late."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
from postgres_server import PostgresServer

from smart_mcp_proxy.catalog import ActivityFilter, Catalog
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity import write_ahead_log as journal_module
from smart_mcp_proxy.gateway.activity.activity_log import open_activity_log
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.activity.records import activity_page
from smart_mcp_proxy.gateway.activity.write_ahead_log import Journal, find_abandoned_journals, read_journal
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio


def line(subject: str, **fields: object) -> Activity:
    return Activity("call", "local", subject, "ok", 1.0, 1_700_000_000.0, **fields)  # type: ignore[arg-type]


def wall() -> float:
    """The time by the machine's clock, which a test may set."""
    return time.time()


class Store:
    """Takes batches; fails while it is told to."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.is_failing = True

    async def __call__(self, batch: Sequence[Activity]) -> None:
        if self.is_failing:
            raise CatalogError("The disk is full.")
        self.taken += [record.subject for record in batch]


async def test_a_wrong_clock_removes_nothing_that_other_gateways_have_stored(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new gateway whose clock is a year ahead goes by the database's."""
    url = postgres.url(postgres.new_database())
    async with Catalog.open(tmp_path / "one", url=url, name_limit=60) as catalog:
        await catalog.append_activity([kept := Activity("call", "local", "kept", "ok", 1.0, wall())])
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 365 * 86_400)
    trimmed = asyncio.Event()
    async with Catalog.open(tmp_path / "two", url=url, name_limit=60, clock=wall) as catalog:
        trim = catalog.trim_activity

        async def trim_activity(before_s: float) -> None:
            await trim(before_s)
            trimmed.set()

        monkeypatch.setattr(catalog, "trim_activity", trim_activity)
        async with open_activity_log(catalog, Settings(data_dir=tmp_path / "two", activity_days=30)):
            with anyio.fail_after(20):
                await trimmed.wait()
        assert await catalog.find_activity(kept.id) is not None


async def test_a_clock_that_is_set_meanwhile_is_noticed_at_once(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that had the wrong time at its start gets the right one: by it nothing ends an hour early."""
    right, url = time.time, postgres.url(postgres.new_database())
    async with Catalog.open(tmp_path, url=url, name_limit=60, clock=wall) as catalog:
        monkeypatch.setattr(time, "time", lambda: right() + 3_600)
        await catalog.refresh()
        assert catalog.now_s() == pytest.approx(right(), abs=60)


async def test_long_records_take_no_more_memory_than_the_journal_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store takes none: the oldest leave the memory, and are stored from the journal."""
    monkeypatch.setattr(journal_module, "LIMIT_BYTES", 10_000)
    store = Store()
    async with Recorder(store, batch_s=3_600, journal=Journal(tmp_path)) as recorder:
        for number in range(50):
            recorder.record(line(f"{number:02}", arguments={"text": "x" * 1_000}))
        assert len(recorder._waiting) < 15
        store.is_failing = False
    left = [record.subject for path in find_abandoned_journals(tmp_path) for record in read_journal(path)]
    assert store.taken == [f"{number:02}" for number in range(50)][-len(store.taken) :]
    assert left[:5] == ["00", "01", "02", "03", "04"]
    assert "too many to hold; they are stored from the journal, as far as it took them" in caplog.text


async def test_records_that_come_while_a_batch_is_refused_are_kept_though_the_journal_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there were when it was: the oldest make room for them."""
    monkeypatch.setattr(journal_module, "LIMIT_BYTES", 10_000)
    asked, gate = asyncio.Event(), asyncio.Event()

    async def refuse(batch: Sequence[Activity]) -> None:
        asked.set()
        await gate.wait()
        raise CatalogError("The disk is full.")

    async with Recorder(refuse, batch_s=3_600, journal=Journal(tmp_path)) as recorder:
        gate.set()
        for _ in range(2):  # both files of the journal
            for _ in range(20):
                recorder.record(line("long", arguments={"text": "x" * 1_000}))
            await recorder._flush()
        asked.clear()
        gate.clear()
        refusal = asyncio.ensure_future(recorder._flush())
        await asked.wait()
        held = recorder._under_way
        assert 10 < held < 30
        for number in range(held):
            recorder.record(line(str(number)))
        gate.set()
        await refusal
        assert [record.subject for record in recorder._waiting] == [str(number) for number in range(held)]


async def test_records_that_the_journal_could_not_take_are_not_promised_to_the_next_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its disk may be full, too."""
    monkeypatch.setattr(journal_module, "LIMIT_BYTES", 500)
    store = Store()
    async with Recorder(store, batch_s=3_600, journal=Journal(tmp_path)) as recorder:
        recorder.record(line("a" * 500))
        recorder.record(line("b"))
    assert "wait for the next gateway, as far as the journal took them" in caplog.text


def test_a_record_that_comes_too_late_gets_into_no_other_file(tmp_path: Path) -> None:
    """A call may end after the log is closed; the number of its file belongs to another one by then."""
    journal = Journal(tmp_path)
    journal.write(line("in time"))
    journal.close(is_stored=True)
    others = [(tmp_path / str(number)).open("w+b") for number in range(9)]
    journal.write(line("too late"))
    assert [file.read() for file in others] == [b""] * 9
    for file in others:
        file.close()


class Shared:
    """A log that many gateways write to, as one of them sees it whose look comes before a writer's lock."""

    is_shared = True

    def __init__(self, last: int) -> None:
        self._last = last

    async def last_activity_place(self) -> int:
        return self._last

    async def activity_page(self, *_: object, **__: object) -> tuple[()]:
        return ()


@pytest.mark.parametrize("last", [3, 9])
async def test_who_follows_the_log_is_never_sent_back(last: int) -> None:
    """A writer's lock may be seen only after a look that went past it: its records would be told twice."""
    shared: Any = Shared(last)
    assert (await activity_page(shared, ActivityFilter(), 10, after=7)).last == max(last, 7)
    assert (await activity_page(shared, ActivityFilter(), 10)).last == last

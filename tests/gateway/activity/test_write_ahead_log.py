"""Records are in a file before their answer leaves, and what a killed process left is stored by another one."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from smart_mcp_proxy.catalog import ActivityFilter, Catalog
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity import activity_log
from smart_mcp_proxy.gateway.activity import recorder as recorder_module
from smart_mcp_proxy.gateway.activity import write_ahead_log as journal_module
from smart_mcp_proxy.gateway.activity.activity_log import open_activity_log, recover
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.gateway.activity.write_ahead_log import FOLDER, Journal, find_abandoned_journals, read_journal
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio


def line(subject: str, **fields: object) -> Activity:
    return Activity("call", "local", subject, "ok", 1.0, 1_700_000_000.0, **fields)  # type: ignore[arg-type]


def in_files(data_dir: Path) -> list[str]:
    """Subjects in all journals, whoever holds them."""
    files = sorted((data_dir / FOLDER).iterdir())
    return sorted(record.subject for file in files for record in read_journal(file))


class Store:
    """Takes batches; fails while it is told to."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.is_failing = False
        self.called = asyncio.Event()

    async def __call__(self, batch: Sequence[Activity]) -> None:
        self.called.set()
        if self.is_failing:
            raise CatalogError("The disk is full.")
        self.taken += [record.subject for record in batch]


async def test_a_record_is_in_the_file_when_record_returns(tmp_path: Path) -> None:
    """And out of it once it is stored; a clean end leaves no file."""
    store = Store()
    async with Recorder(store, batch_s=3600, journal=Journal(tmp_path)) as recorder:
        recorder.record(line("a"))
        recorder.record(line("b", arguments={"n": 1}))
        assert in_files(tmp_path) == ["a", "b"]
        assert store.taken == []
        assert find_abandoned_journals(tmp_path) == [], "its process lives"
    assert store.taken == ["a", "b"]
    assert list((tmp_path / FOLDER).iterdir()) == []


async def test_what_comes_while_a_batch_is_stored_stays_in_the_other_file(tmp_path: Path) -> None:
    """Emptying one file never loses a record of the next batch."""
    journal = Journal(tmp_path)
    journal.write(line("stored"))
    journal.turn()
    journal.write(line("next"))
    journal.discard_stored()
    assert in_files(tmp_path) == ["next"]
    journal.turn()
    journal.discard_stored()
    assert in_files(tmp_path) == []
    journal.close(is_stored=True)


async def test_a_batch_that_was_refused_stays_in_its_file(tmp_path: Path) -> None:
    """However often; it goes with the first batch that is taken."""
    store = Store()
    store.is_failing = True
    async with Recorder(store, batch_s=0, retry_s=0, journal=Journal(tmp_path)) as recorder:
        for subject in "abc":
            recorder.record(line(subject))
            store.called.clear()
            with anyio.fail_after(20):
                await store.called.wait()
        assert in_files(tmp_path) == ["a", "b", "c"]
        store.is_failing = False
        with anyio.fail_after(20):
            while store.taken != ["a", "b", "c"]:
                await anyio.lowlevel.checkpoint()


async def test_what_is_refused_to_the_end_waits_for_the_next_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file stays, and says so."""
    store = Store()
    store.is_failing = True
    async with Recorder(store, batch_s=3600, journal=Journal(tmp_path)) as recorder:
        recorder.record(line("a"))
    assert "1 activity records wait for the next gateway" in caplog.text
    (file,) = find_abandoned_journals(tmp_path)
    assert [record.subject for record in read_journal(file)] == ["a"]
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds three records."""
    monkeypatch.setattr(recorder_module, "WAITING_LIMIT", 3)


async def subjects_in_catalog(data_dir: Path) -> str:
    """In alphabetical order, after one look for what was left behind."""
    async with Catalog.open(data_dir, name_limit=60) as catalog:
        await recover(catalog, data_dir)
        page = await catalog.activity_page(ActivityFilter(), 50)
    return "".join(sorted(found.activity.subject for found in page))


@pytest.mark.usefixtures("small_memory")
async def test_records_that_leave_memory_while_the_catalog_refuses_are_stored_from_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As soon as it takes records again, also while more come; a later batch takes no file away that holds them."""
    store = Store()
    store.is_failing = True
    async with Recorder(store, batch_s=0, retry_s=0, journal=Journal(tmp_path)) as recorder:
        for subject in "abcdefg":
            recorder.record(line(subject))
            store.called.clear()
            with anyio.fail_after(20):
                await store.called.wait()
        store.is_failing = False
        for subject in "gh":
            if subject == "h":
                recorder.record(line("h"))
            with anyio.fail_after(20):
                while subject not in store.taken:
                    await anyio.lowlevel.checkpoint()
        assert set("abcd") & set(store.taken) == set()
        with anyio.fail_after(20):
            while not find_abandoned_journals(tmp_path):
                await anyio.lowlevel.checkpoint()
        assert set(await subjects_in_catalog(tmp_path)) >= set("abcdefg")
        assert find_abandoned_journals(tmp_path) == []
    assert list((tmp_path / FOLDER).iterdir()) == []
    assert "4 activity records were too many to hold; they are stored from the journal" in caplog.text


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("is_failing", [True, False])
async def test_records_that_left_memory_wait_for_the_next_gateway_where_this_one_ends(
    tmp_path: Path, is_failing: bool
) -> None:
    """Whether or not the catalog takes the last batch."""
    store = Store()
    async with Recorder(store, batch_s=3600, journal=Journal(tmp_path)) as recorder:
        for subject in "abcdef":
            recorder.record(line(subject))
        store.is_failing = is_failing
    assert await subjects_in_catalog(tmp_path) == "abcdef"


@pytest.mark.usefixtures("small_memory")
async def test_records_that_leave_memory_while_a_batch_is_stored_stay_in_the_journal(tmp_path: Path) -> None:
    """The next batch knows of them."""
    gate, stored = asyncio.Event(), list[str]()

    async def store_slowly(batch: Sequence[Activity]) -> None:
        stored.extend(record.subject for record in batch)
        await gate.wait()

    async with Recorder(store_slowly, batch_s=0, journal=Journal(tmp_path)) as recorder:
        recorder.record(line("a"))
        with anyio.fail_after(20):
            while not stored:
                await anyio.lowlevel.checkpoint()
        for subject in "bcdef":
            recorder.record(line(subject))
        gate.set()
    assert stored == ["a", "d", "e", "f"]
    assert {"b", "c"} <= set(await subjects_in_catalog(tmp_path))


@pytest.mark.usefixtures("small_memory")
async def test_a_journal_that_cannot_begin_anew_keeps_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it can, or to the end."""

    def open_nothing(*args: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = Store()
    with monkeypatch.context() as patch:
        async with Recorder(store, batch_s=3600, journal=Journal(tmp_path)) as recorder:
            for subject in "abcdef":
                recorder.record(line(subject))
            patch.setattr(journal_module.os, "open", open_nothing)
    assert store.taken == ["d", "e", "f"]
    assert "the journal cannot begin anew: No space left on device" in caplog.text
    assert "3 activity records wait for the next gateway" in caplog.text
    assert await subjects_in_catalog(tmp_path) == "abcdef"


async def test_a_file_that_cannot_be_read_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are stored once it can be; the other files do not wait for it."""
    for subject in "ab":
        journal = Journal(tmp_path)
        journal.write(line(subject))
        journal.close(is_stored=False)
    bad, _ = find_abandoned_journals(tmp_path)

    def read_from_a_failing_disk(path: Path) -> list[Activity]:
        if path == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_journal(path)

    with monkeypatch.context() as patch:
        patch.setattr(activity_log, "read_journal", read_from_a_failing_disk)
        assert len(await subjects_in_catalog(tmp_path)) == 1
    assert find_abandoned_journals(tmp_path) == [bad]
    assert f"the activity records in {bad} cannot be read and stay there: Input/output error" in caplog.text
    assert await subjects_in_catalog(tmp_path) == "ab"
    with pytest.raises(IsADirectoryError):
        read_journal(tmp_path)
    assert read_journal(tmp_path / "gone") == []


async def test_what_a_process_left_behind_is_stored_once(tmp_path: Path) -> None:
    """Also where some of it had been stored before the kill, and where two gateways look at the same time."""
    records = [line("both"), line("journal only")]
    journal = Journal(tmp_path)
    for record in records:
        journal.write(record)
    journal.close(is_stored=False)
    async with Catalog.open(tmp_path, name_limit=60) as one, Catalog.open(tmp_path, name_limit=60) as other:
        await one.append_activity(records[:1])
        await asyncio.gather(recover(one, tmp_path), recover(other, tmp_path))
        page = await one.activity_page(ActivityFilter(), 10)
        assert sorted(found.activity.subject for found in page) == ["both", "journal only"]
    assert list((tmp_path / FOLDER).iterdir()) == []


async def test_a_line_without_an_end_and_a_broken_one_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The records around them are kept."""
    journal = Journal(tmp_path)
    journal.write(line("first"))
    journal.close(is_stored=False)
    (file,) = find_abandoned_journals(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(b"\x00garbage\n" + whole + whole[:-20])
    assert [record.subject for record in read_journal(file)] == ["first"]
    assert "cannot be read and is left out" in caplog.text


async def test_a_full_disk_disturbs_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, and records reach the store as ever."""
    store = Store()

    def write_to_a_full_disk(descriptor: int, data: bytes, place: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(journal_module.os, "pwrite", write_to_a_full_disk)
        journal = Journal(tmp_path)
    async with Recorder(store, batch_s=3600, journal=journal) as recorder:
        with monkeypatch.context() as patch:
            patch.setattr(journal_module.os, "pwrite", write_to_a_full_disk)
            for subject in "abc":
                recorder.record(line(subject))
        recorder.record(line("d"))
        assert in_files(tmp_path) == ["d"]
    assert store.taken == ["a", "b", "c", "d"]
    assert caplog.text.count("would be lost with a kill: No space left on device") == 1


@pytest.fixture
def unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that maps nothing."""

    def map_nothing(*args: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(journal_module.mmap, "mmap", map_nothing)


@pytest.mark.usefixtures("unmapped")
async def test_a_file_system_that_maps_nothing_is_written_line_by_line(tmp_path: Path) -> None:
    """With the same promise."""
    journal = Journal(tmp_path)
    journal.write(line("a"))
    journal.write(line("b"))
    assert in_files(tmp_path) == ["a", "b"]
    journal.turn()
    journal.write(line("c"))
    journal.discard_stored()
    assert in_files(tmp_path) == ["c"]
    journal.close(is_stored=True)


@pytest.mark.usefixtures("unmapped")
async def test_a_record_that_was_cut_short_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full in the middle of it."""
    write = os.pwrite
    journal = Journal(tmp_path)
    journal.write(line("first"))
    with monkeypatch.context() as patch:
        patch.setattr(journal_module.os, "pwrite", lambda descriptor, data, place: write(descriptor, data[:50], place))
        journal.write(line("cut"))
    journal.write(line("whole"))
    journal.close(is_stored=False)
    (file,) = find_abandoned_journals(tmp_path)
    assert [record.subject for record in read_journal(file)] == ["first", "whole"]


@pytest.mark.parametrize("count", [1, 3, 60])
async def test_nothing_of_earlier_records_is_found_behind_later_ones(tmp_path: Path, count: int) -> None:
    """However long they were, and whether the file gave its room back."""
    journal = Journal(tmp_path)
    for number in range(count):
        journal.write(line(f"earlier {number} " + "x" * 50_000))
    journal.turn()
    journal.discard_stored()
    journal.turn()  # the file that was emptied is the present one again
    journal.write(line("later"))
    assert in_files(tmp_path) == ["later"]
    assert sum(file.stat().st_size for file in (tmp_path / FOLDER).iterdir()) <= 2 * journal_module.KEPT_ROOM_BYTES
    journal.close(is_stored=True)


async def test_a_journal_does_not_grow_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes nothing does not fill the disk."""
    monkeypatch.setattr(journal_module, "LIMIT_BYTES", 1_000)
    journal = Journal(tmp_path)
    for _ in range(100):
        journal.write(line("x" * 100))
    assert 0 < len(in_files(tmp_path)) < 10
    assert caplog.text.count("would be lost") == 1
    journal.close(is_stored=True)


async def test_text_that_utf8_cannot_hold_comes_through(tmp_path: Path) -> None:
    """Records of other parts of the gateway may hold anything."""
    journal = Journal(tmp_path)
    journal.write(line("x", arguments={"half": "\ud800", "big": 10**30}))
    journal.close(is_stored=False)
    (file,) = find_abandoned_journals(tmp_path)
    (found,) = read_journal(file)
    assert (found.subject, found.arguments["half"]) == ("x", "?")


async def test_an_open_log_stores_recovers_and_trims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another process left is there soon after the start, and what is older than the days kept is not."""
    monkeypatch.setattr(activity_log, "LOOK_S", 0.01)
    monkeypatch.setattr(activity_log, "LOOKS_PER_TRIM", 1)
    left = Journal(tmp_path)
    left.write(line("left behind", id="a"))
    left.close(is_stored=False)
    async with Catalog.open(tmp_path, name_limit=60, clock=lambda: 1_700_000_000.0 + 40 * 86_400) as catalog:
        recent = Activity("call", "local", "recent", "ok", 1.0, 1_700_000_000.0 + 20 * 86_400)
        await catalog.append_activity([line("old"), recent])
        async with open_activity_log(catalog, Settings(data_dir=tmp_path, activity_days=30)):
            with anyio.fail_after(20):
                subjects = list[str]()
                while find_abandoned_journals(tmp_path) or subjects != ["recent"]:
                    await asyncio.sleep(0.01)
                    page = await catalog.activity_page(ActivityFilter(), 9)
                    subjects = [found.activity.subject for found in page]


def test_a_journal_makes_its_data_directory(tmp_path: Path) -> None:
    """For the owner alone: where the catalog is a database, a new machine has none yet."""
    data_dir = tmp_path / "new" / "data"
    journal = Journal(data_dir)
    journal.write(line("first"))
    assert data_dir.stat().st_mode & 0o777 == 0o700
    assert [record.subject for path in (data_dir / FOLDER).iterdir() for record in read_journal(path)] == ["first"]
    journal.close(is_stored=True)

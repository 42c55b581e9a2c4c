"""Activity records reach the store in batches, and none is lost on the way."""

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.activity import recorder as recorder_module
from smart_mcp_proxy.gateway.activity.recorder import Recorder
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio


def line(subject: str) -> Activity:
    return Activity("call", "local", subject, "ok", 1.0, 0.0)


class Store:
    """Takes batches, unless it is told to fail or to wait."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.called = asyncio.Event()

    async def __call__(self, batch: Sequence[Activity]) -> None:
        self.called.set()
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise CatalogError("The disk is full.")
        self.batches.append([activity.subject for activity in batch])

    async def next_call(self) -> None:
        with anyio.fail_after(20):
            await self.called.wait()
        self.called.clear()


async def test_records_of_a_moment_are_one_batch() -> None:
    """In their order, off the path of the calls."""
    store = Store()
    async with Recorder(store, batch_s=0.01) as recorder:
        for subject in "abc":
            recorder.record(line(subject))
        assert store.batches == []
        await store.next_call()
        recorder.record(line("d"))
        await store.next_call()
    assert store.batches == [["a", "b", "c"], ["d"]]


async def test_what_waits_at_the_end_is_stored() -> None:
    """Leaving does not wait for the next batch."""
    store = Store()
    with anyio.fail_after(20):
        async with Recorder(store, batch_s=3600) as recorder:
            recorder.record(line("a"))
    assert store.batches == [["a"]]
    async with Recorder(store):
        pass
    assert store.batches == [["a"]]


async def test_a_batch_on_its_way_arrives_before_the_end() -> None:
    """Also if the store is slow or fails just then."""
    for failures in (0, 1):
        store = Store()
        store.failures = failures
        store.gate.clear()
        recorder = Recorder(store, batch_s=0)
        await recorder.__aenter__()
        recorder.record(line("a"))
        await store.next_call()
        leaving = asyncio.ensure_future(recorder.__aexit__())
        await anyio.lowlevel.checkpoint()
        store.gate.set()
        with anyio.fail_after(20):
            await leaving
        assert store.batches == [["a"]]


async def test_a_batch_that_the_store_refuses_waits_for_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is lost or put out of order, and the log says why it waits."""
    store = Store()
    store.failures = 1
    async with Recorder(store, batch_s=0, retry_s=0) as recorder:
        recorder.record(line("a"))
        await store.next_call()
        recorder.record(line("b"))
        await store.next_call()
    assert store.batches == [["a", "b"]]
    assert "1 activity records wait: The disk is full." in caplog.text


async def test_too_many_waiting_records_lose_the_oldest_and_say_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a batch is taken and after one came back."""
    monkeypatch.setattr(recorder_module, "WAITING_LIMIT", 3)
    store = Store()
    store.failures = 1
    store.gate.clear()
    async with Recorder(store, batch_s=0, retry_s=0) as recorder:
        for subject in "abcd":
            recorder.record(line(subject))
        await store.next_call()
        recorder.record(line("e"))
        recorder.record(line("f"))
        store.gate.set()
        await store.next_call()
    assert store.batches == [["d", "e", "f"]]
    assert "3 activity records were dropped" in caplog.text


async def test_what_was_refused_is_offered_again_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """However often, with one warning, and without waiting for another record."""
    store = Store()
    store.failures = 3
    async with Recorder(store, batch_s=0, retry_s=0) as recorder:
        recorder.record(line("a"))
        with anyio.fail_after(20):
            while not store.batches:
                await anyio.lowlevel.checkpoint()
    assert store.batches == [["a"]]
    assert [record.levelname for record in caplog.records].count("WARNING") == 1


async def test_what_is_refused_to_the_end_is_named_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    """The process ends all the same."""
    store = Store()
    store.failures = 10
    async with Recorder(store, batch_s=3600) as recorder:
        recorder.record(line("a"))
    assert "1 activity records are lost" in caplog.text

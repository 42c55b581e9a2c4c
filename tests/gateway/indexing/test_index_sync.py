"""The index is stored for the next start, which makes only what is not in it."""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from gateway_fakes import HandClock, Parts, definition

from smart_mcp_proxy.gateway.indexing.index_sync import INDEX_NAME, SETTLE_S, IndexSync, Sight
from smart_mcp_proxy.gateway.shared.changes import Changes
from smart_mcp_proxy.models import Document, ToolRecord
from smart_mcp_proxy.search import Bm25fEngine, SearchIndex

NEVER_S = 1e6


class CountingEngine(Bm25fEngine):
    """An engine that says of which tools it read the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def update(self, added: Iterable[Document], removed: Iterable[int]) -> None:
        documents = list(added)
        self.read += [document.name for document in documents]
        super().update(documents, removed)


class Start:
    """One start of the part that keeps the index."""

    def __init__(self, sync: IndexSync, engine: CountingEngine, clock: HandClock) -> None:
        self.sync, self.engine, self.clock = sync, engine, clock

    def found(self, query: str) -> list[str]:
        index = self.sync.index
        return [index.documents[hit.id].name for hit in index.search(query, limit=5).hits]

    async def stored(self) -> None:
        await self.sync.store()
        self.clock.now_s += SETTLE_S
        await self.sync.store()


@asynccontextmanager
async def started(parts: Parts, data_dir: Path) -> AsyncIterator[Start]:
    def sees(record: ToolRecord) -> bool:
        return record.key.tool != "hidden"

    engine, clock = CountingEngine(), HandClock()
    sync = IndexSync(
        parts.catalog, SearchIndex(engine), Sight(sees), Changes(), follow_s=NEVER_S, data_dir=data_dir, clock=clock
    )
    sync.start()
    try:
        with anyio.fail_after(20):
            await sync.loaded.wait()
        yield Start(sync, engine, clock)
    finally:
        await sync.close()


@pytest.fixture
async def listed(parts: Parts) -> Parts:
    """Three tools that are seen and one that is not."""
    await parts.sync("alpha", [definition("paint"), definition("measure"), definition("sand"), definition("hidden")])
    return parts


async def test_a_second_start_reads_no_texts(listed: Parts, tmp_path: Path) -> None:
    """And finds what the first one found, by words and by name."""
    async with started(listed, tmp_path) as first:
        assert sorted(first.engine.read) == ["measure", "paint", "sand"]
        await first.stored()
    async with started(listed, tmp_path) as second:
        assert second.engine.read == []
        assert second.found("paint") == ["paint"]
        assert second.found("alpha:measure")[0] == "measure"
        assert second.found("hidden") == []


async def test_only_what_changed_since_is_read(listed: Parts, tmp_path: Path) -> None:
    """New and changed tools; removed ones are found no more."""
    async with started(listed, tmp_path) as first:
        await first.stored()
    await listed.sync("alpha", [definition("paint", "Lacquers a wall."), definition("measure"), definition("polish")])
    async with started(listed, tmp_path) as second:
        assert sorted(second.engine.read) == ["paint", "polish"]
        assert second.found("lacquer") == ["paint"]
        assert second.found("sand") == []
        await second.stored()
    async with started(listed, tmp_path) as third:
        assert third.engine.read == []
        assert (third.found("lacquer"), third.found("polish")) == (["paint"], ["polish"])


async def test_the_index_is_stored_once_it_is_quiet(listed: Parts, tmp_path: Path) -> None:
    """Not while it changes, and not again without a change."""
    path = tmp_path / INDEX_NAME
    async with started(listed, tmp_path) as start:
        await start.sync.store()
        start.clock.now_s += SETTLE_S - 1
        await listed.sync("beta", [definition("drill")])
        await start.sync.catch_up()
        await start.sync.store()
        start.clock.now_s += SETTLE_S - 1
        await start.sync.store()
        assert not path.exists()
        start.clock.now_s += 1
        await start.sync.store()
        written = path.stat().st_mtime_ns
        await start.stored()
        assert path.stat().st_mtime_ns == written


async def test_a_small_change_of_many_tools_is_not_worth_storing(parts: Parts, tmp_path: Path) -> None:
    """One of 150 is read anew at the next start; a second one is more than a hundredth."""
    path = tmp_path / INDEX_NAME
    tools = [definition(f"paint{number}") for number in range(150)]
    await parts.sync("alpha", tools)
    async with started(parts, tmp_path) as first:
        await first.stored()
        written = path.stat().st_mtime_ns
        await parts.sync("alpha", [*tools[1:], definition("paint0", "Lacquers.")])
        await first.sync.catch_up()
        await first.stored()
        assert path.stat().st_mtime_ns == written
    async with started(parts, tmp_path) as second:
        assert second.engine.read == ["paint0"]
        await parts.sync("alpha", [*tools[2:], definition("paint0", "Lacquers."), definition("paint1", "Varnishes.")])
        await second.sync.catch_up()
        await second.stored()
    async with started(parts, tmp_path) as third:
        assert third.engine.read == []
        assert (third.found("lacquer"), third.found("varnish")) == (["paint0"], ["paint1"])


async def test_a_broken_side_car_is_made_anew(listed: Parts, tmp_path: Path) -> None:
    """Without a word, and the next start reads it."""
    (tmp_path / INDEX_NAME).write_bytes(b"broken")
    async with started(listed, tmp_path) as first:
        assert first.found("paint") == ["paint"]
        await first.stored()
    async with started(listed, tmp_path) as second:
        assert second.engine.read == []


async def test_a_disk_that_cannot_be_written_costs_the_side_car_only(
    listed: Parts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once for each state of the index."""
    caplog.set_level(logging.WARNING)
    async with started(listed, tmp_path / "missing") as start:
        await start.stored()
        await start.stored()
        assert start.found("paint") == ["paint"]
    assert caplog.text.count("'tools.index' cannot be written") == 1


async def test_a_change_judges_the_tools_that_changed_alone(listed: Parts) -> None:
    """As long as the rules are the same; once they are others every tool is judged anew."""
    judged: list[str] = []
    hidden = {"hidden"}
    rules = object()

    def sees(record: ToolRecord) -> bool:
        judged.append(record.key.tool)
        return record.key.tool not in hidden

    sync = IndexSync(
        listed.catalog, SearchIndex(CountingEngine()), Sight(sees, lambda: rules), Changes(), follow_s=NEVER_S
    )

    def found() -> set[str]:
        names = {record.id: record.key.tool for record in listed.catalog.snapshot.by_id.values()}
        return {names[id_] for id_ in sync.index.documents}

    sync.start()
    try:
        with anyio.fail_after(20):
            await sync.catch_up()
            assert found() == {"paint", "measure", "sand"}
            judged.clear()
            kept = [definition("paint"), definition("sand", description="Sands anew."), definition("hidden")]
            await listed.sync("alpha", [*kept, definition("new")])
            await sync.catch_up()
            assert sorted(judged) == ["new", "sand"]
            assert found() == {"paint", "sand", "new"}
            hidden, rules = {"new"}, object()
            await sync.catch_up()
            assert found() == {"paint", "sand", "hidden"}
    finally:
        await sync.close()

"""Gateways with a data directory each, on one database: each definition is embedded by one of them."""

import itertools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from gateway_fakes import HandClock
from keeper_fakes import EmbeddingSetup, WordEmbedder, opened_setup, vector_of
from postgres_server import PostgresServer

from smart_mcp_proxy.search.embedding import build_embedding_text

pytestmark = pytest.mark.anyio

TOOLS = ("read_file", "write_file", "send_mail")


class Database:
    """A database, and the gateways that are opened on it.

    Attributes:
        clock: Of all their catalogs.
    """

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.name = server.new_database()
        self.server = server
        self.clock = HandClock()
        self._folders = (folder / str(number) for number in itertools.count())

    def opened(self, embedder: WordEmbedder, *names: str) -> AbstractAsyncContextManager[EmbeddingSetup]:
        """A gateway with a data directory of its own; see `opened_setup`."""
        url = self.server.url(self.name)
        return opened_setup(next(self._folders), lambda: embedder, *names, url=url, wall_clock=self.clock)

    def count(self, table: str) -> Any:
        return self.server.value(f"SELECT count(*) FROM {table}", self.name)


@pytest.fixture
def database(postgres: PostgresServer, tmp_path: Path) -> Database:
    return Database(postgres, tmp_path)


def check(setup: EmbeddingSetup, count: int) -> None:
    """So many tools have the vector of their own text each."""
    texts = {tool.name: build_embedding_text(tool) for tool in setup.index.documents.values()}
    linked = setup.linked()
    assert len(linked) == len(texts) == count
    assert all((linked[name] == vector_of(text)).all() for name, text in texts.items())


def waits(setup: EmbeddingSetup, embedder: WordEmbedder) -> Callable[[], bool]:
    """Whether it has looked some more times from now on, or has begun to embed."""
    looked = len(setup.slept_s)
    return lambda: len(setup.slept_s) > looked + 2 or embedder.busy.is_set()


async def test_two_gateways_on_one_database_embed_each_definition_once(database: Database) -> None:
    """The second one waits while the first embeds, and takes what that stored; in the end nobody has the turn."""
    first, second = WordEmbedder(), WordEmbedder()
    first.gate.clear()
    names = [f"tool_{number}" for number in range(150)]
    async with database.opened(first, *names) as setup:
        await setup.until(first.busy.is_set)
        async with database.opened(second) as other:
            await other.until(waits(other, second))
            assert not second.busy.is_set()
            first.gate.set()
            await setup.ranking()
            await other.ranking()
            check(setup, 150)
            check(other, 150)
    assert len(first.texts) + len(second.texts) == len({*first.texts, *second.texts}) == 150
    assert (database.count("vectors"), database.count("leases")) == (150, 0)


async def test_the_turn_of_a_gateway_that_hangs_passes_on(database: Database) -> None:
    """Or of one that died: once its lease is over; if it lives on, its work is done twice, and that is all."""
    first, second = WordEmbedder(), WordEmbedder()
    first.gate.clear()
    async with database.opened(first, *TOOLS) as setup:
        await setup.until(first.busy.is_set)
        async with database.opened(second) as other:
            await other.until(waits(other, second))
            database.clock.now_s += 60  # a slow batch
            await other.until(waits(other, second))
            assert not second.busy.is_set()
            database.clock.now_s += 60
            await other.ranking()
            check(other, 3)
            assert len(second.texts) == 3
            first.gate.set()
            await setup.ranking()
            check(setup, 3)
    assert (database.count("vectors"), database.count("leases")) == (3, 0)


async def test_without_the_database_each_gateway_embeds_for_itself(database: Database) -> None:
    """Vectors rank all the same; they are stored once it is back."""
    embedder = WordEmbedder()
    async with database.opened(embedder, *TOOLS) as setup:
        await setup.ranking()
        database.server.refuse(database.name)
        await setup.listed(*TOOLS, "fourth")
        await setup.ranking()
        check(setup, 4)
        assert setup.catalog.problem is not None
        assert len(embedder.texts) == 4
        database.server.accept(database.name)
        await setup.until(lambda: setup.catalog.problem is None)
        await setup.until(lambda: database.count("vectors") == 4)

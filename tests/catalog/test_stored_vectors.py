"""Vectors in SQL: kept by text and embedder, over restarts, and dropped when nobody uses them any more."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.catalog.tables import vectors
from smart_mcp_proxy.errors import CatalogError

pytestmark = pytest.mark.anyio

OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]

DAY_S = 86_400.0


def rows(store: Any) -> list[tuple[Any, ...]]:
    """What the store holds, without the vectors."""
    return sorted(store.rows("SELECT definition_hash, embedder, used_s FROM vectors"))


async def test_vectors_are_kept_by_hash_and_embedder(open_catalog: OpenCatalog) -> None:
    """Over restarts; another embedder's are not mixed in."""
    async with open_catalog() as catalog:
        await catalog.store_vectors("one", {"a": b"1a", "b": b"1b"})
        await catalog.store_vectors("two", {"a": b"2a"})
    async with open_catalog() as catalog:
        assert await catalog.read_vectors("one", ["a", "b", "c"]) == {"a": b"1a", "b": b"1b"}
        assert await catalog.read_vectors("two", ["a", "b"]) == {"a": b"2a"}
        assert await catalog.read_vectors("one", []) == {}
        await catalog.store_vectors("one", {"a": b"new"})
        await catalog.store_vectors("one", {})
        assert await catalog.read_vectors("one", ["a"]) == {"a": b"new"}


async def test_embedders_are_counted_by_the_vectors_that_are_stored(open_catalog: OpenCatalog) -> None:
    """Of the definitions asked for, more than one statement takes; the one with most first, then the latest."""
    many = {f"{number:064x}": b"vector" for number in range(1_234)}
    async with open_catalog() as catalog:
        await catalog.store_vectors("one", many)
        await catalog.store_vectors("few", {"a": b"1", f"{0:064x}": b"2"})
        await catalog.store_vectors("two", many)
        counts = await catalog.vector_counts(many.keys())
        assert list(counts.items()) == [("two", 1_234), ("one", 1_234), ("few", 1)]
        assert await catalog.vector_counts([]) == await catalog.vector_counts(["b"]) == {}


async def test_more_vectors_than_one_statement_takes(open_catalog: OpenCatalog) -> None:
    """Asked for and noted at once."""
    many = {f"{number:064x}": number.to_bytes(4, "big") for number in range(2_345)}
    async with open_catalog() as catalog:
        await catalog.store_vectors("one", many)
        assert await catalog.read_vectors("one", many.keys()) == many
        await catalog.tidy_vectors("one", many.keys())


async def test_vectors_that_nobody_used_for_a_month_are_dropped(
    open_catalog: OpenCatalog, store: Any, clock: Any
) -> None:
    """Those of present tools stay for ever, those of other embedders and of tools that left stay 30 days."""
    async with open_catalog() as catalog:
        await catalog.store_vectors("one", {"present": b"1", "gone": b"2"})
        await catalog.store_vectors("two", {"present": b"3"})
        for _ in range(30):
            clock.now_s += DAY_S
            await catalog.tidy_vectors("one", ["present"])
        assert len(rows(store)) == 3
        for _ in range(2):
            clock.now_s += DAY_S
            await catalog.tidy_vectors("one", ["present"])
        assert [(hash_, embedder) for hash_, embedder, _ in rows(store)] == [("present", "one")]


async def test_a_use_is_noted_once_a_day(open_catalog: OpenCatalog, store: Any, clock: Any) -> None:
    """What is in use is not written again at every start."""
    async with open_catalog() as catalog:
        await catalog.store_vectors("one", {"a": b"1"})
        stored_s = clock.now_s
        clock.now_s += DAY_S / 2
        await catalog.tidy_vectors("one", ["a"])
        assert rows(store) == [("a", "one", stored_s)]
        clock.now_s += DAY_S
        await catalog.tidy_vectors("one", ["a"])
        assert rows(store) == [("a", "one", clock.now_s)]


async def test_a_bounded_number_is_dropped_at_a_time(
    open_catalog: OpenCatalog, store: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large clean-up does not hold up other processes."""
    monkeypatch.setattr(vectors, "DROPPED_ROWS", 3)
    async with open_catalog() as catalog:
        await catalog.store_vectors("one", {str(number): b"1" for number in range(7)})
        clock.now_s += 40 * DAY_S
        for left in (4, 1, 0, 0):
            await catalog.tidy_vectors("one", [])
            assert len(rows(store)) == left


async def test_vectors_that_cannot_be_stored_are_an_error(open_catalog: OpenCatalog, store: Any) -> None:
    """They must not be taken for stored; the catalog goes on in memory."""
    async with open_catalog() as catalog:
        store.lose()
        with pytest.raises(CatalogError):
            await catalog.store_vectors("one", {"a": b"1"})
        assert catalog.problem is not None
        with pytest.raises(CatalogError):
            await catalog.read_vectors("one", ["a"])
        store.bring_back()
        await catalog.refresh()
        assert catalog.problem is None
        assert await catalog.read_vectors("one", ["a"]) == {}
        await catalog.store_vectors("one", {"a": b"1"})
        assert await catalog.read_vectors("one", ["a"]) == {"a": b"1"}

"""Copies of a whole catalog: equal row by row, decisions and their guard included, or nothing is changed."""

import random
import string
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from unittest.mock import Mock

import pytest
from copied_catalogs import NOW_S, B, at, fill, is_closed, record, rows, write
from postgres_server import PostgresServer
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError
from store_places import KINDS, NAME_LIMIT, MakeTool, StorePlace

from smart_mcp_proxy.catalog import DATABASE_NAME, AgentToken, Catalog, agent_tokens, sealed
from smart_mcp_proxy.catalog.copying import _copy, _run, copy_catalog
from smart_mcp_proxy.catalog.recovery.rollback_guard import CheckpointFile
from smart_mcp_proxy.errors import CatalogError, ConfigError

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "kinds", [("sqlite", "postgresql"), ("postgresql", "sqlite"), ("sqlite", "sqlite")], ids="-".join
)
async def test_there_and_back_everything_is_equal(
    places: Callable[[str], StorePlace], tool: MakeTool, kinds: tuple[str, str]
) -> None:
    """And what was decided holds, at the other end and home again; no id is used twice."""
    first, second, home = places(kinds[0]), places(kinds[1]), places(kinds[0])
    await fill(first, tool)
    assert [name for name, held in rows(first).items() if not held] in ([], ["gone"])  # a table that is new needs a row
    told: list[tuple[str, int]] = []
    counts, left_out = await copy_catalog(at(first), at(second), told=lambda *step: told.append(step))
    assert left_out == {}
    assert (counts["tools"], counts["approvals"], counts["baselines"]) == (3, 4, 2)
    assert sum(count for _, count in told) == sum(counts.values())
    await copy_catalog(at(second), at(home))
    assert rows(home) == rows(first) == rows(second)
    for place in (second, home):
        async with place.opened() as catalog:
            assert not catalog.is_closed
            assert {str(key) for key in catalog.snapshot.by_key} == {"s:a", "t:c"}
            ids = {entry.id for entry in catalog.snapshot.by_key.values()}
            await catalog.sync("u", [tool("new")])
            (new,) = (entry.id for key, entry in catalog.snapshot.by_key.items() if key.server == "u")
            assert new == 5 and new not in ids
            seals = catalog.seals
            await write(catalog, agent_tokens.store, token=AgentToken("new", "3", NOW_S, None), seals=seals)
            tokens = await catalog.read(partial(agent_tokens.find, seals=seals))
            assert [(token.id, token.is_altered) for token in tokens] == [(1, False), (2, False), (3, False)]
            proof = await catalog.check_activity()  # another key has sealed what was copied
            assert (proof.records, proof.unsealed, proof.problems) == (0, 2, [])
            last = await catalog.last_activity_place()
            await catalog.append_activity([record("later")])
            assert await catalog.last_activity_place() > last > 0


async def lose_the_record(place: StorePlace, tool: MakeTool) -> None:
    """Approvals were in a file that is damaged, or that a new database does not know."""
    async with Catalog.open(place.data_dir, name_limit=NAME_LIMIT) as catalog:
        await catalog.sync("s", [tool("a")])
    if place.url is None:
        (place.data_dir / DATABASE_NAME).write_bytes(b"garbage" * 10_000)
    else:
        place.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


async def set_back(place: StorePlace, tool: MakeTool) -> None:
    """An older copy of the store takes its place; of a database its gateways notice it, of a file the next start."""
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(B, "ann")
        await catalog.refresh()
        place.execute("UPDATE meta SET value = value - 1 WHERE key = 'approvals_count'")
        await catalog.refresh()


BOTH_WAYS = pytest.mark.parametrize("kinds", [("sqlite", "postgresql"), ("postgresql", "sqlite")], ids="-".join)


@BOTH_WAYS
@pytest.mark.parametrize("close", [lose_the_record, set_back], ids=["record lost", "set back"])
async def test_a_closed_catalog_stays_closed(
    places: Callable[[str], StorePlace],
    tool: MakeTool,
    kinds: tuple[str, str],
    close: Callable[[StorePlace, MakeTool], Awaitable[None]],
) -> None:
    """A copy is no way around the user's look: neither there nor home again."""
    first, second, home = places(kinds[0]), places(kinds[1]), places(kinds[0])
    await close(first, tool)
    assert await is_closed(first, tool)
    await copy_catalog(at(first), at(second))
    await copy_catalog(at(second), at(home))
    for place in (second, home):
        assert await is_closed(place, tool)


@pytest.mark.parametrize("close", [lose_the_record, set_back], ids=["record lost", "set back"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_file_that_no_gateway_has_looked_at_yet_is_copied_closed(
    places: Callable[[str], StorePlace],
    tool: MakeTool,
    kind: str,
    close: Callable[[StorePlace, MakeTool], Awaitable[None]],
) -> None:
    """The copy is the first to find that decisions are missing."""
    source, target = places("sqlite"), places(kind)
    await close(source, tool)
    await copy_catalog(at(source), at(target))
    assert await is_closed(target, tool)
    assert await is_closed(source, tool)


@BOTH_WAYS
async def test_a_copy_that_is_set_back_later_closes(
    places: Callable[[str], StorePlace], tool: MakeTool, kinds: tuple[str, str]
) -> None:
    """The guard came along: what is beside the copy, or in the memory of its gateways, counts its decisions."""
    first, second = places(kinds[0]), places(kinds[1])
    await fill(first, tool)
    await copy_catalog(at(first), at(second))
    async with second.opened() as catalog:
        assert not catalog.is_closed
        second.execute("UPDATE meta SET value = value - 1 WHERE key = 'approvals_count'")
        await catalog.refresh()
    assert await is_closed(second, tool)


class KilledError(BaseException):
    """The end of the process."""


@pytest.mark.parametrize("failure", [KilledError(), OSError("disk full")], ids=["killed", "disk full"])
async def test_a_copy_that_ends_right_after_its_commit_is_served(
    places: Callable[[str], StorePlace], tool: MakeTool, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    """What lies beside the file that was replaced, a count of more decisions, is not held against the copy."""
    source, target = places("sqlite"), places("sqlite")
    async with source.opened() as catalog:
        await catalog.sync("s", [tool("a")])
    async with target.opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b"), tool("c")])
        await catalog.block(B, "ann")
    with monkeypatch.context() as patched:
        patched.setattr(CheckpointFile, "advance", Mock(side_effect=failure))
        with suppress(KilledError):
            await copy_catalog(at(source), at(target), replaces=True)
    async with target.opened() as catalog:
        assert not catalog.is_closed
        assert {str(key) for key in catalog.snapshot.by_key} == {"s:a"}
    assert CheckpointFile(target.data_dir).read() is not None


async def test_a_copy_whose_commit_fails_leaves_the_guard(
    places: Callable[[str], StorePlace], tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts the target's decisions is there again, as they are."""
    source, target = places("sqlite"), places("sqlite")
    async with source.opened() as catalog:
        await catalog.sync("s", [tool("a")])
    async with target.opened() as catalog:
        await catalog.block(B, "ann")
    guard = CheckpointFile(target.data_dir).read()
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "commit", Mock(side_effect=OperationalError("COMMIT", {}, OSError("disk full"))))
        with pytest.raises(CatalogError, match="disk full"):
            await _run(partial(_copy, at(source), at(target), True, lambda *_: None))
    assert guard is not None and CheckpointFile(target.data_dir).read() == guard


async def test_what_opens_gateways_on_one_store_opens_none_on_another(
    places: Callable[[str], StorePlace], store: StorePlace, tool: MakeTool
) -> None:
    """The tokens and the key that they made for themselves stay where they are; those of the target's own as well."""
    target = places("sqlite" if store.url is not None else "postgresql")
    await fill(store, tool)
    for place, replica in ((store, "here"), (target, "there")):
        async with place.opened() as catalog:
            digests = {"agents": "aa", "operator": "bb"}
            await write(catalog, agent_tokens.confirm_gateway_tokens, replica=replica, digests=digests, now_s=NOW_S)
            await write(catalog, sealed.gateway_key, name="k", made=replica.ljust(32).encode())
    await copy_catalog(at(store), at(target), replaces=True)
    for place, replica in ((store, "here"), (target, "there")):
        async with place.opened() as catalog:
            found = await catalog.read(partial(agent_tokens.find_gateway_tokens, now_s=NOW_S))
            assert {one.replica for one in found} == {replica}
        keys = [bytes(key) for (key,) in place.rows("SELECT key FROM gateway_keys WHERE name = 'k'")]
        assert keys == [replica.ljust(32).encode()]


async def test_a_target_that_holds_something_is_kept_unless_it_is_to_be_replaced(
    places: Callable[[str], StorePlace], tool: MakeTool, postgres: PostgresServer
) -> None:
    """Ids that it used up stay used up, and what caches know of it looks older than what comes."""
    source, target = places("sqlite"), places("postgresql")
    await fill(source, tool)
    async with target.opened() as catalog:
        await catalog.sync("other", [tool(name) for name in "uvwxyz"])
        before = catalog.snapshot.generation
    with pytest.raises(ConfigError, match=r"not empty: .*6 tools") as caught:
        await copy_catalog(at(source), at(target))
    assert "--replace" in caught.value.hint
    await copy_catalog(at(source), at(target), replaces=True)
    async with target.opened() as catalog:
        assert {str(key) for key in catalog.snapshot.by_key} == {"s:a", "t:c"}
        assert catalog.snapshot.generation > before
        await catalog.sync("u", [tool("new")])
        assert max(entry.id for entry in catalog.snapshot.by_key.values()) == 7


async def test_a_target_in_use_is_left_alone(places: Callable[[str], StorePlace], tool: MakeTool) -> None:
    """A gateway would go on from what it remembers."""
    source, target = places("sqlite"), places("sqlite")
    await fill(source, tool)
    async with target.opened() as catalog:
        await catalog.register_instance(1, [])
        with pytest.raises(ConfigError, match="1 gateways run on the target"):
            await copy_catalog(at(source), at(target), replaces=True)
    await copy_catalog(at(source), at(target), replaces=True)


async def test_names_that_no_index_holds_are_left_out(places: Callable[[str], StorePlace], tool: MakeTool) -> None:
    """As gateways on the database leave them out: that a server lists one must not keep all the rest from it."""
    source, target, home = places("sqlite"), places("postgresql"), places("sqlite")
    longest = "".join(random.Random(0).choices(string.ascii_letters, k=2_599))
    async with source.opened() as catalog:
        await catalog.sync("s", [tool("a"), tool(longest), tool(f"{longest}x")])
    copied = await copy_catalog(at(source), at(target))
    assert copied.left_out == {"tools": 1, "approvals": 1, "listed_names": 1}
    assert copied.rows["tools"] == 2
    async with target.opened() as catalog:
        assert {str(key) for key in catalog.snapshot.by_key} == {"s:a", f"s:{longest}"}
    assert (await copy_catalog(at(source), at(home))).left_out == {}

"""Chains of activity records: what was changed beside the gateway shows, and what retention removed does not."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, Table, bindparam, delete, insert, literal, select, update

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.catalog.recovery.activity_chains import ChainProof
from smart_mcp_proxy.catalog.tables.activity import forget_chains
from smart_mcp_proxy.catalog.tables.schema import activity, activity_chains, seals
from smart_mcp_proxy.catalog.tables.sealed import note_trust, read_trust
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]
Change = Callable[[Connection], Any]
DAY_S = 86_400.0


def made(at_s: float, subject: str = "x", number: int = 0) -> Activity:
    """A record that was made at a time."""
    record = Activity("call", "ann", subject, "ok", duration_ms=1, at_s=at_s, detail={"number": number})
    return msgspec.structs.replace(record, id=f"{int(at_s * 1_000):012x}{number:016x}", arguments={"text": "a\0b"})


async def append(catalog: Catalog, count: int, *, days_ago: float = 0, limit_rows: int = 0) -> list[Activity]:
    """Append records of a day."""
    at_s = catalog.now_s() - days_ago * DAY_S
    records = [made(at_s, f"tool {number}", number) for number in range(count)]
    await catalog.append_activity(records, limit_rows)
    return records


async def tamper(catalog: Catalog, change: Change) -> ChainProof:
    """What a look finds after a change that no gateway made."""
    await catalog.write(change)
    return await catalog.check_activity()


async def test_what_gateways_did_is_no_problem(open_catalog: OpenCatalog) -> None:
    """Several processes, several days, records that a journal tells again, and texts that a store changes."""
    async with open_catalog() as one, open_catalog() as other:
        first = await append(one, 70)
        await append(other, 3, days_ago=2)
        await one.append_activity([*first, made(one.now_s(), "lone \ud800 half", 99)])
        await other.append_activity(first[:5])
        assert await one.check_activity() == ChainProof(records=74, chains=2, unsealed=0, removed=0, problems=[])
    async with open_catalog() as later:
        await append(later, 2, days_ago=1)
        proof = await later.check_activity()
        assert (proof.records, proof.chains, proof.problems) == (76, 3, [])


CHANGES: dict[str, tuple[Change, str]] = {
    "a value": (
        lambda connection: connection.execute(
            update(activity).where(activity.c.subject == "tool 3").values(principal="bob")
        ),
        "(chain 1, link 4) was changed.",
    ),
    "one removed": (
        lambda connection: connection.execute(delete(activity).where(activity.c.subject == "tool 3")),
        "Of chain 1: record 4 was removed.",
    ),
    "the first removed": (
        lambda connection: connection.execute(delete(activity).where(activity.c.link <= 2)),
        "Of chain 1: records 1 to 2 were removed.",
    ),
    "the last removed": (
        lambda connection: connection.execute(delete(activity).where(activity.c.link >= 9)),
        "Of chain 1: records 9 to 10 were removed.",
    ),
    "an end moved back": (
        lambda connection: [
            connection.execute(delete(activity).where(activity.c.link == 10)),
            connection.execute(update(activity_chains).values(last_link=9)),
        ],
        "Chain 1 was changed, or sealed under another key than this store's.",
    ),
    "a chain removed": (
        lambda connection: [
            connection.execute(delete(activity).where(activity.c.chain == 1)),
            connection.execute(delete(activity_chains).where(activity_chains.c.id == 1)),
        ],
        "Chain 1 was removed.",
    ),
    "the newest chain removed": (
        lambda connection: [
            connection.execute(delete(activity).where(activity.c.chain == 2)),
            connection.execute(delete(activity_chains).where(activity_chains.c.id == 2)),
        ],
        "Chain 2 was removed.",
    ),
    "two exchanged": (
        lambda connection: [
            connection.execute(update(activity).where(activity.c.link == one).values(link=other))
            for one, other in ((3, 1_000), (4, 3), (1_000, 4))
        ],
        "was changed.",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_beside_the_gateway_is_told(open_catalog: OpenCatalog, name: str) -> None:
    """Whatever of the log it touches; the records of another chain stay believed."""
    change, told = CHANGES[name]
    async with open_catalog() as catalog:
        await append(catalog, 10)
        await append(catalog, 1, days_ago=1)
        proof = await tamper(catalog, change)
    assert any(told in problem for problem in proof.problems), proof
    assert proof.records >= 1


@pytest.mark.parametrize("change", [forget_chains, lambda connection: wipe(connection, activity, activity_chains)])
async def test_a_log_taken_out_of_all_chains_is_told(open_catalog: OpenCatalog, change: Change) -> None:
    """While no gateway runs, and by one that runs; also where the number of chains is removed with them."""
    async with open_catalog() as catalog:
        await append(catalog, 3)
        await append(catalog, 3, days_ago=1)
        assert (await tamper(catalog, change)).problems == ["Chains 1 to 2 were removed."]
        await append(catalog, 1)
    async with open_catalog() as catalog:
        await append(catalog, 1)
        assert "Chains 1 to 2 were removed." in (await catalog.check_activity()).problems
        proof = await tamper(catalog, lambda connection: wipe(connection, activity, activity_chains, seals))
        assert proof.problems == ["How many chains were begun is not sealed under this store's key: mcpproxy doctor"]


PUT = {"id": activity.c.id + 10, "uid": literal("f" * 32), "chain": literal(1), "link": bindparam("link")}
"""Columns of a record that is put into the first chain, in place of those of the one that it is copied from."""


def wipe(connection: Connection, *tables: Table) -> None:
    """Remove all rows of tables."""
    for table in tables:
        connection.execute(delete(table))


async def test_a_record_added_by_hand_is_counted_or_told(open_catalog: OpenCatalog) -> None:
    """Without a seal it is one of those that nobody vouches for; with a link it does not fit."""
    async with open_catalog() as catalog:
        await append(catalog, 3)

        def add(connection: Connection, **place: object) -> None:
            row = dict(connection.execute(select(activity).where(activity.c.link == 3)).one()._mapping)
            uid = f"{row['uid'][:12]}{'f' * 15}{place['link']}"
            connection.execute(
                insert(activity).values(row | {"id": row["id"] + 10 + place["link"], "uid": uid} | place)
            )

        proof = await tamper(catalog, lambda connection: add(connection, chain=0, link=0, seal=""))
        assert (proof.unsealed, proof.problems) == (1, [])
        proof = await tamper(catalog, lambda connection: add(connection, chain=7, link=1, seal="f"))
        assert proof.problems
        proof = await tamper(catalog, lambda connection: add(connection, chain=1, link=2, seal="f"))
        assert len(proof.problems) == 2


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("activity", "link", "x"), ("activity", "seal", b"\0"), ("activity", "chain", "x"), ("activity", "subject", b"\0")]
    + [
        ("activity_chains", column, value)
        for column, value in (("last_link", "x"), ("first_link", 0.5), ("last_seal", b"\0"))
    ],
)
async def test_values_of_other_types_are_told(
    open_catalog: OpenCatalog, data_dir: Path, table: str, column: str, value: object
) -> None:
    """SQLite takes them into any column."""
    async with open_catalog() as catalog:
        await append(catalog, 3)
        places = {"activity": "link = 2", "activity_chains": "id = 1"}
        change = f"UPDATE {table} SET {column} = ? WHERE {places[table]}"
        assert (await tamper(catalog, lambda at: at.exec_driver_sql(change, (value,)))).problems


@pytest.mark.parametrize("link", [-1, 0, 2, 5])
async def test_a_record_put_where_retention_has_removed_others_is_counted(open_catalog: OpenCatalog, link: int) -> None:
    """Nothing vouches for it: it is one of those without a seal, and not unseen."""
    async with open_catalog() as catalog:
        await append(catalog, 5)
        await append(catalog, 3, days_ago=1, limit_rows=3)
        values = activity.insert().from_select(
            [column.name for column in activity.c],
            select(*(PUT.get(column.name, column) for column in activity.c)).where(activity.c.link == 3),
        )
        proof = await tamper(catalog, lambda connection: connection.execute(values, {"link": link}))
        assert (proof.records, proof.unsealed, proof.removed, proof.problems) == (3, 1, 5, [])


async def test_a_chain_that_begins_is_no_decision(open_catalog: OpenCatalog) -> None:
    """A store put back from before it is believed as far as tools go, as one that lacks other records is."""
    stored = select(seals.c.content, seals.c.seal)
    async with open_catalog() as catalog:
        await append(catalog, 1)
        before = await catalog.read(lambda connection: connection.execute(stored).one())
        await append(catalog, 1, days_ago=1)
    async with open_catalog() as catalog:
        await append(catalog, 1, days_ago=2)
    async with open_catalog() as catalog:

        def put_back(connection: Connection) -> None:
            for table, chain in ((activity, activity.c.chain), (activity_chains, activity_chains.c.id)):
                connection.execute(delete(table).where(chain > 1))
            connection.execute(update(seals).values(before._mapping))

        proof = await tamper(catalog, put_back)
        trust = await catalog.read(partial(read_trust, with_=catalog.seals))
    assert trust is not None and trust.chains == proof.chains == 1 and not proof.problems


async def test_retention_leaves_a_mark_and_no_problem(open_catalog: OpenCatalog) -> None:
    """Of rows beyond a limit, and of days; what else is missing is told all the same."""
    async with open_catalog() as catalog:
        await append(catalog, 5, days_ago=9)
        await append(catalog, 5, days_ago=3)
        await append(catalog, 5)
        await append(catalog, 2, days_ago=1, limit_rows=9)
        proof = await catalog.check_activity()
        assert (proof.records, proof.removed, proof.problems) == (9, 8, [])
        await catalog.trim_activity(catalog.now_s() - 2 * DAY_S)
        proof = await catalog.check_activity()
        assert (proof.records, proof.removed, proof.problems) == (7, 10, [])
        await catalog.append_activity([made(catalog.now_s() - 3 * DAY_S, "found late", 77)])
        assert (await catalog.check_activity()).records == 8
        proof = await tamper(
            catalog, lambda connection: connection.execute(delete(activity).where(activity.c.link == 2))
        )
        assert len(proof.problems) == 2


async def test_chains_and_decisions_at_the_same_moment_lose_nothing(open_catalog: OpenCatalog) -> None:
    """Both are noted in one sealed row, by several gateways."""
    count = 12
    async with open_catalog() as one, open_catalog() as other:
        for number in range(count):
            block = partial(note_trust, with_=other.seals, blocked=[ToolKey("s", str(number))])
            at_s = one.now_s() - number * DAY_S
            first, second = (made(at_s, "x", id_) for id_ in (1, 2))
            await asyncio.gather(one.append_activity([first]), other.write(block), other.append_activity([second]))
        trust = await one.read(partial(read_trust, with_=one.seals))
        assert trust is not None and (len(trust.blocked), trust.chains) == (count, 2 * count)
        assert (await other.check_activity()).problems == []


async def test_a_store_that_refused_a_batch_breaks_no_chain(
    open_catalog: OpenCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it was committed nobody knows; the next records begin a chain."""
    async with open_catalog() as catalog:
        first = await append(catalog, 3)
        write = catalog._write

        def write_and_fail(*args: Any, **kwargs: Any) -> Any:
            write(*args, **kwargs)
            raise CatalogError("lost on the way back")

        monkeypatch.setattr(catalog, "_write", write_and_fail)
        second = [made(catalog.now_s(), "again", 50 + number) for number in range(3)]
        with pytest.raises(CatalogError):
            await catalog.append_activity(second)
        monkeypatch.undo()
        await catalog.append_activity([*first, *second, made(catalog.now_s(), "next", 60)])
        proof = await catalog.check_activity()
    assert (proof.records, proof.chains, proof.problems) == (7, 2, [])

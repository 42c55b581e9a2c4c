"""Locks that another user of the same database may take by their numbers alone."""

from collections.abc import Callable
from contextlib import closing

import anyio
import psycopg
import pytest
from postgres_server import PostgresServer
from store_places import MakeTool, StorePlace

from smart_mcp_proxy.catalog.store.migrations import FILL_LOCK, LOCK

pytestmark = [pytest.mark.anyio, pytest.mark.long]  # a start and a decision on PostgreSQL, which waits for four seconds


async def test_a_stranger_of_the_database_keeps_no_decision_and_no_start_waiting(
    places: Callable[[str], StorePlace], postgres: PostgresServer, tool: MakeTool
) -> None:
    """Who may not write the tables cannot lock them; a gateway starts, and decides within seconds, then at once."""
    place = places("postgresql")
    assert place.url is not None
    postgres.execute("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN PASSWORD 'x'")
    database = place.url.rpartition("/")[2]
    with closing(psycopg.connect(postgres.url(database, "stranger", "x"), autocommit=True)) as other:
        other.execute(f"SELECT pg_advisory_lock({LOCK}), pg_advisory_lock({FILL_LOCK}, hashtext('public'))")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("BEGIN; LOCK TABLE meta IN SHARE UPDATE EXCLUSIVE MODE")
        other.execute("ROLLBACK")
        async with place.opened() as catalog:
            with anyio.fail_after(15):  # five attempts of four seconds each were in vain
                await catalog.sync("s", [tool("a")])
            assert catalog.problem is None and len(catalog.snapshot.by_key) == 1
            with anyio.fail_after(3):
                await catalog.sync("s", [tool("b")])

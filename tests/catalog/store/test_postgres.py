"""A PostgreSQL database as the store: which ones are refused, and what a gateway does without one."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from postgres_server import PASSWORD, PostgresServer
from store_places import open_earlier

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.catalog.store import postgres_edge
from smart_mcp_proxy.catalog.store.migrations import READABLE_FROM
from smart_mcp_proxy.catalog.store.stores import STORES
from smart_mcp_proxy.errors import CatalogError, ConfigError, MissingExtraError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.settings.addresses import DATABASE_SCHEMES
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]
A = ToolKey("s", "a")


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def opened(postgres: PostgresServer, database: str, tmp_path: Path) -> Opened:
    """Opens the catalog in this test's database, for a data directory."""

    def at(name: str = "one", url: str = "") -> Any:
        return Catalog.open(tmp_path / name, name_limit=60, url=url or postgres.url(database))

    return at


async def refusal(opening: Any) -> ConfigError:
    """The error with which a start ends: one line, and no password in it."""
    with pytest.raises(ConfigError) as caught:
        async with opening:
            pass
    assert "\n" not in caught.value.message
    assert PASSWORD not in f"{caught.value.message} {caught.value.hint} {caught.value!r}"
    return caught.value


def test_the_schemes_of_the_setting_are_those_of_the_stores() -> None:
    """One table says which there are."""
    assert set(DATABASE_SCHEMES) == set(STORES)


async def test_a_server_that_is_not_there_is_refused(opened: Opened) -> None:
    """The message names the address and what the system says."""
    error = await refusal(opened(url=f"postgresql://me:{PASSWORD}@127.0.0.1:1/catalog"))
    assert error.message == "The database 'postgresql://me@127.0.0.1:1/catalog' cannot be used: Connection refused."
    assert "MCPPROXY_DATABASE_URL" in error.hint


async def test_a_wrong_password_is_refused(opened: Opened, postgres: PostgresServer, database: str) -> None:
    """Neither the right one nor the wrong one is shown."""
    error = await refusal(opened(url=postgres.url(database, password="wr0ng%21")))
    assert 'password authentication failed for user "mcpproxy"' in error.message
    assert "wr0ng" not in str(error)


async def test_a_database_that_does_not_exist_is_refused(opened: Opened, postgres: PostgresServer) -> None:
    assert 'database "nowhere" does not exist' in (await refusal(opened(url=postgres.url("nowhere")))).message


@pytest.mark.parametrize("url", [f"postgresql://me:{PASSWORD}%zz@host/db", f"postgresql://me:{PASSWORD}@host/db?no=1"])
async def test_an_address_that_the_driver_cannot_read_is_not_repeated(opened: Opened, url: str) -> None:
    """Its password could stand anywhere in it."""
    assert (await refusal(opened(url=url))).message == "MCPPROXY_DATABASE_URL cannot be read (not shown)."


async def test_a_server_that_is_too_old_is_refused(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_edge, "OLDEST", 990_000)
    assert "15 or newer is needed" in (await refusal(opened())).message


async def test_a_replica_that_can_only_be_read_is_refused(
    opened: Opened, postgres: PostgresServer, database: str
) -> None:
    postgres.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    error = await refusal(opened())
    assert error.message.endswith("can only be read.")
    assert "primary" in error.hint


async def test_a_database_in_another_encoding_is_refused(opened: Opened, postgres: PostgresServer) -> None:
    name = postgres.new_database("TEMPLATE template0 ENCODING 'LATIN1'")
    assert "encoding LATIN1" in (await refusal(opened(url=postgres.url(name)))).message


async def test_a_database_of_another_program_is_refused_and_left_alone(
    opened: Opened, postgres: PostgresServer, database: str
) -> None:
    """Its tables are named, so that one sees whose it is."""
    postgres.execute("CREATE TABLE customers (id int)", database)
    assert "belongs to another program: schema 'public' holds customers." in (await refusal(opened())).message
    assert "customers" in (await refusal(opened())).message, "nothing was added to it"


async def test_a_schema_of_its_own_beside_another_program_will_do(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    postgres.execute("CREATE TABLE customers (id int)", database)
    postgres.execute("CREATE SCHEMA gateway", database)
    url = f"{postgres.url(database)}?options=-csearch_path%3Dgateway"
    async with opened(url=url) as catalog:
        assert (await catalog.sync("s", [tool("a")])).added


async def test_a_database_that_lacks_a_table_is_refused(
    opened: Opened, postgres: PostgresServer, database: str
) -> None:
    """A restore that broke off left it; what is there is no whole catalog."""
    async with opened():
        pass
    postgres.execute("DROP TABLE approvals", database)
    assert "is not whole: it lacks approvals." in (await refusal(opened())).message


async def store_as_before(url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the catalog as the earliest version that is still read did."""
    async with open_earlier(url, data_dir, READABLE_FROM, monkeypatch):
        pass


async def test_a_database_of_an_earlier_version_that_lacks_a_table_is_refused(
    opened: Opened, postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made in it; what a later version brings is not missed."""
    await store_as_before(postgres.url(database), tmp_path, monkeypatch)
    postgres.execute("ALTER TABLE toolsets RENAME TO away", database)
    assert "is not whole: it lacks toolsets." in (await refusal(opened())).message
    postgres.execute("ALTER TABLE away RENAME TO toolsets", database)
    async with opened() as catalog:
        assert catalog.problem is None


async def test_half_of_a_step_that_somebody_else_took_is_refused(
    opened: Opened, postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start says what is in the way, and leaves the database as it was."""
    await store_as_before(postgres.url(database), tmp_path, monkeypatch)
    postgres.execute("CREATE TABLE leases (name TEXT)", database)
    error = await refusal(opened())
    assert 'relation "leases" already exists' in error.message and "Restore it" in error.hint
    assert query(postgres, database, "SELECT version FROM mcpproxy_schema") == [(READABLE_FROM,)]
    assert query(postgres, database, "SELECT to_regclass('sealed')") == [(None,)]


async def test_a_user_who_may_not_create_tables_is_refused(
    opened: Opened, postgres: PostgresServer, database: str
) -> None:
    """As it is by default for whoever does not own the database."""
    postgres.execute(f"CREATE USER guest_{database} PASSWORD '{PASSWORD}'")
    error = await refusal(opened(url=postgres.url(database, user=f"guest_{database}")))
    assert "permission denied for schema public" in error.message
    assert "create tables" in error.hint


async def test_a_user_who_may_only_read_is_refused(opened: Opened, postgres: PostgresServer, database: str) -> None:
    """Its gateway would keep everything in memory for good."""
    async with opened():
        pass
    reader = f"reader_{database}"
    postgres.execute(f"CREATE USER {reader} PASSWORD '{PASSWORD}'")
    postgres.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}", database)
    error = await refusal(opened(url=postgres.url(database, user=reader)))
    assert "does not let its user read and write activity, activity_chains, agent_tokens" in error.message
    assert "Grant SELECT, INSERT" in error.hint
    postgres.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {reader}", database)
    error = await refusal(opened(url=postgres.url(database, user=reader)))
    assert error.message.endswith("does not let its user read and write activity_places.")
    assert "USAGE on its sequences" in error.hint
    postgres.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {reader}", database)
    async with opened(url=postgres.url(database, user=reader)) as catalog:
        assert catalog.problem is None


async def test_without_the_driver_the_packages_are_named(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "smart_mcp_proxy.catalog.store.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    error = await refusal(opened())
    assert isinstance(error, MissingExtraError)
    assert "pip install 'psycopg[binary]'" in error.hint


async def test_a_database_of_a_newer_program_is_used_while_it_only_adds(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    """Replicas are upgraded one after the other; one that has taken something away is refused."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
    postgres.execute("UPDATE mcpproxy_schema SET version = 99", database)
    async with opened() as catalog:
        assert A in catalog.snapshot.by_key
    postgres.execute("UPDATE mcpproxy_schema SET readable_from = 99", database)
    error = await refusal(opened())
    assert "has schema version 99" in error.message and "MCPPROXY_DATABASE_URL" in error.hint


async def test_a_new_database_beside_a_file_trusts_nothing(
    opened: Opened, tmp_path: Path, tool: MakeTool, caplog: pytest.LogCaptureFixture
) -> None:
    """What was decided stands in the file; the log says that it is not used."""
    async with Catalog.open(tmp_path / "one", name_limit=60) as catalog:
        await catalog.sync("s", [tool("a")])
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        assert catalog.is_closed
        assert not catalog.snapshot.by_key
    assert "decisions in" in caplog.text


async def test_an_idle_connection_that_was_dropped_costs_nothing(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    """A firewall or a restart ended it: the transaction begins on another."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        postgres.refuse(database)
        postgres.accept(database)
        await catalog.block(A, "user")
        assert catalog.problem is None
        await catalog.refresh()
        assert A in catalog.snapshot.withheld


async def test_a_server_that_does_not_answer_is_given_up(
    opened: Opened, postgres: PostgresServer, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Approved tools are served meanwhile; what the server listed is stored once it answers again."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        monkeypatch.setattr("smart_mcp_proxy.catalog.store.postgres.LIMIT_S", 0.2)
        with postgres.frozen(), anyio.fail_after(30):
            await catalog.sync("s", [tool("a"), tool("b")])
            assert catalog.problem is not None
            assert set(catalog.snapshot.by_key) == {A}
            assert set(catalog.snapshot.withheld) == {ToolKey("s", "b")}
        monkeypatch.setattr("smart_mcp_proxy.catalog.store.postgres.LIMIT_S", 10.0)
        await catalog.refresh()
        assert catalog.problem is None
        assert set(catalog.snapshot.withheld) == {ToolKey("s", "b")}


async def test_reads_fail_at_once_while_the_server_is_known_to_be_gone(
    opened: Opened, postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the regular look tries to connect: nobody else waits for that."""
    async with opened() as catalog:
        postgres.refuse(database)
        await catalog.refresh()
        tried = 0

        def dial(_: Any) -> Any:
            nonlocal tried
            tried += 1
            raise AssertionError

        monkeypatch.setattr("smart_mcp_proxy.catalog.store.postgres_edge.DatabaseAddress.dial", dial)
        with anyio.fail_after(5), pytest.raises(CatalogError, match="cannot be used"):
            await catalog.read(lambda _: None)
        assert tried == 0
        monkeypatch.undo()
        postgres.accept(database)
        await catalog.refresh()
        assert catalog.problem is None


async def test_a_database_that_went_back_is_not_trusted(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    """A standby took over before it had the block: the tool stays blocked, and nothing is decided on it.

    A gateway that starts on it trusts no first list, and the one that knows better goes on with the newer database.
    """
    async with opened() as catalog, opened("two") as witness:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(A, "user")
        for each in (catalog, witness):
            await each.refresh()
            assert A in each.snapshot.withheld
        [(count,)] = query(postgres, database, "SELECT value FROM meta WHERE key = 'approvals_count'")
        postgres.refuse(database)
        await catalog.refresh()
        assert "not currently accepting" in (catalog.problem or "")  # the reason told is always the present one
        postgres.accept(database)
        forgets = f"UPDATE meta SET value = {count - 1} WHERE key = 'approvals_count'"
        postgres.execute(
            f"UPDATE approvals SET state = 'approved'; UPDATE tools SET generation = 1; {forgets}", database
        )
        for each in (catalog, witness):
            await each.refresh()
            assert A in each.snapshot.withheld
            assert "has gone back" in (each.problem or "")
            with pytest.raises(CatalogError, match="has gone back"):
                await each.approve({}, "user")
            await each.refresh()
            assert "has gone back" in (each.problem or "")
        async with opened("new") as third:
            assert third.is_closed
            await third.sync("t", [tool("a")])
            assert not third.snapshot.by_server.get("t")
        # It counts on, and what it lacks stays away: for those that know better and for nobody else.
        postgres.execute(f"UPDATE meta SET value = {count + 5} WHERE key = 'approvals_count'", database)
        for each in (catalog, witness):
            await each.refresh()
            assert "has gone back" in (each.problem or "")
        async with opened("later") as later:
            await later.block(ToolKey("s", "b"), "user")
            assert later.problem is None
        # The newer one was never marked.
        postgres.execute("DELETE FROM meta WHERE key IN ('approvals_closed', 'approvals_lacking')", database)
        for each in (catalog, witness):
            await each.refresh()
            assert each.problem is None


async def test_a_gateway_that_sees_the_mark_of_another_does_not_trust_either(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    """It did not look while the database counted less than it had seen; the one that did has marked it."""
    async with opened() as catalog, opened("two") as sleeper:
        await catalog.sync("s", [tool("a")])
        await catalog.block(A, "user")
        await sleeper.refresh()
        went_back = "UPDATE meta SET value = value {} WHERE key = 'approvals_count'"
        postgres.execute(went_back.format("- 1"), database)
        await catalog.refresh()
        postgres.execute(went_back.format("+ 9"), database)
        await sleeper.refresh()
        assert "has gone back" in (sleeper.problem or "")
        assert A in sleeper.snapshot.withheld


async def test_a_full_disk_is_believed_until_there_is_room(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small write that still fits into pages that are there does not make it a disk with room."""
    full = "RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'"
    refuse = f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {full}; END $$"
    room = f"CREATE FUNCTION room() RETURNS int LANGUAGE plpgsql AS $$ BEGIN {full}; END $$"
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        for sql in (refuse, room, "CREATE TRIGGER refuse BEFORE INSERT ON activity EXECUTE FUNCTION refuse()"):
            postgres.execute(sql, database)
        monkeypatch.setattr("smart_mcp_proxy.catalog.store.postgres._TAKE_ROOM", "SELECT room()")
        with pytest.raises(CatalogError, match="No space left on device"):
            await catalog.append_activity([Activity("call", "local", "s:a", "ok", duration_ms=1.0, at_s=1.0)])
        since = catalog.lost_since
        for _ in range(3):
            await catalog.refresh()
            assert catalog.lost_since == since and "disk space" in (catalog.problem or "")
        monkeypatch.undo()  # room
        await catalog.refresh()
        assert catalog.problem is None


async def test_a_database_in_the_place_of_the_one_that_was_used_is_not_trusted(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    """It counts as many decisions, and they are others."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        await catalog.refresh()
        postgres.execute("UPDATE meta SET value = value + 1 WHERE key = 'catalog_id'", database)
        with pytest.raises(CatalogError, match="has gone back"):
            await catalog.block(A, "user")


async def test_what_is_no_text_for_postgresql_costs_one_character(opened: Opened) -> None:
    """The character with the number 0 in a description; the definition keeps it."""
    async with opened() as catalog:
        (record,) = (await catalog.sync("s", [{"name": "a", "description": "x\0y", "inputSchema": {}}])).added
        assert b"\\u0000" in record.raw


async def test_a_tool_whose_name_postgresql_cannot_hold_is_left_out(
    opened: Opened, tool: MakeTool, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning; the rest of the list is stored."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a\0b"), tool("a")])
        assert set(catalog.snapshot.by_key) == {A}
    assert "is left out" in caplog.text


async def test_writers_of_many_gateways_never_skip_a_generation(opened: Opened, tool: MakeTool) -> None:
    """Whatever commits first, each sees all of it: otherwise a reader would go past one that comes later."""
    async with opened() as one, opened("two") as two, opened("three") as three:
        for round_ in range(5):
            for name in ("p", "q", "r"):
                lists = zip(range(3), (one, two, three), strict=True)
                await asyncio.gather(*(each.sync(f"{name}{n}", [tool(f"t{round_}")]) for n, each in lists))
        for each in (one, two, three):
            await each.refresh()
        assert one.snapshot == two.snapshot == three.snapshot
        assert len(one.snapshot.by_id) + len(one.snapshot.withheld) == 9


def query(server: PostgresServer, database: str, sql: str) -> list[Any]:
    import psycopg

    with closing(psycopg.connect(server.url(database))) as connection:
        return connection.execute(sql).fetchall()

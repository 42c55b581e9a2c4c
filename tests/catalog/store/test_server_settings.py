"""What a PostgreSQL server, its databases and its users are set to: a gateway that may work there does."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from postgres_server import PASSWORD, PostgresServer
from sqlalchemy import Connection

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.catalog.store import postgres as postgres_store
from smart_mcp_proxy.catalog.store import versions
from smart_mcp_proxy.catalog.store.migrations import Migration
from smart_mcp_proxy.catalog.store.postgres_edge import DatabaseAddress
from smart_mcp_proxy.errors import ConfigError
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]
LONG_S = "0.15"


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def opened(postgres: PostgresServer, database: str, tmp_path: Path) -> Opened:
    """Opens the catalog in this test's database, for a data directory."""
    return lambda name="one", url="": Catalog.open(tmp_path / name, name_limit=60, url=url or postgres.url(database))


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_gateways_that_start_at_once_make_the_tables_once_at_any_isolation(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool, level: str
) -> None:
    """The settings name a level at which one that has waited sees nothing of what was done meanwhile."""
    postgres.execute(f"ALTER DATABASE {database} SET default_transaction_isolation = '{level}'")

    async def start(number: int) -> None:
        async with opened(str(number)) as catalog:
            for tools in range(3):
                await catalog.sync(f"s{number}", [tool(f"t{tools}")])
                await catalog.block(ToolKey(f"s{number}", f"t{tools}"), "user")

    await asyncio.gather(*map(start, range(4)))


@pytest.mark.parametrize("setting", ["statement_timeout", "idle_in_transaction_session_timeout"])
async def test_what_others_may_take_there_is_no_limit_of_a_gateway_s(
    opened: Opened, postgres: PostgresServer, database: str, setting: str
) -> None:
    """It would take the database for lost, and refuse what is decided meanwhile."""
    postgres.execute(f"ALTER DATABASE {database} SET {setting} = '50ms'")

    def work(connection: Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_sleep({LONG_S})")
        postgres.value(f"SELECT pg_sleep({LONG_S})")
        connection.exec_driver_sql("SELECT 1")

    async with opened() as catalog:
        await catalog.read(work)
        for is_ordered in (True, False):
            await catalog.write(work, is_ordered=is_ordered)
        assert catalog.problem is None


@pytest.mark.parametrize("schema", ["Gateway", "the gateway", "gate.way", "s\u00e4ule"])
async def test_a_schema_may_have_any_name(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool, schema: str
) -> None:
    """That of the user, for one, where it has capital letters."""
    postgres.execute(f'CREATE SCHEMA "{schema}"', database)
    postgres.execute(f'ALTER DATABASE {database} SET search_path = "{schema}"')
    for _ in range(2):
        async with opened() as catalog:
            await catalog.sync("s", [tool("a")])
            assert catalog.problem is None and len(catalog.snapshot.by_key) == 1


async def test_text_is_kept_whatever_encoding_the_settings_name(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    """An administrator's setting, or the variable PGCLIENTENCODING."""
    postgres.execute(f"ALTER DATABASE {database} SET client_encoding = 'LATIN1'")
    async with opened() as catalog:
        (record,) = (await catalog.sync("s", [tool("a", description="\u65e5\u672c")])).added
        assert "\u65e5\u672c" in record.raw.decode()


async def test_a_database_without_an_encoding_is_refused(opened: Opened, postgres: PostgresServer) -> None:
    """As one is that was made in the locale C."""
    name = postgres.new_database("TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    with pytest.raises(ConfigError, match="encoding SQL_ASCII") as caught:
        async with opened(url=postgres.url(name)):
            pass
    assert "UTF8" in caught.value.hint


@pytest.mark.parametrize("host", ["db..example", f"{'a' * 64}.example"])
async def test_a_host_whose_name_cannot_be_one_is_refused(opened: Opened, host: str) -> None:
    with pytest.raises(ConfigError, match="cannot be looked up") as caught:
        async with opened(url=f"postgresql://me:{PASSWORD}@{host}/db"):
            pass
    assert PASSWORD not in str(caught.value)


async def test_a_server_that_stands_still_behind_an_open_connection_is_given_up(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does behind a pooler, which lets everybody in: nobody waits for it without an end."""
    stopped: list[int] = []
    dial = DatabaseAddress.dial

    def still(address: DatabaseAddress) -> psycopg.Connection:
        wire = dial(address)
        stopped.append(wire.info.backend_pid)
        os.kill(stopped[-1], signal.SIGSTOP)
        return wire

    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        postgres.refuse(database)
        await catalog.refresh()
        postgres.accept(database)
        with monkeypatch.context() as patch:
            patch.setattr(postgres_store, "LIMIT_S", 0.2)
            patch.setattr(DatabaseAddress, "dial", still)
            try:
                with anyio.fail_after(10):
                    await catalog.refresh()
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
        assert catalog.problem is not None and len(stopped) == 1
        await catalog.refresh()
        assert catalog.problem is None


async def test_a_schema_that_is_made_before_that_of_the_tables_takes_none_of_them(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the user's own name, say, which PostgreSQL looks into first: the catalog stays whole where it is."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
    postgres.execute("CREATE SCHEMA own; CREATE TABLE own.customers (id int)", database)
    postgres.execute(f"ALTER DATABASE {database} SET search_path = own, public")
    step = Migration((), ("CREATE TABLE next_notes (note TEXT)",))
    monkeypatch.setattr(versions, "MIGRATIONS", (*versions.MIGRATIONS, step))
    monkeypatch.setattr(versions, "LATEST_VERSION", versions.LATEST_VERSION + 1)
    for _ in range(2):
        async with opened() as catalog:
            assert catalog.problem is None and len(catalog.snapshot.by_key) == 1
    assert postgres.value("SELECT to_regclass('public.next_notes')", database) is not None
    assert postgres.value("SELECT to_regclass('own.next_notes')", database) is None
    async with opened() as catalog:
        await catalog.prepare_activity()
    days = "SELECT string_agg(DISTINCT schemaname, ' ') FROM pg_tables WHERE tablename LIKE 'activity_until_%'"
    assert postgres.value(days, database) == "public"


async def test_a_step_of_the_tables_may_take_longer_than_a_transaction(
    opened: Opened, postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long activity log is copied, or gets an index: a start that gave that up would never come to its end."""
    async with opened():
        pass
    monkeypatch.setattr(postgres_store, "LIMIT_S", 0.1)
    monkeypatch.setattr(versions, "MIGRATIONS", (*versions.MIGRATIONS, Migration((), ("SELECT pg_sleep(0.5)",))))
    monkeypatch.setattr(versions, "LATEST_VERSION", versions.LATEST_VERSION + 1)
    async with opened() as catalog:
        assert catalog.problem is None
    assert postgres.value("SELECT version FROM mcpproxy_schema", database) == versions.LATEST_VERSION


async def test_a_start_that_is_interrupted_waits_for_no_server_that_stands_still(
    postgres: PostgresServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is heard, whatever the database does."""
    monkeypatch.setattr(postgres_store, "LIMIT_S", 0.2)
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def work(connection: Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        connection.exec_driver_sql("SELECT pg_sleep(20)")

    async def start() -> None:
        async with postgres_store.PostgresStore.open(postgres.url(database), tmp_path) as store:
            await store.run(store.connect)
            await store.run(lambda: store.read(work))

    starting = asyncio.ensure_future(start())
    await begun.wait()
    starting.cancel()
    done, _ = await asyncio.wait([starting], timeout=10)
    assert done


async def test_a_user_with_the_rights_that_the_refusal_names_stores_everything(
    opened: Opened, postgres: PostgresServer, database: str, tool: MakeTool
) -> None:
    """Partitions it may neither make nor drop; records lie in the rest then, and leave it in time."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
    user = f"granted_{database}"
    postgres.execute(f"CREATE USER {user} PASSWORD '{PASSWORD}'")
    postgres.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}", database)
    url = postgres.url(database, user=user)
    with pytest.raises(ConfigError, match="does not let its user read and write activity_places") as caught:
        async with opened(url=url):
            pass
    assert "USAGE on its sequences" in caught.value.hint
    postgres.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}", database)
    async with opened(url=url) as catalog:
        now_s = catalog.now_s()
        await catalog.append_activity([Activity("call", "local", "s:a", "ok", duration_ms=1.0, at_s=now_s)])
        await catalog.prepare_activity()
        await catalog.trim_activity(now_s - 1)
        assert await catalog.last_activity_place() == 1
        await catalog.trim_activity(now_s + 3 * 86_400)
        await catalog.block(ToolKey("s", "a"), "user")
        assert catalog.problem is None

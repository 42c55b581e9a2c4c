"""The key of request states of gateways on one store that were given no secret key."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from postgres_server import PostgresServer

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.errors import RequestError
from smart_mcp_proxy.gateway.calls.request_states import RequestStates, StateKey, Subject

pytestmark = pytest.mark.anyio

SUBJECT = Subject("ann", "git", "tools/call", "commit", {}, "hash-1")


class Side:
    """One gateway's part: its data directory, its catalog, its states."""

    def __init__(self, data_dir: Path, catalog: Catalog, *, is_given: bool = False) -> None:
        self.catalog = catalog
        self.states = RequestStates(data_dir)
        self.key = StateKey(catalog, self.states, is_given=is_given)

    async def opens(self, sealed: str) -> bool:
        """Whether the state is taken here."""
        try:
            await self.states.open(SUBJECT, sealed)
        except RequestError:
            return False
        return True


async def sides(stack: AsyncExitStack, tmp_path: Path, url: str | None, names: str) -> list[Side]:
    """Gateways with these data directories, on one database or each on its directory's file."""
    opened = [Catalog.open(tmp_path / name, name_limit=60, url=url) for name in names]
    catalogs = [await stack.enter_async_context(each) for each in opened]
    return [Side(tmp_path / name, catalog) for name, catalog in zip(names, catalogs, strict=True)]


async def test_gateways_on_one_database_open_each_other_s_states(postgres: PostgresServer, tmp_path: Path) -> None:
    """From the first on, in both directions, and after a restart with another data directory."""
    url = postgres.url(postgres.new_database())
    async with AsyncExitStack() as stack:
        one, two = await sides(stack, tmp_path, url, "ab")
        for side in (one, two):
            await side.key.bring()
        sealed = [await side.states.seal(SUBJECT, "s", 1) for side in (one, two)]
        assert [await two.opens(sealed[0]), await one.opens(sealed[1])] == [True, True]
        (three,) = await sides(stack, tmp_path, url, "c")
        await three.key.bring()
        assert await three.opens(sealed[0])
    assert not list(tmp_path.rglob("request-state.key"))


async def test_what_a_gateway_sealed_before_it_had_the_key_is_opened_there(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """By an earlier version, before a restart, or just now; nowhere else."""
    url = postgres.url(postgres.new_database())
    (tmp_path / "a").mkdir()
    earlier = await RequestStates(tmp_path / "a").seal_text(b"made by an earlier version")
    async with AsyncExitStack() as stack:
        one, two = await sides(stack, tmp_path, url, "ab")
        just_now = await two.states.seal_text(b"made just now")
        for side in (one, two):
            await side.key.bring()
        assert [await side.states.open_text(earlier) for side in (one, two)] == [b"made by an earlier version", None]
        assert [await side.states.open_text(just_now) for side in (one, two)] == [None, b"made just now"]


async def test_while_the_database_is_lost_a_gateway_has_its_own_key(
    postgres: PostgresServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once; when the database is back it takes the key that the others have."""
    database = postgres.new_database()
    async with AsyncExitStack() as stack:
        one, two = await sides(stack, tmp_path, postgres.url(database), "ab")
        await one.key.bring()
        postgres.refuse(database)
        for _ in range(2):
            await two.key.bring()
        sealed = await two.states.seal(SUBJECT, "s", 1)
        assert [await two.opens(sealed), await one.opens(sealed)] == [True, False]
        postgres.accept(database)
        await two.catalog.refresh()
        await two.key.bring()
        assert await two.opens(sealed)
        assert await one.opens(await two.states.seal(SUBJECT, "s", 1))
    assert sum("at this gateway alone" in record.message for record in caplog.records) == 1


async def test_a_key_that_was_given_is_not_joined_by_one_in_the_database(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Nothing is stored there."""
    database = postgres.new_database()
    async with Catalog.open(tmp_path / "a", name_limit=60, url=postgres.url(database)) as catalog:
        await Side(tmp_path / "a", catalog, is_given=True).key.bring()
    assert postgres.value("SELECT count(*) FROM gateway_keys WHERE name <> 'approvals'", database) == 0


async def test_processes_on_one_data_directory_share_its_file(tmp_path: Path) -> None:
    """The catalog there holds no key: what is copied or backed up of it opens nothing."""
    async with AsyncExitStack() as stack:
        one, two = await sides(stack, tmp_path, None, "aa")
        for side in (one, two):
            await side.key.bring()
        assert await two.opens(await one.states.seal(SUBJECT, "s", 1))
    assert (tmp_path / "a" / "request-state.key").exists()
    async with Catalog.open(tmp_path / "a", name_limit=60) as catalog:
        kept = await catalog.read(lambda store: store.exec_driver_sql("SELECT key FROM gateway_keys").fetchall())
    assert kept == []

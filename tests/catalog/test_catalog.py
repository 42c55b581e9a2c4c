"""The catalog of one process: what a list changes, and what lasts over a restart."""

import json
import logging
import secrets
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from postgres_server import PASSWORD

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog, change_hash
from smart_mcp_proxy.models import ToolKey

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
OpenCatalog = Callable[..., AbstractAsyncContextManager[Catalog]]


async def test_a_first_list_adds_every_tool(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """Each tool gets an id, a listed name, its raw definition and its known hints."""
    definition = tool("read", annotations={"title": "R", "readOnlyHint": True, "openWorldHint": "yes"}, custom=[1.0])
    async with open_catalog() as catalog:
        diff = await catalog.sync("files", [definition])
        (record,) = diff.added
        assert (diff.changed, diff.removed) == ((), ())
        assert record.key == ToolKey("files", "read")
        assert record.listed_name == "files__read"
        assert record.raw == json.dumps(definition, separators=(",", ":")).encode()
        assert record.change_hash == change_hash("files", definition)
        assert record.digest == f"sha256:{record.change_hash[:16]}"
        assert record.annotations == {"readOnlyHint": True}
        snapshot = catalog.snapshot
        assert diff.generation == snapshot.generation
        assert (
            snapshot.by_id[record.id]
            is snapshot.by_key[record.key]
            is snapshot.by_listed["files__read"]
            is snapshot.by_server["files"][0]
        )


async def test_an_unchanged_list_writes_nothing(
    open_catalog: OpenCatalog, tool: MakeTool, clock: Any, store: Any
) -> None:
    """Neither the store nor the generation nor the snapshot moves, even with keys in another order."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        before, wal = catalog.snapshot, store.written()
        clock.now_s += 300
        diff = await catalog.sync("s", [dict(reversed(tool("b").items())), tool("a")])
        assert not diff
        assert catalog.snapshot is before
        assert store.written() == wal


async def test_only_what_differs_is_reported(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """One new, one changed, one gone, one untouched: each is told as what it is, in one generation."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("same"), tool("edited"), tool("gone")])
        before = catalog.snapshot
        diff = await catalog.sync("s", [tool("new"), tool("same"), tool("edited", description="other")])
        assert [record.key.tool for record in diff.added] == ["new"]
        assert [record.key.tool for record in diff.changed] == ["edited"]
        assert diff.removed == (before.by_key[ToolKey("s", "gone")].id,)
        assert diff.generation == before.generation + 1
        assert catalog.snapshot.by_key[ToolKey("s", "same")] is before.by_key[ToolKey("s", "same")]


async def test_a_changed_tool_keeps_its_id_and_names_its_new_definition(
    open_catalog: OpenCatalog, tool: MakeTool
) -> None:
    """The id links vectors and documents; the definition behind it is the new one."""
    async with open_catalog() as catalog:
        (before,) = (await catalog.sync("s", [tool("a")])).added
        (after,) = (await catalog.sync("s", [tool("a", inputSchema={"type": "object", "required": ["x"]})])).changed
        assert after.id == before.id
        assert after.listed_name == before.listed_name
        assert after.change_hash != before.change_hash
        assert after.digest != before.digest
        assert json.loads(after.raw)["inputSchema"]["required"] == ["x"]


async def test_an_id_is_never_reused(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """A tool that left and came back is a new one, even when it held the highest id and the process restarted."""
    async with open_catalog() as catalog:
        (first,) = (await catalog.sync("s", [tool("a")])).added
        await catalog.sync("s", [])
    async with open_catalog() as catalog:
        (second,) = (await catalog.sync("s", [tool("a")])).added
        assert second.id > first.id
    async with open_catalog(reset=True) as catalog:
        (third,) = (await catalog.sync("s", [tool("a")])).added
        assert third.id > second.id


async def test_a_restart_serves_from_the_file(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """Before any server was asked, the catalog holds what it held."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a", annotations={"destructiveHint": True}), tool("b")])
        await catalog.sync("t", [tool("a")])
        before = catalog.snapshot
    async with open_catalog() as catalog:
        assert catalog.snapshot == before
        assert not await catalog.sync("t", [tool("a")])


async def test_reset_empties_the_tools_and_keeps_the_names(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """Nothing is served, no sync is remembered, and generations go on."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a!")])
        before = catalog.snapshot
    async with open_catalog(reset=True) as catalog:
        assert catalog.snapshot.by_id == {}
        assert catalog.snapshot.generation > before.generation
        assert catalog.last_sync_s("s") is None
        (record,) = (await catalog.sync("s", [tool("a!")])).added
        assert {record.listed_name} == set(before.by_listed)


async def test_listed_names_do_not_depend_on_the_order_of_servers(store_place: Any, tool: MakeTool) -> None:
    """Servers that connect in another order get the same names, names that blur into each other included."""
    lists = {"a": [tool("b__c"), tool("x" * 80), tool("é")], "a__b": [tool("c"), tool("ö")], "ü": [tool("c")]}
    names = []
    for order in (sorted(lists), sorted(lists, reverse=True)):
        async with store_place().opened() as catalog:
            for server in order:
                await catalog.sync(server, lists[server])
            names.append({record.key: record.listed_name for record in catalog.snapshot.by_id.values()})
    assert names[0] == names[1]
    assert len(set(names[0].values())) == 6


async def test_a_listed_name_outlives_its_tool(open_catalog: OpenCatalog, tool: MakeTool, store: Any) -> None:
    """A tool that returns is listed as before; a name once given goes to nobody else."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a")])
        await catalog.sync("s", [])
        await catalog.forget_servers([])
    # The name a later rule would give does not matter: what was given stands.
    store.execute("UPDATE listed_names SET listed_name = 's__b'")
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("b"), tool("a")])
        names = {record.key.tool: record.listed_name for record in catalog.snapshot.by_id.values()}
        assert names["a"] == "s__b"
        assert names["b"].startswith("s__b_")


async def test_a_lower_name_limit_renames_only_what_is_too_long(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """Names within the limit stay; a raised limit brings no old name back."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("short"), tool("long" * 10)])
        before = catalog.snapshot
    async with open_catalog(name_limit=20) as catalog:
        assert catalog.snapshot.by_key[ToolKey("s", "short")].listed_name == "s__short"
        renamed = catalog.snapshot.by_key[ToolKey("s", "long" * 10)]
        assert len(renamed.listed_name) == 20
        assert renamed.id == before.by_key[renamed.key].id
        assert catalog.snapshot.generation > before.generation
        shortened = catalog.snapshot
    async with open_catalog() as catalog:
        assert catalog.snapshot == shortened


async def test_of_two_tools_with_one_name_the_first_counts(open_catalog: OpenCatalog, tool: MakeTool) -> None:
    """A list with a duplicate is no error."""
    async with open_catalog() as catalog:
        (record,) = (await catalog.sync("s", [tool("a", title="first"), tool("a", title="second")])).added
        assert json.loads(record.raw)["title"] == "first"


async def test_a_definition_that_cannot_be_written_costs_only_itself(
    open_catalog: OpenCatalog, tool: MakeTool, caplog: pytest.LogCaptureFixture
) -> None:
    """Infinity and names outside UTF-8 are left out with a warning; odd text elsewhere is kept."""
    odd = tool("odd", description="half \ud83d a pair", annotations="none")
    bad = [tool("endless", inputSchema={"maximum": float("inf")}), tool("na\ud800me")]
    async with open_catalog() as catalog:
        with caplog.at_level(logging.WARNING):
            diff = await catalog.sync("s", [*bad, odd])
        assert [record.key.tool for record in diff.added] == ["odd"]
        assert json.loads(diff.added[0].raw) == odd
        assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
        assert not await catalog.sync("s", [*bad, odd])


async def test_a_name_that_the_database_cannot_index_costs_only_itself(
    open_catalog: OpenCatalog, tool: MakeTool, store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A resource's is its URI, which may hold a whole token; a file holds any."""
    long = f"file:///{secrets.token_hex(1_500)}"
    async with open_catalog() as catalog:
        added = (await catalog.sync("s", [tool("a"), tool(long), tool("b")])).added
        assert [record.key.tool for record in added] == (["a", "b"] if store.url else ["a", long, "b"])
        assert ("the database holds no name of 3,008 bytes" in caplog.text) == bool(store.url)


async def test_servers_that_are_no_longer_configured_are_forgotten(
    open_catalog: OpenCatalog, tool: MakeTool, store: Any
) -> None:
    """Their tools leave; those to keep stay; a second call finds nothing to do."""
    async with open_catalog() as catalog:
        await catalog.sync("kept", [tool("a")])
        (gone,) = (await catalog.sync("gone", [tool("a")])).added
        await catalog.sync("empty", [])
        diff = await catalog.forget_servers(["kept"])
        assert (diff.added, diff.changed, diff.removed) == ((), (), (gone.id,))
        assert set(catalog.snapshot.by_server) == {"kept"}
        assert catalog.last_sync_s("gone") is None
        assert not await catalog.forget_servers(["kept"])
    assert store.rows("SELECT name, tool_count FROM servers") == [("kept", 1)]


async def test_the_time_of_an_unchanged_sync_outlives_a_restart(
    open_catalog: OpenCatalog, tool: MakeTool, clock: Any, store: Any
) -> None:
    """How old the index is counts from the last time a server was heard, not from its last change."""
    async with open_catalog() as catalog:
        assert catalog.last_sync_s("s") is None
        await catalog.sync("s", [tool("a"), tool("b")])
        clock.now_s += 300
        await catalog.sync("s", [tool("a"), tool("b")])
        assert catalog.last_sync_s("s") == clock.now_s
        await catalog.sync("empty", [])
    async with open_catalog() as catalog:
        assert catalog.last_sync_s("s") == clock.now_s
        assert catalog.last_sync_s("empty") == clock.now_s
    assert store.rows("SELECT name, tool_count FROM servers ORDER BY name") == [("empty", 0), ("s", 2)]


async def test_the_file_keeps_the_published_columns(open_catalog: OpenCatalog, tool: MakeTool, store: Any) -> None:
    """Other programs read name, description, hash, server and vector id, which equals the row's id."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.sync("s", [tool("b"), tool("c")])
        expected = [
            (r.id, r.key.tool, f"Does {r.key.tool}.", r.change_hash, "s", r.id) for r in catalog.snapshot.by_server["s"]
        ]
    stored = store.rows("SELECT id, name, description, hash, server_name, faiss_vector_id FROM tools ORDER BY id")
    assert stored == expected
    schema = "sqlite_master" if store.url is None else "pg_indexes AS found (schema, owner, name)"
    assert store.rows(f"SELECT name FROM {schema} WHERE name = 'idx_tools_hash'")


async def test_the_repr_is_a_status_line(open_catalog: OpenCatalog, tool: MakeTool, store: Any) -> None:
    """File, generation and counts at a glance."""
    async with open_catalog() as catalog:
        await catalog.sync("s", [tool("a")])
        place = store.data_dir / DATABASE_NAME if store.url is None else store.url.replace(f":{PASSWORD}", "")
        assert repr(catalog) == f"<Catalog {place} <Snapshot generation=2 tools=1 servers=1>>"

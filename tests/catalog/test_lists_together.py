"""Lists that come together are stored together: in one transaction, and each caller is told of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event
from store_places import StorePlace

from smart_mcp_proxy.catalog import Catalog, Diff
from smart_mcp_proxy.catalog.server_lists import _Waiting
from smart_mcp_proxy.catalog.store.store import StorageError
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import Submission, ToolKey

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
SERVERS = [f"s{number}" for number in range(12)]


async def told_together(catalog: Catalog, *lists: Coroutine[Any, Any, Any]) -> list[Any]:
    """What each list has changed or raised; the store's thread is busy until all of them have come."""
    has_come = threading.Event()
    tasks = [asyncio.create_task(each) for each in (catalog._database.run(has_come.wait), *lists)]
    await asyncio.sleep(0)
    has_come.set()
    return (await asyncio.gather(*tasks, return_exceptions=True))[1:]


def tools_of(diff: Diff) -> list[tuple[str, str]]:
    """Server and name of what is new or changed."""
    return [(record.key.server, record.key.tool) for record in (*diff.added, *diff.changed)]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Counts the transactions that wrote something of a list."""
    found: list[str] = []
    statements: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    def ended(connection: Any) -> None:
        if any("INSERT INTO baselines" in statement for statement in statements):
            found.append("list")
        statements.clear()

    event.listen(Engine, "after_cursor_execute", note)
    event.listen(Engine, "commit", ended)
    yield found
    event.remove(Engine, "after_cursor_execute", note)
    event.remove(Engine, "commit", ended)


async def test_first_lists_of_many_servers_share_one_transaction(
    store: StorePlace, tool: MakeTool, commits: list[str]
) -> None:
    """Each caller gets its own server's tools."""
    async with store.opened() as catalog:
        commits.clear()  # a migration writes there, too
        diffs = await told_together(catalog, *(catalog.sync(server, [tool("a"), tool("b")]) for server in SERVERS))
        assert [tools_of(diff) for diff in diffs] == [[(server, "a"), (server, "b")] for server in SERVERS]
        assert all(catalog.is_known(server) for server in SERVERS)
        assert len(commits) == 1
    async with store.opened() as catalog:
        assert {tuple(key) for key in catalog.snapshot.by_key} == {(s, name) for s in SERVERS for name in "ab"}
        assert {server: catalog.last_sync_s(server) is not None for server in SERVERS} == dict.fromkeys(SERVERS, True)


async def test_of_two_lists_of_one_server_the_later_one_counts(store: StorePlace, tool: MakeTool) -> None:
    """Also where it is what the file holds already."""
    async with store.opened() as catalog:
        await catalog.sync("s", [tool("a")])
        later = catalog.sync("s", [tool("a")])
        first, second = await told_together(catalog, catalog.sync("s", [tool("a"), tool("b")], lambda _: True), later)
        assert tools_of(first) == [("s", "b")]
        assert (tools_of(second), len(second.removed)) == ([], 1)
        assert list(catalog.snapshot.by_key) == [ToolKey("s", "a")]
    async with store.opened() as catalog:
        assert list(catalog.snapshot.by_key) == [ToolKey("s", "a")]


async def test_the_parts_are_the_whole_change(store: StorePlace, tool: MakeTool) -> None:
    """What another process has written meanwhile is in one of them, and what left is with its server."""
    async with store.opened() as one, store.opened() as two:
        for server in SERVERS[:3]:
            await one.sync(server, [tool("old"), tool("kept")])
        await two.refresh()
        before = two.snapshot
        await one.sync("elsewhere", [tool("x")])
        lists = (two.sync(server, [tool("kept"), tool("new")], lambda _: True) for server in SERVERS[:3])
        diffs = await told_together(two, *lists)
        assert sorted(key for diff in diffs for key in tools_of(diff)) == sorted(
            [("elsewhere", "x"), *((server, "new") for server in SERVERS[:3])]
        )
        for server, diff in zip(SERVERS[:3], diffs, strict=True):
            assert [before.by_id[id_].key for id_ in diff.removed] == [ToolKey(server, "old")]


async def test_a_list_that_fails_takes_no_other_with_it(store: StorePlace, tool: MakeTool) -> None:
    """Only its own caller hears of it."""

    def fails(submission: Submission) -> bool:
        raise CatalogError(f"no decision on {submission.key.tool}")

    async with store.opened() as catalog:
        lists = (catalog.sync(server, [tool("a")], fails if server == "s7" else None) for server in SERVERS)
        results = await told_together(catalog, *lists)
        assert [server for server, result in zip(SERVERS, results, strict=True) if isinstance(result, Exception)] == [
            "s7"
        ]
        assert str(results[7]) == "no decision on a"
        assert {key.server for key in catalog.snapshot.by_key} == set(SERVERS) - {"s7"}
        assert not catalog.is_known("s7")
        assert tools_of(await catalog.sync("s7", [tool("a")])) == [("s7", "a")]


async def test_a_list_that_comes_while_others_are_stored_fails_for_its_own_caller(
    store: StorePlace, tool: MakeTool
) -> None:
    """Whoever went along with others does not look at what came after them."""

    def fails(submission: Submission) -> bool:
        raise CatalogError("no decision")

    async with store.opened() as catalog:
        first, second = [_Waiting(server, [tool("a")], None) for server in ("first", "second")]
        late = _Waiting("late", [tool("a")], fails)
        catalog._waiting.extend([first, second])
        await catalog._database.run(partial(catalog._sync_waiting, first))
        catalog._waiting.append(late)
        await catalog._database.run(partial(catalog._sync_waiting, second))
        assert [tools_of(each.diff) for each in (first, second) if each.diff] == [[("first", "a")], [("second", "a")]]
        with pytest.raises(CatalogError, match="no decision"):
            await catalog._database.run(partial(catalog._sync_waiting, late))
        assert (late.diff, list(catalog._waiting)) == (None, [])


@pytest.mark.long  # a third of a second of processor time
async def test_long_lists_have_transactions_of_their_own(store: StorePlace, tool: MakeTool, commits: list[str]) -> None:
    """Other gateways wait for the end of each."""
    async with store.opened() as catalog:
        commits.clear()
        definitions = [tool(f"t{number}") for number in range(400)]
        diffs = await told_together(catalog, *(catalog.sync(server, definitions) for server in SERVERS[:5]))
        assert [len(diff.added) for diff in diffs] == [400] * 5
        assert len(commits) == 3


async def test_where_nothing_can_be_stored_each_list_is_remembered(
    store: StorePlace, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are stored once the file can be written again."""
    async with store.opened() as catalog:
        await catalog.sync("before", [tool("a")])
        with monkeypatch.context() as patch:

            def full(*_: Any, **__: Any) -> Any:
                raise StorageError("The disk is full.", hint="Free some space.")

            patch.setattr(type(catalog._database), "write", full)
            diffs = await told_together(catalog, *(catalog.sync(server, [tool("a")]) for server in SERVERS))
            assert [tools_of(diff) for diff in diffs] == [[(server, "a")] for server in SERVERS]
            assert "The disk is full." in (catalog.problem or "")
        await catalog.refresh()
        assert catalog.problem is None
    async with store.opened() as catalog:
        assert {key.server for key in catalog.snapshot.by_key} == {"before", *SERVERS}


async def test_a_cancelled_caller_leaves_its_list_to_the_others(store: StorePlace, tool: MakeTool) -> None:
    """It had been told, and is stored; nobody else waits for it."""
    async with store.opened() as catalog:
        tasks = [asyncio.create_task(catalog.sync(server, [tool("a")])) for server in SERVERS]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await catalog.refresh()
        assert {key.server for key in catalog.snapshot.by_key} == set(SERVERS)


@pytest.mark.parametrize("others", [0, 11])
async def test_lists_that_are_stored_already_cost_one_look(store: StorePlace, tool: MakeTool, others: int) -> None:
    """Whether others wrote something is all that is asked for, however many lists there are."""
    servers = SERVERS[: 1 + others]
    lists = {server: [tool(f"{server} {number}") for number in range(30)] for server in servers}
    async with store.opened() as catalog:
        for server, definitions in lists.items():
            await catalog.sync(server, definitions)
        statements: list[str] = []

        def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            statements.append(statement)

        event.listen(Engine, "after_cursor_execute", note)
        try:
            again = (catalog.sync(server, lists[server], lambda _: False) for server in servers)
            diffs = await told_together(catalog, *again)
        finally:
            event.remove(Engine, "after_cursor_execute", note)
        assert not any(diffs)
        asked = [statement for statement in statements if not statement.startswith("BEGIN")]
        assert all(statement.startswith("SELECT key, value FROM meta") for statement in asked)
        assert len(asked) == (1 if store.url is None else 2)  # there the rollback guard looks, too


async def test_a_tool_that_waits_is_put_to_the_policy_each_time(store: StorePlace, tool: MakeTool) -> None:
    """The same list again, under a policy that has come to agree: no memory of the snapshot stands in its way."""
    async with store.opened() as catalog:
        await catalog.sync("s", [tool("a")])
        changed = [tool("a", title="other"), tool("b")]
        assert not tools_of(await catalog.sync("s", changed))
        assert len(catalog.snapshot.withheld) == 2
        assert not tools_of(await catalog.sync("s", changed, lambda _: False))
        assert sorted(tools_of(await catalog.sync("s", changed, lambda _: True))) == [("s", "a"), ("s", "b")]
        assert not catalog.snapshot.withheld


async def test_a_list_that_lacks_what_waits_removes_it(store: StorePlace, tool: MakeTool) -> None:
    """The approved ones are as they were: the memory must not take that for the whole list."""
    async with store.opened() as catalog:
        await catalog.sync("s", [tool("a")])
        await catalog.sync("s", [tool("a"), tool("waits")])
        assert [key.tool for key in catalog.snapshot.withheld] == ["waits"]
        await catalog.sync("s", [tool("a")])
        assert not catalog.snapshot.withheld
        assert store.rows("SELECT name FROM tools") == [("a",)]


async def test_what_another_process_took_away_comes_back(store: StorePlace, tool: MakeTool) -> None:
    """A list is compared with the file, not with what this process remembers of it."""
    async with store.opened() as one, store.opened() as two:
        await one.sync("s", [tool("a"), tool("b")])
        await two.sync("s", [tool("a")])
        assert [key.tool for key in one.snapshot.by_key] == ["a", "b"]
        await one.sync("s", [tool("a"), tool("b")])
        assert sorted(store.rows("SELECT name FROM tools")) == [("a",), ("b",)]

"""Costs follow the change: one tool in a large catalog takes as many statements, rows and steps as in a small one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.models import Submission, ToolKey

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
SMALL_TABLES = {"servers", "baselines", "idx_approvals_blocked", "sqlite_master"}
"""As many rows as there are servers, or blocked tools."""
SMALL, LARGE = 20, 400
"""Tools of the servers beside the one that changes."""


class Counted:
    """Statements, and the rows that they have read."""

    def __init__(self) -> None:
        self.statements = 0
        self.rows = 0
        self.scans: set[str] = set()

    def note(self, connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        self.statements += 1
        if not statement.lstrip().startswith("SELECT"):
            return
        if connection.dialect.name == "sqlite":
            again = cursor.connection.execute(f"SELECT count(*) FROM ({statement})", parameters)
            self.rows += again.fetchone()[0]
            plan = cursor.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            self.scans |= {
                step for *_, step in plan if step.startswith("SCAN") and not set(step.split()) & SMALL_TABLES
            }
        else:
            self.rows += cursor.rowcount


@contextmanager
def counted() -> Iterator[Counted]:
    """Counts what all catalogs do while it is open."""
    found = Counted()
    event.listen(Engine, "after_cursor_execute", found.note)
    try:
        yield found
    finally:
        event.remove(Engine, "after_cursor_execute", found.note)


async def filled(catalog: Catalog, tool: MakeTool, tools: int) -> None:
    """A catalog with two servers beside the one that a test changes; one of them waits for approval."""
    for server in ("approved", "waiting"):
        await catalog.sync(server, [tool("first")] if server == "waiting" else [])
        names = [tool(f"{server} {number}") for number in range(tools // 2)]
        await catalog.sync(server, names, (lambda _: True) if server == "approved" else None)
    await catalog.sync("s", [tool(f"t{number}") for number in range(5)])


async def cost_of_a_change(place: Any, tool: MakeTool, tools: int) -> dict[str, tuple[int, int]]:
    """Statements and rows of each kind of change, here and at a gateway that follows."""
    found = {}
    async with place.opened() as one, place.opened() as two:
        await filled(one, tool, tools)
        await two.refresh()
        assert len(two.snapshot.by_id) + len(two.snapshot.withheld) == 5 + 2 * (tools // 2)
        changed = [tool("t0", title="other"), *(tool(f"t{number}") for number in range(1, 5))]

        async def measured(name: str, work: Any) -> None:
            for step, do in ((name, work), (f"{name}, followed", two.refresh)):
                with counted() as counts:
                    await do()
                found[step] = (counts.statements, counts.rows)
                assert not counts.scans, "a table is walked from end to end"

        await measured("one is changed", lambda: one.sync("s", changed))
        await measured("one is new", lambda: one.sync("s", [*changed, tool("new")]))
        await measured("one leaves", lambda: one.sync("s", changed))
        await measured("one is blocked", lambda: one.block(ToolKey("s", "t1"), "user"))
        await measured("nothing", lambda: one.sync("s", changed))
        assert two.snapshot.generation == one.snapshot.generation
        assert ToolKey("s", "new") not in two.snapshot.withheld
        assert ToolKey("s", "t1") in two.snapshot.withheld
    return found


@pytest.mark.long  # a third of a second of processor time
async def test_a_change_reads_as_much_of_a_large_catalog_as_of_a_small_one(store_place: Any, tool: MakeTool) -> None:
    """Storing a list, deciding on a tool, and following either; a refresh that finds nothing reads a row or two."""
    small, large = [await cost_of_a_change(store_place(), tool, tools) for tools in (SMALL, LARGE)]
    assert small == large
    assert large["nothing, followed"][0] <= 6
    assert max(rows for _, rows in large.values()) <= 55


async def statements_of_decisions(place: Any, tool: MakeTool, tools: int) -> tuple[int, int]:
    """Statements for a list whose every definition is put to a policy, and for approving all that it held back."""
    seen = []

    def doubt(submission: Submission) -> bool:
        assert submission.approved == tool(submission.key.tool)
        seen.append(submission)
        return False

    async with place.opened() as catalog:
        await catalog.sync("s", [tool(f"t{number}") for number in range(tools)])
        changed = [tool(f"t{number}", title="other") for number in range(tools)]
        with counted() as reviewed:
            await catalog.sync("s", changed, doubt)
        assert len(seen) == len(catalog.snapshot.withheld) == tools
        with counted() as approved:
            await catalog.approve({each.key: each.change_hash for each in seen}, "user")
        await catalog.refresh()
        assert not catalog.snapshot.withheld
    return reviewed.statements, approved.statements


@pytest.mark.long  # a third of a second of processor time
async def test_a_list_is_decided_on_in_few_statements(store_place: Any, tool: MakeTool) -> None:
    """One SELECT for every tool held the event loop of a gateway back for a second with 5,000 tools."""
    assert await statements_of_decisions(store_place(), tool, 20) == await statements_of_decisions(
        store_place(), tool, 400
    )


async def test_a_decision_of_another_gateway_is_read_in_few_statements(store_place: Any, tool: MakeTool) -> None:
    """The beginning, the counters for the guard and for the snapshot, what stands beside the tools, and the tools."""
    place = store_place()
    async with place.opened() as one, place.opened() as two:
        await one.sync("s", [tool("a"), tool("b")])
        await two.refresh()
        await one.block(ToolKey("s", "a"), "user")
        with counted() as read:
            assert await two.refresh()
        assert set(two.snapshot.by_key) == {ToolKey("s", "b")}
        assert read.statements <= 5
        with counted() as unread:
            assert await two.refresh() is None
        assert unread.statements <= 3


async def test_a_gateway_that_slept_too_long_compares_all_ids(
    store_place: Any, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What left is kept for so many generations, and whoever missed more still ends with the same tools."""
    monkeypatch.setattr("smart_mcp_proxy.catalog.tables.following._GONE_KEPT", 3)
    place = store_place()
    async with place.opened() as one, place.opened() as two:
        await one.sync("s", [tool("a"), tool("b"), tool("c")])
        await two.refresh()
        for names in ("ab", "a", "ac", "a", "ad", "a"):
            await one.sync("s", [tool(name) for name in names], lambda _: True)
        assert len(place.rows("SELECT id FROM gone")) <= 3
        await two.refresh()
        assert two.snapshot == one.snapshot
        assert set(two.snapshot.by_key) == {ToolKey("s", "a")}

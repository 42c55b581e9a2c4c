"""The guarantee: nothing is in the snapshot whose exact definition was not agreed to."""

import itertools
import json
import sqlite3
import sys
from asyncio import create_subprocess_exec, subprocess
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog, change_hash
from smart_mcp_proxy.catalog.store.migrations import APPROVALS_TABLES, MIGRATIONS
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import Submission, ToolKey, WithheldState

STEPS = [migration.sqlite for migration in MIGRATIONS]
pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
A = ToolKey("s", "a")


@pytest.fixture
def opened(store: Any, clock: Any) -> Any:
    """Opens the catalog as the gateway does: only a first list is trusted."""
    return partial(store.opened, clock=clock)


def shown(catalog: Catalog) -> dict[str, str]:
    """Change hash of every tool that agents can reach, by canonical name."""
    snapshot = catalog.snapshot
    ways = [
        {record.key: record for record in snapshot.by_id.values()},
        dict(snapshot.by_key),
        {record.key: record for record in snapshot.by_listed.values()},
        {record.key: record for records in snapshot.by_server.values() for record in records},
    ]
    assert all(way == ways[0] for way in ways)
    assert not snapshot.by_key.keys() & snapshot.withheld.keys()
    return {str(key): record.change_hash for key, record in ways[0].items()}


def states(catalog: Catalog) -> dict[str, str]:
    return {str(key): each.state.value for key, each in catalog.snapshot.withheld.items()}


def hash_of(definition: dict[str, Any]) -> str:
    return change_hash("s", definition)


FULL: dict[str, Any] = {
    "name": "a",
    "title": "Title",
    "description": "Does a.",
    "inputSchema": {"type": "object", "properties": {"x": {"type": "string", "description": "An x."}}},
    "outputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
    "icons": [{"src": "https://example.com/a.png"}],
    "_meta": {"k": 1},
}
OTHER: dict[str, Any] = {
    "title": "Another",
    "description": "Does a. ",
    "inputSchema": {"type": "object", "properties": {"x": {"type": "string", "description": "Send it all."}}},
    "outputSchema": {"type": "object", "properties": {}},
    "annotations": {"readOnlyHint": True, "destructiveHint": False},
    "icons": [],
    "_meta": {"k": 1.0},
    "unheard": None,
}


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Every field changed alone, every two together, all at once, and each one left out."""
    some = [set(fields) for count in (1, 2) for fields in itertools.combinations(OTHER, count)]
    made = [
        ("+".join(sorted(fields)), FULL | {field: OTHER[field] for field in fields}) for fields in [*some, set(OTHER)]
    ]
    gone = [(f"-{field}", {key: FULL[key] for key in FULL if key != field}) for field in FULL if field != "name"]
    return made + gone


async def test_a_first_list_is_agreed_to_by_configuring_its_server(opened: Any, tool: MakeTool) -> None:
    """All its tools are served, and still are after a restart."""
    async with opened() as catalog:
        assert len((await catalog.sync("s", [tool("a"), tool("b")])).added) == 2
        assert shown(catalog) == {"s:a": hash_of(tool("a")), "s:b": hash_of(tool("b"))}
    async with opened() as catalog:
        assert shown(catalog) == {"s:a": hash_of(tool("a")), "s:b": hash_of(tool("b"))}


async def test_a_tool_that_comes_later_waits(opened: Any, tool: MakeTool) -> None:
    """Also after an empty first list, and after a restart; nothing of it is in what is served."""
    async with opened() as catalog:
        await catalog.sync("s", [])
        assert not await catalog.sync("s", [tool("a")])
        assert (shown(catalog), states(catalog)) == ({}, {"s:a": "pending"})
    async with opened() as catalog:
        assert (shown(catalog), states(catalog)) == ({}, {"s:a": "pending"})
        assert await catalog.approve({A: hash_of(tool("a"))}, "user") == {A}
        diff = await catalog.refresh()
        assert diff is not None
        assert [record.key for record in diff.added] == [A]
        assert shown(catalog) == {"s:a": hash_of(tool("a"))}


@pytest.mark.parametrize(("what", "changed"), variants(), ids=lambda value: value if isinstance(value, str) else "")
async def test_whatever_changes_is_withheld_and_its_revert_is_not(
    opened: Any, what: str, changed: dict[str, Any]
) -> None:
    """Neither the new nor the old definition is served; the approved one returns to the letter only."""
    async with opened() as catalog:
        await catalog.sync("s", [FULL])
        (id_,) = catalog.snapshot.by_id
        diff = await catalog.sync("s", [changed])
        assert diff.removed == (id_,)
        assert (shown(catalog), states(catalog)) == ({}, {"s:a": "changed"})
        withheld = catalog.snapshot.withheld[A]
        assert json.loads(withheld.approved) == FULL
        assert withheld.approved_hash == hash_of(FULL)
        assert json.loads(withheld.record.raw) == changed
        diff = await catalog.sync("s", [dict(reversed(FULL.items()))])
        assert [record.id for record in diff.added] == [id_]
        assert (shown(catalog), states(catalog)) == ({"s:a": hash_of(FULL)}, {})


async def test_a_change_in_two_steps_is_two_changes(opened: Any) -> None:
    """Reverting the text while poisoning the schema is not a revert."""
    text = FULL | {"description": "Else."}
    both = FULL | {"inputSchema": OTHER["inputSchema"]}
    async with opened() as catalog:
        for definition in (FULL, text, both):
            await catalog.sync("s", [definition])
        assert states(catalog) == {"s:a": "changed"}
        await catalog.sync("s", [FULL])
        assert shown(catalog) == {"s:a": hash_of(FULL)}


@pytest.mark.parametrize("review", [None, lambda _: False], ids=["manual", "policy"])
async def test_what_was_approved_before_is_approved_again(opened: Any, review: Any) -> None:
    """Also after a restart, under a policy that says no, and as often as it comes; what waited meanwhile is not."""
    new, waiting = FULL | {"description": "Else."}, FULL | {"description": "Not approved."}
    async with opened() as catalog:
        await catalog.sync("s", [FULL])
        await catalog.sync("s", [new])
        await catalog.approve({A: hash_of(new)}, "user")
        await catalog.refresh()
        assert shown(catalog) == {"s:a": hash_of(new)}
    async with opened() as catalog:
        for listed in (FULL, new, waiting, FULL, new, FULL, waiting, waiting):
            await catalog.sync("s", [listed], review)
            assert shown(catalog) == ({} if listed is waiting else {"s:a": hash_of(listed)})
        await catalog.sync("t", [FULL | {"name": "b"}])
        await catalog.sync("t", [FULL])
        assert "t:a" not in shown(catalog), "of another server it is another definition"


async def test_a_block_takes_earlier_approvals_back(opened: Any) -> None:
    """All but the last, which lifting it approves."""
    new = FULL | {"description": "Else."}
    async with opened() as catalog:
        for definition in (FULL, new):
            await catalog.sync("s", [definition])
            await catalog.approve({A: hash_of(definition)}, "user")
        await catalog.block(A, "user")
        await catalog.sync("s", [FULL])
        assert states(catalog) == {"s:a": "blocked"}
        await catalog.unblock(A, "user")
        await catalog.sync("s", [FULL])
        assert states(catalog) == {"s:a": "changed"}
        await catalog.sync("s", [new])
        assert shown(catalog) == {"s:a": hash_of(new)}


@pytest.mark.long  # a third of a second of processor time
async def test_of_many_earlier_approvals_the_latest_are_kept(opened: Any, clock: Any) -> None:
    """By when they were last in force, so that a tool that is another one each time does not fill the store."""
    versions = [FULL | {"description": f"Number {number}."} for number in range(20)]
    async with opened() as catalog:
        for each in versions:
            await catalog.sync("s", [each])
            await catalog.approve({A: hash_of(each)}, "user")
            clock.now_s += 1
        for each in versions[3:19]:
            await catalog.sync("s", [each])
            assert shown(catalog) == {"s:a": hash_of(each)}
            clock.now_s += 1
        await catalog.sync("s", [versions[0]])
        assert states(catalog) == {"s:a": "changed"}


async def test_an_approval_holds_for_what_was_looked_at_only(opened: Any, tool: MakeTool) -> None:
    """A definition that moved meanwhile, a short digest, a wrong name: nothing becomes approved."""
    new = FULL | {"description": "Else."}
    async with opened() as catalog:
        await catalog.sync("s", [FULL, tool("b")])
        await catalog.sync("s", [new, tool("b")])
        for seen in (hash_of(FULL), hash_of(new)[:16], "", hash_of(tool("b"))):
            assert await catalog.approve({A: seen, ToolKey("s", "none"): seen}, "user") == set()
            await catalog.refresh()
            assert states(catalog) == {"s:a": "changed"}


async def test_an_approval_by_somebody_who_saw_no_block_lifts_none(opened: Any, tool: MakeTool) -> None:
    """Two operators at once: what the other one has blocked meanwhile stays so, the rest is approved."""
    async with opened() as catalog:
        await catalog.sync("s", [])
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(A, "the other one")
        seen = {ToolKey("s", name): hash_of(tool(name)) for name in "ab"}
        assert await catalog.approve(seen, "user", lifts=False) == {ToolKey("s", "b")}
        await catalog.refresh()
        assert (shown(catalog), states(catalog)) == ({"s:b": hash_of(tool("b"))}, {"s:a": "blocked"})
        assert await catalog.approve(seen, "user") == set(seen)


async def test_a_tool_that_left_comes_back_as_it_was_approved(opened: Any) -> None:
    """And waits in any other form; also when its server was removed and added again."""
    for remove in ("tool", "server"):
        async with opened() as catalog:
            await catalog.sync("s", [FULL])
            if remove == "tool":
                await catalog.sync("s", [])
            else:
                await catalog.forget_servers([])
            assert (shown(catalog), states(catalog)) == ({}, {})
            await catalog.sync("s", [FULL | {"title": "New"}, {**FULL, "name": "new"}])
            assert (shown(catalog), states(catalog)) == ({}, {"s:a": "changed", "s:new": "pending"})
            await catalog.sync("s", [FULL])
            assert shown(catalog) == {"s:a": hash_of(FULL)}


async def test_a_block_outlives_whatever_the_definition_becomes(opened: Any) -> None:
    """A change, a revert, a policy that trusts everything, a restart and a return."""
    other = FULL | {"title": "New"}
    async with opened() as catalog:
        await catalog.sync("s", [FULL])
        await catalog.block(A, "user")
        await catalog.refresh()
        for definitions in ([FULL], [other], [], [FULL]):
            await catalog.sync("s", definitions, lambda _: True)
            assert shown(catalog) == {}
            assert states(catalog) == dict.fromkeys(["s:a"] * len(definitions), "blocked")
    async with opened() as catalog:
        assert states(catalog) == {"s:a": "blocked"}
        assert await catalog.unblock(A, "user")
        assert not await catalog.unblock(A, "user")
        await catalog.refresh()
        assert shown(catalog) == {"s:a": hash_of(FULL)}


async def test_lifting_the_block_of_what_was_never_approved_lets_it_wait(opened: Any, tool: MakeTool) -> None:
    """Approving it by name lifts the block as well."""
    async with opened() as catalog:
        await catalog.sync("s", [])
        await catalog.sync("s", [tool("a")])
        await catalog.block(A, "user")
        await catalog.unblock(A, "user")
        await catalog.refresh()
        assert states(catalog) == {"s:a": "pending"}
        await catalog.block(A, "user")
        await catalog.approve({A: hash_of(tool("a"))}, "user")
        await catalog.refresh()
        assert shown(catalog) == {"s:a": hash_of(tool("a"))}


async def test_a_policy_is_asked_about_every_list_with_what_was_approved(opened: Any, tool: MakeTool) -> None:
    """What it approves is served with the list, in one step; what it does not waits, and is asked about again."""
    asked: list[Submission] = []

    def review(submission: Submission) -> bool:
        asked.append(submission)
        return submission.key.tool == "b" or submission.approved is None

    async with opened() as catalog:
        await catalog.sync("s", [FULL], review)
        assert [each.approved for each in asked] == [None]
        asked.clear()
        diff = await catalog.sync("s", [FULL | {"title": "New"}, tool("b")], review)
        assert [record.key.tool for record in diff.added] == ["b"]
        assert {each.key.tool: each.approved for each in asked} == {"a": FULL, "b": None}
        await catalog.sync("s", [FULL | {"title": "New"}, tool("b")])
        assert states(catalog) == {"s:a": "changed"}
        diff = await catalog.sync("s", [FULL | {"title": "New"}, tool("b")], lambda _: True)
        assert [record.key for record in diff.added] == [A]


async def test_two_processes_share_what_is_approved_and_not_their_lists(opened: Any, tool: MakeTool) -> None:
    """Each knows what its own connection listed, whatever the other one's lists."""
    other = tool("a", description="Other.")
    async with opened() as one, opened() as two:
        await one.sync("s", [tool("a")])
        await two.refresh()
        await two.sync("s", [other])
        assert shown(two) == {}
        await one.refresh()
        assert shown(one) == {}
        await one.sync("s", [tool("a")])
        await two.refresh()
        assert shown(two) == shown(one) == {"s:a": hash_of(tool("a"))}
        assert (one.get_listed_hash(A), two.get_listed_hash(A)) == (hash_of(tool("a")), hash_of(other))
        assert one.get_listed_hash(ToolKey("s", "b")) == ""
        assert one.get_listed_hash(ToolKey("t", "b")) is None
        await one.block(A, "user")
        await two.refresh()
        assert shown(two) == {}


@pytest.mark.parametrize("is_used", [False, True], ids=["removed by both", "used by the other"])
async def test_of_a_removed_server_no_own_list_is_left(opened: Any, tool: MakeTool, is_used: bool) -> None:
    """Whether another process removed it first or goes on with it: the next list may be another one."""
    async with opened() as one, opened() as two:
        await one.sync("s", [tool("a")])
        await two.refresh()
        if is_used:
            await two.register_instance(1, ["s"])
        else:
            await two.forget_servers([])
        await one.refresh()
        await one.forget_servers([])
        assert ("s:a" in shown(one)) == is_used
        assert one.get_listed_hash(A) is None


# --- files that come from elsewhere


async def test_the_tools_of_an_older_file_were_served_and_stay_so(opened: Any, data_dir: Path, tool: MakeTool) -> None:
    """Exactly their definitions; what is new or changed on the first list after the upgrade waits."""
    write_older_file(data_dir, STEPS.index(APPROVALS_TABLES))
    with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as file:
        for name in ("a", "b"):
            made = tool(name)
            file.execute(
                "INSERT INTO tools (name, hash, server_name, definition, digest, annotations, listed_name, generation)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (name, hash_of(made), "s", json.dumps(made), "sha256:0", "{}", f"s__{name}", 2),
            )
        file.execute("INSERT INTO servers (name, last_sync_s, tool_count) VALUES ('s', 1.0, 2), ('empty', 1.0, 0)")
        file.commit()
    async with opened() as catalog:
        assert shown(catalog) == {"s:a": hash_of(tool("a")), "s:b": hash_of(tool("b"))}
        await catalog.sync("s", [tool("a"), tool("b", title="New"), tool("c")])
        await catalog.sync("empty", [tool("d")])
        assert shown(catalog) == {"s:a": hash_of(tool("a"))}
        assert states(catalog) == {"s:b": "changed", "s:c": "pending", "empty:d": "pending"}


def write_older_file(data_dir: Path, version: int) -> None:
    """What an earlier program would have made."""
    data_dir.mkdir(exist_ok=True)
    with closing(sqlite3.connect(data_dir / DATABASE_NAME)) as file:
        for statement in itertools.chain.from_iterable(STEPS[:version]):
            file.execute(statement)
        file.execute(f"PRAGMA user_version = {version}")
        file.commit()


async def test_reset_keeps_what_was_agreed_to(opened: Any, tool: MakeTool) -> None:
    """Emptying the catalog is no way to have a second list trusted."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(ToolKey("s", "b"), "user")
    async with opened(reset=True) as catalog:
        await catalog.sync("s", [tool("a"), tool("b"), tool("c")])
        assert shown(catalog) == {"s:a": hash_of(tool("a"))}
        assert states(catalog) == {"s:b": "blocked", "s:c": "pending"}


async def test_after_a_damaged_file_nothing_is_trusted_until_the_user_says_so(
    opened: Any, data_dir: Path, tool: MakeTool, caplog: pytest.LogCaptureFixture
) -> None:
    """No first list, no policy, not after a restart either; then first lists are trusted again, other changes not."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
    (data_dir / DATABASE_NAME).write_bytes(b"garbage" * 10_000)
    for _ in range(2):
        async with opened() as catalog:
            assert catalog.is_closed
            await catalog.sync("s", [tool("a")], lambda _: True)
            await catalog.sync("t", [tool("a")], lambda _: True)
            assert shown(catalog) == {}
            assert states(catalog) == {"s:a": "pending", "t:a": "pending"}
    async with opened() as catalog:
        assert catalog.is_closed
        await catalog.approve({A: hash_of(tool("a"))}, "user", reopens=True)
        await catalog.refresh()
        assert not catalog.is_closed
        await catalog.sync("u", [tool("a")])
        assert shown(catalog) == {"s:a": hash_of(tool("a")), "u:a": change_hash("u", tool("a"))}
        await catalog.sync("t", [tool("a")])
        assert states(catalog) == {"t:a": "pending"}
    assert sum("was damaged" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("version", range(STEPS.index(APPROVALS_TABLES) + 1))
async def test_a_process_killed_while_it_replaces_a_damaged_file_leaves_none_that_trusts(
    opened: Any, data_dir: Path, tool: MakeTool, version: int
) -> None:
    """Whichever step of making the new file was its last."""
    data_dir.mkdir()
    (data_dir / f"{DATABASE_NAME}.corrupt-20260101-000000").write_bytes(b"garbage")
    write_older_file(data_dir, version)
    async with opened() as catalog:
        assert catalog.is_closed
        await catalog.sync("s", [tool("a")])
        assert shown(catalog) == {}


# --- a file that cannot be written


async def test_in_memory_a_first_list_is_put_to_its_policy_too(opened: Any, store: Any, tool: MakeTool) -> None:
    """What it holds back waits, then and once the file is back; of a server without one the whole list is agreed to."""

    def review(submission: Submission) -> bool:
        return submission.is_on_file and submission.key.tool != "b"

    async with opened() as catalog:
        await catalog.refresh()
        store.lose()
        await catalog.refresh()
        await catalog.sync("s", [tool("a"), tool("b")], review)
        await catalog.sync("t", [tool("b")])
        for is_back in (False, True):
            if is_back:
                store.bring_back()
                await catalog.refresh()
            assert shown(catalog).keys() == {"s:a", "t:b"}
            assert states(catalog) == {"s:b": "pending"}


async def test_in_memory_known_approvals_hold_and_changes_wait(opened: Any, store: Any, tool: MakeTool) -> None:
    """The user's decisions are refused then, because they could not be kept; what the memory knew is stored again."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b"), tool("c")])
        await catalog.block(ToolKey("s", "c"), "user")
        await catalog.refresh()
        store.lose()
        await catalog.refresh()
        await catalog.sync("s", [tool("a"), tool("b", title="New"), tool("c"), tool("d")])
        assert catalog.problem
        assert shown(catalog) == {"s:a": hash_of(tool("a"))}
        assert states(catalog) == {"s:b": "changed", "s:c": "blocked", "s:d": "pending"}
        with pytest.raises(CatalogError):
            await catalog.approve({ToolKey("s", "d"): hash_of(tool("d"))}, "user")
        await catalog.sync("s", [tool("b"), tool("d")])
        assert shown(catalog) == {"s:b": hash_of(tool("b"))}
        await catalog.sync("s", [tool("a"), tool("b", title="New"), tool("c"), tool("d")])
        store.bring_back()
        await catalog.refresh()
        assert catalog.problem is None
        await catalog.sync("s", [tool("a"), tool("b"), tool("c"), tool("d")])
        assert "s:b" in shown(catalog)
        assert {"s:c", "s:d"} <= states(catalog).keys()
        assert catalog.snapshot.withheld[ToolKey("s", "c")].state is WithheldState.BLOCKED


async def test_a_file_that_cannot_be_read_at_the_start_trusts_nothing(
    opened: Any, data_dir: Path, tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in it is not known: a first list could be a second one, and a tool could be blocked."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b")])
        await catalog.block(ToolKey("s", "b"), "user")
    broken = True
    connect = sqlite3.connect

    def failing(*args: Any, **more: Any) -> Any:
        if broken:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return connect(*args, **more)

    monkeypatch.setattr(sqlite3.dbapi2, "connect", failing)
    async with opened() as catalog:
        await catalog.sync("s", [tool("a", title="New"), tool("b")], lambda _: True)
        await catalog.sync("t", [tool("a")], lambda _: True)
        assert catalog.problem
        assert shown(catalog) == {}
        broken = False
        await catalog.refresh()
        assert catalog.problem is None
        assert shown(catalog) == {"s:a": hash_of(tool("a", title="New")), "t:a": change_hash("t", tool("a"))}
        assert states(catalog) == {"s:b": "blocked"}


# --- kill -9

APPROVER = """
import asyncio, os, sys
from pathlib import Path
from smart_mcp_proxy.catalog import Catalog, change_hash
from smart_mcp_proxy.models import ToolKey

async def main():
    async with Catalog.open(Path(sys.argv[1]), name_limit=60, url=sys.argv[3] or None) as catalog:
        number = int(sys.argv[2])
        await catalog.sync("s", [{"name": "first"}])
        while True:
            number += 1
            await catalog.sync("s", [{"name": "first"}, {"name": f"t{number}"}])
            print("listed", number, flush=True)
            await catalog.approve({ToolKey("s", f"t{number}"): change_hash("s", {"name": f"t{number}"})}, "user")
            print("approved", number, flush=True)

asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.parametrize("kills", [3, pytest.param(5, marks=pytest.mark.soak)])
async def test_every_acknowledged_approval_survives_a_kill_and_no_other_is_there(
    opened: Any, store: Any, kills: int
) -> None:
    """Killed at any moment, several times over the same store."""
    approved: set[int] = set()
    listed: set[int] = set()
    with anyio.fail_after(60):
        for round_ in range(kills):
            words = (APPROVER, str(store.data_dir), str(round_ * 10_000), store.url or "")
            process = await create_subprocess_exec(sys.executable, "-c", *words, stdout=subprocess.PIPE)
            assert process.stdout is not None
            for _ in range(5 + round_ * 3):
                word, number = (await process.stdout.readline()).split()
                (approved if word == b"approved" else listed).add(int(number))
            process.kill()
            rest = (await process.communicate())[0].decode().split("\n")[:-1]
            for word, number in (line.split() for line in rest):
                (approved if word == "approved" else listed).add(int(number))
    async with opened() as catalog:
        await catalog.sync("s", [{"name": f"t{number}"} for number in sorted(listed)])
        numbers = {int(record.key.tool[1:]) for record in catalog.snapshot.by_id.values()}
        assert approved <= numbers
        assert len(numbers - approved) <= kills, "at most the one under way at each kill"

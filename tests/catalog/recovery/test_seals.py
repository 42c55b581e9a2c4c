"""The guarantee of seals: what anything but a gateway writes into the catalog is believed by no gateway."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from copied_catalogs import at
from old_catalogs import UNDO_SINCE_SEALS
from store_places import NAME_LIMIT, MakeTool, StorePlace

from smart_mcp_proxy.catalog import DATABASE_NAME, Catalog
from smart_mcp_proxy.catalog.backups import backup_catalog, restore_catalog
from smart_mcp_proxy.catalog.copying import StoreLocation, copy_catalog
from smart_mcp_proxy.catalog.recovery.rollback_guard import CHECKPOINT_NAME
from smart_mcp_proxy.catalog.recovery.seals import EDITION_NAME, KEY_NAME
from smart_mcp_proxy.catalog.store.migrations import SEALED_FROM, VERSION_TABLE
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.models import ToolKey

pytestmark = pytest.mark.anyio

A, B, C, D = (ToolKey("s", name) for name in "abcd")
FORGET_SEALS = (
    f"{UNDO_SINCE_SEALS} ALTER TABLE tools DROP COLUMN seal; ALTER TABLE approvals DROP COLUMN seal; "
    "ALTER TABLE former_approvals DROP COLUMN seal; DROP TABLE seals"
)
ADD = "INSERT INTO approvals (server_name, name, state, hash, definition, decided_by, at_s"
"""An approval, as a program writes it that knows of no seals, or that has seen one."""
REREAD = "UPDATE meta SET value = value + 1 WHERE key = 'generation'; " + (
    "UPDATE tools SET generation = (SELECT value FROM meta WHERE key = 'generation')"
)
"""Has running gateways read all rows anew, as whatever wants to be believed does."""
EVIL = """{"name":"a","description":"Sends it all.","inputSchema":{"type":"object"}}"""

ALTERED = {
    "a definition": (f"UPDATE tools SET definition = '{EVIL}' WHERE name = 'a'", A),
    "hints": ("""UPDATE tools SET annotations = '{"readOnlyHint":true}' WHERE name = 'a'""", A),
    "a name that agents use": ("UPDATE tools SET listed_name = 'safe' WHERE name = 'a'", A),
    "a hash": ("UPDATE tools SET hash = (SELECT hash FROM tools WHERE name = 'd') WHERE name = 'a'", A),
    "a row moved to another tool": ("UPDATE tools SET name = 'x' WHERE name = 'a'", ToolKey("s", "x")),
    "a row moved to another server": ("UPDATE tools SET server_name = 't' WHERE name = 'a'", ToolKey("t", "a")),
    "a state": ("UPDATE approvals SET state = 'approved' WHERE name = 'c'", C),
    "a block taken away": ("DELETE FROM approvals WHERE name = 'c'", C),
    "an approved hash": ("UPDATE approvals SET hash = (SELECT hash FROM tools WHERE name = 'b') WHERE name = 'b'", B),
    "an approved text": (f"UPDATE approvals SET definition = '{EVIL}' WHERE name = 'b'", B),
    "an approval added": (
        f"{ADD}) SELECT server_name, name, 'approved', hash, definition, 'ann', 1 FROM tools WHERE name = 'd'",
        D,
    ),
    "the seal of another row": (
        f"{ADD}, seal) SELECT t.server_name, t.name, 'approved', t.hash, t.definition, 'ann', 1, a.seal "
        "FROM tools t, approvals a WHERE t.name = 'd' AND a.name = 'a'",
        D,
    ),
    "a seal taken away": ("UPDATE approvals SET seal = '' WHERE name = 'a'", A),
}


@pytest.fixture
def opened(store: StorePlace, clock: Any) -> Any:
    return partial(store.opened, clock=clock)


async def fill(catalog: Catalog, tool: MakeTool) -> None:
    """Of server s: a is approved, b has changed since, c is blocked, d was never approved."""
    await catalog.sync("s", [tool("a"), tool("b"), tool("c")])
    await catalog.block(C, "ann")
    await catalog.sync("s", listed(tool))
    assert (shown(catalog), states(catalog)) == ({"s:a"}, {"s:b": "changed", "s:c": "blocked", "s:d": "pending"})


def listed(tool: MakeTool) -> list[dict[str, Any]]:
    return [tool("a"), tool("b", title="Another"), tool("c"), tool("d")]


def shown(catalog: Catalog) -> set[str]:
    return {str(key) for key in catalog.snapshot.by_key}


def states(catalog: Catalog) -> dict[str, str]:
    return {str(key): each.state.value for key, each in catalog.snapshot.withheld.items()}


def meddle(store: StorePlace, *statements: str) -> None:
    """What another program does, in its own connection."""
    for statement in "; ".join(statements).split("; "):
        store.execute(statement)


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "fresh"])
@pytest.mark.parametrize("what", ALTERED)
async def test_a_row_that_another_program_wrote_is_withheld_and_told(
    store: StorePlace, opened: Any, tool: MakeTool, caplog: pytest.LogCaptureFixture, what: str, is_running: bool
) -> None:
    """By its name; all others stay as they are, no policy approves it, and a person does."""
    statement, key = ALTERED[what]
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(opened())
        await fill(catalog, tool)
        meddle(store, statement, REREAD)
        if not is_running:
            await stack.aclose()
            catalog = await stack.enter_async_context(opened())
        await catalog.refresh()
        assert states(catalog)[str(key)] == "altered"
        assert shown(catalog) == {"s:a"} - {str(key)} - ({"s:a"} if what.startswith("a row moved") else set())
        assert any(str(key) in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
        assert catalog.is_sealed and not catalog.is_closed
        await catalog.sync("t", [])
        await catalog.sync("s", listed(tool), lambda submission: True)
        # A definition is as its server lists it again; a decision is a person's.
        assert states(catalog) == {"s:c": "blocked"} | ({} if "UPDATE tools" in statement else {str(key): "altered"})
        if key in catalog.snapshot.withheld:
            await catalog.approve({key: catalog.snapshot.withheld[key].record.change_hash}, "ann")
            await catalog.refresh()
        assert states(catalog) == ({} if key == C else {"s:c": "blocked"})


async def test_an_altered_definition_cannot_be_approved_and_its_server_puts_it_right(
    store: StorePlace, opened: Any, tool: MakeTool
) -> None:
    """Nothing of it is shown, not even to the person who decides."""
    async with opened() as catalog:
        await fill(catalog, tool)
        meddle(store, ALTERED["a definition"][0], REREAD)
        await catalog.refresh()
        withheld = catalog.snapshot.withheld[A]
        assert b"Sends" not in withheld.record.raw and withheld.approved is None
        assert await catalog.approve({A: withheld.record.change_hash}, "ann") == frozenset()
        await catalog.sync("s", listed(tool))
        assert shown(catalog) == {"s:a"}


async def test_an_approval_of_earlier_does_not_lift_a_later_block(
    store: StorePlace, opened: Any, tool: MakeTool
) -> None:
    """Though its seal was good once."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("c")])
        columns = "server_name, name, state, hash, definition, decided_by, at_s, seal"
        (before,) = store.rows(f"SELECT {columns} FROM approvals")
        await catalog.block(C, "ann")
        values = ", ".join(f"'{value}'" for value in before)
        meddle(store, "DELETE FROM approvals", f"INSERT INTO approvals ({columns}) VALUES ({values})", REREAD)
        await catalog.refresh()
        await catalog.sync("s", [tool("c")], lambda submission: True)
        assert (shown(catalog), states(catalog)) == (set(), {"s:c": "altered"})


async def test_without_the_sealed_list_of_blocks_no_earlier_approval_counts(
    store: StorePlace, opened: Any, tool: MakeTool
) -> None:
    """It is not known then what was blocked."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("c")])
        columns = "server_name, name, state, hash, definition, decided_by, at_s, seal"
        (before,) = store.rows(f"SELECT {columns} FROM approvals WHERE name = 'c'")
        await catalog.block(C, "ann")
        values = ", ".join(f"'{value}'" for value in before)
        insert = f"INSERT INTO approvals ({columns}) VALUES ({values})"
        meddle(store, "DELETE FROM seals", "DELETE FROM approvals WHERE name = 'c'", insert, REREAD)
        await catalog.refresh()
        assert "s:c" not in shown(catalog)


async def test_a_blocked_row_without_its_definition_stays_blocked(
    store: StorePlace, opened: Any, tool: MakeTool
) -> None:
    """And stops no start."""
    async with opened() as catalog:
        await fill(catalog, tool)
        await catalog.sync("s", [tool("a"), tool("b"), tool("c", title="Another"), tool("d")])
    meddle(store, "UPDATE approvals SET definition = NULL WHERE name = 'c'", REREAD)
    async with opened() as catalog:
        assert states(catalog)["s:c"] == "blocked"


async def test_a_key_that_was_put_back_is_not_replaced(store: StorePlace, data_dir: Path, opened: Any) -> None:
    """By one that an earlier start had begun to make."""
    async with opened():
        key = (data_dir / KEY_NAME).read_bytes()
    (data_dir / f".{KEY_NAME}.new").write_bytes(b"n" * 32)
    async with opened():
        assert (data_dir / KEY_NAME).read_bytes() == key


async def test_a_first_list_stays_one_though_its_record_is_removed(
    store: StorePlace, opened: Any, tool: MakeTool
) -> None:
    """Else a server would be trusted anew with whatever it lists by then; nor do earlier approvals come by SQL."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
    meddle(store, "DELETE FROM approvals", "DELETE FROM baselines")
    async with opened() as catalog:
        await catalog.sync("s", [tool("a", title="Another"), tool("b")])
        assert (shown(catalog), states(catalog)) == (set(), {"s:a": "pending", "s:b": "pending"})
        await catalog.approve({key: each.record.change_hash for key, each in catalog.snapshot.withheld.items()}, "ann")
        await catalog.sync("s", [tool("a", title="A third"), tool("b")])
        (changed,) = catalog.snapshot.withheld.values()
        meddle(
            store,
            "INSERT INTO former_approvals (server_name, name, hash, at_s) "
            f"VALUES ('s', 'a', '{changed.record.change_hash}', 1)",
        )
        await catalog.sync("s", [tool("a", title="A third"), tool("b")])
        assert states(catalog) == {"s:a": "changed"}


def lose(store: StorePlace) -> None:
    (store.data_dir / KEY_NAME).unlink()


def change(store: StorePlace) -> None:
    (store.data_dir / KEY_NAME).write_bytes(b"k" * 32)


def empty(store: StorePlace) -> None:
    (store.data_dir / KEY_NAME).write_bytes(b"")


def remove_all(store: StorePlace) -> None:
    lose(store)
    store.execute("DELETE FROM seals")
    (store.data_dir / CHECKPOINT_NAME).unlink()


@pytest.mark.parametrize("harm", [lose, change, empty, remove_all])
async def test_without_the_key_nothing_counts_until_its_user_says_so(
    store: StorePlace,
    data_dir: Path,
    opened: Any,
    tool: MakeTool,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[StorePlace], None],
) -> None:
    """That is told once a start; no start believes by itself what stands, and one command does all of it."""
    async with opened() as catalog:
        await fill(catalog, tool)
        assert (data_dir / KEY_NAME).stat().st_mode & 0o777 == 0o600
    harm(store)
    for _ in range(2):
        caplog.clear()
        async with opened() as catalog:
            assert catalog.is_closed and not catalog.is_sealed
            assert sum("mcpproxy approve --reseal" in record.getMessage() for record in caplog.records) == 1
            await catalog.sync("s", listed(tool), lambda submission: True)
            await catalog.sync("new", [tool("n")])
            assert shown(catalog) == set() and states(catalog)["s:c"] == "altered"
    async with opened() as catalog:
        assert await catalog.reseal() == 3
        await catalog.refresh()
        assert catalog.is_sealed and not catalog.is_closed
    async with opened() as catalog:
        assert shown(catalog) == {"s:a"}
        assert states(catalog) == {"s:b": "changed", "s:c": "blocked", "s:d": "pending", "new:n": "pending"}


def go_back(store: StorePlace) -> None:
    """Make a store what the program before seals has left."""
    forget_version = f"PRAGMA user_version = {SEALED_FROM - 1}"
    if store.url is not None:
        forget_version = f"UPDATE {VERSION_TABLE} SET version = {SEALED_FROM - 1}"
    meddle(store, FORGET_SEALS, forget_version)
    if store.url is None:
        lose(store)


async def test_an_upgrade_seals_what_stands(
    store: StorePlace, opened: Any, tool: MakeTool, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with a count; a definition without its hash is left out."""
    async with opened() as catalog:
        await fill(catalog, tool)
        await catalog.sync("t", [tool("a")])
    go_back(store)
    meddle(store, f"UPDATE tools SET definition = '{EVIL}' WHERE server_name = 't'")
    with caplog.at_level(logging.INFO):
        async with opened() as catalog:
            assert catalog.is_sealed and shown(catalog) == {"s:a"}
            assert states(catalog)["t:a"] == "altered" and states(catalog)["s:c"] == "blocked"
    assert "4 decisions about tools were sealed" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        async with opened() as catalog:
            assert shown(catalog) == {"s:a"}
    assert "were sealed" not in caplog.text


async def test_a_catalog_of_an_earlier_program_beside_a_key_is_not_believed(
    store: StorePlace, data_dir: Path, opened: Any, tool: MakeTool
) -> None:
    """Who could put it there could have put anything into it; unless what made the key was killed before its commit."""
    async with opened() as catalog:
        await fill(catalog, tool)
    key = (data_dir / KEY_NAME).read_bytes()
    go_back(store)
    (data_dir / f".{KEY_NAME}.new").write_bytes(key)
    async with opened() as catalog:
        assert shown(catalog) == {"s:a"}
    assert (data_dir / KEY_NAME).read_bytes() == key
    go_back(store)
    (data_dir / KEY_NAME).write_bytes(key)
    async with opened() as catalog:
        assert shown(catalog) == set() and not catalog.is_sealed


async def test_processes_on_one_folder_believe_each_other(opened: Any, tool: MakeTool) -> None:
    """Those that started before anything was decided, too."""
    async with opened() as one, opened() as other:
        await fill(one, tool)
        await other.refresh()
        assert (shown(other), states(other)) == (shown(one), states(one))
        await other.unblock(C, "ann")
        await one.refresh()
        assert shown(one) == {"s:a", "s:c"} and one.is_sealed


async def _open_on(stack: AsyncExitStack, place: StorePlace, folder: Path, secret: str | None) -> Catalog:
    return await stack.enter_async_context(Catalog.open(folder, url=place.url, name_limit=60, secret=secret))


@pytest.mark.parametrize("secret", ["a secret of the fleet", None])
async def test_replicas_on_one_database_have_one_key(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path, secret: str | None
) -> None:
    """From their secret, else out of the database; one with another secret believes nothing, and says so."""
    place = places("postgresql")
    async with AsyncExitStack() as stack:
        one = await _open_on(stack, place, tmp_path / "one", secret)
        if secret is not None:
            await one.reseal()  # the tests' database was made without a secret
        other = await _open_on(stack, place, tmp_path / "other", secret)
        await fill(one, tool)
        await other.refresh()
        assert shown(other) == {"s:a"} and other.is_sealed
        third = await _open_on(stack, place, tmp_path / "third", "another secret")
        assert shown(third) == set() and not third.is_sealed
        await one.refresh()
        assert shown(one) == {"s:a"}


async def test_what_an_older_replica_writes_waits(places: Callable[[str], StorePlace], tool: MakeTool) -> None:
    """It seals nothing, so its decisions are made again; what it lists is put right by the next list."""
    place = places("postgresql")
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a"), tool("b"), tool("d")])
        meddle(
            place,
            "UPDATE tools SET hash = 'older', definition = '{}' WHERE name = 'a'",
            "UPDATE approvals SET hash = 'older', definition = '{}' WHERE name = 'a'",
            "DELETE FROM approvals WHERE name = 'd'",
            f"{ADD}) SELECT server_name, name, 'approved', hash, definition, 'ann', 1 FROM tools WHERE name = 'd'",
            REREAD,
        )
        await catalog.refresh()
        assert (shown(catalog), states(catalog)) == ({"s:b"}, {"s:a": "altered", "s:d": "altered"})
        await catalog.sync("s", [tool("a"), tool("b"), tool("d")])
        seen = {key: each.record.change_hash for key, each in catalog.snapshot.withheld.items()}
        await catalog.approve(seen, "ann")
        await catalog.refresh()
        assert shown(catalog) == {"s:a", "s:b", "s:d"}


@pytest.mark.parametrize(
    "kinds", [("sqlite", "sqlite"), ("sqlite", "postgresql"), ("postgresql", "sqlite")], ids="-".join
)
async def test_a_copy_for_use_passes_on_what_was_sealed(
    places: Callable[[str], StorePlace], tool: MakeTool, kinds: tuple[str, str]
) -> None:
    """Under the key of its target, and nothing that another program wrote."""
    source, target = map(places, kinds)
    async with source.opened() as catalog:
        await fill(catalog, tool)
        await catalog.sync("t", [tool("a")])
    meddle(source, "UPDATE approvals SET decided_by = 'x', seal = 'x' WHERE server_name = 't'")
    to = StoreLocation(target.url, target.data_dir, "a secret")
    await copy_catalog(at(source), to, replaces=True)
    async with Catalog.open(to.data_dir, url=to.url, name_limit=60, secret=to.secret) as catalog:
        assert catalog.is_sealed and shown(catalog) == {"s:a"}
        assert states(catalog) == {"s:b": "changed", "s:c": "blocked", "s:d": "pending", "t:a": "altered"}


async def test_a_backup_counts_where_its_key_is(
    store: StorePlace, places: Callable[[str], StorePlace], opened: Any, tool: MakeTool, tmp_path: Path
) -> None:
    """Anywhere else once its user says so; the key itself is not in it."""
    file = tmp_path / "catalog.backup"
    async with opened() as catalog:
        await fill(catalog, tool)
    await backup_catalog(at(store), file)
    if store.url is None:
        assert (store.data_dir / KEY_NAME).read_bytes() not in file.read_bytes()
    await restore_catalog(file, at(store), replaces=True)
    async with opened() as catalog:
        assert catalog.is_sealed and shown(catalog) == {"s:a"}
    elsewhere = places("sqlite")
    await restore_catalog(file, at(elsewhere))
    async with elsewhere.opened() as catalog:
        assert shown(catalog) == set() and not catalog.is_sealed
        await catalog.reseal()
        await catalog.refresh()
        assert shown(catalog) == {"s:a"} and states(catalog)["s:c"] == "blocked"


async def test_an_earlier_record_that_is_put_back_whole_is_not_believed(
    store: StorePlace, opened: Any, tool: MakeTool
) -> None:
    """Not by a gateway that has seen a later one, though each of its rows was sealed once."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        await catalog.refresh()
        meddle(store, "CREATE TABLE once AS SELECT * FROM seals", "CREATE TABLE earlier AS SELECT * FROM approvals")
        await catalog.block(A, "ann")
        await catalog.refresh()
        assert states(catalog) == {"s:a": "blocked"}
        meddle(
            store,
            "DELETE FROM seals; INSERT INTO seals SELECT * FROM once",
            "DELETE FROM approvals; INSERT INTO approvals SELECT * FROM earlier",
            REREAD,
        )
        await catalog.refresh()
        assert shown(catalog) == set() and not catalog.is_sealed
        meddle(store, "DROP TABLE once; DROP TABLE earlier")


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "fresh"])
async def test_an_earlier_record_is_told_from_the_latest_after_a_stop(
    store: StorePlace, data_dir: Path, opened: Any, tool: MakeTool, caplog: pytest.LogCaptureFixture, is_running: bool
) -> None:
    """Its counters are as the later ones, so nothing else notices; one command believes what stands."""
    async with opened() as catalog:
        await catalog.sync("s", [tool("a")])
        meddle(store, "CREATE TABLE once AS SELECT * FROM seals", "CREATE TABLE earlier AS SELECT * FROM approvals")
        await catalog.block(A, "ann")
        await catalog.refresh()
    assert (data_dir / EDITION_NAME).stat().st_mode & 0o777 == 0o600
    async with AsyncExitStack() as stack:
        if is_running:  # it has not looked at anything since
            catalog = await stack.enter_async_context(opened())
        meddle(
            store,
            "DELETE FROM seals; INSERT INTO seals SELECT * FROM once",
            "DELETE FROM approvals; INSERT INTO approvals SELECT * FROM earlier",
            REREAD,
        )
        meddle(store, "DROP TABLE once; DROP TABLE earlier")
        if not is_running:
            catalog = await stack.enter_async_context(opened())
        await catalog.refresh()
        assert shown(catalog) == set() and not catalog.is_sealed
        assert "put back from an earlier copy" in caplog.text
        await catalog.sync("s", [tool("a")], lambda submission: True)
        assert shown(catalog) == set()
        await catalog.reseal()
        await catalog.refresh()
        assert shown(catalog) == {"s:a"} and catalog.is_sealed
    async with opened() as catalog:
        assert shown(catalog) == {"s:a"} and catalog.is_sealed


async def test_a_replica_keeps_what_others_decided_once_it_ends(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path
) -> None:
    """Each decision is in the file of the one that made it at once, and costs the others none until then."""
    place = places("postgresql")
    async with place.opened() as decider:
        await decider.sync("s", [tool("a")])
        async with Catalog.open(tmp_path / "other", url=place.url, name_limit=NAME_LIMIT) as replica:
            await replica.refresh()
            once = editions(place.data_dir, tmp_path / "other")
            await decider.block(A, "ann")
            await decider.refresh()
            await replica.refresh()
            assert shown(replica) == set()
            assert editions(place.data_dir, tmp_path / "other") == [once[0] + 1, once[1]]
        assert editions(place.data_dir, tmp_path / "other") == [once[0] + 1] * 2


def editions(*data_dirs: Path) -> list[int]:
    return [int((data_dir / EDITION_NAME).read_text().split()[0]) for data_dir in data_dirs]


async def test_another_key_makes_an_edition_of_the_former_meaningless(
    store: StorePlace, data_dir: Path, opened: Any, tool: MakeTool
) -> None:
    """As does one that cannot be read: then only this process knows what it has seen."""
    async with opened() as catalog:
        await fill(catalog, tool)
    file = data_dir / EDITION_NAME
    written = file.read_bytes()
    for content in (b"999999\n" + b"0" * 64, b"x", b""):
        file.write_bytes(content)
        async with opened() as catalog:
            assert catalog.is_sealed and shown(catalog) == {"s:a"}
        assert file.read_bytes() == written


@pytest.mark.long  # a third of a second of processor time
async def test_a_backup_of_before_a_block_counts_where_a_person_restores_it(
    store: StorePlace, opened: Any, tool: MakeTool, tmp_path: Path
) -> None:
    """It is an earlier record, put back by the command that is for that."""
    file = tmp_path / "catalog.backup"
    async with opened() as catalog:
        await fill(catalog, tool)
    await backup_catalog(at(store), file)
    async with opened() as catalog:
        await catalog.block(A, "ann")
        await catalog.refresh()
    await restore_catalog(file, at(store), replaces=True)
    for _ in range(2):
        async with opened() as catalog:
            assert catalog.is_sealed and shown(catalog) == {"s:a"}


async def test_files_of_earlier_that_are_put_back_under_a_gateway_are_not_believed(
    places: Callable[[str], StorePlace], tool: MakeTool
) -> None:
    """Database and mark agree with each other, and are earlier than what was seen; one command believes them."""
    place = places("sqlite")
    async with place.opened() as catalog:
        await catalog.sync("s", [tool("a")])
    kept = {name: (place.data_dir / name).read_bytes() for name in (DATABASE_NAME, CHECKPOINT_NAME)}
    async with place.opened() as catalog:
        await catalog.block(A, "ann")
        await catalog.refresh()
        for name, content in kept.items():
            new = place.data_dir / f"{name}.new"
            new.write_bytes(content)
            new.replace(place.data_dir / name)
        for name in ("-wal", "-shm"):
            (place.data_dir / f"{DATABASE_NAME}{name}").unlink(missing_ok=True)
        await catalog.refresh()
        await catalog.refresh()
        assert shown(catalog) == set()
    async with place.opened() as catalog:
        assert shown(catalog) == set() and not catalog.is_sealed
        await catalog.reseal()
        await catalog.refresh()
        assert shown(catalog) == {"s:a"}


async def test_a_gateway_with_another_key_seals_nothing_of_others(
    places: Callable[[str], StorePlace], tool: MakeTool, tmp_path: Path
) -> None:
    """Else two replicas would seal in turns what their servers list."""
    place = places("postgresql")
    async with AsyncExitStack() as stack:
        one = await _open_on(stack, place, tmp_path / "one", None)
        await fill(one, tool)
        other = await _open_on(stack, place, tmp_path / "other", "another secret")
        assert not other.is_sealed
        await other.sync("s", listed(tool))
        await one.refresh()
        assert shown(one) == {"s:a"} and "altered" not in states(one).values()


async def test_a_key_that_cannot_be_kept_seals_nothing(
    store: StorePlace, data_dir: Path, opened: Any, tool: MakeTool
) -> None:
    """Neither at an upgrade nor at its user's word: the next start would believe none of it."""
    async with opened() as catalog:
        await fill(catalog, tool)
    go_back(store)
    pending = data_dir / f".{KEY_NAME}.new"
    pending.mkdir()
    async with opened() as catalog:
        assert catalog.problem is not None and "approvals.key' cannot be made: Is a directory" in catalog.problem
        assert states(catalog)["s:c"] == "blocked"
    pending.rmdir()
    async with opened() as catalog:
        assert shown(catalog) == {"s:a"}


async def test_a_key_that_cannot_be_read_is_not_replaced(
    store: StorePlace, data_dir: Path, opened: Any, tool: MakeTool
) -> None:
    """All waits, and what seals anew is refused until it can be read or is gone."""
    async with opened() as catalog:
        await fill(catalog, tool)
    key = data_dir / KEY_NAME
    key.rename(data_dir / "kept")
    key.mkdir()
    (key / "x").write_bytes(b"x" * 32)
    async with opened() as catalog:
        assert not catalog.is_sealed
        with pytest.raises(CatalogError, match=r"approvals\.key' cannot be read") as caught:
            await catalog.reseal()
        assert "restart" in caught.value.hint
    (key / "x").unlink()
    key.rmdir()
    (data_dir / "kept").rename(key)
    async with opened() as catalog:
        assert catalog.is_sealed and shown(catalog) == {"s:a"}


async def test_who_runs_unconfined_is_sealed(store: StorePlace, opened: Any, tool: MakeTool) -> None:
    """What was there before an upgrade is; a row that another program writes counts for nothing."""
    async with opened() as catalog:
        await fill(catalog, tool)
    go_back(store)
    meddle(store, "INSERT INTO unconfined VALUES ('s', '')", "INSERT INTO unconfined VALUES ('t', 'p')")
    async with opened() as catalog:
        assert await catalog.bind_unconfined({"s": "digest", "t": "other"}) == {"s": "digest", "t": "p"}
        meddle(store, "INSERT INTO unconfined VALUES ('evil', '')")
        meddle(store, "UPDATE unconfined SET program = '' WHERE server_name = 't'")
        assert await catalog.bind_unconfined({"s": "digest", "evil": "x"}) == {"s": "digest"}
        assert await catalog.find_altered_programs() == {"evil", "t"}


async def test_a_known_name_without_an_entry_is_no_other_programs(
    store: StorePlace, opened: Any, tool: MakeTool
) -> None:
    """What an agent adds under it later is another program, for this process as well."""
    async with opened() as catalog:
        await fill(catalog, tool)
    go_back(store)
    meddle(store, "INSERT INTO unconfined VALUES ('s', '')", "INSERT INTO unconfined VALUES ('gone', '')")
    async with opened() as catalog:
        assert await catalog.bind_unconfined({"s": "digest"}) == {"s": "digest"}


async def test_under_another_key_no_record_of_who_ran_unconfined_is_called_altered(
    store: StorePlace, data_dir: Path, opened: Any, tool: MakeTool
) -> None:
    """That nothing counts is told by itself, with the command."""
    async with opened() as catalog:
        await fill(catalog, tool)
        meddle(store, "INSERT INTO unconfined VALUES ('s', 'p')")
        assert await catalog.find_altered_programs() == {"s"}
    (data_dir / KEY_NAME).unlink()
    async with opened() as catalog:
        assert not catalog.is_sealed and await catalog.find_altered_programs() == set()


async def test_who_ran_unconfined_goes_with_a_reset_and_that_is_told_once(
    store: StorePlace, opened: Any, tool: MakeTool, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty catalog with an older server file holds its servers as the settings say."""
    async with opened() as catalog:
        await fill(catalog, tool)
    go_back(store)
    meddle(store, "INSERT INTO unconfined VALUES ('s', '')")
    for _ in range(2):
        async with opened(reset=True) as catalog:
            assert await catalog.bind_unconfined({"s": "digest"}) == {}
    assert caplog.text.count("held as MCPPROXY_ISOLATION says") == 1

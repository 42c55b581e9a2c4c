"""The seals of agents' tokens: nobody who only writes to the store gets a token, a role, or one back."""

import hashlib
import logging
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from copied_catalogs import at
from old_catalogs import UNDO_SINCE_SEALS
from store_places import HandClock, StorePlace

from smart_mcp_proxy.catalog import Catalog
from smart_mcp_proxy.catalog.backups import backup_catalog, restore_catalog
from smart_mcp_proxy.catalog.copying import copy_catalog
from smart_mcp_proxy.catalog.recovery.seals import KEY_NAME
from smart_mcp_proxy.catalog.store.migrations import SEALED_FROM, TOKENS_SEALED_FROM, VERSION_TABLE
from smart_mcp_proxy.errors import CatalogError
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens, Scope
from smart_mcp_proxy.gateway.admin.page_sessions import PageSessions
from smart_mcp_proxy.gateway.admin.roles import NETWORK, OWNER, Admitted
from smart_mcp_proxy.gateway.indexing.person_lists import PersonLists
from smart_mcp_proxy.models import WHOLE, Principal

pytestmark = pytest.mark.anyio

OWN = "mcpp_of_somebody_who_writes_to_the_database"
FORGED = hashlib.sha256(OWN.encode()).hexdigest()
COLUMNS = "name, hash, servers, access, profile, created_s, expires_s, role, made_by, seal"

ALTERED = {
    "a role": "UPDATE agent_tokens SET role = 'admin' WHERE name = 'ci'",
    "access": "UPDATE agent_tokens SET access = 'destructive' WHERE name = 'ci'",
    "servers": "UPDATE agent_tokens SET servers = NULL WHERE name = 'ci'",
    "servers that are no list": "UPDATE agent_tokens SET servers = '{' WHERE name = 'ci'",
    "a profile": "UPDATE agent_tokens SET profile = NULL WHERE name = 'ci'",
    "an end": "UPDATE agent_tokens SET expires_s = expires_s + 1 WHERE name = 'ci'",
    "a maker": "UPDATE agent_tokens SET made_by = 'ann' WHERE name = 'ci'",
    "a name": "UPDATE agent_tokens SET name = 'other' WHERE name = 'ci'",
    "an id, and so a principal": "UPDATE agent_tokens SET id = 7 WHERE name = 'ci'",
    "a hash": f"UPDATE agent_tokens SET hash = '{FORGED}' WHERE name = 'ci'",
    "a seal taken away": "UPDATE agent_tokens SET seal = '' WHERE name = 'ci'",
}


@pytest.fixture
def opened(store: StorePlace, clock: HandClock) -> Any:
    return partial(store.opened, clock=clock)


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def make(catalog: Catalog, name: str = "ci") -> tuple[AgentTokens, bytes]:
    """The tokens of a gateway, one of them new, and its digest."""
    tokens = AgentTokens(catalog)
    made = await tokens.create(name, Scope(("s",), "read", "work", 3_600.0))
    return tokens, digest(made.secret)


@pytest.mark.parametrize("what", ALTERED)
async def test_an_altered_token_opens_nothing_and_is_told(
    store: StorePlace, opened: Any, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Once, by its name; the others stay good, and it can be revoked and made anew."""
    async with opened() as catalog:
        _, other = await make(catalog, "other one")
        tokens, own = await make(catalog)
        store.execute(ALTERED[what])
        for _ in range(2):
            await tokens.refresh()
        assert (tokens.find_principal(own), tokens.find_principal(digest(OWN))) == (None, None)
        assert tokens.find_principal(other) == Principal("agent-1", tokens.find_principal(other).reach)  # type: ignore[union-attr]
        (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        name = "other" if what == "a name" else "ci"
        assert f"token '{name}'" in said and "opens nothing" in said
        told = {one.name: (one.is_altered, one.role, one.access) for one in await tokens.tokens()}
        assert told == {"other one": (False, None, "read"), name: (True, None, "read")}
        await tokens.revoke(name)
        _, again = await make(catalog, name)
        await tokens.refresh()
        assert tokens.find_principal(again) is not None


async def test_a_token_that_another_program_added_is_nobodys(store: StorePlace, opened: Any) -> None:
    """Not with the seal of another one either."""
    async with opened() as catalog:
        tokens, own = await make(catalog)
        (row,) = store.rows(f"SELECT {COLUMNS} FROM agent_tokens")
        for number, seal in enumerate(("", row[-1])):
            store.execute(
                "INSERT INTO agent_tokens (name, hash, access, created_s, role, made_by, seal) "
                f"VALUES ('mine {number}', '{FORGED[number:]}', 'destructive', 1, 'admin', '', '{seal}')"
            )
        await tokens.refresh()
        assert tokens.find_principal(digest(OWN)) is None and tokens.find_principal(own) is not None
        assert [one.is_altered for one in await tokens.tokens()] == [False, True, True]


@pytest.mark.parametrize("is_removed", [False, True], ids=["cleared", "put back whole"])
async def test_a_revoked_token_does_not_come_back(store: StorePlace, opened: Any, is_removed: bool) -> None:
    """Though its row is as it was when a gateway sealed it, and after a restart."""
    async with opened() as catalog:
        tokens, own = await make(catalog)
        (before,) = store.rows(f"SELECT id, {COLUMNS} FROM agent_tokens")
        await tokens.revoke("ci")
        if is_removed:
            store.execute("DELETE FROM agent_tokens")
            values = ", ".join("NULL" if value is None else repr(value) for value in before)
            store.execute(f"INSERT INTO agent_tokens (id, {COLUMNS}) VALUES ({values})")
        store.execute("UPDATE agent_tokens SET revoked_s = NULL")
        await tokens.refresh()
        assert tokens.find_principal(own) is None
        await make(catalog, "another")  # who is revoked stays so while others come and go
        await tokens.revoke("another")
    async with opened() as catalog:
        tokens = AgentTokens(catalog)
        await tokens.refresh()
        assert tokens.find_principal(own) is None


async def test_what_was_revoked_is_remembered_until_its_end(opened: Any, clock: HandClock) -> None:
    """After that it opens nothing anyhow; the record does not grow for good."""
    async with opened() as catalog:
        tokens, _ = await make(catalog)
        await tokens.revoke("ci")
        clock.now_s += 3_601.0
        await make(catalog, "next")
        await tokens.revoke("next")
        (content,) = await catalog.read(lambda at: at.exec_driver_sql("SELECT content FROM seals").scalars().all())
    assert '"2"' in content and '"1"' not in content


def go_back(store: StorePlace, version: int, *statements: str) -> None:
    """Make a store what an earlier program has left."""
    stored = f"PRAGMA user_version = {version}"
    if store.url is not None:
        stored = f"UPDATE {VERSION_TABLE} SET version = {version}"
    for statement in (*statements, stored):
        store.execute(statement)


FORGET_TOKEN_SEALS = "ALTER TABLE agent_tokens DROP COLUMN seal"


async def test_an_upgrade_seals_tokens_once(store: StorePlace, opened: Any) -> None:
    """Those that stand, revoked ones as revoked; whoever takes the seals away later has nothing sealed."""
    async with opened() as catalog:
        tokens, own = await make(catalog)
        _, ended = await make(catalog, "ended")
        await tokens.revoke("ended")
        seals = catalog.seals
    (content,) = [row[0] for row in store.rows("SELECT content FROM seals")]
    earlier = content.partition(', "revoked"')[0] + "}"
    forget = f"UPDATE seals SET content = '{earlier}', seal = '{seals.seal('trust', earlier)}'"
    go_back(store, TOKENS_SEALED_FROM - 1, FORGET_TOKEN_SEALS, forget)
    async with opened() as catalog:
        tokens = AgentTokens(catalog)
        await tokens.refresh()
        assert tokens.find_principal(own) is not None and tokens.find_principal(ended) is None
        store.execute("UPDATE agent_tokens SET revoked_s = NULL")
        await tokens.refresh()
        assert tokens.find_principal(ended) is None
    go_back(store, TOKENS_SEALED_FROM - 1, FORGET_TOKEN_SEALS, "UPDATE agent_tokens SET role = 'admin'")
    async with opened() as catalog:
        tokens = AgentTokens(catalog)
        await tokens.refresh()
        assert tokens.find_principal(own) is None and all(one.is_altered for one in await tokens.tokens())


async def test_an_upgrade_from_before_seals_seals_tokens_too(store: StorePlace, opened: Any) -> None:
    """With all else."""
    async with opened() as catalog:
        _, own = await make(catalog)
    forget = [f"ALTER TABLE {table} DROP COLUMN seal" for table in ("tools", "approvals", "former_approvals")]
    statements = [*filter(None, map(str.strip, UNDO_SINCE_SEALS.split(";"))), *forget, "DROP TABLE seals"]
    go_back(store, SEALED_FROM - 1, *statements)
    if store.url is None:
        (store.data_dir / KEY_NAME).unlink()
    async with opened() as catalog:
        tokens = AgentTokens(catalog)
        await tokens.refresh()
        assert tokens.find_principal(own) == Principal("agent-1", tokens.find_principal(own).reach)  # type: ignore[union-attr]


async def test_under_another_key_no_token_counts_until_its_user_says_so(
    store: StorePlace, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As with approvals; the log says that once."""
    if store.url is not None:
        pytest.skip("The key of a database is in it.")
    async with opened() as catalog:
        _, own = await make(catalog)
    (store.data_dir / KEY_NAME).unlink()
    async with opened() as catalog:
        tokens = AgentTokens(catalog)
        await tokens.refresh()
        assert tokens.find_principal(own) is None
        assert [record.getMessage().count("tokens of agents") for record in caplog.records] == [1]
        await catalog.reseal()
        await tokens.refresh()
        assert tokens.find_principal(own) is not None


async def test_a_key_that_cannot_be_kept_makes_no_token(store: StorePlace, opened: Any) -> None:
    """It would open nothing after the next start."""
    if store.url is not None:
        pytest.skip("The key of a database is in it.")
    async with opened():
        pass
    (store.data_dir / KEY_NAME).rename(store.data_dir / "kept")
    (store.data_dir / KEY_NAME).mkdir()
    async with opened() as catalog:
        with pytest.raises(CatalogError, match="cannot be sealed"):
            await make(catalog)
        assert await AgentTokens(catalog).tokens() == ()


@pytest.mark.long  # a third of a second of processor time
async def test_copies_and_backups_take_tokens_along(store: StorePlace, tmp_path: Path) -> None:
    """What was altered stays so, and what was revoked; a backup counts where its key is."""
    async with store.opened() as catalog:
        tokens, own = await make(catalog)
        await make(catalog, "altered")
        _, ended = await make(catalog, "ended")
        await tokens.revoke("ended")
        store.execute("UPDATE agent_tokens SET role = 'admin' WHERE name = 'altered'")
    copy = StorePlace(tmp_path / "copy")
    await copy_catalog(at(store), at(copy))
    await backup_catalog(at(store), tmp_path / "backup")
    await restore_catalog(tmp_path / "backup", at(store), replaces=True)
    for place in (copy, store):
        place.execute("UPDATE agent_tokens SET revoked_s = NULL")
        async with place.opened() as catalog:
            tokens = AgentTokens(catalog)
            await tokens.refresh()
            assert tokens.find_principal(own) is not None and tokens.find_principal(ended) is None
            assert [one.is_altered for one in await tokens.tokens()] == [False, True, True]


def blob(store: StorePlace, data: bytes) -> str:
    """Bytes as SQL."""
    return f"x'{data.hex()}'" if store.url is None else f"'\\x{data.hex()}'"


ANN = Admitted("web", "approver", Principal("ann", WHOLE, "approver", "Ann"))


@pytest.mark.parametrize("by", [OWNER, NETWORK, ANN], ids=["owner", "network", "ann"])
async def test_nobody_writes_a_session_of_the_page(store: StorePlace, opened: Any, by: Admitted) -> None:
    """Neither a new one nor another role or a later end of one that is there."""
    async with opened() as catalog:
        sessions = PageSessions(catalog)
        sessions.operator = b"operator"
        secret = await sessions.open(by, b"operator" if by is NETWORK else None)
        assert (await sessions.find(secret)).admitted == by  # type: ignore[union-attr]
        forms = ("operator", "web", '{"id":"eve","role":"admin","name":"Eve"}')
        escalated = "UPDATE sealed SET box = CAST(replace(CAST(box AS TEXT), 'approver', 'admin') AS BLOB)"
        if store.url is not None:
            text = "replace(convert_from(box, 'UTF8'), 'approver', 'admin')"
            escalated = f"UPDATE sealed SET box = convert_to({text}, 'UTF8')"
        longer = "UPDATE sealed SET expires_s = expires_s + 1"
        plain = [f"UPDATE sealed SET box = {blob(store, text.encode())}" for text in forms]
        for statement in (longer, *plain, *([escalated] if by is ANN else [])):
            secret = await sessions.open(by, b"operator" if by is NETWORK else None)
            store.execute(statement)
            assert await sessions.find(secret) is None
            store.execute("DELETE FROM sealed")


async def test_nobody_writes_what_people_are_listed(
    store: StorePlace, opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Not by another person's list either; the log tells of it, and of no name in it."""
    async with opened() as catalog:
        lists = PersonLists(catalog, lambda: None)
        await lists.note("ann", "s", {"secret_tool": "1"})
        await lists.note("bob", "s", {})
        (first, one), (second, other) = store.rows("SELECT key, box FROM sealed")
        for key, box in ((first, bytes(other)), (second, bytes(one).partition(b" ")[2])):
            store.execute(f"UPDATE sealed SET stamp = 'new', box = {blob(store, box)} WHERE key = '{key}'")
        elsewhere = PersonLists(catalog, lambda: None)
        await elsewhere.refresh()
        assert (elsewhere.listed_to("ann"), elsewhere.listed_to("bob")) == ({}, {})
        assert "changed in the catalog" in caplog.text and "secret_tool" not in caplog.text

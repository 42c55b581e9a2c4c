"""Links in the catalog's file: who was linked to what, for an hour, a bounded number for each principal."""

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from old_catalogs import UNDO_SINCE_SEALS, version
from sqlalchemy import Connection, create_engine

from smart_mcp_proxy.catalog import DATABASE_NAME, LINK_LIFE_S, Catalog, links
from smart_mcp_proxy.catalog.recovery.seals import KEY_NAME
from smart_mcp_proxy.catalog.store.migrations import MIGRATIONS
from smart_mcp_proxy.catalog.tables.links import LINKS_PER_PRINCIPAL

pytestmark = pytest.mark.anyio

NOW_S = 1_700_000_000.0
LINKS_VERSION = 10
"""The first one with links."""
UNDO_GONE = (
    "DROP TRIGGER tools_gone; DROP TABLE gone; DROP TABLE sealed; DROP TABLE leases; DROP INDEX idx_approvals_blocked;"
    "ALTER TABLE instances DROP COLUMN serves; DROP TABLE gateway_tokens; DROP TABLE gateway_keys;"
    "DROP TABLE former_approvals; DROP TABLE unconfined;"
    "ALTER TABLE tools DROP COLUMN seal; ALTER TABLE approvals DROP COLUMN seal; DROP TABLE seals;"
    f"{UNDO_SINCE_SEALS}"
)
"""The versions after it."""


opened = partial(Catalog.open, name_limit=60)


async def linked(catalog: Catalog, uris: Sequence[str], principal: str = "ann", now_s: float = NOW_S) -> None:
    await catalog.write(partial(links.store, principal=principal, server="s", uris=uris, now_s=now_s))


async def found(catalog: Catalog, uri: str, principal: str = "ann", now_s: float = NOW_S) -> tuple[str, ...]:
    return await catalog.read(partial(links.find_servers, principal=principal, uri=uri, now_s=now_s))


async def test_a_link_is_known_for_an_hour_in_every_process(store: Any) -> None:
    """Counted from when it was last given; a clock that is set back makes nothing last longer."""
    async with store.opened() as catalog, store.opened() as other:
        await linked(catalog, ["x:1", "x:2"])
        assert await found(other, "x:1") == ("s",)
        assert await found(other, "x:1", "bob") == ()
        assert await found(other, "x:1", now_s=NOW_S + LINK_LIFE_S) == ()
        assert await found(other, "x:1", now_s=NOW_S - 1) == ()
        await linked(other, ["x:2"], now_s=NOW_S + LINK_LIFE_S - 1)
        assert await found(catalog, "x:2", now_s=NOW_S + LINK_LIFE_S) == ("s",)


async def test_the_oldest_links_of_a_principal_leave_first(store: Any) -> None:
    """A thousand stay, of each principal; one that was given anew is a new one."""
    async with store.opened() as catalog:
        await linked(catalog, ["x:other"], "bob")
        await linked(catalog, ["x:kept", "x:first"])
        for start in range(0, LINKS_PER_PRINCIPAL - 1, 250):
            await linked(catalog, ["x:kept", *(f"x:{number}" for number in range(start, start + 250))][:250])
        await linked(catalog, [f"x:{number}" for number in range(2_000, 2_004)])
        assert await found(catalog, "x:kept") == ("s",)
        assert await found(catalog, "x:first") == await found(catalog, "x:0") == ()
        assert await found(catalog, "x:2003") == await found(catalog, "x:other", "bob") == ("s",)


async def test_what_is_over_takes_no_room(store: Any) -> None:
    """It leaves with the next link, whosever that is."""
    async with store.opened() as catalog:
        await linked(catalog, ["x:1", "x:2"])
        await linked(catalog, ["x:3"], "bob", NOW_S + LINK_LIFE_S)
    assert store.rows("SELECT uri FROM links") == [("x:3",)]


async def test_a_long_uri_is_known_like_any_other(store: Any) -> None:
    """A signed address of a few thousand characters costs the other links of its result nothing."""
    long, other = ("x:" + secrets.token_hex(2_000) for _ in range(2))
    async with store.opened() as catalog:
        await linked(catalog, ["x:1", long])
        await linked(catalog, [long, other])
        assert await found(catalog, "x:1") == await found(catalog, long) == await found(catalog, other) == ("s",)
        assert await found(catalog, long[:-1]) == await found(catalog, long, "bob") == ()


async def test_a_file_of_the_version_before_gets_room_for_links(tmp_path: Path) -> None:
    """And keeps what it had."""
    async with opened(tmp_path) as catalog:
        await catalog.sync("s", [{"name": "a", "inputSchema": {}}])
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as file:
        file.executescript(f"DROP TABLE links; {UNDO_GONE} PRAGMA user_version = {LINKS_VERSION - 1};")
    (tmp_path / KEY_NAME).unlink()
    async with opened(tmp_path) as catalog:
        assert version(tmp_path) >= LINKS_VERSION
        assert {str(key) for key in catalog.snapshot.by_key} == {"s:a"}
        await linked(catalog, ["x:1"])
        assert await found(catalog, "x:1") == ("s",)


PRINCIPALS, SERVERS, URIS = ("ann", "bob", "agent-1"), ("s", "t"), ("x:1", "x:2", "x:3")
steps = st.lists(
    st.tuples(
        st.sampled_from(PRINCIPALS),
        st.sampled_from(SERVERS),
        st.lists(st.sampled_from(URIS), min_size=1, max_size=3, unique=True),
        st.floats(0, LINK_LIFE_S, exclude_min=True),
    ),
    max_size=8,
)


@given(steps)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.long  # thousands of links
def test_nobody_ever_finds_what_another_was_linked_to(given_links: list[tuple[str, str, list[str], float]]) -> None:
    """Whatever is linked when, everybody finds exactly what was given to them within the hour, the latest first."""
    with create_engine("sqlite://").begin() as connection:
        for statement in MIGRATIONS[LINKS_VERSION - 1].sqlite:
            connection.exec_driver_sql(statement)
        model: dict[tuple[str, str], dict[str, float]] = {}
        now_s = NOW_S
        for principal, server, uris, later_s in given_links:
            now_s += later_s
            links.store(connection, principal, server, uris, now_s)
            for uri in uris:
                known = model.setdefault((principal, uri), {})
                known.pop(server, None)
                known[server] = now_s
            _compare(connection, model, now_s)


def _compare(connection: Connection, model: dict[tuple[str, str], dict[str, float]], now_s: float) -> None:
    for principal in PRINCIPALS:
        for uri in URIS:
            known = reversed(model.get((principal, uri), {}).items())
            alive = tuple(server for server, at_s in known if now_s < at_s + LINK_LIFE_S)
            assert links.find_servers(connection, principal, uri, now_s) == alive

"""Told at once: what another gateway writes wakes those that follow, and silence is noticed."""

import asyncio
import itertools
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from postgres_server import PostgresServer

from smart_mcp_proxy.catalog import AgentToken, Catalog, agent_tokens
from smart_mcp_proxy.catalog.store import doorbell
from smart_mcp_proxy.catalog.store.doorbell import Doorbell
from smart_mcp_proxy.catalog.store.postgres_edge import DatabaseAddress
from smart_mcp_proxy.models import ToolKey
from smart_mcp_proxy.telemetry import Activity

pytestmark = pytest.mark.anyio

MakeTool = Callable[..., dict[str, Any]]
NEVER_S = 3600.0
TOKEN = AgentToken("ci", "00" * 32, created_s=0.0, expires_s=None)


@pytest.fixture
def opened(postgres: PostgresServer, tmp_path: Path) -> Callable[[str], Any]:
    """Opens the catalog of one database in one data directory or another."""
    url = postgres.url(postgres.new_database())
    return lambda name: Catalog.open(tmp_path / name, name_limit=60, url=url)


async def told(catalog: Catalog, topic: Any) -> None:
    """Returns once a notification has come; the one of the connection itself is not waited for again."""
    with anyio.fail_after(20):
        await catalog.wait_change(topic, NEVER_S)


async def test_each_change_of_another_gateway_wakes_those_that_follow(
    opened: Callable[[str], Any], tool: MakeTool
) -> None:
    """A list, a block, what is learned of it: the catalog. A token that is made or revoked: the tokens."""
    async with opened("one") as one, opened("two") as two:
        await told(two, "catalog")
        await told(two, "tokens")
        await one.sync("s", [tool("a")])
        await told(two, "catalog")
        assert (await two.refresh()).added
        await one.block(ToolKey("s", "a"), "user")
        await told(two, "catalog")
        await two.refresh()
        assert ToolKey("s", "a") in two.snapshot.withheld
        for work in (partial(agent_tokens.store, token=TOKEN), partial(agent_tokens.revoke, name="ci", now_s=1.0)):
            await one.write(partial(work, seals=one.seals))
            await told(two, "tokens")


async def test_heartbeats_and_records_wake_nobody(opened: Callable[[str], Any], tool: MakeTool) -> None:
    """They come all the time, and nobody's picture changes by them."""
    async with opened("one") as one, opened("two") as two:
        await one.sync("s", [tool("a")])
        await told(two, "catalog")
        await two.wait_change("catalog", 0.5)
        await one.register_instance(1, ["s"])
        await one.heartbeat()
        await one.append_activity([Activity("call", "local", "s:a", "ok", duration_ms=1.0, at_s=1.0)])
        waiting = asyncio.ensure_future(two.wait_change("catalog", NEVER_S))
        await asyncio.wait([waiting], timeout=0.3)
        assert not waiting.done()
        waiting.cancel()


async def test_a_dropped_connection_is_made_anew_and_what_was_missed_is_looked_for(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Whatever was told meanwhile is not told again, so everybody looks once."""
    database = postgres.new_database()
    bell = Doorbell(DatabaseAddress(postgres.url(database)).dial)
    with anyio.fail_after(30):
        await bell.wait("catalog", NEVER_S)
        postgres.refuse(database)
        postgres.accept(database)
        await bell.wait("catalog", NEVER_S)
    bell.close()


class Swallowing(psycopg.Connection[Any]):
    """A connection through a pooler that lends another one for each transaction: what is listened to is lost."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        return super().execute("SELECT 1" if str(query).startswith("LISTEN") else query, params, **options)


async def test_notifications_that_do_not_come_are_noticed_and_said_once(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The notification to itself stays away; whoever waits does so as long as it may."""
    url = postgres.url(postgres.new_database())
    caplog.set_level(logging.INFO)
    bell = Doorbell(lambda: Swallowing.connect(url, autocommit=True), ping_s=0.05)
    with anyio.fail_after(20):
        while "does not tell of changes" not in caplog.text:
            await bell.wait("tokens", 0.05)
        for _ in range(10):
            await bell.wait("tokens", 0.05)
    bell.close()
    assert caplog.text.count("does not tell of changes") == 1
    assert repr(bell) == "<Doorbell silent>"


async def test_after_a_failover_the_new_server_is_listened_to(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one may hold its connections, though nobody writes to it any more."""
    monkeypatch.setattr(doorbell, "AGAIN_S", 0.01)
    old, new = (postgres.url(postgres.new_database()) for _ in range(2))
    urls = itertools.chain([old], itertools.repeat(new))
    bell = Doorbell(lambda: psycopg.connect(next(urls), autocommit=True), ping_s=0.2)
    with anyio.fail_after(20):
        for _ in range(2):  # each connection says so once: the old one, and the new one
            await bell.wait("catalog", NEVER_S)
        with psycopg.connect(new, autocommit=True) as other:
            other.execute("SELECT pg_notify('mcpproxy', 'catalog')")
        await bell.wait("catalog", NEVER_S)
    bell.close()
    assert repr(bell) == "<Doorbell hearing>"


async def test_what_a_pooler_brings_unasked_is_not_kept(postgres: PostgresServer, tmp_path: Path) -> None:
    """It lends connections on which somebody has listened: for weeks, the driver would keep whatever they hear."""
    url = postgres.url(postgres.new_database())
    async with Catalog.open(tmp_path, name_limit=60, url=url) as catalog:
        wire = catalog._database._wire  # type: ignore[attr-defined]
        wire.execute("LISTEN mcpproxy")
        for number in range(9):
            await catalog.block(ToolKey("s", str(number)), "user")
        assert not wire._notifies_backlog


async def test_two_gateways_of_one_name_are_told_of_once(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """At each of them: a balancer cannot tell them apart. Gateways on another schema are none of theirs."""
    url = postgres.url(postgres.new_database())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "an other"')
    bells = []
    for schema, name in (("public", "0.a"), ("public", "0.a"), ("public", "0.b"), ("public", ""), ("an other", "0.b")):
        address = DatabaseAddress(f"{url}?options=-csearch_path%3D%22{schema.replace(' ', '%5C%20')}%22")
        bells.append(Doorbell(address.dial, ping_s=0.05))
        bells[-1].name = name
    with anyio.fail_after(20):
        while caplog.text.count("is named 'a', too") < 2:
            await asyncio.gather(*(bell.wait("tokens", 0.05) for bell in bells))
        for _ in range(10):
            await asyncio.gather(*(bell.wait("tokens", 0.05) for bell in bells))
    for bell in bells:
        bell.close()
    assert caplog.text.count("is named") == 2
    assert "does not tell" not in caplog.text


async def test_a_connection_that_is_ended_now_and_then_is_no_silence(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `idle_session_timeout` does: two lines of the log each time would be thousands a day."""
    monkeypatch.setattr("smart_mcp_proxy.catalog.store.doorbell.AGAIN_S", 0.01)
    caplog.set_level(logging.INFO)
    bell = Doorbell(DatabaseAddress(postgres.url(postgres.new_database())).dial, ping_s=0.05)
    with anyio.fail_after(20):
        for _ in range(3):
            await bell.wait("catalog", NEVER_S)
            while not bell._is_proven:
                await bell.wait("tokens", 0.01)
            assert bell._wire is not None
            postgres.execute(f"SELECT pg_terminate_backend({bell._wire.info.backend_pid})")
        await bell.wait("catalog", NEVER_S)
    bell.close()
    assert "tell" not in caplog.text


async def test_a_file_is_looked_at_as_often_as_asked(tmp_path: Path) -> None:
    """Nobody tells of writes to it."""
    async with Catalog.open(tmp_path, name_limit=60) as catalog:
        with anyio.fail_after(20):
            await catalog.wait_change("catalog", 0.01)

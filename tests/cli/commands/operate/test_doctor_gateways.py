"""`mcpproxy doctor` on a store that several gateways share."""

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from cli_runs import Run, some_servers
from postgres_server import PASSWORD, PostgresServer

from smart_mcp_proxy.catalog import DATABASE_NAME
from smart_mcp_proxy.catalog.store import postgres as postgres_store
from smart_mcp_proxy.cli.commands.operate import doctor_checks
from smart_mcp_proxy.cli.commands.operate.doctor_checks import gateway_findings
from smart_mcp_proxy.servers import load_servers
from smart_mcp_proxy.settings import Settings

# Marked long: several gateways.
pytestmark = pytest.mark.long


class Store:
    """The store of a project, and gateways that somebody else runs on it."""

    def __init__(self, home: Path, run: Run, url: str | None) -> None:
        self._file = home / "data" / DATABASE_NAME
        self._run = run
        self._url = url
        self.settings = {} if url is None else {"DATABASE_URL": url}
        assert run("tool", "list", **self.settings).status == 0

    def add_gateway(self, pid: int, *servers: str) -> None:
        values = f"({pid}, 1, {time.time()}, '{json.dumps(servers)}')"
        sql = f"INSERT INTO instances (pid, started, heartbeat, servers) VALUES {values}"
        if self._url is None:
            with closing(sqlite3.connect(self._file, isolation_level=None)) as file:
                file.execute(sql)
        else:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute(sql)  # type: ignore[call-overload]

    def checks(self, subject: str, **settings: str) -> list[tuple[str, str]]:
        """What doctor says of a subject, with the outcomes."""
        done = self._run("doctor", "--json", **self.settings, **settings)
        assert done.status == 0, done.out + done.err
        found = [check for check in done.json["checks"] if check["check"] == subject]
        return [(check["outcome"], f"{check['message']} {check['hint']}".rstrip()) for check in found]


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, home: Path, run: Run) -> Store:
    servers = some_servers("todo")
    servers["mcpServers"]["todo"]["limits"] = {"in_flight": 2, "calls_per_s": 0.01, "burst": 3}
    (home / "mcp_config.json").write_text(json.dumps(servers))
    if request.param == "sqlite":
        return Store(home, run, None)
    server: PostgresServer = request.getfixturevalue("postgres")
    return Store(home, run, server.url(server.new_database()))


def an_hour_late() -> float:
    return time.time() - 3600


def test_one_gateway_shares_nothing(store: Store) -> None:
    """Nor does doctor's own."""
    assert store.checks("gateways") == store.checks("limits") == store.checks("server files") == []
    store.add_gateway(1, "todo")
    assert store.checks("gateways") == store.checks("limits", IN_FLIGHT="1") == []


def test_doctor_names_limits_below_the_number_of_gateways(store: Store) -> None:
    """Of all calls, of callers and of servers, counting the gateways that have the server."""
    for pid in (1, 2, 3):
        store.add_gateway(pid, "todo")
    store.add_gateway(4)
    ((outcome, words),) = store.checks("gateways")
    assert (outcome, words) == ("ok", "4 share the store; each lets its share of every limit through")
    assert store.checks("limits") == []
    found = store.checks("limits", IN_FLIGHT="3", CALLS_PER_S="0.05", CALLS_BURST="1")
    assert [outcome for outcome, _ in found] == ["warning"] * 3
    assert [words.partition(",")[0] for _, words in found] == [
        "MCPPROXY_IN_FLIGHT is 3",
        "MCPPROXY_CALLS_BURST is 1",
        "MCPPROXY_CALLS_PER_S is 0.05",
    ]
    assert all("Raise it to as many at least, or run fewer gateways." in words for _, words in found)
    ready, in_flight, rate = store.checks("todo")
    assert ready[0] == "ok"
    assert in_flight == (
        "warning",
        "'in_flight' is 2, less than the 3 gateways that share it: each lets one call through, 3 in all at the same "
        "time. Raise it to as many at least, or run fewer gateways.",
    )
    assert rate[1].startswith("'calls_per_s' is 0.01, less than a call a minute for each of the 3 gateways")


def test_doctor_names_the_servers_that_one_gateway_has_and_another_has_not(store: Store) -> None:
    """On a database as a warning; in one data directory it is usual."""
    store.add_gateway(71, "todo", "github", "docs")
    store.add_gateway(72, "todo")
    ((outcome, words),) = store.checks("server files")
    assert outcome == ("warning" if store.settings else "ok")
    assert "docs, github: in the server file of gateway " in words
    assert "(process 71), not of gateway" in words and "(process 72); each serves its own" in words


def test_doctor_says_that_clocks_are_apart(
    home: Path, run: Run, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how much, in which direction, and what follows from it."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers("todo")))
    store = Store(home, run, postgres.url(postgres.new_database()))
    assert store.checks("clocks") == [("ok", "this machine's clock and the database's agree")]
    monkeypatch.setattr(postgres_store, "time", SimpleNamespace(time=an_hour_late, monotonic=time.monotonic))
    ((outcome, words),) = store.checks("clocks")
    assert outcome == "warning"
    assert words.startswith("this machine's clock is 3,600 seconds (60 minutes) behind the database's. Let both follow")


@pytest.mark.parametrize("servers", [("todo",), ()], ids=["servers", "none"])
def test_doctor_says_whether_the_database_can_be_used(
    home: Path, run: Run, postgres: PostgresServer, servers: tuple[str, ...]
) -> None:
    """Also where there is nothing to start in front of it; without its password."""
    (home / "mcp_config.json").write_text(json.dumps(some_servers(*servers)))
    database = postgres.new_database()
    for name, outcome in ((database, "ok"), ("nowhere", "fail")):
        done = run("doctor", "--json", DATABASE_URL=postgres.url(name))
        ((said, message),) = [
            (each["outcome"], each["message"]) for each in done.json["checks"] if each["check"] == "database"
        ]
        assert (said, done.status) == (outcome, int(outcome == "fail"))
        assert name in message and PASSWORD not in message


def found(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (one.outcome, one.message) for one in gateway_findings(Settings(), load_servers('{"mcpServers": {}}'), status)
    ]


def test_a_gateway_of_an_earlier_version_says_nothing_of_others() -> None:
    """Then nothing is known, and nothing is claimed."""
    assert found({"servers": []}) == []


def test_a_clock_ahead_is_said_as_such_and_less_than_a_second_is_nothing() -> None:
    """The sign is that of the database's clock."""
    store = {"is_shared": True, "clock_ahead_s": -2.2}
    assert found({"store": store}) == [("warning", "this machine's clock is 2 seconds ahead of the database's.")]
    assert found({"store": store | {"clock_ahead_s": 0.0}})[0][0] == "ok"
    assert found({"store": {"is_shared": False, "clock_ahead_s": 0.0}}) == []


def test_a_reason_for_worse_answers_ends_with_one_stop() -> None:
    """Whether it is a sentence or not."""
    status = {"pid": 7, "version": "1", "servers": [], "degraded": ["no model", "It is full. Free some disk space."]}
    messages = [check.message for check in doctor_checks._instances([status]) if check.subject == "search"]
    assert messages == ["no model.", "It is full. Free some disk space."]


def test_many_names_are_counted() -> None:
    """A message stays readable."""
    gateways = [{"id": 1, "pid": 7, "servers": [f"s{number:02}" for number in range(14)]}]
    gateways.append({"id": 2, "pid": 8, "servers": []})
    _, (_, message) = found({"gateways": gateways, "store": {"is_shared": False}})
    assert "s09 and 4 more: in the server file of gateway 1 (process 7), not of gateway 2 (process 8)" in message

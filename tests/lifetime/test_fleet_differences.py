"""Gateways on one database that differ in their server files or clocks, and databases that no gateway starts on."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastmcp.server.auth.providers.jwt import RSAKeyPair
from postgres_server import PASSWORD, PostgresServer, standby_of
from replicas import HOUR_S, KEY, TOOLS, Replica, Story, by_wrong_clock, replica
from worlds import ENVIRON, SmallServer, end, until_so

pytestmark = [pytest.mark.anyio, pytest.mark.long]

SHARES = {"TRUNCATE_OUTPUT_LEN": "300", "ROUTING_TYPE": "DYNAMIC"}
either_way = pytest.mark.parametrize(
    "wrong_s", [pytest.param(-HOUR_S, id="behind"), pytest.param(HOUR_S, id="ahead", marks=pytest.mark.soak)]
)


async def rest(each: Replica, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of the REST interface to the operator."""
    headers = {"authorization": f"Bearer {each.operator}"}
    answer = await each.client.request(method, f"{each.base}/api/v1/{path}", json=body, headers=headers)
    assert answer.status_code < 300, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_gateways_with_different_server_files_serve_each_its_own(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """Neither forgets what the other has, and a call of what a gateway has not is refused and not sent."""
    url = postgres.url(postgres.new_database())
    mine = SmallServer(tmp_path / "mine")
    async with AsyncExitStack() as stack:
        stack.callback(lambda: end(mine.pids()))
        has = await stack.enter_async_context(replica("has", Story(tmp_path, url, servers={"mine": mine.entry})))
        lacks = await stack.enter_async_context(replica("lacks", Story(tmp_path, url)))
        call = {"name": "mine:echo", "args": {"text": "x"}}
        for _ in range(2):  # also after each has looked for what it need not keep
            assert not (await has.ask("call_tool_destructive", call)).get("isError")
            refused = await lacks.ask("call_tool_destructive", call)
            assert refused["structuredContent"]["error"]["code"] in {"server_not_found", "tool_not_found"}, refused
            assert refused["structuredContent"]["error"]["delivery"] == "not_sent"
            found = await lacks.ask("retrieve_tools", {"query": "mine:echo"})
            assert {tool["server"] for tool in found["structuredContent"]["tools"]} <= {"up"}
            await rest(lacks, "POST", "servers/up/refresh")
            await lacks.decide("block", TOOLS[0])
            await until_so(lambda: _refuses(has, TOOLS[0]))
            await lacks.decide("unblock", TOOLS[0])
        for each in (has, lacks):  # one hears of the other at its own next heartbeat
            await until_so(lambda each=each: _knows(each, [["mine", "up"], ["up"]]))


async def _knows(each: Replica, servers: list[list[str]]) -> bool:
    gateways = (await rest(each, "GET", "status"))["gateways"]
    return sorted(gateway["servers"] for gateway in gateways) == servers


async def _refuses(each: Replica, tool: str) -> bool:
    return not await each.is_executed(tool)


@either_way
async def test_gateways_whose_clocks_are_an_hour_apart_agree(
    postgres: PostgresServer, tmp_path: Path, wrong_s: int
) -> None:
    """Each counts the other as alive; what one makes that ends within the hour is served by the other."""
    url = postgres.url(postgres.new_database())
    stories = Story(tmp_path, url, settings=SHARES), Story(tmp_path, url, by_wrong_clock(wrong_s), settings=SHARES)
    async with AsyncExitStack() as stack:
        right = await stack.enter_async_context(replica("right", stories[0]))
        wrong = await stack.enter_async_context(replica("wrong", stories[1]))
        ahead_s = [(await rest(each, "GET", "status"))["store"]["clock_ahead_s"] for each in (right, wrong)]
        assert ahead_s[0] == 0 and abs(ahead_s[1] + wrong_s) < 5, ahead_s
        for number, (maker, other) in enumerate(((right, wrong), (wrong, right))):
            await maker.decide("block", TOOLS[number])
            await until_so(lambda other=other, number=number: _refuses(other, TOOLS[number]))
            # A cut result and a set of tools, an hour each.
            cut = await maker.call("echo", "y" * 5_000)
            (key,) = [value["key"] for value in cut["_meta"].values() if isinstance(value, dict) and "key" in value]
            page = await other.ask("read_output", {"key": key})
            assert "yyyy" in page["content"][0]["text"], page
            found = (await maker.ask("retrieve_tools", {"query": "up:tool3", "limit": 3}))["structuredContent"]
            assert found["toolset"]["expires_in_s"] > 3_500
            assert found["index_age_s"] < 60
            called = await other.post("up__tool3", {"text": "z"}, f"/mcp/t/{found['toolset']['handle']}")
            assert called.status_code == 200, called.text
            result = called.json()["result"]
            assert not result.get("isError") and result["content"][0]["text"] == "said z", result
            # A token for half an hour.
            body = {"name": f"half{number}", "access": "destructive", "expires_in_s": 1_800}
            token = (await rest(maker, "POST", "tokens", body))["token"]
            for each in (maker, other):
                await until_so(lambda each=each, token=token: _is_let_in(each, token))
        async with asyncio.timeout(30):
            for each in (right, wrong):
                while len((await rest(each, "GET", "status"))["gateways"]) != 2:
                    await asyncio.sleep(0.5)
    log = (tmp_path / "wrong" / "log").read_text()
    assert "Traceback" not in log, log


@either_way
async def test_a_provider_s_token_ends_by_the_clock_of_the_database(
    postgres: PostgresServer, tmp_path: Path, wrong_s: int
) -> None:
    """One that is good for half an hour is accepted, one that ended half an hour ago is not."""
    provider, issuer = RSAKeyPair.generate(), "https://id.example"
    settings = {"JWT_PUBLIC_KEY": provider.public_key, "JWT_ISSUER": issuer, "JWT_AUDIENCE": "us"}
    story = Story(tmp_path, postgres.url(postgres.new_database()), by_wrong_clock(wrong_s), settings=settings)
    sign = partial(provider.create_token, issuer=issuer, audience="us", scopes=["mcp:read"])
    good, ended = [sign(expires_in_seconds=life_s) for life_s in (HOUR_S // 2, -HOUR_S // 2)]
    async with replica("wrong", story) as wrong:
        assert await _is_let_in(wrong, good)
        assert not await _is_let_in(wrong, ended)


async def _is_let_in(each: Replica, token: str) -> bool:
    """Whether the gateway takes an agent's token."""
    headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
    answer = await each.client.post(
        f"{each.base}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers
    )
    return answer.status_code != 401


# --- databases that no gateway starts on


def _foreign(server: PostgresServer, database: str) -> str:
    server.execute("CREATE TABLE customers (id int)", database)
    return server.url(database)


def _half_migrated(server: PostgresServer, database: str) -> str:
    """Somebody ran half of a step by hand, or put back half of a dump."""
    server.execute("CREATE TABLE mcpproxy_schema (version BIGINT NOT NULL, readable_from BIGINT NOT NULL)", database)
    server.execute("INSERT INTO mcpproxy_schema VALUES (11, 11)", database)
    server.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value BIGINT NOT NULL)", database)
    return server.url(database)


def _no_row(server: PostgresServer, database: str) -> str:
    server.execute("CREATE TABLE mcpproxy_schema (version BIGINT NOT NULL, readable_from BIGINT NOT NULL)", database)
    return server.url(database)


def _read_only(server: PostgresServer, database: str) -> str:
    server.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    return server.url(database)


def _at(*words: str, **given: str) -> Callable[[PostgresServer, str], str]:
    return lambda server, database: server.url(*(words or (database,)), **given)


WRONG = {
    "another scheme": (lambda *_: f"mysql://me:{PASSWORD}@127.0.0.1/db", "MCPPROXY_DATABASE_URL"),
    "no scheme": (lambda *_: f"me:{PASSWORD}@127.0.0.1/db", "MCPPROXY_DATABASE_URL"),
    "no database": (lambda *_: f"postgresql://me:{PASSWORD}@127.0.0.1", "MCPPROXY_DATABASE_URL"),
    "a port that is none": (lambda *_: f"postgresql://me:{PASSWORD}@127.0.0.1:none/db", "MCPPROXY_DATABASE_URL"),
    "an option that is none": (lambda server, name: f"{server.url(name)}?sslmood=off", "cannot be read"),
    "nobody listens": (lambda *_: f"postgresql://me:{PASSWORD}@127.0.0.1:1/db", "Connection refused"),
    "no such host": (lambda *_: f"postgresql://me:{PASSWORD}@nowhere.invalid/db", "cannot be used"),
    "wrong password": (_at(password="wr0ng"), "password authentication failed"),
    "no such user": (_at(user="nobody"), "password authentication failed"),
    "no such database": (_at("nowhere"), "does not exist"),
    "another program's": (_foreign, "holds customers"),
    "half migrated": (_half_migrated, "is not whole"),
    "no version": (_no_row, "is not whole"),
    "read only": (_read_only, "can only be read"),
}
EACH = ("another scheme", "wrong password", "half migrated")
"""What the settings refuse, what the server does, and what is found in the database; all others end the start at one of
these places, and the catalog's own refusals are each in tests/catalog/store/test_postgres.py."""


@pytest.mark.parametrize("kind", [pytest.param(each, marks=() if each in EACH else pytest.mark.soak) for each in WRONG])
def test_a_database_that_cannot_be_used_ends_the_start(postgres: PostgresServer, tmp_path: Path, kind: str) -> None:
    """2, one message that names it and the next step, no password, no traceback; nothing in it was changed."""
    make, said = WRONG[kind]
    database = postgres.new_database()
    url = make(postgres, database)
    tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    before = postgres.value(tables, database)
    done = _start(tmp_path, url)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr, done.stderr
    for secret in (PASSWORD, "wr0ng"):
        assert secret not in done.stderr + done.stdout
    assert postgres.value(tables, database) == before
    print(done.stderr)


def test_a_standby_ends_the_start(postgres: PostgresServer, tmp_path: Path) -> None:
    """It is named as what can only be read."""
    with standby_of(postgres) as standby:
        done = _start(tmp_path, standby.url("postgres"))
        assert done.returncode == 2 and "can only be read" in done.stderr, done.stderr


def _start(folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    variables = {"DATABASE_URL": url, "DATA_DIR": str(folder / "data"), "SECRET_KEY": KEY, "CONFIG_JSON": "{}"}
    return subprocess.run(
        [sys.executable, "-m", "smart_mcp_proxy", "serve", "--http", "--port", "0", "--json"],
        env=ENVIRON | {f"MCPPROXY_{name}": value for name, value in variables.items()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

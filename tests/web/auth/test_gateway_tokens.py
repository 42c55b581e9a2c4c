"""Gateways on one database that were given no tokens: what each made for itself opens all of them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from plain_http import plain_client
from postgres_server import PostgresServer
from pydantic import SecretStr
from sqlalchemy import Engine, event

from smart_mcp_proxy.errors import CatalogError, RefusedError
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.admin import agent_tokens
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.auth.auth import own_token
from smart_mcp_proxy.web.auth.signed_tokens import create_jwt_verifier
from smart_mcp_proxy.web.listening import bind
from smart_mcp_proxy.web.serve_http import serve_http

pytestmark = pytest.mark.anyio

KINDS = ("agents", "operator")
FILES = ("auth.token", "operator.token")
PROVIDER = {"jwt_jwks_url": "https://id.example/keys", "jwt_issuer": "https://id.example", "jwt_audience": "tools"}
NEW = "SELECT count(*) FROM gateway_tokens WHERE confirmed_s > extract(epoch FROM clock_timestamp()) - 70000"
HEARD_S = 10.0
"""Two seconds, on a busy machine. Source: docs/design/processes.md#several-gateways"""
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Served(NamedTuple):
    """One gateway of several, and what it answers."""

    gateway: Gateway
    client: httpx2.AsyncClient

    @property
    def tokens(self) -> tuple[str, str]:
        """Those that it made: the agents' and the operator's."""
        agents, operator = ((self.gateway.settings.data_dir / name).read_text().strip() for name in FILES)
        return agents, operator

    async def admits(self, kind: str, token: str) -> bool:
        """Whether this token opens what it is for, and nothing else."""
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        answers = {
            "agents": await self.client.post("/mcp", json=body, headers=headers),
            "operator": await self.client.get("/api/v1/tokens", headers=headers),
        }
        codes = {one: answer.status_code for one, answer in answers.items()}
        assert set(codes.values()) <= {200, 401}
        assert [one for one, code in codes.items() if code == 200] in ([], [kind])
        return codes[kind] == 200

    async def admits_all(self, tokens: tuple[str, ...]) -> bool:
        return all([await self.admits(*pair) for pair in zip(KINDS, tokens, strict=True)])

    async def admits_none(self, tokens: tuple[str, ...]) -> bool:
        return not any([await self.admits(*pair) for pair in zip(KINDS, tokens, strict=True)])


Start = Callable[..., AbstractAsyncContextManager[Served]]


@asynccontextmanager
async def served(folder: Path, url: str | None, name: str, **given: Any) -> AsyncIterator[Served]:
    """A gateway that other machines can reach, with a data directory of this name."""
    database = {} if url is None else {"database_url": SecretStr(url)}
    settings = Settings(**{"data_dir": folder / name, "host": "0.0.0.0", **database, **given})
    listener = bind("127.0.0.1", 0)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with (
        open_gateway(settings, {}, environ={}) as gateway,
        serve_http(
            gateway, listener, token=own_token(settings, has_signed=create_jwt_verifier(settings) is not None).value
        ),
        plain_client(base_url=base) as client,
    ):
        yield Served(gateway, client)


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
def start(postgres: PostgresServer, database: str, tmp_path: Path) -> Start:
    return partial(served, tmp_path, postgres.url(database))


async def until(is_true: Callable[[], Any]) -> None:
    """Returns when a gateway has heard of something."""
    with anyio.fail_after(HEARD_S):
        while not await is_true():
            await anyio.lowlevel.checkpoint()


async def test_what_a_gateway_made_opens_those_before_and_after_it(
    start: Start, postgres: PostgresServer, database: str
) -> None:
    """The agents' token and the operator's, each for its own; the database has neither, but for their hashes."""
    async with start("a") as one, start("b") as two:
        assert set(one.tokens).isdisjoint(two.tokens)
        assert await two.admits_all(one.tokens)
        await until(lambda: one.admits_all(two.tokens))
        assert await one.admits_all(one.tokens) and await one.admits_none(("none", "none"))
        stored = postgres.value("SELECT string_agg(t::text, ' ') FROM gateway_tokens t", database)
        assert str(stored).count("agents") == 2
        assert not [token for token in one.tokens + two.tokens if token in str(stored)]


async def test_a_token_that_its_gateway_replaced_opens_none(start: Start) -> None:
    """Its place in the database is the new one's; also where it is no file any more."""
    async with start("a") as one:
        async with start("b", replica="b") as two:
            before = two.tokens
            await until(lambda: one.admits_all(before))
            for name in FILES:
                (two.gateway.settings.data_dir / name).unlink()
        async with start("b", replica="b") as two:
            after = two.tokens
            await until(lambda: one.admits_none(before))
            await until(lambda: one.admits_all(after))
            assert await two.admits_none(before) and await two.admits_all(one.tokens)
        given = {"auth_token": SecretStr("agents-own"), "operator_token": SecretStr("operators-own")}
        async with start("b", replica="b", **given) as two:
            await until(lambda: one.admits_none(after))
            assert await two.admits_all(("agents-own", "operators-own")) and await two.admits_none(one.tokens)


async def test_a_token_that_was_not_confirmed_for_a_day_opens_none(
    start: Start, postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the database's clock, to the second; another gateway's next confirmation removes it."""
    monkeypatch.setattr(agent_tokens, "CONFIRM_S", 1e9)
    async with start("a") as one:
        async with start("b") as two:
            gone = two.tokens
        await until(lambda: one.admits_all(gone))
        age = (
            "UPDATE gateway_tokens SET confirmed_s = extract(epoch FROM clock_timestamp()) - {} WHERE replica LIKE '%b'"
        )
        postgres.execute(age.format(86_400 - 60), database)
        await one.gateway.admin.agent_tokens.refresh()
        assert await one.admits_all(gone)
        postgres.execute(age.format(86_400), database)
        await until(lambda: one.admits_none(gone))
        count = "SELECT count(*) FROM gateway_tokens"
        assert postgres.value(count, database) == 4
        async with start("c"):
            assert postgres.value(count, database) == 4  # those of two gateways, without the one that is gone


@pytest.mark.parametrize(
    ("again_s", "change"),
    [(0.0, "UPDATE gateway_tokens SET confirmed_s = confirmed_s - 80000"), (1e9, "DELETE FROM gateway_tokens")],
    ids=["old", "gone"],
)
async def test_a_gateway_confirms_its_tokens(
    start: Start, postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch, again_s: float, change: str
) -> None:
    """Now and then, and at once where the database was put back and has them no more."""
    monkeypatch.setattr(agent_tokens, "CONFIRM_S", again_s)
    async with start("a") as one, start("b") as two:
        await until(lambda: one.admits_all(two.tokens))
        postgres.execute(change, database)
        with anyio.fail_after(HEARD_S):
            while postgres.value(NEW, database) != 4:
                await anyio.lowlevel.checkpoint()
        await until(lambda: one.admits_all(two.tokens))
        await until(lambda: two.admits_all(one.tokens))


async def test_what_is_known_is_accepted_while_the_database_is_lost(
    start: Start, postgres: PostgresServer, database: str
) -> None:
    """As agent tokens are."""
    async with start("a") as one, start("b") as two:
        tokens = one.tokens
        assert await two.admits("agents", tokens[0])
        postgres.refuse(database)
        with anyio.fail_after(30):
            while two.gateway.catalog.lost_since is None:
                await anyio.lowlevel.checkpoint()
        with pytest.raises(CatalogError):
            await two.gateway.admin.agent_tokens.refresh()
        assert await two.admits("agents", tokens[0])
        headers = {"authorization": f"Bearer {tokens[1]}"}
        assert (await two.client.get("/api/v1/status", headers=headers)).status_code == 200
        postgres.accept(database)


async def test_a_token_that_cannot_be_looked_up_is_not_said_to_be_bad(
    start: Start, postgres: PostgresServer, database: str
) -> None:
    """It may have been made elsewhere just now; what is no token of an agent is refused as ever."""
    async with start("a") as one:
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}

        async def answered(token: str) -> httpx2.Response:
            return await one.client.post("/mcp", json=body, headers={"authorization": f"Bearer {token}"})

        async def is_answered(status: int) -> bool:
            return (await answered("mcpp_unknown")).status_code == status

        assert await is_answered(401)
        postgres.refuse(database)
        await until(partial(is_answered, 503))
        assert (await answered("mcpp_unknown")).headers["retry-after"]
        assert (await answered("another")).status_code == 401
        postgres.accept(database)
        await until(partial(is_answered, 401))


@pytest.mark.parametrize(
    ("given", "published"),
    [
        ({"secret_key": SecretStr("k" * 32)}, []),
        ({"auth_token": SecretStr("agents-own"), "operator_token": SecretStr("operators-own")}, []),
        ({"auth_token": SecretStr("agents-own")}, ["operator"]),
        ({"operator_token": SecretStr("operators-own")}, ["agents"]),
        (PROVIDER, ["operator"]),
        ({"host": "127.0.0.1"}, ["operator"]),
    ],
    ids=["key", "given", "agents-given", "operator-given", "provider", "loopback"],
)
async def test_only_what_a_gateway_had_to_make_is_published(
    start: Start, postgres: PostgresServer, database: str, given: dict[str, Any], published: list[str]
) -> None:
    """And where it made none, those of others open nothing."""
    async with start("a", **given) as one, start("b") as two:
        await until(lambda: two.admits_all(two.tokens))
        kinds = "SELECT array_agg(kind ORDER BY kind) FROM gateway_tokens WHERE replica LIKE '%/a'"
        assert (postgres.value(kinds, database) or []) == published
        await one.gateway.admin.agent_tokens.refresh()
        if "host" not in given:
            for kind, token in zip(KINDS, two.tokens, strict=True):
                assert await one.admits(kind, token) == (kind in published)


async def page_link(at: Served, token: str) -> str:
    """The secret of a link to the page that whoever has this token makes."""
    answer = await at.client.post("/api/v1/page/links", headers={"authorization": f"Bearer {token}"})
    url: str = answer.json()["url"]
    return url.rpartition("/")[2]


async def test_a_page_opened_with_another_gateways_token_goes_on_until_that_is_another_one(start: Start) -> None:
    """At all of them; one that was opened with a token of the gateway itself does as well."""
    async with start("a") as one:
        async with start("b", replica="b") as two:
            await until(lambda: one.admits_all(two.tokens))
            links = [await page_link(one, token) for token in (two.tokens[1], one.tokens[1], two.tokens[1])]
            secrets = [await two.gateway.admin.page_sessions.enter(link) for link in links[:2]]
            for each in (one, two):
                assert [await each.gateway.admin.page_sessions.find(secret) is not None for secret in secrets] == [
                    True
                ] * 2
            (two.gateway.settings.data_dir / "operator.token").unlink()
        async with start("b", replica="b") as two:
            for each in (one, two):
                with anyio.fail_after(HEARD_S):
                    while await each.gateway.admin.page_sessions.find(secrets[0]) is not None:
                        await anyio.lowlevel.checkpoint()
                assert await each.gateway.admin.page_sessions.find(secrets[1]) is not None
            with pytest.raises(RefusedError):
                await one.gateway.admin.page_sessions.enter(links[2])


async def test_two_gateways_of_one_name_are_said(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Once: the tokens of one of them open nothing but itself. What that does to sessions is said by the doorbell."""
    async with start("a", replica="same") as one, start("b", replica="same") as two:
        await until(lambda: one.admits_all(two.tokens))
        for _ in range(3):
            await one.gateway.admin.agent_tokens.refresh()
        said = [message for message in caplog.messages if "MCPPROXY_REPLICA" in message and "tokens" in message]
        assert len(said) == 1 and "'same'" in said[0]


async def test_a_gateway_alone_asks_its_file_for_none_of_this(tmp_path: Path) -> None:
    """Neither at the start nor later."""
    asked: list[str] = []

    def note(*execution: Any) -> None:
        asked.append(execution[2])

    async with served(tmp_path, None, "a") as one:
        event.listen(Engine, "after_cursor_execute", note)
        try:
            await one.gateway.admin.agent_tokens.of_gateways.confirm()
            await one.gateway.admin.agent_tokens.refresh()
        finally:
            event.remove(Engine, "after_cursor_execute", note)
        assert await one.admits_all(one.tokens)
    assert any("agent_tokens" in statement for statement in asked)
    assert not [statement for statement in asked if "gateway_tokens" in statement]

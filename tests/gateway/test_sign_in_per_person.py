"""A server at which each person signs in: two people, each with their own token, connection and tools."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import keyring
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth.auth import AccessToken
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import Middleware, MiddlewareContext
from keyring.backends.fail import Keyring as NoKeyring
from sign_in_fakes import SCOPES, Guarded, Person, Seen, guarded

from smart_mcp_proxy.errors import ToolNotFoundError, UpstreamAuthError, UpstreamError
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.retrieval.retrieval import Question
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, Principal
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import SignIns

pytestmark = pytest.mark.anyio

PERSONAL = {"per_user": True}


@pytest.fixture(autouse=True)
def no_keyring() -> None:
    """The desktop's keyring is none of the tests' business."""
    keyring.set_keyring(NoKeyring())


class OwnTools(Middleware):
    """Lists the tool `secret_of_bob` to the second account alone."""

    def __init__(self) -> None:
        self.accounts: list[str] = []

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Sequence[Any]:
        listed: Sequence[Any] = await call_next(context)
        account = token_account()
        if account not in self.accounts:
            self.accounts.append(account)
        is_first = self.accounts[0] == account
        return [each for each in listed if not is_first or each.name != "secret_of_bob"]


def token_account() -> str:
    """The account behind a request: each sign-in registers a client of its own."""
    token = get_access_token()
    assert token is not None
    return token.client_id


def add_tools(target: FastMCP[Any]) -> None:
    @target.tool
    def account() -> str:
        """Names the account that calls."""
        return token_account()

    @target.tool
    def secret_of_bob() -> str:
        """Reveals what is secret."""
        return f"secret of {token_account()}"

    target.add_middleware(OwnTools())


@pytest.fixture
async def server() -> AsyncIterator[Guarded]:
    async with guarded(add=add_tools) as made:
        yield made


def config_of(server: Guarded, person: str = "") -> ServerConfig:
    return server.config(PERSONAL, person=person, trust="trusted")


async def sign_in(data_dir: Path, server: Guarded, person: str) -> str:
    """Signs a person in, in another process; returns the account."""
    async with Person().browser() as browser:
        held = await SignIns(data_dir).authorize_server(config_of(server, person), browser)
    return str(held.client["client_id"])


@asynccontextmanager
async def opened(data_dir: Path, server: Guarded) -> AsyncIterator[Gateway]:
    async with open_gateway(Settings(data_dir=data_dir), {"web": config_of(server)}, environ={}) as gateway:
        gateway.start_upstreams()
        yield gateway


def view_of(gateway: Gateway, person: str) -> CatalogView:
    views = gateway.lists.views
    found = views.at("", views.reach(Principal(person)))
    assert found is not None
    return found


async def call(gateway: Gateway, person: str, tool: str = "account") -> str:
    request = CallRequest(f"web:{tool}", {}, None, principal=person)
    result = await gateway.calls.call(request, within=view_of(gateway, person))
    return result.text.decode()


async def until_calls(gateway: Gateway, person: str) -> str:
    """Calls again and again until the person's sign-in was taken up."""
    with anyio.fail_after(20):
        while True:
            try:
                return await call(gateway, person)
            except UpstreamError:  # nobody is signed in yet, or the connection is being made
                await gateway.base.changes.wait()


@pytest.mark.long  # a third of a second of processor time
async def test_one_person_signs_in_and_calls_and_the_other_is_asked_to(tmp_path: Path, server: Guarded) -> None:
    """Ann's call goes through with Ann's account, without a restart; Bob's needs a sign-in of his own."""
    async with opened(tmp_path, server) as gateway:
        with pytest.raises(UpstreamAuthError, match="Nobody is signed in"):
            await call(gateway, "ann")
        assert server.wire == []
        ann = await sign_in(tmp_path, server, "ann")
        assert ann in await until_calls(gateway, "ann")
        with pytest.raises(UpstreamAuthError, match="Nobody is signed in"):
            await call(gateway, "bob")
        bob = await sign_in(tmp_path, server, "bob")
        assert bob in await until_calls(gateway, "bob")
        assert ann in await call(gateway, "ann")
        assert ann != bob


@pytest.mark.long  # a third of a second of processor time
async def test_who_signs_out_here_is_signed_out_at_once(tmp_path: Path, server: Guarded) -> None:
    """Nothing more is sent for them, and the other person's calls go on."""
    await sign_in(tmp_path, server, "ann")
    bob = await sign_in(tmp_path, server, "bob")
    async with opened(tmp_path, server) as gateway:
        for person in ("ann", "bob"):
            await until_calls(gateway, person)
        assert (await gateway.admin.own_sign_ins.forget("web", Principal("ann"))).was_signed_in
        sent = len(server.wire)
        with pytest.raises(UpstreamAuthError):
            await call(gateway, "ann")
        assert [seen.path for seen in server.wire[sent:] if seen.path == "/mcp"] == []
        assert bob in await call(gateway, "bob")


@pytest.mark.long  # a third of a second of processor time
async def test_each_person_sees_finds_and_calls_what_was_listed_to_them_alone(tmp_path: Path, server: Guarded) -> None:
    """A tool that the server lists to Bob alone exists for Bob alone, after a restart as well."""
    await sign_in(tmp_path, server, "ann")
    bob = await sign_in(tmp_path, server, "bob")
    for _ in range(2):
        async with opened(tmp_path, server) as gateway:
            await until_calls(gateway, "ann")
            await until_calls(gateway, "bob")
            with anyio.fail_after(20):
                while gateway.visible.find("web:secret_of_bob") is None:
                    await gateway.base.changes.wait()
            assert f"secret of {bob}" in await call(gateway, "bob", "secret_of_bob")
            with pytest.raises(ToolNotFoundError):
                await call(gateway, "ann", "secret_of_bob")
            seen = {
                person: {str(record.key) for record in view_of(gateway, person).records()}
                for person in ("ann", "bob", "eve")
            }
            assert seen["ann"] == {"web:account", "web:whoami"}
            assert seen["bob"] == {"web:account", "web:whoami", "web:secret_of_bob"}
            assert seen["eve"] == set()
            assert ["web:secret_of_bob" in await find(gateway, person) for person in seen] == [False, True, False]
            assert len(gateway.visible.of_server("web")) == 3  # stored once, whoever was listed what


class TwoPeople:
    """Ann and Bob at two gateways on one data directory, who do this and that in any order."""

    def __init__(self, folder: Path, server: Guarded, gateways: Sequence[Gateway], seed: int) -> None:
        self.accounts: dict[str, set[str]] = {"ann": set(), "bob": set()}
        self._folder, self._server, self._gateways = folder, server, gateways
        self._rng = random.Random(seed)

    async def live(self, person: str) -> None:
        """Does a dozen things."""
        for _ in range(12):
            step = self._rng.choice(("call", "call", "call", "secret", "list", "sign in", "sign out"))
            if step == "sign in":
                await self.sign_in(person)
            elif step == "sign out":
                await SignIns(self._folder).sign_out(config_of(self._server, person))
            elif step == "list":
                assert await find(self._rng.choice(self._gateways), "eve") == set()
            else:
                await self.call(person, "account" if step == "call" else "secret_of_bob")

    async def sign_in(self, person: str) -> None:
        self.accounts[person].add(await sign_in(self._folder, self._server, person))

    async def call(self, person: str, tool: str) -> None:
        """Calls at either gateway; an answer names an account of the caller's, and none of the other's."""
        try:
            answer = await call(self._rng.choice(self._gateways), person, tool)
        except (ToolNotFoundError, UpstreamError):
            return
        self.check(person, answer)

    def check(self, person: str, answer: str) -> None:
        named = {who for who, accounts in self.accounts.items() for account in accounts if account in answer}
        assert named == {person}


@pytest.mark.long  # refreshes take their time: a token is not renewed again within five seconds
@pytest.mark.parametrize("seed", range(2))
async def test_two_people_at_two_gateways_never_meet(tmp_path: Path, server: Guarded, seed: int) -> None:
    """Calls, sign-ins, sign-outs and refreshes in any order: each answer names the caller's own account, or none."""
    server.provider.lifetime_s = 12
    async with opened(tmp_path, server) as one, opened(tmp_path, server) as two:
        people = TwoPeople(tmp_path, server, (one, two), seed)
        async with asyncio.TaskGroup() as group:
            for person in ("ann", "bob", "ann", "bob"):
                group.create_task(people.live(person))
        for person in ("ann", "bob"):
            await people.sign_in(person)
        for _ in range(2):
            before = len(server.refreshes)
            for gateway in (one, two):
                for person in ("ann", "bob"):
                    people.check(person, await until_calls(gateway, person))
            await server.until(lambda before=before: len(server.refreshes) >= before + 2, 40)  # type: ignore[misc]
    sent = [seen.form["refresh_token"] for seen in server.refreshes]
    assert len(sent) == len(set(sent))


async def find(gateway: Gateway, person: str) -> set[str]:
    """Names of all tools that a search of this person finds."""
    surface = gateway.surfaces.at("", gateway.surfaces.reach(Principal(person)))
    assert surface is not None
    question = Question("reveals what is secret", limit=20, principal=person)
    found = await surface.retrieval.retrieve(question)
    return {tool["name"] for tool in found["tools"]}


@pytest.mark.long  # a third of a second of processor time
async def test_what_people_came_with_is_traded_and_never_passed_on(tmp_path: Path, server: Guarded) -> None:
    """Each person's call carries the token that theirs was traded for; whoever came with none is told so."""

    def trade(seen: Seen) -> tuple[int, Any]:
        token = "traded-for-" + seen.form["subject_token"]
        server.provider.access_tokens[token] = AccessToken(token=token, client_id=token, scopes=SCOPES)
        kind = "urn:ietf:params:oauth:token-type:access_token"
        return 200, {"access_token": token, "issued_token_type": kind, "token_type": "Bearer", "expires_in": 600}

    server.answers["/token"] = trade
    exchange = {"exchange": {"token_url": f"{server.base}/token", "audience": server.url}}
    configs = {"web": server.config(exchange, trust="trusted")}
    async with open_gateway(Settings(data_dir=tmp_path), configs, environ={}) as gateway:
        gateway.start_upstreams()
        with pytest.raises(UpstreamAuthError, match="came with none"):
            await call(gateway, "ann")
        for person in ("ann", "bob"):
            gateway.upstreams.subjects.note(person, f"front-{person}", 4e9)
        assert "traded-for-front-ann" in await until_calls(gateway, "ann")
        assert "traded-for-front-bob" in await until_calls(gateway, "bob")
        assert "traded-for-front-ann" in await until_calls(gateway, "ann")
        with pytest.raises(UpstreamAuthError, match="came with none"):
            await call(gateway, "eve")
    carried = {seen.headers.get("authorization") for seen in server.wire if seen.path == "/mcp"}
    assert carried == {"Bearer traded-for-front-ann", "Bearer traded-for-front-bob"}
    assert len(server.asked("/token")) == 2


async def test_an_exchange_that_fails_for_one_person_costs_the_other_nothing(tmp_path: Path, server: Guarded) -> None:
    """A token for another audience and a provider that is down: nothing is sent for Ann, and later she gets through."""
    failures: dict[str, tuple[int, Any]] = {}

    def trade(seen: Seen) -> tuple[int, Any]:
        person = seen.form["subject_token"].removeprefix("front-")
        if person in failures:
            return failures[person]
        token = f"traded-for-{person}"
        server.provider.access_tokens[token] = AccessToken(token=token, client_id=token, scopes=SCOPES)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 600} | kind

    kind = {"issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
    claims = base64.urlsafe_b64encode(b'{"aud": "https://other.example"}').decode().rstrip("=")
    elsewhere = {"access_token": f"e30.{claims}.x", "token_type": "Bearer", "expires_in": 600}
    server.answers["/token"] = trade
    exchange = {"exchange": {"token_url": f"{server.base}/token", "audience": server.url}}
    configs = {"web": server.config(exchange, trust="trusted")}
    async with open_gateway(Settings(data_dir=tmp_path), configs, environ={}) as gateway:
        gateway.start_upstreams()
        for person in ("ann", "bob"):
            gateway.upstreams.subjects.note(person, f"front-{person}", 4e9)
        for answer, reason in (((200, elsewhere | kind), "another audience"), ((503, {}), "HTTP 503")):
            failures["ann"] = answer
            with pytest.raises(UpstreamError, match=reason), anyio.fail_after(20):
                while True:
                    await fail_as_said(gateway, "ann", reason)
            assert "traded-for-bob" in await until_calls(gateway, "bob")
        assert not any("ann" in seen.headers.get("authorization", "") for seen in server.wire if seen.path == "/mcp")
        failures.clear()
        gateway.upstreams.fleet.retry("web", "ann")
        assert "traded-for-ann" in await until_calls(gateway, "ann")


async def fail_as_said(gateway: Gateway, person: str, reason: str) -> None:
    """Calls until the person's connection failed for this reason, and raises that."""
    try:
        await call(gateway, person)
    except UpstreamError as error:
        if reason in f"{error}":
            raise
        gateway.upstreams.fleet.retry("web", person)
        await gateway.base.changes.wait()

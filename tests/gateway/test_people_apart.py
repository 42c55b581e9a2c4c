"""Two people, three servers, two gateways on one database: whatever they do in any order, neither gets what is theirs.

Two of the servers ask each person to sign in (PKCE, refresh tokens that work once), one takes tokens that are traded
for people's own.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import keyring
import msgspec
import pytest
from fastmcp import FastMCP
from fastmcp.server.auth.auth import AccessToken
from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import Middleware, MiddlewareContext
from keyring.backends.fail import Keyring as NoKeyring
from postgres_server import PostgresServer
from pydantic import SecretStr
from sign_in_fakes import SCOPES, Guarded, Person, Seen, follow, guarded

from smart_mcp_proxy.errors import ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, Principal
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings

pytestmark = pytest.mark.anyio

KEY = SecretStr("a-key-of-the-tests-with-32-characters")
PEOPLE = ("ann", "bob")
SIGNED_IN = ("web", "wiki")
TRADED = "billing"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
LIMIT_S = 120
STEPS = {"call": 180, "the other's tool": 10, "look": 10, "sign out": 2, "sign in": 3, "end a token": 5}
"""What people do, by how often: a server that refuses everything would show nothing."""


class Issued(dict[str, AccessToken]):
    """Access tokens of a provider, which still knows those that it has taken back."""

    def __init__(self, of: dict[str, AccessToken]) -> None:
        super().__init__(of)
        self.accounts: dict[str, str] = {}

    def __setitem__(self, token: str, facts: AccessToken) -> None:
        self.accounts[token] = facts.client_id
        super().__setitem__(token, facts)


@dataclass
class Accounts:
    """Whose an account at a server is: each sign-in registers a client, each trade makes an account."""

    owner: dict[str, str] = field(default_factory=dict)

    def find_caller(self) -> str:
        """The person whose token came with the request that a server answers."""
        token = get_access_token()
        assert token is not None
        return self.owner[token.client_id]


class OwnListing(Middleware):
    """Lists to each person the tool that is theirs, and not the other's."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Sequence[Any]:
        listed: Sequence[Any] = await call_next(context)
        others = {f"only_{person}" for person in PEOPLE} - {f"only_{self._accounts.find_caller()}"}
        return [each for each in listed if each.name not in others]


class World:
    """The servers, the gateways, and what was seen of them."""

    def __init__(self, folder: Path, database: str, seed: int) -> None:
        self.folder = folder
        self.accounts = Accounts()
        self.servers: dict[str, Guarded] = {}
        self.issued: dict[str, Issued] = {}
        self.gateways: list[Gateway] = []
        self.outcomes: Counter[str] = Counter()
        self.rng = random.Random(seed)
        self._database = database
        self._trades = 0

    def config(self, name: str, person: str = "") -> ServerConfig:
        server = self.servers[name]
        oauth: dict[str, Any] = {"per_user": True}
        if name == TRADED:
            oauth = {"exchange": {"token_url": f"{server.base}/token", "audience": server.url}}
        return server.config(oauth, name=name, person=person, trust="trusted")

    def add_tools(self, target: FastMCP[Any]) -> None:
        @target.tool
        def account() -> str:
            """Names whoever calls."""
            return f"I am {self.accounts.find_caller()}."

        @target.tool
        def only_ann() -> str:
            """Reveals what is Ann's."""
            return f"The secret of ann, told to {self.accounts.find_caller()}."

        @target.tool
        def only_bob() -> str:
            """Reveals what is Bob's."""
            return f"The secret of bob, told to {self.accounts.find_caller()}."

        target.add_middleware(OwnListing(self.accounts))

    def trade(self, seen: Seen) -> tuple[int, Any]:
        """The token endpoint of the third server."""
        self._trades += 1
        subject = seen.form["subject_token"]
        token = f"traded-{self._trades}"
        self.accounts.owner[token] = subject.removeprefix("front-door-of-")
        facts = AccessToken(token=token, client_id=token, scopes=SCOPES)
        self.servers[TRADED].provider.access_tokens[token] = facts
        answer = {"access_token": token, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 600}
        return 200, answer

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["World"]:
        keyring.set_keyring(NoKeyring())
        async with AsyncExitStack() as stack:
            for name in (*SIGNED_IN, TRADED):
                server = await stack.enter_async_context(guarded(add=self.add_tools))
                self.servers[name] = server
                self.issued[name] = Issued(server.provider.access_tokens)
                server.provider.access_tokens = self.issued[name]
            self.servers[TRADED].answers["/token"] = self.trade
            self.servers["wiki"].answers["/mcp"] = know_no_discovery
            for name in "ab":
                await self.open_gateway(stack, name)
            yield self

    async def open_gateway(self, stack: AsyncExitStack, name: str) -> None:
        made = Settings(data_dir=self.folder / name, database_url=SecretStr(self._database), secret_key=KEY)
        configs = {each: self.config(each) for each in self.servers}
        gateway = await stack.enter_async_context(open_gateway(made, configs, environ={}))
        gateway.start_upstreams()
        for person in PEOPLE:
            gateway.upstreams.subjects.note(person, f"front-door-of-{person}", 4e9)
        self.gateways.append(gateway)

    # --- what people do

    async def live(self, person: str, steps: int) -> None:
        for _ in range(steps):
            await self.take_step(person, self.rng.choices(list(STEPS), list(STEPS.values()))[0])

    async def take_step(self, person: str, step: str) -> None:
        gateway, server = self.rng.choice(self.gateways), self.rng.choice((*SIGNED_IN, TRADED))
        other = PEOPLE[1 - PEOPLE.index(person)]
        if step == "call":
            tool = self.rng.choice(("account", f"only_{person}"))
            outcome = await self.call(gateway, person, f"{server}:{tool}")
        elif step == "the other's tool":
            outcome = await self.call(gateway, person, f"{server}:only_{other}")
            assert outcome != "ok"
        elif step == "look":
            self.look(gateway, person)
            outcome = "ok"
        else:
            outcome = await self.change(person, self.rng.choice(SIGNED_IN), step)
        self.outcomes[f"{step}: {outcome}"] += 1

    async def change(self, person: str, server: str, step: str) -> str:
        """Signs in or out at either gateway, or lets the token there end, so that both renew it."""
        sign_ins = self.rng.choice(self.gateways).upstreams.sign_ins
        config = self.config(server, person)
        if step == "sign in":
            await self.sign_in(person, server)
            return "ok"
        if step == "sign out":
            return "ok" if (await sign_ins.sign_out(config)).was_signed_in else "nothing"
        async with sign_ins.store.hold_lock(*config.sign_in_place):
            held, _ = await sign_ins.store.read(*config.sign_in_place)
            if held is None:
                return "nothing"
            ended = msgspec.structs.replace(held, expires_at_s=held.obtained_at_s)
            await sign_ins.store.write(*config.sign_in_place, ended)
        return "ok"

    async def sign_in(self, person: str, server: str) -> None:
        async def agree(url: str) -> Any:
            self.accounts.owner[browser_of.query["client_id"]] = person
            return await follow(url)

        browser_of = Person(agree, timeout_s=LIMIT_S)
        sign_ins = self.rng.choice(self.gateways).upstreams.sign_ins
        async with browser_of.browser() as browser:
            await sign_ins.authorize_server(self.config(server, person), browser)

    async def call(self, gateway: Gateway, person: str, tool: str) -> str:
        """Calls, and looks whose the answer is; the outcome."""
        request = CallRequest(tool, {}, None, principal=person)
        try:
            result = await gateway.calls.call(request, within=view_of(gateway, person))
        except (ToolNotFoundError, UpstreamError) as error:
            return error.error_code
        told = result.text.decode()
        (other,) = set(PEOPLE) - {person}
        assert person in told and other not in told
        return "ok"

    def look(self, gateway: Gateway, person: str) -> None:
        """Looks at all that is listed to somebody."""
        seen = {record.key.tool for record in view_of(gateway, person).records()}
        assert seen <= {"account", "whoami", f"only_{person}"}
        assert not list(view_of(gateway, "eve").records())

    async def until_calls(self, gateway: Gateway, person: str, tool: str) -> None:
        """Calls again and again until it goes through."""
        with anyio.fail_after(LIMIT_S):
            while await self.call(gateway, person, tool) != "ok":
                await gateway.base.changes.wait()

    # --- what was seen on the wire

    def check_wire(self) -> None:
        """Each token and each session at a server is one person's, and each refresh token was sent once."""
        for name, server in self.servers.items():
            sessions: dict[str, set[str]] = {}
            for seen in server.wire:
                if seen.path == "/mcp" and "authorization" in seen.headers:
                    account = self.issued[name].accounts[seen.headers["authorization"].removeprefix("Bearer ")]
                    owners = sessions.setdefault(seen.headers.get("mcp-session-id", ""), set())
                    owners.add(self.accounts.owner[account])
                assert "front-door-of" not in str(seen.headers)
            assert sessions.pop("") == set(PEOPLE)
            assert all(len(owners) == 1 for owners in sessions.values()), sessions
            assert set().union(*sessions.values()) == (set(PEOPLE) if name == "wiki" else set())
            sent = Counter(seen.form["refresh_token"] for seen in server.refreshes)
            assert not sent or max(sent.values()) == 1, f"{name}: a refresh token was used more than once"

    def count_refreshes(self) -> int:
        return sum(len(server.refreshes) for server in self.servers.values())


def know_no_discovery(seen: Seen) -> tuple[int, Any] | None:
    """Answer as a server of the handshake era, which has sessions."""
    if b'"server/discover"' not in seen.body or "authorization" not in seen.headers:
        return None
    error = {"code": -32601, "message": "Method not found"}
    return 200, {"jsonrpc": "2.0", "id": msgspec.json.decode(seen.body)["id"], "error": error}


def view_of(gateway: Gateway, person: str) -> CatalogView:
    views = gateway.lists.views
    found = views.at("", views.reach(Principal(person)))
    assert found is not None
    return found


async def live_together(world: World, steps: int) -> None:
    """Two people with two clients each, who take so many steps in all."""
    for person in PEOPLE:
        for server in SIGNED_IN:
            await world.sign_in(person, server)
        for server in (*SIGNED_IN, TRADED):
            for gateway in world.gateways:
                await world.until_calls(gateway, person, f"{server}:only_{person}")
    async with asyncio.TaskGroup() as group:
        for person in PEOPLE * 2:
            group.create_task(world.live(person, steps // 4))
    for person in PEOPLE:
        for server in SIGNED_IN:
            await world.sign_in(person, server)
            for gateway in world.gateways:
                await world.until_calls(gateway, person, f"{server}:only_{person}")
                world.look(gateway, person)
    world.check_wire()
    print(sorted(world.outcomes.items()), world.count_refreshes(), "refreshes")
    assert world.outcomes["call: ok"] > steps / 4 and world.count_refreshes()


@pytest.mark.long  # some seconds of work
async def test_two_people_never_meet(postgres: PostgresServer, tmp_path: Path) -> None:
    """A few hundred steps."""
    async with World(tmp_path, postgres.url(postgres.new_database()), 0).opened() as world:
        await live_together(world, 400)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 3))
async def test_two_people_never_meet_in_ten_thousand_steps(postgres: PostgresServer, tmp_path: Path, seed: int) -> None:
    """Calls, lists, sign-ins, sign-outs and renewals, interleaved."""
    async with World(tmp_path, postgres.url(postgres.new_database()), seed).opened() as world:
        await live_together(world, 10_000)

"""Two people with clients at two gateways on one database, who call, look, sign in and out in any order."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import keyring
import msgspec
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware, MiddlewareContext
from keyring.backends.fail import Keyring as NoKeyring
from pydantic import SecretStr
from sign_in_fakes import Person

from smart_mcp_proxy.errors import ToolNotFoundError, UpstreamError
from smart_mcp_proxy.gateway import Gateway, open_gateway
from smart_mcp_proxy.gateway.visibility.visibility import CatalogView
from smart_mcp_proxy.models import CallRequest, Principal
from smart_mcp_proxy.servers import ServerConfig
from smart_mcp_proxy.settings import Settings

KEY = SecretStr("a-key-of-the-tests-with-32-characters")
PEOPLE = ("ann", "bob")
SIGNED_IN = ("web", "wiki")
TRADED = "billing"
LIMIT_S = 120
STEPS = {"call": 180, "the other's tool": 10, "look": 10, "sign out": 2, "sign in": 3, "end a token": 5}
"""What people do, by how often: a server that refuses everything would show nothing."""


class OwnListing(Middleware):
    """Lists to each person the tool that is theirs, and not the other's."""

    def __init__(self, find_caller: Callable[[], str]) -> None:
        self._find_caller = find_caller

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Sequence[Any]:
        listed: Sequence[Any] = await call_next(context)
        others = {f"only_{person}" for person in PEOPLE} - {f"only_{self._find_caller()}"}
        return [each for each in listed if each.name not in others]


class PeopleWorld(ABC):
    """The gateways, what people do at them, and how it came out."""

    def __init__(self, folder: Path, database: str, seed: int) -> None:
        self.folder = folder
        self.gateways: list[Gateway] = []
        self.outcomes: Counter[str] = Counter()
        self.rng = random.Random(seed)
        self._database = database

    @abstractmethod
    def config(self, name: str, person: str = "") -> ServerConfig:
        """The server as one person uses it."""

    @abstractmethod
    def find_caller(self) -> str:
        """The person whose token came with the request that a server answers."""

    def front_door_token(self, person: str) -> str:
        """What a person comes to the gateway with."""
        return f"front-door-of-{person}"

    @abstractmethod
    async def open_servers(self, stack: AsyncExitStack) -> None:
        """Serve all three until the stack is closed."""

    @abstractmethod
    async def agree(self, person: str, browser: Person, url: str) -> Any:
        """What a person's browser does with the page that asks them."""

    @abstractmethod
    async def check(self) -> int:
        """Look at what the servers saw; the number of renewed tokens."""

    def add_tools(self, target: FastMCP[Any]) -> None:
        @target.tool
        def account() -> str:
            """Names whoever calls."""
            return f"I am {self.find_caller()}."

        @target.tool
        def only_ann() -> str:
            """Reveals what is Ann's."""
            return f"The secret of ann, told to {self.find_caller()}."

        @target.tool
        def only_bob() -> str:
            """Reveals what is Bob's."""
            return f"The secret of bob, told to {self.find_caller()}."

        target.add_middleware(OwnListing(self.find_caller))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["PeopleWorld"]:
        keyring.set_keyring(NoKeyring())
        async with AsyncExitStack() as stack:
            await self.open_servers(stack)
            for name in "ab":
                await self._open_gateway(stack, name)
            yield self

    async def _open_gateway(self, stack: AsyncExitStack, name: str) -> None:
        made = Settings(data_dir=self.folder / name, database_url=SecretStr(self._database), secret_key=KEY)
        configs = {each: self.config(each) for each in (*SIGNED_IN, TRADED)}
        gateway = await stack.enter_async_context(open_gateway(made, configs, environ={}))
        gateway.start_upstreams()
        for person in PEOPLE:
            gateway.upstreams.subjects.note(person, self.front_door_token(person), 4e9)
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
        browser_of = Person(lambda url: self.agree(person, browser_of, url), timeout_s=LIMIT_S)
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


def view_of(gateway: Gateway, person: str) -> CatalogView:
    views = gateway.lists.views
    found = views.at("", views.reach(Principal(person)))
    assert found is not None
    return found


async def live_together(world: PeopleWorld, steps: int) -> None:
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
    renewed = await world.check()
    print(sorted(world.outcomes.items()), renewed, "renewed tokens")
    assert world.outcomes["call: ok"] > steps / 4 and renewed

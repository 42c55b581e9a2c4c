"""Two people at servers whose sign-ins are a certified provider's: neither gets what is the other's.

The provider rotates refresh tokens and takes a whole sign-in back where one is used twice. At the third server it
trades the tokens that people came to the gateway with, which it gave them as well.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from certified_provider import TRADER, resource_server, trading_server
from fastmcp.server.dependencies import get_access_token
from openid_fakes import consent
from people_world import PEOPLE, SIGNED_IN, TRADED, PeopleWorld, live_together
from postgres_server import PostgresServer
from sign_in_fakes import Person

from smart_mcp_proxy.servers import ServerConfig, ServerLimits
from smart_mcp_proxy.upstream import SignIns

pytestmark = [pytest.mark.anyio, pytest.mark.clients]


class CertifiedWorld(PeopleWorld):
    """Servers that `oidc-provider` guards, and what it saw."""

    def __init__(self, folder: Path, database: str, seed: int) -> None:
        super().__init__(folder, database, seed)
        self.urls: dict[str, str] = {}
        self.seen: dict[str, dict[str, Any]] = {name: {} for name in (*SIGNED_IN, TRADED)}
        self.issuer = ""
        self.front_door_tokens: dict[str, str] = {}
        self._guards = AsyncExitStack()

    def config(self, name: str, person: str = "") -> ServerConfig:
        limits = ServerLimits(init_s=10, list_s=10, call_s=10)
        oauth: dict[str, Any] = {"per_user": True}
        if name == TRADED:
            client = {key: TRADER[key] for key in ("client_id", "client_secret")}
            exchange = {"token_url": f"{self.issuer}/token", "audience": self.urls[name], **client}
            oauth = {"exchange": exchange}
        return ServerConfig(
            name, "http", url=self.urls[name], oauth=oauth, person=person, trust="trusted", limits=limits
        )

    def find_caller(self) -> str:
        token = get_access_token()
        assert token is not None and token.claims is not None
        assert token.token not in self.front_door_tokens.values()
        return str(token.claims["sub"])

    def front_door_token(self, person: str) -> str:
        return self.front_door_tokens[person]

    async def open_servers(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._guards)
        for name in SIGNED_IN:
            guard = resource_server(self.add_tools, self.seen[name])
            self.urls[name], _ = await self._guards.enter_async_context(guard)
        trading = trading_server(self.add_tools, self.seen[TRADED])
        self.urls[TRADED], self.issuer, front = await self._guards.enter_async_context(trading)
        for person in PEOPLE:
            await self.come_in(person, front)

    async def come_in(self, person: str, front: str) -> None:
        """Has the provider give somebody the token that they come to the gateway with."""
        config, sign_ins = ServerConfig("front", "http", url=front, oauth={}), SignIns(self.folder / "front" / person)
        browser_of = Person(lambda url: self.agree(person, browser_of, url), timeout_s=60)
        async with browser_of.browser() as browser:
            await sign_ins.authorize_server(config, browser)
        bearer = await sign_ins.bearer(config)
        self.front_door_tokens[person] = await bearer.token()
        await bearer.close()

    async def agree(self, person: str, browser: Person, url: str) -> Any:
        return await consent(url, person)

    async def check(self) -> int:
        """Each refresh token was used once; a provider says what it refused when it ends."""
        await self._guards.aclose()
        for seen in self.seen.values():
            assert "refresh token already used" not in seen["refused"], seen
        assert self.seen[TRADED]["traded"] and not self.seen[TRADED]["refused"]
        return sum(seen["used"] for seen in self.seen.values())


async def test_two_people_never_meet_at_a_certified_provider(postgres: PostgresServer, tmp_path: Path) -> None:
    """A few hundred steps."""
    async with CertifiedWorld(tmp_path, postgres.url(postgres.new_database()), 0).opened() as world:
        await live_together(world, 400)


@pytest.mark.soak
async def test_two_people_never_meet_there_in_ten_thousand_steps(postgres: PostgresServer, tmp_path: Path) -> None:
    """As long as it takes for some hundred tokens to end."""
    async with CertifiedWorld(tmp_path, postgres.url(postgres.new_database()), 1).opened() as world:
        await live_together(world, 10_000)

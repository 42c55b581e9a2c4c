"""Two people at servers whose sign-ins are a certified provider's: neither gets what is the other's.

The provider rotates refresh tokens and takes a whole sign-in back where one is used twice. The third server takes
traded tokens; certified providers that can be had here trade none, so its endpoint is of the tests.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from certified_provider import resource_server
from fastmcp.server.auth.auth import AccessToken
from fastmcp.server.dependencies import get_access_token
from openid_fakes import consent
from people_world import SIGNED_IN, TRADED, PeopleWorld, live_together
from postgres_server import PostgresServer
from sign_in_fakes import SCOPES, Guarded, Person, Seen, guarded

from smart_mcp_proxy.servers import ServerConfig, ServerLimits

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


class CertifiedWorld(PeopleWorld):
    """Servers that `oidc-provider` guards, one beside them that takes traded tokens, and what the providers saw."""

    def __init__(self, folder: Path, database: str, seed: int) -> None:
        super().__init__(folder, database, seed)
        self.urls: dict[str, str] = {}
        self.seen: dict[str, dict[str, Any]] = {name: {} for name in SIGNED_IN}
        self.traded: Guarded | None = None
        self.owner: dict[str, str] = {}
        self.sessions: dict[str, set[str]] = {}
        self._guards = AsyncExitStack()

    def config(self, name: str, person: str = "") -> ServerConfig:
        limits = ServerLimits(init_s=10, list_s=10, call_s=10)
        oauth: dict[str, Any] = {"per_user": True}
        if name == TRADED:
            assert self.traded is not None
            oauth = {"exchange": {"token_url": f"{self.traded.base}/token", "audience": self.urls[name]}}
        return ServerConfig(
            name, "http", url=self.urls[name], oauth=oauth, person=person, trust="trusted", limits=limits
        )

    def find_caller(self) -> str:
        token = get_access_token()
        assert token is not None
        subject = token.claims.get("sub") if token.claims else None
        return self.owner[token.client_id] if subject is None else str(subject)

    def trade(self, seen: Seen) -> tuple[int, Any]:
        """The token endpoint of the third server."""
        assert self.traded is not None
        token = f"traded-{len(self.owner)}"
        self.owner[token] = seen.form["subject_token"].removeprefix("front-door-of-")
        self.traded.provider.access_tokens[token] = AccessToken(token=token, client_id=token, scopes=SCOPES)
        answer = {"access_token": token, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 600}
        return 200, answer

    async def open_servers(self, stack: AsyncExitStack) -> None:
        self.traded = await stack.enter_async_context(guarded(add=self.add_tools))
        self.traded.answers["/token"] = self.trade
        self.urls[TRADED] = self.traded.url
        await stack.enter_async_context(self._guards)
        for name in SIGNED_IN:
            guard = resource_server(self.add_tools, self.seen[name])
            self.urls[name], _ = await self._guards.enter_async_context(guard)

    async def agree(self, person: str, browser: Person, url: str) -> Any:
        return await consent(url, person)

    async def check(self) -> int:
        """Each refresh token was used once; a provider says what it refused when it ends."""
        await self._guards.aclose()
        for seen in self.seen.values():
            assert "refresh token already used" not in seen["refused"], seen
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

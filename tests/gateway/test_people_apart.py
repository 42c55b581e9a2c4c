"""Two people, three servers, two gateways on one database: whatever they do in any order, neither gets what is theirs.

Two of the servers ask each person to sign in (PKCE, refresh tokens that work once), one takes tokens that are traded
for people's own. `tests/clients/test_certified_people.py` has the same with a provider of another stack.
"""

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastmcp.server.auth.auth import AccessToken
from fastmcp.server.dependencies import get_access_token
from people_world import PEOPLE, SIGNED_IN, TRADED, PeopleWorld, live_together
from postgres_server import PostgresServer
from sign_in_fakes import SCOPES, Guarded, Person, Seen, follow, guarded

from smart_mcp_proxy.servers import ServerConfig

pytestmark = pytest.mark.anyio

ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


class Issued(dict[str, AccessToken]):
    """Access tokens of a provider, which still knows those that it has taken back."""

    def __init__(self, of: dict[str, AccessToken]) -> None:
        super().__init__(of)
        self.accounts: dict[str, str] = {}

    def __setitem__(self, token: str, facts: AccessToken) -> None:
        self.accounts[token] = facts.client_id
        super().__setitem__(token, facts)


class GuardedWorld(PeopleWorld):
    """Servers with an authorization server in this process, and what was seen of them.

    Attributes:
        owner: Whose an account at a server is: each sign-in registers a client, each trade makes an account.
    """

    def __init__(self, folder: Path, database: str, seed: int) -> None:
        super().__init__(folder, database, seed)
        self.owner: dict[str, str] = {}
        self.servers: dict[str, Guarded] = {}
        self.issued: dict[str, Issued] = {}
        self._trades = 0

    def config(self, name: str, person: str = "") -> ServerConfig:
        server = self.servers[name]
        oauth: dict[str, Any] = {"per_user": True}
        if name == TRADED:
            oauth = {"exchange": {"token_url": f"{server.base}/token", "audience": server.url}}
        return server.config(oauth, name=name, person=person, trust="trusted")

    def find_caller(self) -> str:
        token = get_access_token()
        assert token is not None
        return self.owner[token.client_id]

    def trade(self, seen: Seen) -> tuple[int, Any]:
        """The token endpoint of the third server."""
        self._trades += 1
        subject = seen.form["subject_token"]
        token = f"traded-{self._trades}"
        self.owner[token] = subject.removeprefix("front-door-of-")
        facts = AccessToken(token=token, client_id=token, scopes=SCOPES)
        self.servers[TRADED].provider.access_tokens[token] = facts
        answer = {"access_token": token, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 600}
        return 200, answer

    async def open_servers(self, stack: AsyncExitStack) -> None:
        for name in (*SIGNED_IN, TRADED):
            server = await stack.enter_async_context(guarded(add=self.add_tools))
            self.servers[name] = server
            self.issued[name] = Issued(server.provider.access_tokens)
            server.provider.access_tokens = self.issued[name]
        self.servers[TRADED].answers["/token"] = self.trade
        self.servers["wiki"].answers["/mcp"] = know_no_discovery

    async def agree(self, person: str, browser: Person, url: str) -> Any:
        self.owner[browser.query["client_id"]] = person
        return await follow(url)

    async def check(self) -> int:
        """Each token and each session at a server is one person's, and each refresh token was sent once."""
        for name, server in self.servers.items():
            sessions: dict[str, set[str]] = {}
            for seen in server.wire:
                if seen.path == "/mcp" and "authorization" in seen.headers:
                    account = self.issued[name].accounts[seen.headers["authorization"].removeprefix("Bearer ")]
                    owners = sessions.setdefault(seen.headers.get("mcp-session-id", ""), set())
                    owners.add(self.owner[account])
                assert "front-door-of" not in str(seen.headers)
            assert sessions.pop("") == set(PEOPLE)
            assert all(len(owners) == 1 for owners in sessions.values()), sessions
            assert set().union(*sessions.values()) == (set(PEOPLE) if name == "wiki" else set())
            sent = Counter(seen.form["refresh_token"] for seen in server.refreshes)
            assert not sent or max(sent.values()) == 1, f"{name}: a refresh token was used more than once"
        return sum(len(server.refreshes) for server in self.servers.values())


def know_no_discovery(seen: Seen) -> tuple[int, Any] | None:
    """Answer as a server of the handshake era, which has sessions."""
    if b'"server/discover"' not in seen.body or "authorization" not in seen.headers:
        return None
    error = {"code": -32601, "message": "Method not found"}
    return 200, {"jsonrpc": "2.0", "id": msgspec.json.decode(seen.body)["id"], "error": error}


@pytest.mark.long  # some seconds of work
async def test_two_people_never_meet(postgres: PostgresServer, tmp_path: Path) -> None:
    """A few hundred steps."""
    async with GuardedWorld(tmp_path, postgres.url(postgres.new_database()), 0).opened() as world:
        await live_together(world, 400)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 3))
async def test_two_people_never_meet_in_ten_thousand_steps(postgres: PostgresServer, tmp_path: Path, seed: int) -> None:
    """Calls, lists, sign-ins, sign-outs and renewals, interleaved."""
    async with GuardedWorld(tmp_path, postgres.url(postgres.new_database()), seed).opened() as world:
        await live_together(world, 10_000)

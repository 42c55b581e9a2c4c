"""People's sign-ins outlive the gateway that used them: kill -9, and sessions that go on at another gateway."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import keyring
import msgspec
import pytest
from fleet import CLIENT, HANDSHAKE, META, MODERN, message_in, serving
from keyring.backends.fail import Keyring as NoKeyring
from plain_http import plain_client
from postgres_server import PostgresServer
from pydantic import SecretStr
from sign_in_fakes import Guarded, Person, guarded

from smart_mcp_proxy.catalog import open_catalog
from smart_mcp_proxy.gateway.admin.agent_tokens import AgentTokens, Scope
from smart_mcp_proxy.gateway.shared.shared_sign_ins import open_sign_ins
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.upstream import TlsContext

pytestmark = [pytest.mark.anyio, pytest.mark.long]

KEY = "a-key-of-the-tests-with-32-characters"
PEOPLE = ("ann", "bob")
PERSONAL = {"per_user": True}
ACCEPT = "application/json, text/event-stream"
LIMIT_S = 180
CALL = {"name": "call_tool_write", "arguments": {"name": "web:whoami", "args": {}}}


class Caller:
    """One person's client: a token, and a session at one gateway.

    Attributes:
        id: Under which the gateways know the person.
    """

    def __init__(self, id_: str, secret: str) -> None:
        self.id = id_
        self._headers = {"authorization": f"Bearer {secret}", "accept": ACCEPT}
        self._session: dict[str, str] = {}

    async def call(self, base: str) -> str:
        """The text of an answer to a request that stands alone."""
        params = {**CALL, "_meta": META}
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": CALL["name"]}
        reply = await self._post(base, {"id": 1, "method": "tools/call", "params": params}, headers)
        return _text_in(reply)

    async def call_in_session(self, base: str) -> str:
        """The text of an answer in the session; one that a gateway does not know is opened anew, as clients do."""
        message = {"id": 2, "method": "tools/call", "params": CALL}
        reply = await self._post(base, message, self._session) if self._session else None
        if reply is None or reply.status_code == 404:
            await self._open_session(base)
            reply = await self._post(base, message, self._session)
        return _text_in(reply)

    async def _open_session(self, base: str) -> None:
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}
        reply = await self._post(base, {"id": 1, "method": "initialize", "params": params}, {})
        self._session = {"mcp-session-id": reply.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
        await self._post(base, {"method": "notifications/initialized"}, self._session)

    async def _post(self, base: str, message: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        async with plain_client(timeout=LIMIT_S, headers=self._headers) as client:
            return await client.post(f"{base}/mcp", json={"jsonrpc": "2.0", **message}, headers=headers)


def _text_in(reply: httpx2.Response) -> str:
    assert reply.status_code == 200, reply.text
    return str(message_in(reply)["result"]["content"][0]["text"])


class KilledWorld:
    """A guarded server, a database, and gateways of it that are started and killed."""

    def __init__(self, folder: Path, database: str, server: Guarded) -> None:
        self.server = server
        self.folder = folder
        self.settings = Settings(data_dir=folder / "own", database_url=SecretStr(database), secret_key=SecretStr(KEY))
        entry = {"url": server.url, "oauth": PERSONAL}
        self._variables = {
            "MCPPROXY_CONFIG_JSON": json.dumps({"mcpServers": {"web": entry}}),
            "MCPPROXY_DATABASE_URL": database,
            "MCPPROXY_SECRET_KEY": KEY,
            "MCPPROXY_EMBEDDER": "BM25",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }
        self._count = 0

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[tuple[Any, str]]:
        """A gateway process, and its address."""
        self._count += 1
        name = f"gateway-{self._count}"
        variables = {**self._variables, "MCPPROXY_DATA_DIR": str(self.folder / name), "MCPPROXY_REPLICA": name}
        async with serving("--http", "--port", "0", "--json", log=self.folder / f"{name}.log", **variables) as process:
            report = json.loads(await process.stdout.readline())
            yield process, f"http://127.0.0.1:{httpx2.URL(report['url']).port}"

    async def make_people(self) -> list[Caller]:
        """People with tokens who have signed in at the server."""
        async with open_catalog(self.settings, reset=False) as catalog:
            tokens = [await AgentTokens(catalog).create(name, Scope(None, "destructive")) for name in PEOPLE]
        async with open_sign_ins(self.settings, TlsContext()) as sign_ins:
            for made in tokens:
                config = self.server.config(PERSONAL, person=made.token.principal_id)
                async with Person().browser() as browser:
                    await sign_ins.authorize_server(config, browser)
        return [Caller(made.token.principal_id, made.secret) for made in tokens]

    async def end_token(self, person: Caller) -> None:
        """Lets a person's access token end, so that whoever uses it renews it."""
        place = self.server.config(PERSONAL, person=person.id).sign_in_place
        async with open_sign_ins(self.settings, TlsContext()) as sign_ins, sign_ins.store.hold_lock(*place):
            held, _ = await sign_ins.store.read(*place)
            assert held is not None
            await sign_ins.store.write(*place, msgspec.structs.replace(held, expires_at_s=held.obtained_at_s))


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_killed_gateways_and_moved_sessions_lose_no_sign_in(
    postgres: PostgresServer, tmp_path: Path, kills: int
) -> None:
    """Nobody signs in again, and each refresh token is used once."""
    keyring.set_keyring(NoKeyring())
    async with guarded() as server:
        world = KilledWorld(tmp_path, postgres.url(postgres.new_database()), server)
        people = await world.make_people()
        registered = len(server.asked("/register"))
        with anyio.fail_after(LIMIT_S):
            async with AsyncExitStack() as stack:
                _, stays = await stack.enter_async_context(world.gateway())
                for killed in range(kills):
                    process, base = await stack.enter_async_context(world.gateway())
                    for person in people:
                        assert [await person.call(base), await person.call_in_session(base)] == ["somebody"] * 2
                    before = len(server.refreshes)
                    await world.end_token(people[killed])
                    await server.until(lambda before=before: len(server.refreshes) > before, LIMIT_S)  # type: ignore[misc]
                    assert await people[killed].call(base) == "somebody"
                    process.kill()
                    await process.wait()
                    for person in people:
                        assert [await person.call_in_session(stays), await person.call(stays)] == ["somebody"] * 2
        sent = [seen.form["refresh_token"] for seen in server.refreshes]
        assert len(sent) == len(set(sent)) >= kills
        assert registered == len(server.asked("/register")) == len(PEOPLE)

"""Servers over HTTP that forget sessions, as agents see it: calls go on, over shared sessions and over their own."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from personal_agents import asked_over_http
from starlette.responses import Response
from transports import listening, opened_gateway, served

from smart_mcp_proxy.gateway import Gateway

pytestmark = pytest.mark.anyio

ERROR = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"},
}
REFUSALS = {
    "as the protocol has it": (404, "Session not found"),
    "as examples have it": (400, json.dumps(ERROR)),
    "behind a balancer": (503, "unknown session"),
    "without a word": (410, ""),
}


class ForgetfulApp:
    """A real server of the handshake era whose sessions can be forgotten.

    Attributes:
        refusal: Status and body of its answer to a session that was forgotten.
        greeted: How many sessions it ever opened.
        executed: How many calls it carried out.
    """

    def __init__(self, refusal: tuple[int, str]) -> None:
        self.refusal = refusal
        self.greeted = self.executed = 0
        self._known: set[bytes] = set()
        server = FastMCP("forgetful")

        @server.tool
        async def work(context: Context, text: str = "") -> str:
            self.executed += 1
            return str(context.session_id)

        self._inner = server.http_app()

    def forget(self) -> None:
        """Knows no session any more."""
        self._known.clear()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-protocol-version") == b"2026-07-28":
            await Response("Unsupported protocol version", 400)(scope, receive, send)
            return
        session = headers.get(b"mcp-session-id")
        if session is not None and session not in self._known:
            status, body = self.refusal
            await Response(body, status)(scope, receive, send)
            return

        async def note(message: Any) -> None:
            given = dict(message.get("headers", ())).get(b"mcp-session-id")
            if given is not None and given not in self._known and session is None:
                self._known.add(given)
                self.greeted += 1
            await send(message)

        await self._inner(scope, receive, note)


@asynccontextmanager
async def before(app: ForgetfulApp, data_dir: Path, **entry: Any) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway in front of it that has listed its tool, and the gateway's address."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(listening(app))
        servers = {"asking": {"url": f"{url}/mcp", "type": "http", **entry}}
        gateway = await stack.enter_async_context(opened_gateway(data_dir, servers))
        base = await stack.enter_async_context(served(gateway))
        gateway.start_upstreams()
        assert await gateway.wait_settled(30)
        yield gateway, base


@pytest.mark.long  # a third of a second of processor time
@pytest.mark.parametrize("connection", ["shared", "per_client"])
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_an_agents_calls_go_on_when_the_server_forgets_its_session(
    connection: str, refusal: tuple[int, str], tmp_path: Path
) -> None:
    """At once, or at the next call where the first may have been carried out; no breaker counts it."""
    app = ForgetfulApp(refusal)
    entry = {"connection": "per_client"} if connection == "per_client" else {}
    async with before(app, tmp_path, **entry) as (gateway, base), asked_over_http(base) as agent:
        sessions = set()
        for number in range(1, 6):
            result = await agent.use("work")
            if result.get("isError"):
                error = result["structuredContent"]["error"]
                assert (refusal[1], error["delivery"]) == ("", "unknown")
                assert "has forgotten the session" in error["message"]
                result = await agent.use("work")
            sessions.add(result["content"][0]["text"])
            assert (len(sessions), app.executed) == (number, number)
            app.forget()
        assert {status.breaker for status in gateway.status().servers} == {"closed"}


@pytest.mark.long  # a third of a second of processor time
async def test_clients_whose_own_sessions_are_forgotten_get_one_each(tmp_path: Path) -> None:
    """What several calls of one client meet is one lost session."""
    app = ForgetfulApp((404, "Session not found"))
    async with before(app, tmp_path, connection="per_client") as (gateway, base), AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(asked_over_http(base)) for _ in range(3)]
        for agent in agents:
            await agent.use("work")
        app.forget()
        greeted = app.greeted
        results = await asyncio.gather(*(agent.use("work") for agent in agents for _ in range(5)))
        assert len({result["content"][0]["text"] for result in results}) == len(agents)
        assert app.greeted - greeted == len(agents)
        assert app.executed == len(agents) * 6
        assert {status.breaker for status in gateway.status().servers} == {"closed"}

"""Gateway processes on one PostgreSQL database, each with a server process of its own, and what agents see of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from plain_http import plain_client
from worlds import DEADLINE_S, HELLO, SmallServer, end, started

__all__ = ["HOUR_S", "KEY", "TOOLS", "Replica", "Story", "by_wrong_clock", "fleet", "replica"]

HOUR_S = 3_600

KEY = "a-key-of-the-tests-with-32-characters"
TOOLS = [f"tool{number}" for number in range(20)]
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Replica(NamedTuple):
    """One gateway of several.

    Attributes:
        base: Its address.
        process: Its process.
        server: Its own process of the small server.
        client: Keeps its connections.
        operator: The operator's token.
        log: What it wrote to stderr.
    """

    base: str
    process: asyncio.subprocess.Process
    server: SmallServer
    client: httpx2.AsyncClient
    operator: str
    log: Path

    async def post(
        self, name: str, arguments: dict[str, Any], path: str = "/mcp", token: str | None = None
    ) -> httpx2.Response:
        """The answer to a call of a tool that is listed at a path, in the modern era."""
        params = {"name": name, "arguments": arguments, "_meta": META}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return await self.client.post(f"{self.base}{path}", json=body, headers=headers)

    async def ask(self, name: str, arguments: dict[str, Any], path: str = "/mcp") -> dict[str, Any]:
        """The result of such a call."""
        result: dict[str, Any] = (await self.post(name, arguments, path)).json()["result"]
        return result

    async def call(self, tool: str, text: str = "x") -> dict[str, Any]:
        """The result of a call of a tool of the small server."""
        return await self.ask("call_tool_destructive", {"name": f"up:{tool}", "args": {"text": text}})

    async def is_executed(self, tool: str) -> bool:
        """Whether a call of the tool reaches its server."""
        result = await self.call(tool)
        return not result.get("isError", False)

    async def admits(self, token: str) -> bool:
        """Whether a call with this token of an agent is let in."""
        answer = await self.post("call_tool_destructive", {"name": "up:echo", "args": {"text": "x"}}, token=token)
        assert answer.status_code in {200, 401}, answer.text
        return answer.status_code == 200

    async def new_session(self) -> str:
        """The id of a new session of the handshake era."""
        answer = await self.in_session(None, "initialize", HELLO)
        session: str = answer.headers["mcp-session-id"]
        await self.in_session(session, "notifications/initialized")
        return session

    async def in_session(
        self, session: str | None, method: str, params: dict[str, Any] | None = None
    ) -> httpx2.Response:
        """The answer to a message in a session of the handshake era."""
        headers = {"accept": "application/json, text/event-stream"} | ({"mcp-session-id": session} if session else {})
        body = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"id": 1, "params": params})
        return await self.client.post(f"{self.base}/mcp", json=body, headers=headers)

    async def degraded(self) -> str:
        """Why a search says that it is worse than it should be; empty where it is not."""
        answer = await self.ask("retrieve_tools", {"query": "does echo"})
        return "\n".join(answer["structuredContent"]["degraded"])

    async def finds(self, tool: str) -> bool:
        """Whether a search for the tool by its name finds it."""
        answer = await self.ask("retrieve_tools", {"query": f"up:{tool}"})
        return any(found["name"] == f"up:{tool}" for found in answer["structuredContent"]["tools"])

    async def lost_since(self) -> str | None:
        """Since when the store is lost, as `/readyz` says; None while it is not."""
        answer = await self.client.get(f"{self.base}/readyz")
        assert answer.status_code == 200, answer.text
        since: str | None = answer.json().get("store_lost_since")
        return since

    async def rest(self, verb: str, path: str, body: dict[str, Any] | None = None) -> httpx2.Response:
        """The answer of the REST interface to the operator."""
        headers = {"authorization": f"Bearer {self.operator}"}
        return await self.client.request(verb, f"{self.base}/api/v1/{path}", json=body, headers=headers)

    async def asked_to(self, decision: str, tool: str) -> httpx2.Response:
        """The answer to a decision in the operator's name: `block` or `unblock`."""
        return await self.rest("POST", f"approvals/{decision}", {"name": f"up:{tool}"})

    async def decide(self, decision: str, tool: str) -> None:
        """Blocks a tool, or lifts that, in the operator's name."""
        answer = await self.asked_to(decision, tool)
        assert answer.status_code == 200, answer.text

    async def approves(self, tool: str) -> bool:
        """Whether a changed definition waited for the operator, and is approved now."""
        shown = await self.rest("GET", f"approvals/up:{tool}")
        if shown.status_code == 404:
            return False
        seen = {"name": f"up:{tool}", "hash": shown.json()["approval"]["hash"]}
        answer = await self.rest("POST", "approvals/approve", {"tools": [seen]})
        return answer.status_code == 200 and answer.json()["approved"] == [f"up:{tool}"]

    async def is_lost(self) -> bool:
        return await self.lost_since() is not None

    async def is_back(self) -> bool:
        return await self.lost_since() is None

    def list_tools(self, *tools: str) -> None:
        """Lets its own server list other tools from now on."""
        self.server.list_words("echo", *tools)

    def change(self, tool: str) -> None:
        """Lets its own server describe a tool anew from now on."""
        words = (self.server.directory / "tools").read_text().split()
        editions = {name: edition for name, _, edition in (word.partition("=") for word in words)}
        editions[tool] = f"{int(editions[tool] or 0) + 1}"
        self.server.list_words(*(f"{name}={edition}" if edition else name for name, edition in editions.items()))


class Story(NamedTuple):
    """What replicas are started with.

    Attributes:
        folder: Of the test.
        url: Of the database.
        main: What Python is to run.
        servers: Entries beside the small server's.
        settings: More settings.
        trust: In the small server's entry.
    """

    folder: Path
    url: str
    main: Sequence[str] = ()
    servers: dict[str, Any] = {}  # noqa: RUF012  # never changed
    settings: dict[str, str] = {}  # noqa: RUF012
    trust: str = "trusted"


def by_wrong_clock(ahead_s: int) -> tuple[str, ...]:
    """Arguments by which Python starts a gateway whose clock is ahead by so much."""
    file = str(Path(__file__).with_name("wrong_clock.py"))
    return "-c", f"import runpy; runpy.run_path({file!r}, {{'AHEAD_S': {ahead_s}}}, '__main__')"


@asynccontextmanager
async def replica(name: str, story: Story) -> AsyncIterator[Replica]:
    """A gateway with a data directory and a server process of its own, listed; one that was there goes on."""
    place = story.folder / name
    place.mkdir(exist_ok=True)
    server = SmallServer(place / "world")
    if not (server.directory / "tools").exists():
        (server.directory / "tools").write_text(" ".join(["echo", *TOOLS]))
    given = {"DATABASE_URL": story.url, "SECRET_KEY": KEY, "REPLICA": name, **story.settings}
    words = ("--http", "--port", "0", "--json")
    entries = {"up": server.entry | {"trust": story.trust}, **story.servers}
    try:
        async with (
            started(place / "data", entries, *words, main=story.main, **given) as process,
            plain_client(timeout=DEADLINE_S) as client,
        ):
            assert process.stdout is not None
            report = await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)
            log = place / "log"
            assert report, log.read_text()
            base = json.loads(report)["url"].removesuffix("/mcp")
            token = (place / "data" / "operator.token").read_text().strip()
            yield Replica(base, process, server, client, token, log)
    finally:
        end(server.pids())


@asynccontextmanager
async def fleet(
    folder: Path, url: str, count: int = 3, trust: str = "trusted", **settings: str
) -> AsyncIterator[list[Replica]]:
    """Gateways of today on one database."""
    story = Story(folder, url, settings=settings, trust=trust)
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(replica(f"replica{number}", story)) for number in range(count)]
        assert len({each.operator for each in replicas}) == 1
        yield replicas

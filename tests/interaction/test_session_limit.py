"""More clients than sessions: those that have one keep it, newcomers are told when to come back."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from agents import HANDSHAKE_VERSION
from plain_http import plain_client
from transports import opened_gateway, rest_at, served

from smart_mcp_proxy.cli.commands.operate.doctor_checks import examine
from smart_mcp_proxy.gateway.admin.agent_tokens import Scope
from smart_mcp_proxy.settings import Settings
from smart_mcp_proxy.web.serve import open_socket

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("session-limit")]

SERVERS = {"off": {"command": "none", "disabled": True}}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
PARAMS = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
AT_ONCE = 8
LIMIT_S = 120


class Clients:
    """Clients of one gateway that share a few connections, as behind a proxy."""

    def __init__(self, base: str, http: httpx2.AsyncClient, token: str = "") -> None:
        self._own = {"authorization": f"Bearer {token}"} if token else {}
        self._url = f"{base}/mcp"
        self._http = http
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def ask(self, session: str, method: str, **params: Any) -> httpx2.Response:
        """The answer to one request; outside of a session if that is empty."""
        headers = HEADERS | self._own | ({"mcp-session-id": session} if session else {})
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        async with self._turns:
            return await self._http.post(self._url, content=json.dumps(message), headers=headers)

    async def arrive(self, count: int) -> tuple[list[str], list[httpx2.Response]]:
        """So many clients at once: the sessions of those that are let in, and the refusals."""
        answers = await asyncio.gather(*(self.ask("", "initialize", **PARAMS) for _ in range(count)))
        sessions = [answer.headers["mcp-session-id"] for answer in answers if answer.status_code == 200]
        return sessions, [answer for answer in answers if answer.status_code != 200]

    async def work(self, sessions: list[str]) -> set[int]:
        """One call on each session; what became of them."""
        answers = await asyncio.gather(*(self.ask(session, "tools/list") for session in sessions))
        return {answer.status_code for answer in answers}

    async def leave(self, session: str) -> None:
        await self._http.delete(self._url, headers=HEADERS | self._own | {"mcp-session-id": session})

    @asynccontextmanager
    async def listening(self, session: str) -> AsyncIterator[asyncio.Event]:
        """Hold the stream of a session open; the event is set once it has ended."""
        is_open, is_over = asyncio.Event(), asyncio.Event()

        async def listen() -> None:
            headers = HEADERS | self._own | {"mcp-session-id": session, "accept": "text/event-stream"}
            async with self._http.stream("GET", self._url, headers=headers) as answer:
                assert answer.status_code == 200
                is_open.set()
                async for _ in answer.aiter_raw():
                    pass
            is_over.set()

        task = asyncio.ensure_future(listen())
        await is_open.wait()
        try:
            yield is_over
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.parametrize("most", [10, pytest.param(1_000, marks=pytest.mark.soak)])
async def test_twice_as_many_clients_as_sessions_end_nobodys_session(tmp_path: Path, most: int) -> None:
    """Each of the others gets a reason, the setting and a time; one that leaves makes room for one."""
    async with (
        opened_gateway(tmp_path, SERVERS, max_sessions=most) as gateway,
        served(gateway) as base,
        plain_client(timeout=LIMIT_S) as http,
    ):
        clients = Clients(base, http)
        with anyio.fail_after(LIMIT_S):
            sessions, refused = await clients.arrive(2 * most)
            assert (len(sessions), len(refused)) == (most, most)
            assert {answer.status_code for answer in refused} == {503}
            assert all(1 <= int(answer.headers["retry-after"]) <= 60 for answer in refused)
            error = refused[0].json()["error"]
            assert error["data"]["code"] == "too_many_sessions"
            assert "MCPPROXY_MAX_SESSIONS" in error["data"]["hint"]
            assert await clients.work(sessions) == {200}
            await clients.leave(sessions.pop())
            newcomers, refused = await clients.arrive(3)
            assert (len(newcomers), len(refused)) == (1, 2)
            assert await clients.work([*sessions, *newcomers]) == {200}


async def test_a_hello_that_is_refused_takes_no_place(tmp_path: Path) -> None:
    """However often it comes: whoever speaks properly is let in."""
    async with (
        opened_gateway(tmp_path, SERVERS, max_sessions=2) as gateway,
        served(gateway) as base,
        plain_client(timeout=LIMIT_S) as http,
    ):
        clients = Clients(base, http)
        for params in ({}, {"protocolVersion": 7}, {"capabilities": []}, {"_meta": {"progressToken": 1}}) * 2:
            answer = await clients.ask("", "initialize", **params)
            assert '"error":' in answer.text and answer.status_code < 500
        sessions, refusals = await clients.arrive(3)
        assert (len(sessions), len(refusals)) == (2, 1)
        assert await clients.work(sessions) == {200}


async def test_whoever_has_most_sessions_makes_room_for_others(tmp_path: Path) -> None:
    """Also with a stream open on each; those of a person's tokens are the person's, and who has most gets no more."""
    async with (
        opened_gateway(tmp_path, SERVERS, max_sessions=6) as gateway,
        served(gateway) as base,
        plain_client(timeout=LIMIT_S) as http,
    ):
        tokens = gateway.admin.agent_tokens
        ann, bob = [
            Clients(base, http, (await tokens.create(name, Scope(None, "read"))).secret) for name in ("ann", "bob")
        ]
        with anyio.fail_after(LIMIT_S):
            mine, refused = await ann.arrive(8)
            assert (len(mine), len(refused)) == (6, 2)
            async with AsyncExitStack() as stack:
                streams = [await stack.enter_async_context(ann.listening(each)) for each in mine[:5]]
                for count, ended in ((1, 0), (2, 1), (3, 2)):
                    theirs, refused = await bob.arrive(1)
                    assert (len(theirs), refused) == (1, []), count
                    while sum(each.is_set() for each in streams) < ended:
                        await anyio.lowlevel.checkpoint()
                assert (await bob.arrive(1))[0] == [] and (await ann.arrive(1))[0] == []
            answers = [(await ann.ask(each, "tools/list")).status_code for each in mine]
            assert sorted(answers) == [200] * 3 + [404] * 3 and answers[5] == 404
            assert await bob.work(theirs) == {200}


@pytest.mark.long  # a third of a second of processor time
async def test_doctor_says_when_there_is_little_room(tmp_path: Path) -> None:
    """From four of five sessions on, with the setting."""
    async with (
        opened_gateway(tmp_path, SERVERS, max_sessions=5) as gateway,
        open_socket(gateway) as socket,
        served(gateway) as base,
        plain_client() as http,
    ):
        assert socket is not None

        async def told() -> list[tuple[str, str]]:
            findings = await examine(Settings(data_dir=tmp_path))
            return [(each.outcome, each.message) for each in findings if each.subject == "sessions"]

        clients = Clients(base, http)
        sessions, _ = await clients.arrive(3)
        await clients.work(sessions)
        assert await told() == []
        await clients.work((await clients.arrive(1))[0])
        words = "4 of 5 sessions are open; one more than that is refused while none is idle for 60 s"
        assert await told() == [("warning", words)]
        async with rest_at(socket) as rest:
            assert (await rest.get("/status")).json()["max_sessions"] == 5

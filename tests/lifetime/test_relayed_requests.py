"""A connection that serves sessions of both workers stays at one; what is for the other is relayed, whatever it is."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from plain_http import plain_client
from test_workers import HELLO, NAMES, Served, Session, length_of, message, served, sessions_of_both, wire
from worlds import DEADLINE_S, is_replaced, until

from smart_mcp_proxy.io.worker import Worker
from smart_mcp_proxy.web.server.protocol import LEFT_S

pytestmark = [pytest.mark.anyio, pytest.mark.long]

TOKEN = "operator-token-of-relayed-requests"


class Line(NamedTuple):
    """One connection to the gateway."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, session: Session, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        self.writer.write(wire(session, body))
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        """The next answer of a length known before."""
        async with asyncio.timeout(DEADLINE_S):
            told: dict[str, Any] = json.loads(await self.reader.readexactly(await length_of(self.reader)))
        return told

    async def place(self) -> int:
        """The process that reads this connection."""
        self.writer.write(
            f"GET /api/v1/status HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        pid: int = (await self.answer())["pid"]
        return pid


def call(tool: str, text: str, request_id: int, **more: Any) -> dict[str, Any]:
    """A call of one of the small server's tools."""
    arguments = {"name": f"alpha:{tool}", "args": {"text": text, **more}}
    return message("tools/call", {"name": "call_tool_destructive", "arguments": arguments}, request_id)


@asynccontextmanager
async def shared_line(gateway: Served) -> AsyncIterator[tuple[Line, Session, Session]]:
    """A connection that was handed on once, a session of the worker that has it, and one of the other."""
    address = httpx2.URL(gateway.url)
    sessions = await sessions_of_both(gateway.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)  # what is not read stays with the gateway
    client.connect((address.host, address.port))
    line = Line(*await asyncio.open_connection(sock=client, limit=4_096))
    try:
        line.writer.write(wire(sessions[0], message("initialize", HELLO)).replace(b"mcp-session-id", b"x-none"))
        head = (await line.reader.readuntil(b"\r\n\r\n")).decode()
        first = int(head.partition("mcp-session-id: ")[2].partition("\r\n")[0].rpartition("-")[2])
        length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        await line.reader.readexactly(length)
        home, other = sessions[1 - first], sessions[first]
        await line.ask(home, message("ping", {}, 1))
        yield line, home, other
    finally:
        line.writer.close()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests here: a gateway that no test ends serves several."""
    return "asyncio"


@pytest.fixture(scope="module")
async def standing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A gateway for tests that end none of its processes."""
    async with served(tmp_path_factory.mktemp("standing"), OPERATOR_TOKEN=TOKEN) as gateway:
        yield gateway


ROBUST = """
from smart_mcp_proxy.cli import main
from smart_mcp_proxy.cli.commands.operate import workers

workers._HEALTHY_S = 0.0
main()
"""
"""A gateway that takes each worker for healthy at once: one that is killed soon is replaced without a pause."""


@pytest.fixture(scope="module")
async def robust(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Such a gateway, for tests that kill workers and let them be replaced; the last one stops it."""
    async with served(tmp_path_factory.mktemp("robust"), main=("-c", ROBUST)) as gateway:
        yield gateway


def victim_of(gateway: Served, session: Session) -> int:
    """The process that keeps a session."""
    number = f'"number": {session.worker}'.encode()
    return next(pid for pid in gateway.workers() if number in Path(f"/proc/{pid}/cmdline").read_bytes())


async def test_a_client_that_leaves_takes_its_way_along(standing: Served) -> None:
    """No worker keeps a descriptor of it."""

    async def left(text: str) -> None:
        async with shared_line(standing) as (line, _, other):
            line.writer.write(wire(other, call("wait", text, 51)))
            await until(lambda: text in standing.servers["alpha"].waiting())
        standing.servers["alpha"].let_go(text)

    await left("first")
    kept = descriptors(standing)
    for number in range(8):
        await left(f"left-{number}")
    await until(lambda: descriptors(standing) <= kept)


def descriptors(gateway: Served) -> int:
    """How many all workers have open."""
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in gateway.workers())


async def test_a_connection_stays_where_it_was_handed_to(standing: Served) -> None:
    """Answers of both workers come in turn, short, long, in two packets, and as a stream of events."""
    async with shared_line(standing) as (line, home, other):
        place = await line.place()
        for number in range(5):
            for session in (other, home):
                answer = await line.ask(session, call("echo", "z" * 30_000 * number, 10 + number))
                assert answer["result"]["content"][0]["text"] == "said " + "z" * 30_000 * number
            head, body = wire(other, call("echo", "apart", 30 + number)).split(b"\r\n\r\n")
            line.writer.write(head + b"\r\n\r\n")
            await line.writer.drain()
            await asyncio.sleep(0)
            line.writer.write(body)
            assert (await line.answer())["id"] == 30 + number
        streamed = call("echo", "told", 50)
        streamed["params"]["_meta"] = {"progressToken": "t"}
        assert (await line.ask(other, streamed))["id"] == 50
        assert (await line.ask(other, message("nonsense", {}, 51)))["error"]["code"] == -32601
        assert await line.place() == place


async def test_who_does_not_wait_gets_answers_in_order(standing: Served) -> None:
    """Requests for the other worker and for this one, at once: HTTP/1.1 promises their order."""
    async with shared_line(standing) as (line, home, other):
        line.writer.write(wire(other, call("wait", "slow", 21)))
        await until(lambda: "slow" in standing.servers["alpha"].waiting())
        line.writer.write(wire(home, call("echo", "quick", 22)))
        assert await home.echo("alpha", "meanwhile") == "said meanwhile"  # the line's request would be answered by now
        standing.servers["alpha"].let_go("slow")
        assert [(await line.answer())["id"] for _ in range(2)] == [21, 22]


async def test_a_request_that_came_too_early_is_never_told_that_its_session_is_gone(standing: Served) -> None:
    """One of the other worker's, in one chunk with one of this one's: the connection ends before it."""
    async with shared_line(standing) as (line, home, other):
        line.writer.write(wire(home, call("echo", "first", 23)) + wire(other, call("wait", "early", 24)))
        assert (await line.answer())["id"] == 23
        async with asyncio.timeout(DEADLINE_S):
            assert await line.reader.read() == b""
        assert await other.echo("alpha", "again") == "said again"
        assert "early" not in standing.servers["alpha"].waiting()


async def test_a_client_may_be_slow_to_take_a_relayed_answer(standing: Served) -> None:
    """Several megabytes wait until it reads; what it asks afterwards, of either worker, is answered."""
    async with shared_line(standing) as (line, home, other):
        for number in range(5):
            count = 3_000_000 + 60_000 * number  # the last part is short, long, or between
            line.writer.write(wire(other, call("echo", "x", number, times=count)))
            assert await home.echo("beta", "meanwhile") == "said meanwhile"
            assert "x" * count in json.dumps(await line.answer())
            for session in (home, other):
                assert (await line.ask(session, message("ping", {}, 10 + number)))["id"] == 10 + number


async def test_a_client_that_sends_no_more_gets_its_answer(standing: Served) -> None:
    """It may end its side of the connection after its request."""
    async with shared_line(standing) as (line, _, other):
        line.writer.write(wire(other, call("echo", "x", 25, times=3_000_000)))
        line.writer.write_eof()
        await asyncio.sleep(2 * LEFT_S)  # one that left is waited for so long; this one takes its time
        assert "x" * 3_000_000 in json.dumps(await line.answer())
        assert await line.reader.read() == b""


async def test_a_relayed_request_ends_with_the_worker_that_had_it(robust: Served) -> None:
    """Its client is not left waiting; a new connection is told that the session is gone."""
    async with shared_line(robust) as (line, home, other):
        victim = victim_of(robust, other)
        line.writer.write(wire(other, call("wait", "lost", 31)))
        await until(lambda: "lost" in robust.servers["alpha"].waiting())
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            assert await line.reader.read() == b""
        await until(lambda: is_replaced(victim, robust.workers()))
        answer = await other.post(message("tools/list", {}))
        assert answer.status_code == 404
        assert await home.echo("alpha", "still") == "said still"


async def test_an_idle_way_to_a_worker_that_was_replaced_is_made_anew(robust: Served) -> None:
    """The connection itself is as good as before."""
    async with shared_line(robust) as (line, home, other):
        await line.ask(other, message("ping", {}, 40))
        victim = victim_of(robust, other)
        os.kill(victim, signal.SIGKILL)
        while not is_replaced(victim, robust.workers()):  # a line that is idle for 5 s is closed
            assert (await line.ask(home, message("ping", {}, 42)))["id"] == 42
            await asyncio.sleep(0.1)
        assert "error" in await line.ask(other, message("tools/list", {}, 41))
        assert (await line.ask(home, message("ping", {}, 42)))["id"] == 42


@pytest.mark.parametrize("is_read_first", [False, True], ids=["end first", "request first"])
async def test_a_request_that_is_read_together_with_the_end_of_its_way_is_relayed(
    robust: Served, is_read_first: bool
) -> None:
    """A busy worker learns in one turn of its loop that another one died, and what a client asks of the new one."""
    async with shared_line(robust) as (line, home, other):
        await line.ask(other, message("ping", {}, 43))
        busy, victim = victim_of(robust, home), victim_of(robust, other)

        async def ask() -> None:
            line.writer.write(wire(other, message("tools/list", {}, 44)))
            await line.writer.drain()

        os.kill(busy, signal.SIGSTOP)
        try:
            if is_read_first:  # the way still seems open then
                await ask()
            os.kill(victim, signal.SIGKILL)
            await until(lambda: is_replaced(victim, robust.workers()))
            if not is_read_first:
                await ask()
        finally:
            os.kill(busy, signal.SIGCONT)
        assert "error" in await line.answer()
        assert (await line.ask(home, message("ping", {}, 45)))["id"] == 45


async def test_a_request_that_a_worker_never_read_is_relayed_anew(robust: Served) -> None:
    """It was sent while that one hung, and the one in its place can answer it."""
    async with shared_line(robust) as (line, home, other), plain_client() as client:
        await line.ask(other, message("ping", {}, 49))
        await home.post(message("ping", {}), client)  # its connection is now where the line is
        victim = victim_of(robust, other)
        os.kill(victim, signal.SIGSTOP)
        line.writer.write(wire(other, message("tools/list", {}, 50)))
        await line.writer.drain()
        await home.post(message("ping", {}), client)  # the line came first: its request is on the way
        os.kill(victim, signal.SIGKILL)
        assert "error" in await line.answer()
        assert (await line.ask(home, message("ping", {}, 52)))["id"] == 52


async def test_a_stop_waits_for_relayed_answers(robust: Served) -> None:
    """Of a server that the other worker runs, longer than connections are waited for."""
    async with shared_line(robust) as (line, _, other):
        two: Any = [None, None]
        name = next(name for name in NAMES if Worker(0, two, None).find_keeper_worker(name) == other.worker)
        async with asyncio.timeout(DEADLINE_S):
            while await other.echo(name, "there") != "said there":  # its worker may have just been replaced
                await asyncio.sleep(0.05)
        waiting = call("wait", "kept", 26)
        waiting["params"]["arguments"]["name"] = f"{name}:wait"
        line.writer.write(wire(other, waiting))
        await until(lambda: "kept" in robust.servers[name].waiting())
        robust.process.terminate()
        await asyncio.sleep(3)  # the grace of connections is one second
        robust.servers[name].let_go("kept")
        assert (await line.answer())["result"]["content"][0]["text"] == "said kept"
        assert await asyncio.wait_for(robust.process.wait(), DEADLINE_S) == 0

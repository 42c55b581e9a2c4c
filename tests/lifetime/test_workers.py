"""Several processes on one port: sessions, servers and results are found wherever a request comes in."""

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from plain_http import plain_client
from sign_in_fakes import guarded, redirect_of
from worlds import DEADLINE_S, SmallServer, end, is_alive, is_replaced, started, until, until_so

from smart_mcp_proxy.io.worker import Worker

pytestmark = [pytest.mark.anyio, pytest.mark.long]

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
NAMES = ("alpha", "beta")
"""Of servers that different workers run, of two."""
KILLS = 4
OPERATOR = "the-operator-of-both-workers"
MOST_CHARS = 4_000_000
"""A longer result is cut: more than any test needs whole."""
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Served(NamedTuple):
    """A gateway of two workers.

    Attributes:
        url: Of its endpoint.
        process: Its first process.
        servers: Its small servers by name.
    """

    url: str
    process: asyncio.subprocess.Process
    servers: dict[str, SmallServer]

    def workers(self) -> list[int]:
        """Process ids of the workers."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [pid for pid in map(int, children) if b"worker" in _command(pid)]


def _command(pid: int) -> bytes:
    """Of a process; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the latter where it goes between opening and reading
        return b""


class Session:
    """A session of the handshake era; each request comes in on a connection of its own.

    Attributes:
        id: As the gateway gave it.
        worker: Number of the worker that keeps it.
    """

    def __init__(self, url: str, session_id: str) -> None:
        self._url, self._last_id = url, 0
        self.id = session_id
        self.worker = int(session_id.partition(".")[0].rpartition("-")[2])

    @classmethod
    async def open(cls, url: str) -> "Session":
        async with plain_client() as client:
            answer = await client.post(url, headers=HEADERS, json=message("initialize", HELLO))
        session = cls(url, answer.headers["mcp-session-id"])
        assert (await session.post({"jsonrpc": "2.0", "method": "notifications/initialized"})).status_code == 202
        return session

    async def post(self, body: dict[str, Any], client: httpx2.AsyncClient | None = None) -> httpx2.Response:
        headers = HEADERS | {"mcp-session-id": self.id}
        if client is not None:
            return await client.post(self._url, headers=headers, json=body)
        async with plain_client(timeout=DEADLINE_S) as own:
            return await own.post(self._url, headers=headers, json=body)

    async def call(
        self, tool: str, arguments: dict[str, Any], client: httpx2.AsyncClient | None = None
    ) -> dict[str, Any]:
        self._last_id += 1
        answer = await self.post(message("tools/call", {"name": tool, "arguments": arguments}, self._last_id), client)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        return result

    async def echo(self, server: str, text: str, client: httpx2.AsyncClient | None = None) -> str:
        result = await self.call("call_tool_destructive", {"name": f"{server}:echo", "args": {"text": text}}, client)
        said: str = result["content"][0]["text"]
        return said


def message(method: str, params: dict[str, Any], request_id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


@asynccontextmanager
async def served(
    tmp_path: Path, more: dict[str, Any] | None = None, *, main: Sequence[str] = (), **settings: str
) -> AsyncIterator[Served]:
    """A gateway of two workers, with both servers listed, and with `more` entries of servers."""
    servers = {name: SmallServer(tmp_path / name) for name in NAMES}
    entries = {name: server.entry for name, server in servers.items()} | (more or {})
    words = ("--http", "--port", "0", "--workers", "2", "--json")
    try:
        async with started(tmp_path / "data", entries, *words, main=main, **settings) as process:
            assert process.stdout is not None
            report = json.loads(await asyncio.wait_for(process.stdout.readline(), DEADLINE_S))
            assert {row["state"] for row in report["servers"] if row["name"] in NAMES} == {"ready"}
            gateway = Served(report["url"], process, servers)
            yield gateway
    finally:
        for server in servers.values():
            end(server.pids())


@asynccontextmanager
async def connections_of_both(gateway: Served, token: str) -> AsyncIterator[list[httpx2.AsyncClient]]:
    """One open connection to each worker."""
    found: dict[int, httpx2.AsyncClient] = {}
    base = gateway.url.removesuffix("/mcp")
    async with AsyncExitStack() as stack, asyncio.timeout(DEADLINE_S):
        while len(found) < 2:
            # One that keeps no cookies: each request says what it brings.
            client = await stack.enter_async_context(plain_client(base_url=base, timeout=DEADLINE_S))
            status = (await client.get("/api/v1/status", headers={"authorization": f"Bearer {token}"})).json()
            found.setdefault(status["pid"], client)
        assert set(found) == set(gateway.workers())
        yield list(found.values())


async def sessions_of_both(url: str) -> list[Session]:
    """One session of each worker."""
    found: dict[int, Session] = {}
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < 2:
            session = await Session.open(url)
            if session.worker in found:  # the other one may still be starting
                await asyncio.sleep(0.05)
            found[session.worker] = session
    return [found[number] for number in sorted(found)]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for all tests here: a gateway that no test ends serves several."""
    return "asyncio"


@pytest.fixture(scope="module")
async def standing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A gateway for tests that end no worker, but for the last one.

    One of its servers wants a sign-in, and each worker has one process of `own`.
    """
    folder = tmp_path_factory.mktemp("standing")
    own = SmallServer(folder / "own")
    options = {"OPERATOR_TOKEN": OPERATOR, "MANAGE": "true", "TRUNCATE_OUTPUT_LEN": str(MOST_CHARS)}
    async with guarded() as server:
        entries = {"web": {"url": server.url, "oauth": True}, "own": own.entry | {"shared": False}}
        try:
            async with served(folder, entries, **options) as gateway:
                gateway.servers["own"] = own
                yield gateway
        finally:
            end(own.pids())


def test_the_servers_here_are_run_by_different_workers() -> None:
    """As the tests below take for granted."""
    ends = [*(None for _ in NAMES)]
    assert {Worker(0, ends, None).find_keeper_worker(name) for name in NAMES} == {0, 1}  # type: ignore[arg-type]


async def test_a_session_is_found_wherever_its_request_comes_in(standing: Served) -> None:
    """New connections, one connection for sessions of both workers, long arguments; each server runs once."""
    sessions = await sessions_of_both(standing.url)
    for number in range(10):
        for session in sessions:
            for name in NAMES:
                assert await session.echo(name, f"{number}") == f"said {number}"
    long = "x" * 300_000
    async with plain_client(timeout=DEADLINE_S) as client:
        for session in sessions * 5:
            assert await session.echo("alpha", "in turn", client) == "said in turn"
            assert await session.echo("beta", long, client) == f"said {long}"
    assert [sum(map(is_alive, standing.servers[name].pids())) for name in NAMES] == [1, 1]


async def test_a_server_of_each_workers_own(standing: Served) -> None:
    """With "shared": false there is one process for each."""
    for session in await sessions_of_both(standing.url):
        assert await session.echo("own", "own") == "said own"
    await until(lambda: len(standing.servers["own"].pids()) == 2)


async def test_a_cut_result_is_read_at_the_other_worker(standing: Served) -> None:
    """By another session of the same principal."""
    first, second = await sessions_of_both(standing.url)
    long = {"text": "y", "times": MOST_CHARS + 5_000}
    result = await first.call("call_tool_destructive", {"name": "alpha:echo", "args": long})
    key = next(iter(result["_meta"].values()))["key"]
    page = await second.call("read_output", {"key": key, "offset": 0})
    assert "yyyy" in page["content"][0]["text"], page


async def test_what_changes_in_a_server_is_seen_by_both(standing: Served) -> None:
    """Though only one of them runs it."""
    sessions = await sessions_of_both(standing.url)
    (standing.servers["alpha"].directory / "tools").write_text("echo wait extra")
    for session in sessions:
        async with asyncio.timeout(DEADLINE_S):
            while "alpha:extra" not in json.dumps(await session.call("retrieve_tools", {"query": "does extra"})):
                await asyncio.sleep(0.05)


async def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    """Its sessions are gone, those of the other go on, and so do its servers; the start is reported once.

    It is worker 0 that reports it, and that is replaced.
    """
    async with served(tmp_path) as gateway:
        lost, kept = await sessions_of_both(gateway.url)  # it has gone on since it reported
        before = gateway.workers()
        victim = next(pid for pid in before if b'"number": 0' in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(victim, signal.SIGKILL)
        assert await kept.echo("beta", "still") == "said still"
        await until(lambda: is_replaced(victim, gateway.workers()))
        answer = await lost.post(message("tools/list", {}))
        assert answer.status_code == 404
        async with asyncio.timeout(DEADLINE_S):
            while not (await kept.call("retrieve_tools", {"query": "echo"}))["structuredContent"]["tools"]:
                await asyncio.sleep(0.05)
            while True:
                result = await kept.call("call_tool_destructive", {"name": "alpha:echo", "args": {"text": "again"}})
                if not result.get("isError"):
                    break
                await asyncio.sleep(0.2)
        assert result["content"][0]["text"] == "said again"
        anew, _ = await sessions_of_both(gateway.url)
        for name in NAMES:  # all servers are ready, as a report waits for
            await until_so(partial(_echoes, anew, name))
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.stdout is not None
        assert await asyncio.wait_for(gateway.process.stdout.read(), DEADLINE_S) == b""
    assert (tmp_path / "log").read_text().count("Listening on") == 1


async def _echoes(session: Session, name: str) -> bool:
    arguments = {"name": f"{name}:echo", "args": {"text": "a"}}
    return not (await session.call("call_tool_destructive", arguments)).get("isError")


async def test_a_server_that_is_killed_is_lost_and_found_at_both(standing: Served) -> None:
    """Requests under way at either worker end with an error, and later ones reach the process that takes its place."""
    sessions, server = await sessions_of_both(standing.url), standing.servers["alpha"]
    for turn in range(KILLS):
        texts = [f"{turn}-{session.worker}" for session in sessions]
        waiting = [
            asyncio.create_task(session.call("call_tool_destructive", {"name": "alpha:wait", "args": {"text": text}}))
            for session, text in zip(sessions, texts, strict=True)
        ]
        await until(lambda texts=texts: set(texts) <= set(server.waiting()))
        os.kill(server.pids()[-1], signal.SIGKILL)
        for result in await asyncio.gather(*waiting):
            assert result["isError"], result
        for session in sessions:
            async with asyncio.timeout(DEADLINE_S):
                while (await session.echo("alpha", f"{turn}")) != f"said {turn}":
                    await asyncio.sleep(0.1)


async def test_an_answer_that_a_client_has_yet_to_take_is_not_lost(standing: Served) -> None:
    """Though its next request, for a session of the other worker, is there already."""
    first, second = await sessions_of_both(standing.url)
    text = "x" * 3_000_000
    address = httpx2.URL(standing.url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect((address.host, address.port))
        reader, writer = await asyncio.open_connection(sock=client, limit=4_096)
        long = {"name": "call_tool_destructive", "arguments": {"name": "alpha:echo", "args": {"text": text}}}
        async with asyncio.timeout(DEADLINE_S):
            writer.write(wire(first, message("tools/call", long, 7)))
            length = await length_of(reader)  # the body is on its way
            writer.write(wire(second, message("ping", {}, 8)))
            assert text in (await reader.readexactly(length)).decode()
            assert json.loads(await reader.readexactly(await length_of(reader)))["id"] == 8
        writer.close()


def wire(session: Session, body: dict[str, Any]) -> bytes:
    """A request as bytes."""
    text = json.dumps(body).encode()
    fields = {**HEADERS, "host": "127.0.0.1", "mcp-session-id": session.id, "content-length": str(len(text))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + text


async def length_of(reader: asyncio.StreamReader) -> int:
    """The length of the next answer's body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    return int(head.partition("content-length: ")[2].partition("\r\n")[0])


async def test_what_a_server_wrote_is_shown_by_both(standing: Served) -> None:
    """Only one of them has it; a restart reaches that one, too."""
    sessions, server = await sessions_of_both(standing.url), standing.servers["alpha"]
    for session in sessions:
        arguments = {"operation": "tail_log", "name": "alpha"}
        result = await session.call("upstream_servers", arguments)
        assert "alpha is here" in json.dumps(result), result
    for count, session in enumerate(sessions, len(server.pids()) + 1):
        await session.call("upstream_servers", {"operation": "restart", "name": "alpha"})
        await until(lambda count=count: len(server.pids()) == count)


def _channels(*pids: int) -> set[str]:
    """Sockets and pipes that processes have open."""
    found = set[str]()
    for pid in pids:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed since
                found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    return {link for link in found if link.startswith(("socket:", "pipe:"))}


async def test_a_server_inherits_nothing_that_workers_share(standing: Served) -> None:
    """Neither the port, letter boxes, the pipe that tells of the parent's end, nor the gateway's stdout."""
    parents = [standing.process.pid, *standing.workers()]
    assert len(parents) == 3
    for name in NAMES:
        own = _channels(standing.servers[name].pids()[-1])
        assert own, "its stdin and stdout"
        assert not own & _channels(*parents)


async def test_an_interrupt_waits_for_calls_of_both_at_either_server(tmp_path: Path) -> None:
    """A worker with no call of its own left goes on with its servers for as long as the other one needs them.

    Then all of them end, servers included; below a SIGTERM does the same.
    """
    async with served(tmp_path) as gateway:
        pids = [*gateway.workers(), *(pid for server in gateway.servers.values() for pid in server.pids())]
        assert len(pids) == 4
        sessions = await sessions_of_both(gateway.url)
        waiting = {}
        for session in sessions:
            for name in NAMES:
                text = f"{name}-{session.worker}"
                call = session.call("call_tool_destructive", {"name": f"{name}:wait", "args": {"text": text}})
                waiting[text] = name, asyncio.create_task(call)
        for server in gateway.servers.values():
            await until(lambda server=server: len(server.waiting()) == 2)
        gateway.process.send_signal(signal.SIGINT)
        # The calls of worker 0 end first: then it has nothing to do but for the other one.
        for text in sorted(waiting, key=lambda text: text[-1]):
            name, task = waiting[text]
            gateway.servers[name].let_go(text)
            result = await asyncio.wait_for(task, DEADLINE_S)
            assert result["content"][0]["text"] == f"said {text}", result
            await asyncio.sleep(0.5)
        assert await asyncio.wait_for(gateway.process.wait(), 15) == 130
        await until(lambda: not any(map(is_alive, pids)))


async def test_a_delayed_stop_under_load_loses_no_call(tmp_path: Path) -> None:
    """Until the delay is over everything is served, wherever it comes in; afterwards calls are refused, not lost."""
    async with served(tmp_path, STOP_DELAY_S="2") as gateway:
        sessions = await sessions_of_both(gateway.url)
        pids = [*gateway.workers(), *(pid for server in gateway.servers.values() for pid in server.pids())]
        callers = [asyncio.create_task(_call_on(session, name)) for session in sessions for name in NAMES for _ in "ab"]
        await asyncio.sleep(0.5)
        told_s = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        async with plain_client(timeout=DEADLINE_S) as client:
            for _ in range(10):
                answer = await client.get(httpx2.URL(gateway.url).copy_with(path="/readyz"))
                assert answer.status_code == 503 or time.monotonic() - told_s < 1
        assert await asyncio.wait_for(gateway.process.wait(), DEADLINE_S) == 0
        for caller in callers:
            good, at_s, why = await asyncio.wait_for(caller, DEADLINE_S)
            assert at_s - told_s >= 2, why
            assert good > 2
            assert "shutting_down" in why or "Error" in why or "ReadTimeout" in why, why
            assert "upstream_failed" not in why
        await until(lambda: not any(map(is_alive, pids)))
    assert "Traceback" not in (tmp_path / "log").read_text()


async def _call_on(session: Session, name: str) -> tuple[int, float, str]:
    """Calls until that fails; how many were good, when the bad one ended, and what became of it."""
    good = 0
    while True:
        try:
            result = await session.call("call_tool_destructive", {"name": f"{name}:echo", "args": {"text": "on"}})
        except (httpx2.HTTPError, AssertionError) as exc:
            return good, time.monotonic(), repr(exc)
        if result.get("isError"):
            return good, time.monotonic(), json.dumps(result)
        assert result["content"][0]["text"] == "said on"
        good += 1


async def test_the_older_transport_says_that_it_needs_one_worker(standing: Served) -> None:
    """Else a message of its sessions came to a worker that does not know them."""
    async with plain_client() as client:
        base = standing.url.removesuffix("/mcp")
        for answer in (await client.get(f"{base}/sse"), await client.post(f"{base}/messages/?session_id=1", json={})):
            assert answer.status_code == 404
            assert "MCPPROXY_WORKERS" in answer.json()["error"]["hint"]


async def test_the_page_is_the_same_at_both_workers(standing: Served) -> None:
    """A link that one made opens the other's page, once; its session acts, sees and ends at both."""
    async with connections_of_both(standing, OPERATOR) as (one, two):
        made = await one.post("/api/v1/page/links", headers={"authorization": f"Bearer {OPERATOR}"})
        path = httpx2.URL(made.json()["url"]).path
        entered = await two.get(path)
        assert (entered.status_code, (await one.get(path)).status_code) == (200, 403)
        cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
        csrf = re.search(r'name="csrf" value="(\w+)"', (await two.get("/ui/", headers=cookie)).text)
        assert csrf is not None
        for path, fields, status in (
            ("/ui/block", {"name": "alpha:echo"}, 303),
            ("/ui/unblock", {"name": "alpha:echo"}, 303),
            ("/ui/block", {"name": "alpha:echo", "csrf": "x"}, 403),
            ("/ui/leave", {}, 200),
        ):
            reply = await one.post(path, data={"csrf": csrf[1], **fields}, headers=cookie)
            assert reply.status_code == status, reply.text
        for client in (two, one):
            assert (await client.get("/ui/", headers=cookie)).status_code == 401


async def test_a_sign_in_at_a_server_is_finished_at_the_other_worker(standing: Served) -> None:
    """It is shown there, and takes the address at which the browser ended."""
    login, headers = "/api/v1/servers/web/login", {"authorization": f"Bearer {OPERATOR}"}
    async with connections_of_both(standing, OPERATOR) as (one, two):
        begun = (await one.post(login, headers=headers)).json()
        shown = (await two.get(login, headers=headers)).json()
        assert shown == begun and shown["state"] == "waiting"
        ended = {"address": await redirect_of(shown["url"])}
        taken = await two.post(f"{login}/address", json=ended, headers=headers)
        assert taken.status_code == 200, taken.text

        async def is_done(client: httpx2.AsyncClient) -> bool:
            return bool((await client.get(login, headers=headers)).json()["state"] == "done")

        for client in (one, two):
            await until_so(partial(is_done, client))


async def test_workers_end_with_a_killed_parent(standing: Served) -> None:
    """Nobody would end them any more."""
    pids = standing.workers()
    assert len(pids) == 2
    standing.process.kill()
    await standing.process.wait()
    await until(lambda: not any(map(is_alive, pids)))

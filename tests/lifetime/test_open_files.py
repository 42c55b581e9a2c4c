"""A gateway that may have no more files and connections open: it says so, goes on, and is whole again afterwards."""

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from test_stop import HttpClient
from worlds import UPSTREAM, World, end, error_of, is_alive, started, text_of, until

pytestmark = [pytest.mark.anyio, pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

CALL_S = 5
"""Far more than any answer takes; a gateway that waits for a descriptor takes longer."""
CROWD = 100
ROOM = 40
"""Descriptors between what an idle gateway has open and its limit."""


class Crowded:
    """A gateway with a server on pipes, `up`, one over HTTP, `web`, and a client that was there first.

    Args:
        pid: Of the gateway.
        url: Where it serves.
        client: Has called already.
        up: The world of the server on pipes.
        web: The world of the server over HTTP.
    """

    def __init__(self, pid: int, url: str, client: HttpClient, up: World, web: World) -> None:
        self.pid, self.client, self.up, self.web = pid, client, up, web
        self._url = httpx2.URL(url)

    @contextmanager
    def limited(self, most: int) -> Iterator[None]:
        """While open, the gateway may have so many descriptors."""
        _, hard = before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (most, hard))
        try:
            yield
        finally:
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, before)

    def open_files(self) -> int:
        """How many descriptors the gateway has."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def processor_s(self) -> float:
        """Processor time that it has used."""
        times = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def connection(self) -> socket.socket:
        """Another client that connects and says nothing."""
        return socket.create_connection((self._url.host, self._url.port or 0), timeout=CALL_S)

    async def echo(self, server: str) -> dict[str, Any]:
        """The result of a call over the client's own connection."""
        async with asyncio.timeout(CALL_S):
            return await self.client.call("call_tool_write", {"name": f"{server}:echo", "args": {"text": "a"}})

    async def healthy(self) -> int:
        """The status that a client gets that connects now."""
        async with httpx2.AsyncClient(trust_env=False, timeout=CALL_S) as http:
            return (await http.get(self._url.copy_with(path="/healthz"))).status_code

    async def lose(self, server: World) -> None:
        """Kills a server, and returns when it is gone."""
        pid = server.pids()[-1]
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not is_alive(pid))

    async def back(self, server: str) -> None:
        """Returns when calls of a server succeed."""
        async with asyncio.timeout(30):
            while (await self.echo(server)).get("isError"):
                await asyncio.sleep(0.05)


@asynccontextmanager
async def crowded(tmp_path: Path) -> AsyncIterator[Crowded]:
    """A gateway that serves HTTP and has listed both servers."""
    up, web = World(tmp_path / "up"), World(tmp_path / "web")
    other = await asyncio.create_subprocess_exec(sys.executable, "-S", str(UPSTREAM), str(web.directory), "0")
    try:
        await until((web.directory / "port").exists)
        port = (web.directory / "port").read_text()
        servers = {"up": up.entry, "web": {"url": f"http://127.0.0.1:{port}/mcp", "trust": "trusted"}}
        async with (
            started(tmp_path / "data", servers, "--http", "--port", "0", "--json") as process,
            httpx2.AsyncClient(trust_env=False, timeout=30) as http,
        ):
            assert process.stdout is not None
            url = json.loads(await process.stdout.readline())["url"]
            gateway = Crowded(process.pid, url, HttpClient(url, http), up, web)
            await gateway.client.greet()
            for server in ("up", "web"):
                await gateway.back(server)
            yield gateway
    finally:
        end(up.pids())
        if other.returncode is None:
            other.kill()
        await other.wait()


async def test_a_crowd_of_clients_leaves_descriptors_for_servers(tmp_path: Path) -> None:
    """F58: those beyond are told so; who was there is served, and a server that dies is started again."""
    async with crowded(tmp_path) as gateway:
        most = gateway.open_files() + ROOM
        with gateway.limited(most), ExitStack() as crowd:
            used_s = gateway.processor_s()
            for _ in range(CROWD):
                last = crowd.enter_context(gateway.connection())
            said = await asyncio.to_thread(last.recv, 10_000)
            assert said.startswith(b"HTTP/1.1 503 ")
            assert f"as it may, {most}. Try again later".encode() in said
            assert await gateway.healthy() == 503
            for server in ("up", "web"):
                assert text_of(await gateway.echo(server)) == "said a"
            await gateway.lose(gateway.up)
            await gateway.back("up")
            assert gateway.processor_s() - used_s < 5, "it does not spin"
        await until(lambda: gateway.open_files() < most - ROOM // 2)
        assert await gateway.healthy() == 200
    log = (tmp_path / "log").read_text()
    assert log.count("clients that connect are refused") == 1
    assert "Traceback" not in log


async def test_without_a_descriptor_left_calls_say_so_and_later_all_is_well(tmp_path: Path) -> None:
    """F58: a server that dies then is not reached; no call of it was sent, and it is back without a restart."""
    async with crowded(tmp_path) as gateway:
        with gateway.limited(3), ExitStack() as crowd:
            for server in ("up", "web"):
                assert text_of(await gateway.echo(server)) == "said a"
            crowd.enter_context(gateway.connection())
            await gateway.lose(gateway.up)
            while "may, 3." not in (error := error_of(await gateway.echo("up")))["message"]:
                await asyncio.sleep(0.05)
            assert error["delivery"] == "not_sent"
            assert "ulimit -n" in error["hint"]
            assert (await gateway.client.call("retrieve_tools", {"query": "does echo"}))["structuredContent"]["tools"]
        await gateway.back("up")
        assert await gateway.healthy() == 200
    assert "Traceback" not in (tmp_path / "log").read_text()

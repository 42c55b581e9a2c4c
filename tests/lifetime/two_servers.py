"""A gateway process that serves HTTP in front of two servers, and what can be done to it from outside."""

import asyncio
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from test_stop import HttpClient
from worlds import UPSTREAM, SmallServer, end, is_alive, started, until

CALL_S = 20
"""Far more than any answer takes, beside other work too; a gateway that waits for something takes longer."""


class Front:
    """A gateway with a server on pipes, `up`, one over HTTP, `web`, and a client that was there first.

    Args:
        pid: Of the gateway.
        url: Where it serves.
        client: Has called already.
        up: The world of the server on pipes.
        web: The world of the server over HTTP.
    """

    def __init__(self, pid: int, url: str, client: HttpClient, up: SmallServer, web: SmallServer) -> None:
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

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """While open, the gateway is stopped, as a computer that sleeps stops it."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """What the gateway wrote to stderr."""
        return self.up.directory.with_name("log").read_text()

    def open_files(self) -> int:
        """How many descriptors the gateway has."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def highest_file(self) -> int:
        """The highest number that one of them has."""
        return max(map(int, os.listdir(f"/proc/{self.pid}/fd")))

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

    async def lose(self, server: SmallServer) -> None:
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
async def opened_front(tmp_path: Path, **more: Any) -> AsyncIterator[Front]:
    """Such a gateway that has listed both servers; `more` goes into the entry of each."""
    up, web = SmallServer(tmp_path / "up"), SmallServer(tmp_path / "web")
    other = await asyncio.create_subprocess_exec(sys.executable, "-S", str(UPSTREAM), str(web.directory), "0")
    try:
        await until((web.directory / "port").exists)
        port = (web.directory / "port").read_text()
        web_entry = {"url": f"http://127.0.0.1:{port}/mcp", "trust": "trusted"}
        servers = {"up": up.entry | more, "web": web_entry | more}
        async with (
            started(tmp_path / "data", servers, "--http", "--port", "0", "--json") as process,
            httpx2.AsyncClient(trust_env=False, timeout=30) as http,
        ):
            assert process.stdout is not None
            url = json.loads(await process.stdout.readline())["url"]
            front = Front(process.pid, url, HttpClient(url, http), up, web)
            await front.client.greet()
            for server in ("up", "web"):
                await front.back(server)
            yield front
    finally:
        end([*up.pids(), *web.pids()])
        if other.returncode is None:
            other.kill()
        await other.wait()

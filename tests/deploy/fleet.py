"""Two gateway processes behind a balancer on loopback, and clients of both eras that go through it."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from balancers import Balancer
from forked_programs import ForkedProcess, start_forked
from plain_http import plain_client

__all__ = ["DEADLINE_S", "HOST", "NAMES", "Fleet", "Session", "free_port", "opened_fleet", "running", "until_serving"]

NAMES = ("gateway-a", "gateway-b")
HOST = "tools.example"
"""Under which clients reach the fleet."""
DEADLINE_S = 120.0
UPSTREAM = Path(__file__).parent / "named_upstream.py"
CLIENT = {"name": "test", "version": "1"}
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def message_in(reply: httpx2.Response) -> dict[str, Any]:
    """The last message of a reply, whichever form it has."""
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines()]
    message: dict[str, Any] = json.loads([line for line in lines if line.startswith("{")][-1])
    return message


def whoami() -> dict[str, Any]:
    """Parameters of a call that tells the gateway."""
    return {"name": "call_tool_read", "arguments": {"name": "named:whoami", "args": {}}}


class Fleet:
    """What clients see of it, and its processes.

    Attributes:
        url: Of `/mcp` at the balancer.
        gateways: The processes by name.
        folder: Of the servers; see named_upstream.py.

    Args:
        opened: The gateways by name, each with its port.
        stack: Ends what is started later.
        settings: That gateways were opened with.
    """

    def __init__(
        self,
        url: str,
        opened: dict[str, tuple[ForkedProcess, int]],
        folder: Path,
        stack: AsyncExitStack,
        settings: dict[str, str],
    ) -> None:
        self.url = url
        self.gateways = {name: process for name, (process, _) in opened.items()}
        self.folder = folder
        self._ports = {name: port for name, (_, port) in opened.items()}
        self._stack, self._opened_with = stack, settings
        self._settings = dict.fromkeys(opened, settings)

    async def make_whole(self, name: str, **settings: str) -> None:
        """Both gateways run, and this one with these settings instead; servers have nothing to do or to tell of."""
        for each in self.gateways:
            wanted = self._opened_with | settings if each == name else self._settings[each]
            if self.gateways[each].returncode is None and self._settings[each] == wanted:
                continue
            if self.gateways[each].returncode is None:
                self.gateways[each].kill()
                await self.gateways[each].wait()
            anew = gateway(each, self.folder, self._ports[each], **wanted)
            self.gateways[each], _ = await self._stack.enter_async_context(anew)
            self._settings[each] = wanted
        for file in ("steps", "go", "cancelled"):
            (self.folder / file).unlink(missing_ok=True)
        served = set[str]()
        while served != set(self.gateways):  # the balancer may still take one of them for gone
            served.add(await self.modern())
            await asyncio.sleep(0.05)

    async def post_modern(self, params: dict[str, Any]) -> httpx2.Response:
        """The reply to a call of the modern era, on a connection of its own."""
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": params["name"]}
        meta = {"_meta": {**META, **params.get("_meta", {})}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, **meta}}
        async with self.client() as client:
            return await client.post(self.url, json=message, headers=headers)

    async def modern(self) -> str:
        """The gateway that serves a call of the modern era."""
        reply = await self.post_modern(whoami())
        assert reply.status_code == 200, reply.text
        result = message_in(reply)["result"]
        assert not result.get("isError"), result
        return str(result["content"][0]["text"]).split()[0]

    async def session(self) -> "Session":
        """A session of the handshake era."""
        session = Session(self)
        await session.open()
        return session

    def client(self) -> httpx2.AsyncClient:
        """An HTTP client that uses the fleet's name."""
        headers = {"host": HOST, "accept": "application/json, text/event-stream"}
        return plain_client(timeout=DEADLINE_S, headers=headers)


class Session:
    """A client of the handshake era; each request has a connection of its own.

    Attributes:
        id: As the balancer passed it on.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._ids = itertools.count(1)
        self.id = ""

    async def open(self) -> None:
        """Begin, or begin anew."""
        self.id = ""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT}
        reply = await self._post(self._request("initialize", params))
        assert reply.status_code == 200, reply.text
        self.id = reply.headers["mcp-session-id"]
        reply = await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert reply.status_code == 202, reply.text

    async def call(self) -> httpx2.Response:
        """The reply to a call that tells the gateway."""
        return await self._post(self._request("tools/call", whoami()))

    async def where(self) -> str:
        """The gateway that serves a call."""
        reply = await self.call()
        assert reply.status_code == 200, reply.text
        return str(message_in(reply)["result"]["content"][0]["text"]).split()[0]

    async def messages(self, params: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The messages of the reply to a call, each as it comes."""
        asked = self._request("tools/call", params)
        async with (
            self._fleet.client() as client,
            client.stream("POST", self._fleet.url, json=asked, headers=self._headers) as reply,
        ):
            assert reply.headers["content-type"].startswith("text/event-stream")
            async for line in reply.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line.removeprefix("data: "))

    @property
    def _headers(self) -> dict[str, str]:
        return {"mcp-session-id": self.id, "mcp-protocol-version": HANDSHAKE} if self.id else {}

    async def _post(self, message: dict[str, Any]) -> httpx2.Response:
        async with self._fleet.client() as client:
            return await client.post(self._fleet.url, json=message, headers=self._headers)

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}


@asynccontextmanager
async def running(*words: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that writes to `log`; its group is killed in the end."""
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*words, stdout=file, stderr=file, env=_passed(), process_group=0)
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # nginx's workers outlive it otherwise
        await process.wait()


@asynccontextmanager
async def serving(*words: str, log: Path, **variables: str) -> AsyncIterator[ForkedProcess]:
    """A gateway that writes to `log` and reports on stdout; its group is killed in the end."""
    with log.open("wb") as file:
        process = await start_forked("serve", *words, env=_passed() | variables, stderr=file, leads_group=True)
    try:
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _passed() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}


@asynccontextmanager
async def gateway(name: str, folder: Path, port: int = 0, **settings: str) -> AsyncIterator[tuple[ForkedProcess, int]]:
    """A gateway in front of a server that knows its name, and its port."""
    command = {"command": sys.executable, "args": ["-S", str(UPSTREAM), name, str(folder)], "trust": "trusted"}
    variables = {
        "CONFIG_JSON": json.dumps({"mcpServers": {"named": command}}),
        "DATA_DIR": str(folder / name),
        "REPLICA": name,
        "ALLOWED_HOSTS": HOST,
        **settings,
    }
    words = ("--http", "--port", str(port), "--json")
    # Servers of the tests write where they are told to.
    environ = {"MCPPROXY_ISOLATION": "none"} | {f"MCPPROXY_{key}": value for key, value in variables.items()}
    async with serving(*words, log=folder / f"{name}.log", **environ) as process:
        report = json.loads(await process.stdout.readline())
        assert report["servers"][0]["state"] == "ready", report
        yield process, httpx2.URL(report["url"]).port or 0


@asynccontextmanager
async def opened_fleet(kind: str, balancer: Balancer, folder: Path, **settings: str) -> AsyncIterator[Fleet]:
    """Two gateways behind a balancer that runs on the shipped configuration, its addresses replaced."""
    program, door = balancer.program(kind), free_port()
    async with AsyncExitStack() as stack:
        begun = await asyncio.gather(*(stack.enter_async_context(gateway(name, folder, **settings)) for name in NAMES))
        opened = dict(zip(NAMES, begun, strict=True))
        ports = {name: port for name, (_, port) in opened.items()}
        words = (program, *balancer.start(balancer.at(folder, door, ports)))
        log = folder / "balancer.log"
        process = await stack.enter_async_context(running(*words, log=log))
        fleet = Fleet(f"http://127.0.0.1:{door}/mcp", opened, folder, stack, settings)
        async with asyncio.timeout(DEADLINE_S), fleet.client() as client:
            await until_serving(client, fleet.url.replace("/mcp", "/readyz"), process, log)
        yield fleet


async def until_serving(client: httpx2.AsyncClient, url: str, process: asyncio.subprocess.Process, log: Path) -> None:
    """Returns when a gateway answers through the balancer; fails where that has ended."""
    while not await is_serving(client, url):
        assert process.returncode is None, log.read_text()
        await asyncio.sleep(0.05)


async def is_serving(client: httpx2.AsyncClient, url: str) -> bool:
    """Whether a gateway says through the balancer that it is ready."""
    try:
        return (await client.get(url)).status_code == 200
    except httpx2.TransportError:
        return False

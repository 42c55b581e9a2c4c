"""Agents of the handshake era whose user, model and roots can be asked, at the transports of a gateway."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import run_canary
from agents import CLIENT, HANDSHAKE_VERSION, PAUSE_S, Agent, Exchange, HttpAgent, StreamAgent
from plain_http import plain_client
from transports import _running, opened_gateway, served, spawned

from smart_mcp_proxy.gateway import Gateway

UPSTREAM = Path(__file__).parent / "personal_upstream.py"
EVERYTHING = {"elicitation": {}, "sampling": {}, "roots": {"listChanged": True}}

OnAsked = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Answers a request of the gateway's: its message in, the members of the reply out."""


def asking_server(ledger: Path, kind: str = "plain", **more: Any) -> dict[str, Any]:
    """The entry of a server that knows each client; without site packages it starts in no time."""
    args = ["-S", str(UPSTREAM), str(ledger), kind]
    return {"command": sys.executable, "args": args, "connection": "per_client", **more}


class Asked(Agent):
    """What both kinds have in common: they note what the gateway asks and tells, and answer.

    Attributes:
        asked: Requests of the gateway's, as they came.
        told: Its notifications.
        on_asked: Answers requests; by default each form is accepted with the question as its answer.
    """

    def begin_listening(self, capabilities: Mapping[str, Any]) -> None:
        self.capabilities = capabilities
        self.asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.told: list[dict[str, Any]] = []
        self.on_asked: OnAsked = echoed
        self._answers: set[asyncio.Task[None]] = set()

    async def greet(self) -> None:
        hello = {"protocolVersion": HANDSHAKE_VERSION, "capabilities": self.capabilities, "clientInfo": CLIENT}
        self.greeting = await self.request("initialize", **hello)
        await self.notify("notifications/initialized")

    def took(self, message: dict[str, Any]) -> bool:
        """Whether this was something that the gateway asks or tells."""
        if "method" not in message:
            return False
        if "id" in message:
            self.asked.put_nowait(message)
            task = asyncio.create_task(self._answer(message))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        else:
            self.told.append(message)
        return True

    async def _answer(self, message: dict[str, Any]) -> None:
        await self.reply({"jsonrpc": "2.0", "id": message["id"], **await self.on_asked(message)})

    async def reply(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    async def use(self, tool: str, text: str = "", server: str = "asking") -> dict[str, Any]:
        """The result of one of the upstream's tools."""
        return await self.call("call_tool_write", name=f"{server}:{tool}", args={"text": text})

    def logged(self) -> list[str]:
        """The texts of the log messages that arrived."""
        return [each["params"]["data"] for each in self.told if each["method"] == "notifications/message"]


async def echoed(message: dict[str, Any]) -> dict[str, Any]:
    """Accepts a form with its own question; says the model's words back; has one root."""
    params = message.get("params") or {}
    match message["method"]:
        case "elicitation/create":
            return {"result": {"action": "accept", "content": {"answer": params["message"]}}}
        case "sampling/createMessage":
            return {"result": {"role": "assistant", "model": "m", "content": params["messages"][0]["content"]}}
        case "roots/list":
            return {"result": {"roots": [{"uri": "file:///here", "name": "here"}]}}
    return {"result": {}}


async def never(message: dict[str, Any]) -> dict[str, Any]:
    """Nobody is there to answer."""
    await asyncio.Event().wait()
    return {}


class AskedStreamAgent(Asked, StreamAgent):
    """On pipes."""

    async def listen(self) -> None:
        async for line in self._inbound:
            run_canary.look("a message to an agent that is asked", line)
            message = json.loads(line)
            if not self.took(message) and message["id"] in self._open:
                self._open.pop(message["id"]).answer.set_result(message)

    async def reply(self, message: dict[str, Any]) -> None:
        await self._send(json.dumps(message).encode())


class AskedHttpAgent(Asked, HttpAgent):
    """Over streamable HTTP."""

    def _take(self, exchange: Exchange, data: str) -> None:
        message = json.loads(data) if data else {}
        if not self.took(message):
            super()._take(exchange, data)

    async def reply(self, message: dict[str, Any]) -> None:
        answer = await self.http.post(self._url, json=message, headers=self._headers(message))
        assert answer.status_code == 202, answer.text

    async def leave(self) -> None:
        """Ends the session in good order."""
        await self.http.delete(self._url, headers=self._headers({}))


@asynccontextmanager
async def asked_over_http(base: str, capabilities: Mapping[str, Any] = EVERYTHING) -> AsyncIterator[AskedHttpAgent]:
    """An agent over streamable HTTP."""
    async with plain_client(timeout=60) as client:
        agent = AskedHttpAgent("handshake", f"{base}/mcp", client)
        agent.begin_listening(capabilities)
        await agent.greet()
        yield agent


@asynccontextmanager
async def asked_on_stdio(
    process: asyncio.subprocess.Process, capabilities: Mapping[str, Any] = EVERYTHING
) -> AsyncIterator[AskedStreamAgent]:
    """An agent on the pipes of a gateway process."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    async def send(line: bytes) -> None:
        stdin.write(line + b"\n")
        await stdin.drain()

    agent = AskedStreamAgent("handshake", stdout, send)
    agent.begin_listening(capabilities)
    async with _running(agent.listen()):
        await agent.greet()
        yield agent


@asynccontextmanager
async def asking_gateway(data_dir: Path, *, kind: str = "plain", **more: Any) -> AsyncIterator[tuple[Gateway, str]]:
    """A gateway in front of the asking server, its tools approved, and its base address."""
    entry = asking_server(data_dir / "ledger", kind, **more)
    async with opened_gateway(data_dir, {"asking": entry}) as gateway, served(gateway) as base:
        gateway.start_upstreams()
        assert await gateway.wait_settled(30)
        await gateway.lists.content_lists.wait_listed("asking", 30)
        yield gateway, base


@asynccontextmanager
async def asked_at(channel: str, data_dir: Path, capabilities: Mapping[str, Any] = EVERYTHING) -> AsyncIterator[Asked]:
    """An agent on one transport of a gateway of its own."""
    if channel == "http":
        async with asking_gateway(data_dir) as (_, base), asked_over_http(base, capabilities) as agent:
            yield agent
        return
    entry = asking_server(data_dir / "ledger")
    async with spawned(data_dir, {"asking": entry}) as process, asked_on_stdio(process, capabilities) as agent:
        await wait_listed(agent)
        yield agent


async def wait_listed(agent: Agent) -> None:
    """Returns when the gateway has listed its server."""
    async with asyncio.timeout(30):
        while (await agent.call("retrieve_tools", query="ask"))["structuredContent"]["not_covered"]:
            await asyncio.sleep(PAUSE_S)


def living(ledger: Path) -> list[str]:
    """Ids of the server's processes that have started and not ended, in order."""
    lines = [line.split() for line in ledger.read_text().splitlines()]
    ended = {pid for what, pid in lines if what == "end"}
    return [pid for what, pid in lines if what == "start" and pid not in ended]


async def wait_until(is_so: Callable[[], bool], timeout_s: float = 30) -> None:
    """Returns when it is so; looked at again and again, because it happens in another process."""
    async with asyncio.timeout(timeout_s):
        while not is_so():
            await asyncio.sleep(0.02)

"""One server passed through: what an agent sees is what it would see of the server itself, in both eras."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import META, PAUSE_S, Agent, HttpAgent, StreamAgent
from transports import (
    CHANNELS,
    in_memory,
    odd_server,
    odd_servers,
    on_stdio,
    opened_gateway,
    over_http,
    over_sse,
    served,
    spawned,
)

pytestmark = pytest.mark.anyio

LIMIT_S = 30
GROWING = {
    "command": sys.executable,
    "args": ["-S", str(Path(__file__).parent / "growing_upstream.py")],
    "trust": "trusted",
}


def directly(method: str, **params: Any) -> dict[str, Any]:
    """What the server called `new` answers by itself."""
    odd = odd_server("modern")
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    # It stays for as long as its input is open, and has answered when that ends.
    done = subprocess.run([odd["command"], *odd["args"]], input=asked, capture_output=True, timeout=LIMIT_S, check=True)
    result: dict[str, Any] = json.loads(done.stdout)["result"]
    return result


def fitted(result: dict[str, Any], era: str) -> dict[str, Any]:
    """A result of the modern era as an agent of `era` is to see it, what belongs to a connection left out."""
    kept = {key: value for key, value in result.items() if key != "resultType" or era == "modern"}
    kept["_meta"] = {key: value for key, value in result.get("_meta", {}).items() if not key.startswith(META)}
    return kept


@asynccontextmanager
async def at(channel: tuple[str, Any], data_dir: Path, servers: dict[str, Any], name: str) -> AsyncIterator[Agent]:
    """An agent on a transport of a gateway that passes the server `name` through."""
    transport, era = channel
    async with AsyncExitStack() as stack:
        if transport == "stdio":
            options = ("--passthrough", name)
            process = await stack.enter_async_context(spawned(data_dir, servers, options=options))
            yield await stack.enter_async_context(on_stdio(process, era))
            return
        gateway = await stack.enter_async_context(opened_gateway(data_dir, servers, passthrough=name))
        if transport == "memory":
            yield await stack.enter_async_context(in_memory(gateway, era))
            return
        base = await stack.enter_async_context(served(gateway))
        yield await stack.enter_async_context(over_http(base, era) if transport == "http" else over_sse(base))


@pytest.fixture(scope="module", params=CHANNELS, ids="-".join)
async def passed(
    request: pytest.FixtureRequest, ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Agent]:
    """An agent at a gateway that passes the server `new` through."""
    async with at(request.param, tmp_path_factory.mktemp("passed"), odd_servers(ledger), "new") as agent:
        yield agent


async def listed(agent: Agent) -> list[dict[str, Any]]:
    """The tools that the agent sees."""
    tools: list[dict[str, Any]] = (await agent.request("tools/list"))["result"]["tools"]
    return tools


@pytest.mark.requirement("passthrough-list")
async def test_the_list_is_the_servers_own(passed: Agent) -> None:
    """From the first answer on, whole definitions, in the server's order."""
    expected = directly("tools/list")["tools"]
    if passed.era == "handshake":
        del expected[-1]["outputSchema"]
    assert await listed(passed) == expected


@pytest.mark.requirement("passthrough-result")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kinds", {}),
        ("fails", {}),
        ("meta", {}),
        ("structured", {"value": {"deep": [1, None]}}),
        ("look", {"entry": "not an integer", "é": [{}]}),
    ],
)
async def test_a_result_is_the_servers_own(passed: Agent, tool: str, arguments: dict[str, Any]) -> None:
    """Also where the arguments do not fit the schema: the server has the last word."""
    await listed(passed)
    answer = await passed.request("tools/call", name=tool, arguments=arguments)
    expected = fitted(directly("tools/call", name=tool, arguments=arguments), passed.era)
    assert fitted(answer["result"], passed.era) == expected


@pytest.mark.requirement("passthrough-error")
@pytest.mark.parametrize("token", [False, True], ids=["fast", "sdk"])
async def test_a_json_rpc_error_of_the_server_is_one(passed: Agent, token: bool) -> None:
    """With its code, message and data, on both ways through the gateway."""
    await listed(passed)
    exchange = await passed.begin("tools/call", token=token, name="rpc_error", arguments={})
    with anyio.fail_after(LIMIT_S):
        answer = await exchange.answer
    assert answer["error"] == {"code": -32055, "message": "the lamp is out", "data": {"lamp": 3}}


@pytest.mark.requirement("passthrough-error")
@pytest.mark.parametrize("name", ["kind", "retrieve_tools", "new:kinds", "new__kinds", "old:kinds"])
async def test_a_name_that_the_server_does_not_list_is_unknown(passed: Agent, name: str) -> None:
    """The gateway's own names and those of other servers among them."""
    answer = await passed.request("tools/call", name=name, arguments={})
    assert answer["error"]["code"] == -32602
    assert repr(name) in answer["error"]["message"]
    assert ("kinds" if name == "kind" else "") in answer["error"]["message"]


class Announcements:
    """What an agent was told about its list, by whichever way its era and transport have."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.heard: Callable[[], list[dict[str, Any]]] = list
        self.reading: asyncio.Task[None] | None = None

    async def subscribe(self, wanted: dict[str, bool] | None = None) -> None:
        """Starts to listen, and returns when nothing can be missed any more.

        Args:
            wanted: What a modern client asks for; changes of tools by default.
        """
        told: list[dict[str, Any]] = []
        self.heard = lambda: told
        if isinstance(self.agent, StreamAgent):
            self.heard = lambda: self.agent.strays  # type: ignore[attr-defined]  # narrowed above
        if self.agent.era == "modern":
            exchange = await self.agent.begin(
                "subscriptions/listen", notifications=wanted or {"toolsListChanged": True}
            )
            if isinstance(self.agent, HttpAgent):
                self.reading = asyncio.create_task(_collect(_queued(exchange.heard), told))
            await self.until("notifications/subscriptions/acknowledged", 1)
        elif isinstance(self.agent, HttpAgent):
            self.reading = asyncio.create_task(_collect(self.agent.hear(), told))

    def count(self, method: str) -> int:
        """How often it came."""
        return sum(message["method"] == method for message in self.heard())

    async def until(self, method: str, count: int) -> None:
        """Returns when it came that often; asks for the list meanwhile, as an agent at work would."""
        with anyio.fail_after(LIMIT_S):
            while self.count(method) < count:
                await listed(self.agent)
                await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Stops listening."""
        if self.reading is not None:
            self.reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.reading


async def _queued(queue: asyncio.Queue[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    while True:
        yield await queue.get()


async def _collect(source: AsyncIterator[dict[str, Any]], into: list[dict[str, Any]]) -> None:
    async for message in source:
        into.append(message)


CHANGED = "notifications/tools/list_changed"


@pytest.mark.requirement("passthrough-changes")
@pytest.mark.parametrize("channel", CHANNELS, ids="-".join)
@pytest.mark.long  # half a second of work and more
async def test_a_change_of_the_servers_list_is_announced_once(channel: tuple[str, Any], tmp_path: Path) -> None:
    """However often the server says so; the next list is the new one."""
    async with at(channel, tmp_path, {"growing": GROWING}, "growing") as agent:
        capabilities = agent.greeting["result"]["capabilities"]
        assert capabilities["tools"] == {"listChanged": True}
        assert [tool["name"] for tool in await listed(agent)] == ["grow"]
        announcements = Announcements(agent)
        await announcements.subscribe()
        for count in (1, 2):
            await agent.request("tools/call", name="grow", arguments={})
            await announcements.until(CHANGED, count)
            assert len(await listed(agent)) == count + 1
        assert announcements.count(CHANGED) == 2
        await announcements.close()


@pytest.mark.requirement("listen")
async def test_a_list_that_never_changes_is_not_announced(agent: Agent) -> None:
    """Both eras are told so, and a subscription is acknowledged all the same."""
    assert agent.greeting["result"]["capabilities"]["tools"] == {"listChanged": False}
    if agent.era == "modern":
        announcements = Announcements(agent)
        await announcements.subscribe()
        assert announcements.count(CHANGED) == 0
        await announcements.close()

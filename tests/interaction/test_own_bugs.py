"""A bug of the gateway's own in one request: that one gets an error without internals, everybody else their answers."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from agents import CLIENT, Agent, Era, wait_covered
from plain_http import plain_client
from planted_bugs import INSIDE, WORD, plant
from transports import odd_server, on_stdio, over_http, served, settled, spawned
from wires import BOTH, opening

from smart_mcp_proxy.web.broker.app import CONNECTIONS_PATH

pytestmark = pytest.mark.anyio

INTERNAL = -32603
FAILED = "The gateway failed. Its log says why."
GOOD_CALLS = 20
PROGRAM = (sys.executable, "-m", "tests.interaction.planted_bugs", "serve")
CHANNELS = [
    ("stdio", "handshake"),
    pytest.param("stdio", "modern", marks=pytest.mark.soak),  # its path is that of the others
    ("http", "handshake"),
    ("http", "modern"),
]


@asynccontextmanager
async def agent_at(channel: str, era: Era, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Agent]:
    """An agent at a gateway with bugs."""
    servers = {"old": odd_server("handshake")}
    async with AsyncExitStack() as stack:
        if channel == "stdio":
            process = await stack.enter_async_context(spawned(tmp_path, servers, program=PROGRAM))
            agent: Agent = await stack.enter_async_context(on_stdio(process, era))
        else:
            plant(monkeypatch.setattr)
            gateway = await stack.enter_async_context(settled(tmp_path, servers))
            base = await stack.enter_async_context(served(gateway))
            agent = await stack.enter_async_context(over_http(base, era))
        await wait_covered(agent)
        yield agent


async def ask_badly(agent: Agent) -> list[Any]:
    """Requests that meet a bug, on their way: in tools of the gateway's own, and where tools and prompts are read."""
    return [
        await agent.begin("tools/call", name="retrieve_tools", arguments={"query": WORD}),
        await agent.begin("tools/call", name="call_tool_write", arguments={"name": "old:echo", "args": {"x": WORD}}),
        await agent.begin("tools/call", token=True, name="retrieve_tools", arguments={"query": WORD}),
        await agent.begin("tools/list", _meta={"x": WORD}),
        await agent.begin("prompts/get", name=WORD),
    ]


async def echo(agent: Agent, number: int) -> Any:
    arguments = {"name": "old:echo", "args": {"number": number}}
    return await agent.begin("tools/call", name="call_tool_write", arguments=arguments)


def assert_worded(answer: dict[str, Any]) -> None:
    """It says whose fault it is, and nothing of the inside."""
    if "result" in answer:
        told = answer["result"]["structuredContent"]["error"] if "structuredContent" in answer["result"] else {}
        assert answer["result"]["isError"] is True
        assert (told["code"], told["message"], told["hint"]) == ("internal", "The gateway failed.", "Its log says why.")
    else:
        assert (answer["error"]["code"], answer["error"]["message"]) == (INTERNAL, FAILED)
    for inner in (INSIDE, "KeyError", "Traceback", ".py"):
        assert inner not in json.dumps(answer)


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.parametrize(("channel", "era"), CHANNELS)
async def test_a_bug_in_one_request_is_that_ones_alone(
    channel: str, era: Era, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F46: calls beside it are answered, so are later ones in the same session, and the log says what went wrong."""
    async with agent_at(channel, era, tmp_path, monkeypatch) as agent:
        good = [await echo(agent, number) for number in range(GOOD_CALLS)]
        bad = await ask_badly(agent)
        good += [await echo(agent, number) for number in range(GOOD_CALLS, 2 * GOOD_CALLS)]
        async with asyncio.timeout(20):
            for exchange in bad:
                assert_worded(await exchange.answer)
            texts = [(await exchange.answer)["result"]["content"][0]["text"] for exchange in good]
        assert [json.loads(text)["number"] for text in texts] == list(range(2 * GOOD_CALLS))
        assert (await agent.request("tools/list"))["result"]["tools"]
        await wait_covered(agent)
        assert not getattr(agent, "strays", [])
    log = (tmp_path / "stderr.log").read_text() if channel == "stdio" else caplog.text
    assert log.count(f"KeyError: '{INSIDE}'") >= len(bad)


@pytest.mark.parametrize("channel", ["network", "broker"])
async def test_a_bug_behind_rest_or_the_broker_is_that_requests_alone(
    channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F46: status 500 with the error object of all others, on a connection that is used again."""
    plant(monkeypatch.setattr)
    # A server of another test, in this process, may have silenced it.
    monkeypatch.setattr(logging.getLogger("uvicorn"), "propagate", True)
    caplog.set_level(logging.ERROR, logger="uvicorn.error")
    async with settled(tmp_path, {"old": odd_server("handshake")}) as gateway, served(gateway) as base:
        token = (tmp_path / "operator.token").read_text().strip()
        headers = {"authorization": f"Bearer {token}"} if channel == "network" else {}
        async with plain_client(base_url=base, headers=headers) as http:

            async def ask(name: str) -> httpx2.Response:
                if channel == "network":
                    return await http.get(f"/api/v1/servers/{name}")
                return await http.get(f"/api/mcp/{name}/proxy/status" if name == WORD else CONNECTIONS_PATH)

            bad, good = await asyncio.gather(ask(WORD), ask("old"))
            assert (bad.status_code, good.status_code, (await ask("old")).status_code) == (500, 200, 200)
    assert bad.headers["content-type"] == "application/json"
    told = bad.json() if channel == "broker" else bad.json()["error"]
    assert "The gateway failed." in told["message"]
    assert INSIDE not in bad.text
    assert INSIDE in caplog.text


async def test_a_bug_in_a_listener_to_new_sessions_costs_that_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F46: its client is told, and the next one gets its own."""
    plant(monkeypatch.setattr)
    async with settled(tmp_path, {"old": odd_server("handshake")}) as gateway, served(gateway) as base:
        async with plain_client(base_url=base) as http:
            hello = opening("handshake")
            hello["params"]["clientInfo"] = CLIENT | {"name": WORD}
            headers = {"accept": BOTH}
            refused = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, **hello}, headers=headers)
        async with over_http(base, "handshake") as agent:
            await wait_covered(agent)
    assert FAILED in refused.text
    assert INSIDE not in refused.text
    assert INSIDE in caplog.text

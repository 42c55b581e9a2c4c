"""Scripts as an agent runs them: in both eras and both languages, with everything they call on record."""

import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import Agent, wait_covered
from transports import in_memory, odd_servers, opened_gateway, over_http, served

pytestmark = pytest.mark.anyio

LIMIT_S = 40
SCRIPT_CHANNELS = [("memory", "handshake"), ("memory", "modern"), ("http", "handshake"), ("http", "modern")]
TWENTY_CALLS = {
    "python": """
total = 0
for answer in call_tools([{"name": "old:echo", "args": {"n": n}} for n in range(10)]):
    total += answer["result"]["n"]
for n in range(10):
    total += call_tool("new:look", {"entry": n})["entry"]
print("added up")
{"total": total, "from": input["start"]}
""",
    "javascript": """
let total = 0;
for (const {result} of await call_tools([...Array(10).keys()].map(n => ({name: "old:echo", args: {n}})))) {
  total += result.n;
}
for (let n = 0; n < 10; n++) total += (await call_tool("new:look", {entry: n})).entry;
console.log("added up");
return {total, from: input.start};
""",
}


@pytest.fixture(scope="session")
async def script_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the servers write down what starts and what is cancelled."""
    path = tmp_path_factory.mktemp("script") / "ledger"
    path.touch()
    return path


@pytest.fixture(scope="session")
async def script_base(tmp_path_factory: pytest.TempPathFactory, script_ledger: Path) -> AsyncIterator[Any]:
    """A gateway that runs scripts, and its address."""
    directory = tmp_path_factory.mktemp("scripts")
    async with (
        opened_gateway(directory, odd_servers(script_ledger), code="both", code_timeout_s=20) as gateway,
        served(gateway) as base,
    ):
        yield gateway, base


@pytest.fixture(params=SCRIPT_CHANNELS, ids="-".join)
async def scripter(request: pytest.FixtureRequest, script_base: Any) -> AsyncIterator[Agent]:
    """An agent that may run scripts."""
    transport, era = request.param
    gateway, base = script_base
    async with AsyncExitStack() as stack:
        opening = in_memory(gateway, era) if transport == "memory" else over_http(base, era)
        agent = await stack.enter_async_context(opening)
        await wait_covered(agent)
        yield agent


@pytest.mark.requirement("script-many-calls")
@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_one_script_makes_twenty_calls(scripter: Agent, language: str) -> None:
    """What comes back is what the script made of them."""
    code = TWENTY_CALLS[language]
    with anyio.fail_after(LIMIT_S):
        result = await scripter.call("code_execution", code=code, language=language, input={"start": 7})
    answer = result["structuredContent"]
    assert json.loads(result["content"][0]["text"]) == answer
    assert answer == {
        "result": {"total": 90, "from": 7},
        "output": "added up\n",
        "calls": [
            {"name": "old:echo", "outcome": "ok", "count": 10},
            {"name": "new:look", "outcome": "ok", "count": 10},
        ],
    }


@pytest.mark.requirement("script-failed")
async def test_a_script_that_fails_says_where_and_after_which_calls(scripter: Agent) -> None:
    """So that the agent can correct it, and knows what must not be done twice."""
    code = "call_tool('old:paint', {'colour': 'red'})\nprint('painted')\ncall_tool('new:fails')"
    with anyio.fail_after(LIMIT_S):
        result = await scripter.call("code_execution", code=code)
    assert result["isError"] is True
    error = result["structuredContent"]["error"]
    assert (error["code"], error["delivery"]) == ("code_error", "executed")
    assert error["message"] == "Line 3: RuntimeError: tool_error: the register is under water"
    assert error["data"] == {
        "line": 3,
        "output": "painted\n",
        "calls": [
            {"name": "old:paint", "outcome": "ok", "count": 1},
            {"name": "new:fails", "outcome": "tool_error", "count": 1},
        ],
    }


@pytest.mark.requirement("script-cancelled")
async def test_cancelling_a_script_cancels_its_calls(scripter: Agent, script_ledger: Path) -> None:
    """Down to the server."""
    label = f"script-{scripter.era}-{type(scripter).__name__}"
    code = f"call_tool('old:hang', {{'label': '{label}'}})"
    with anyio.fail_after(LIMIT_S):
        exchange = await scripter.begin("tools/call", name="code_execution", arguments={"code": code})
        while f"started {label}" not in script_ledger.read_text():
            await anyio.sleep(0.01)
        await scripter.cancel(exchange)
        while f"cancelled {label}" not in script_ledger.read_text():
            await anyio.sleep(0.01)


MISCHIEF = {
    "python-prints": ("python", "while True: print('x' * 100)"),
    "python-computes": ("python", "while True: pass"),
    "python-grows": ("python", "a = []\nwhile True: a.append('x' * 1000000)"),
    "python-descends": ("python", "def f(n):\n    return f(n + 1)\nf(0)"),
    "python-calls": ("python", "while True: call_tools([{'name': 'new:look', 'args': {'entry': 1}}] * 50)"),
    "javascript-prints": ("javascript", "while (true) console.log('x'.repeat(100))"),
    "javascript-regex": ("javascript", "while (true) /(a+)+$/.test('a'.repeat(40) + 'b')"),
    "javascript-grows": ("javascript", "const a = []; while (true) a.push(new Uint8Array(1e7).fill(1))"),
    "javascript-descends": ("javascript", "const f = n => f(n + 1) + 1; f(0)"),
    "javascript-calls": (
        "javascript",
        "while (true) await call_tools(Array(50).fill({name: 'new:look', args: {entry: 1}}))",
    ),
}
SOAKED = {
    "python-prints",
    "python-computes",
    "python-descends",
    "javascript-grows",
    "javascript-descends",
    "javascript-calls",
}
"""In CI each kind of mischief is up to it in one language: a script runs in a process of its own in either.

An expression without an end computes as well, and what descends ends at once (tests/gateway/sandbox/test_prison.py).
"""
ROUND_CALLS = 200
ROUNDS = 3
"""Source: docs/design/limits.md#figures-in-tests"""
NOISE_S = 0.03
"""Beside a script of its own process on a machine of two cores whose other work takes them both: two turns of a
scheduler that gives each of them some 10 ms. A call alone takes a few milliseconds."""


@pytest.mark.requirement("script-neighbours")
@pytest.mark.long
@pytest.mark.parametrize(
    ("language", "code"),
    [pytest.param(*row, id=name, marks=[pytest.mark.soak] * (name in SOAKED)) for name, row in MISCHIEF.items()],
)
async def test_a_script_that_misbehaves_leaves_others_answered(script_base: Any, language: str, code: str) -> None:
    """19 of 20 calls beside it take at most twice their time, and the worst a bounded one, whatever it is up to."""
    slowest: list[float] = []

    async def p95(agent: Agent) -> float:
        taken = []
        for n in range(ROUND_CALLS):
            began = time.perf_counter()
            await agent.call("call_tool_read", name="old:look", args={"entry": n})
            taken.append(time.perf_counter() - began)
        slowest.append(max(taken))
        return statistics.quantiles(taken, n=20)[-1]

    _, base = script_base
    with anyio.fail_after(3 * LIMIT_S):
        async with over_http(base, "handshake") as agent, over_http(base, "handshake") as villain:
            await wait_covered(agent)
            alone = min([await p95(agent) for _ in range(ROUNDS)])
            slowest.clear()
            ended = anyio.Event()

            async def misbehave() -> None:
                """Again and again: some of it ends soon."""
                while not ended.is_set():
                    busy = {"code": code, "timeout_ms": 2000, "language": language}
                    assert (await villain.call("code_execution", **busy))["isError"]

            async with anyio.create_task_group() as group:
                group.start_soon(misbehave)
                for _ in range(ROUNDS):
                    if (beside := await p95(agent)) <= 2 * alone + NOISE_S:
                        break
                ended.set()
    assert beside <= 2 * alone + NOISE_S
    assert max(slowest) < 2


@pytest.mark.requirement("script-off")
async def test_without_the_setting_there_are_no_scripts(inner: Any) -> None:
    """The name is not listed, so it is unknown."""
    gateway, _ = inner["whole"]
    async with in_memory(gateway, "handshake") as agent:
        listed = {tool["name"] for tool in (await agent.request("tools/list"))["result"]["tools"]}
        assert "code_execution" not in listed
        answer = await agent.request("tools/call", name="code_execution", arguments={"code": "1"})
        assert answer["error"]["code"] == -32602

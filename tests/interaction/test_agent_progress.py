"""Calls that ask for progress: what is told, to whom, in which form, whichever way a call takes through the gateway."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from agents import CLIENT, Agent
from transports import SETTLED_S, agent_at, odd_servers, opened_gateway, served, spawned
from wires import ENVELOPE, HttpWire, StdioWire, Wire, http_wire

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("progress")]

UPSTREAM = Path(__file__).parent / "telling_upstream.py"
CHANNELS = [("stdio", "handshake"), ("stdio", "modern"), ("http", "handshake"), ("http", "modern")]
RESULT = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}'
LIMIT_S = 30
WAYS = pytest.mark.parametrize("opening", ["{", '{"unknown":0,'], ids=["fast", "sdk"])
"""A member that JSON-RPC does not know makes the fast path hand a message on, and means nothing to the SDK."""


def told(progress: Any = 1, token: str = "$TOKEN", **more: Any) -> str:
    """A progress notification of the server's, as text."""
    params = json.dumps({"progress": progress} | more)[1:]
    return f'{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{params}}}'


def teller(ledger: Path | str = "/dev/null") -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-S", str(UPSTREAM), str(ledger)]}


@pytest.fixture(scope="module", params=CHANNELS, ids="-".join)
async def talker(
    request: pytest.FixtureRequest, ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Wire]:
    """A connection to a gateway with a server that says what it is told to."""
    transport, era = request.param
    data_dir, servers = tmp_path_factory.mktemp("data"), odd_servers(ledger) | {"teller": teller()}
    async with AsyncExitStack() as stack:
        if transport == "http":
            gateway = await stack.enter_async_context(opened_gateway(data_dir, servers))
            base = await stack.enter_async_context(served(gateway))
            wire: Wire = await stack.enter_async_context(http_wire(base, era))
        else:
            wire = StdioWire(era, await stack.enter_async_context(spawned(data_dir, servers)))
            await wire.greet()
        with anyio.fail_after(SETTLED_S):
            while "tool_not_found" in json.dumps(await wire.tell(call(wire, [RESULT]))):
                await anyio.sleep(0.02)
        yield wire


def call(wire: Wire, lines: list[str], token: str | None = None, opening: str = "{", **others: Any) -> bytes:
    """A call at which the server says these; the token as JSON text, None for a call without one."""
    request_id = others.get("id", wire.next_id())
    arguments = others.get("arguments", {"name": "teller:tell", "args": {"lines": lines}})
    params = {"name": "call_tool_write", "arguments": arguments}
    members = json.dumps(ENVELOPE)[1:-1] if wire.era == "modern" else ""
    meta = ",".join(filter(None, (members, f'"progressToken":{token}' if token is not None else "")))
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call"}
    text = f'{json.dumps(message)[1:-1]},"params":{json.dumps(params)[:-1]},"_meta":{{{meta}}}}}}}'
    return (opening + text).encode()


async def heard(wire: Wire, message: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What came before the reply to a call, and the reply."""
    if isinstance(wire, StdioWire):
        await wire.send(message)
        messages = [await wire.read()]
        while "method" in messages[-1]:
            messages.append(await wire.read())
    else:
        assert isinstance(wire, HttpWire)
        reply = await wire._client.post(wire._url, content=message, headers=wire.headers(message))
        kind, text = reply.headers["content-type"].partition(";")[0], reply.text
        if kind == "text/event-stream":
            messages = [json.loads(line[5:]) for line in text.split("\r\n") if line.startswith("data:")]
        else:
            messages = [json.loads(text)]
    *before, last = messages
    return before, last


async def forms(wire: HttpWire, message: bytes) -> str:
    """The content type of the reply to a call."""
    reply = await wire._client.post(wire._url, content=message, headers=wire.headers(message))
    assert reply.status_code == 200
    kind: str = reply.headers["content-type"].partition(";")[0]
    return kind


async def test_both_ways_tell_the_same(talker: Wire) -> None:
    """Word for word, and in the same order."""
    lines = [told(0.5), told(1, total=4, message="first é\u2028"), told(2, total=None), told(3, message=""), RESULT]
    ways = [await heard(talker, call(talker, lines, '"mine"', opening)) for opening in ("{", '{"unknown":0,')]
    (fast, _), (sdk, _) = ways
    assert fast == sdk
    assert [step["params"]["progress"] for step in fast] == [0.5, 1, 2, 3]
    assert {step["params"]["progressToken"] for step in fast} == {"mine"}


@pytest.mark.parametrize("token", ["7", "0", "-7", '""', '"a b"', '"7"', '"\\u00e9"', str(2**64), f'"{"x" * 9_000}"'])
async def test_progress_comes_under_the_clients_own_token(talker: Wire, token: str) -> None:
    """Whatever string or integer that is; the server is given another one."""
    seen = RESULT.replace("[]", '[{"type":"text","text":"token $TOKEN"}]')
    before, reply = await heard(talker, call(talker, [told(1), seen], token))
    assert [step["params"] for step in before] == [{"progressToken": json.loads(token), "progress": 1.0}]
    assert reply["result"]["content"][0]["text"] != f"token {token}"


@pytest.mark.parametrize("token", ["null", "true", "1.0", "1.5", "[]", "{}", '"\\ud800"'])
async def test_a_token_of_another_type_has_one_answer(talker: Wire, token: str) -> None:
    """The SDK's: it is refused as a parameter, or nobody is told of progress."""
    ways = [await heard(talker, call(talker, [RESULT], token, opening, id=7)) for opening in ("{", '{"unknown":0,')]
    assert ways[0] == ways[1]
    assert (await heard(talker, call(talker, [RESULT])))[1]["result"]["content"] == []


async def test_a_reply_over_http_is_a_stream_only_where_something_comes_before_it(talker: Wire) -> None:
    """A token alone does not make it one."""
    if not isinstance(talker, HttpWire):
        pytest.skip("a pipe has one form")
    assert await forms(talker, call(talker, [RESULT], "1")) == "application/json"
    assert await forms(talker, call(talker, [told(), RESULT], "1")) == "text/event-stream"
    assert await forms(talker, call(talker, [told(token="null"), RESULT])) == "application/json"


@pytest.mark.parametrize("capabilities", [None, {}, {"elicitation": {}}], ids=["known", "first call", "can be asked"])
async def test_the_form_of_a_reply_of_the_sdk_is_decided_at_its_first_message(
    talker: Wire, capabilities: dict[str, Any] | None
) -> None:
    """In any session: with a token, the result first is one body, progress first is a stream."""
    if not isinstance(talker, HttpWire):
        pytest.skip("a pipe has one form")
    opening = '{"unknown":0,' if capabilities is None else "{"
    for lines, form in (([RESULT], "application/json"), ([told(), RESULT], "text/event-stream")):
        wire = talker if capabilities is None else await session(talker, capabilities)
        message = call(wire, lines, "1", opening)
        reply = await wire._client.post(wire._url, content=message, headers=wire.headers(message))
        assert reply.headers["content-type"].partition(";")[0] == form
        if form == "application/json":
            assert reply.json()["id"] == json.loads(message)["id"]
            assert reply.json()["result"]["content"] == []
            assert "x-accel-buffering" not in reply.headers
            assert reply.headers.get("mcp-session-id") == wire.session
        else:
            told_first, last = (json.loads(line[5:]) for line in reply.text.split("\r\n") if line.startswith("data:"))
            assert told_first["method"] == "notifications/progress" and last["result"]["content"] == []


async def session(like: HttpWire, capabilities: dict[str, Any]) -> HttpWire:
    """A connection at which nothing was called yet."""
    wire = HttpWire(like.era, like._url, like._client)
    if wire.era == "handshake":
        opening = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": CLIENT}
        await wire.tell(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": opening}).encode())
        await wire.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    return wire


@WAYS
async def test_progress_that_belongs_to_no_call_is_told_to_nobody(talker: Wire, opening: str) -> None:
    """With a token that nobody gave, the client's own, none, or one of a call that is over."""
    strangers = [told(token=token) for token in ("123456789", '"mine"', "null", "[]", "1.5", "true")]
    lines = [*strangers, '{"jsonrpc":"2.0","method":"notifications/progress"}', RESULT, told(9)]
    before, reply = await heard(talker, call(talker, lines, '"mine"', opening))
    assert before == [] and reply["result"]["content"] == []
    before, _ = await heard(talker, call(talker, [RESULT], '"mine"', opening))  # nor what came after a result
    assert before == []


@WAYS
async def test_words_of_progress_are_cleaned(talker: Wire, opening: str) -> None:
    """As those of a result are."""
    before, _ = await heard(talker, call(talker, [told(message="\x1b[31mred\u202e"), RESULT], "1", opening))
    assert [step["params"]["message"] for step in before] == ["red"]


@WAYS
async def test_a_huge_message_is_left_out_and_the_progress_is_told(talker: Wire, opening: str) -> None:
    """It is no text for people, and many reports may wait at a time."""
    arguments = {"name": "teller:tell", "args": {"lines": [told(1, message="x" * 1_000_000), told(2), RESULT]}}
    before, _ = await heard(talker, call(talker, [], "1", opening, arguments=arguments))
    assert [step["params"]["progress"] for step in before] == [1, 2]
    assert before[0]["params"]["message"] == "(a message of 1,000,000 characters is left out)"


@WAYS
async def test_a_storm_of_progress_is_thinned_out(talker: Wire, opening: str) -> None:
    """The first steps and the last one are told, and the result comes."""
    storm = {"name": "teller:storm", "args": {"count": 20_000}}
    with anyio.fail_after(LIMIT_S):
        before, reply = await heard(talker, call(talker, [], "1", opening, arguments=storm))
    steps = [step["params"]["progress"] for step in before]
    assert steps[:9] == list(range(9)) and steps[-1] == 19_999
    assert steps == sorted(steps) and len(steps) < 1_000
    assert reply["result"]["content"][0]["text"] == "over"


@pytest.mark.long  # a third of a second of processor time
async def test_two_calls_at_once_may_have_the_same_token(talker: Wire) -> None:
    """Each is told of its own progress and gets its own result."""
    first, second = (call(talker, [told(number), RESULT], '"same"') for number in (1, 2))
    if isinstance(talker, StdioWire):
        await talker.send(first)
        await talker.send(second)
        messages = [await talker.read() for _ in range(4)]
        steps = sorted(message["params"]["progress"] for message in messages if "method" in message)
        assert steps == [1, 2]
        assert {message["id"] for message in messages if "id" in message} == {
            json.loads(first)["id"],
            json.loads(second)["id"],
        }
    else:
        (one, _), (two, _) = await asyncio.gather(heard(talker, first), heard(talker, second))
        assert [[step["params"]["progress"] for step in steps] for steps in (one, two)] == [[1], [2]]


@pytest.mark.parametrize("channel", CHANNELS, ids="-".join)
@pytest.mark.long  # starts programs, a second of it
async def test_a_server_that_ends_after_progress_ends_the_call_with_an_error(
    channel: tuple[str, Any], tmp_path: Path
) -> None:
    """The caller has the progress and learns that the call may have run."""
    async with agent_at(channel, tmp_path, {"teller": teller()}) as agent:
        await ready(agent)
        exchange = await begun(agent, [told(1), "die"])
        with anyio.fail_after(LIMIT_S):
            assert (await exchange.heard.get())["params"]["progress"] == 1
            answer = await exchange.answer
        error = answer["result"]["structuredContent"]["error"]
        assert (error["code"], error["delivery"]) == ("upstream_failed", "unknown")


@pytest.mark.long  # starts and ends processes, seconds of it
@pytest.mark.parametrize("channel", CHANNELS, ids="-".join)
async def test_a_client_that_leaves_between_progress_and_result_cancels_the_call(
    channel: tuple[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server hears of it, the gateway has nothing to complain of and goes on serving."""
    caplog.set_level(logging.WARNING)
    (ledger := tmp_path / "ledger").touch()
    async with agent_at(channel, tmp_path / "data", {"teller": teller(ledger)}) as agent:
        await ready(agent)
        exchange = await begun(agent, [told(1)])
        with anyio.fail_after(LIMIT_S):
            await exchange.heard.get()
            await agent.cancel(exchange)
            while "cancelled" not in ledger.read_text():
                await asyncio.sleep(0.01)
        await ready(agent)
    log = tmp_path / "data" / "stderr.log"
    assert "Traceback" not in caplog.text + (log.read_text() if log.exists() else "")


async def begun(agent: Agent, lines: list[str]) -> Any:
    arguments = {"name": "teller:tell", "args": {"lines": lines}}
    return await agent.begin("tools/call", token=True, name="call_tool_write", arguments=arguments)


async def ready(agent: Agent) -> None:
    """Returns once the server can be called."""
    with anyio.fail_after(SETTLED_S):
        while (await agent.call("call_tool_write", name="teller:tell", args={"lines": [RESULT]})).get("isError"):
            await asyncio.sleep(0.02)

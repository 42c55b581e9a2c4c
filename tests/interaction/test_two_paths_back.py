"""One answer of a server, two ways back to the client: the fast path and the SDK pass on the same, whatever it says.

Where Python's readers or the SDK's writer give up, the SDK's way says so, and the fast path, which reads nothing that
it only passes on, passes it on. Those are the only differences, and they are listed here.
"""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_two_paths import answers
from transports import SETTLED_S, odd_servers, opened_gateway, served, spawned
from wires import StdioWire, Wire, call_text, http_wire

from smart_mcp_proxy.fastmcp_compat.message_guard import WRITABLE_DEPTH

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("two-paths")]

UPSTREAM = Path(__file__).parent / "literal_upstream.py"
LITERALS = [
    *("0", "-0", "-0.0", "1.0", "1E5", "1e-400", "5e-324", "1.7976931348623157e308", "0.1000000000000000055511151231"),
    *("18446744073709551616", "-9223372036854775809", "9" * 400, "9" * 4_300, "null", "true", '""', "[]", "{}"),
    *('"\\u2028\\/"', '"\\ud83d\\ude00"', '"\u2028\u00a0"', '{"a":1,"a":2}', '{"":{"":""}}', " [ 1 , 2 ] "),
]
GOOD = '{"content":[]}'
FOLDS = [1, 100, 200, WRITABLE_DEPTH - 2]
OUT_OF_RANGE = ["1e400", "-1e400", "9" * 4_301]
"""Larger than Python's floats, or with more digits than Python reads.

Source: https://docs.python.org/3/library/sys.html#sys.get_int_max_str_digits"""
TOO_DEEP = ["[" * depth + "]" * depth for depth in (WRITABLE_DEPTH - 1, 300, 900)]
"""Deeper than pydantic writes."""

values = st.recursive(
    st.sampled_from(LITERALS) | st.text(max_size=5).map(json.dumps),
    lambda deeper: st.lists(deeper, max_size=3).map(lambda parts: f"[{','.join(parts)}]"),
    max_leaves=5,
)
names = st.sampled_from(["structuredContent", "_meta", "isError", "resultType", "ttlMs", "content", "odd", ""])
parts = st.sampled_from(['{"type":"text","text":"x"}', '{"type":"new"}', "7", "null", '{"type":"text"}'])
content = st.lists(parts, max_size=2).map(lambda items: f'"content":[{",".join(items)}]')
members = st.builds(lambda name, value: f"{json.dumps(name)}:{value}", names, values)
results = st.builds(
    lambda first, more: f"{{{','.join([first, *more])}}}", content, st.lists(members, max_size=3, unique_by=str)
)
errors = st.builds(
    lambda code, text, more: f'{{"code":{code},"message":{json.dumps(text)}{more}}}',
    st.sampled_from([-32602, -32603, 0, 7]),
    st.text(max_size=5),
    st.just("") | values.map(lambda value: f',"data":{value}'),
)
said = st.tuples(st.just("result"), results) | st.tuples(st.just("error"), errors)


@pytest.fixture(scope="module", params=["stdio-handshake", "stdio-modern", "http-handshake", "http-modern"])
async def talker(
    request: pytest.FixtureRequest, ledger: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Wire]:
    """A connection to a gateway with a server that says what it is told to."""
    transport, _, era = request.param.partition("-")
    data_dir = tmp_path_factory.mktemp("data")
    servers = odd_servers(ledger) | {"literal": {"command": sys.executable, "args": ["-S", str(UPSTREAM)]}}
    async with AsyncExitStack() as stack:
        if transport == "http":
            gateway = await stack.enter_async_context(opened_gateway(data_dir, servers))
            base = await stack.enter_async_context(served(gateway))
            wire: Wire = await stack.enter_async_context(http_wire(base, era))
        else:
            wire = StdioWire(era, await stack.enter_async_context(spawned(data_dir, servers)))
            await wire.greet()
        with anyio.fail_after(SETTLED_S):
            while "tool_not_found" in json.dumps(await wire.tell(told(wire, GOOD))):
                await anyio.sleep(0.02)
        yield wire


def told(wire: Wire, text: str, member: str = "result") -> bytes:
    """A call that the server answers with `text`."""
    return call_text(wire.era, wire.next_id(), "literal:say", {"text": text, "member": member})


@pytest.mark.long  # generated answers, seconds of them
@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(said=said)
async def test_generated_answers_reach_the_client_the_same_both_ways(talker: Wire, said: tuple[str, str]) -> None:
    """Results and errors, with members of any kind."""
    member, text = said
    fast, sdk = await answers(talker, told(talker, text, member))
    assert fast == sdk
    await answers(talker, told(talker, GOOD))  # a server that only fails is not called for a while


@pytest.mark.parametrize(
    "literal", [*LITERALS, *("[" * depth + "]" * depth for depth in FOLDS)], ids=lambda text: text[:20]
)
async def test_every_value_reaches_the_client_the_same_both_ways(talker: Wire, literal: str) -> None:
    """And it is what the server said."""
    fast, sdk = await answers(talker, told(talker, f'{{"content":[],"structuredContent":{{"n":{literal}}}}}'))
    assert fast == sdk
    assert structured(fast[1]) == {"n": json.loads(literal)}


def structured(answer: Any) -> Any:
    """The structured content of a result."""
    return answer["result"]["structuredContent"]


@pytest.mark.parametrize("literal", [*OUT_OF_RANGE, *TOO_DEEP], ids=lambda text: f"{text[:8]}-{len(text)}")
async def test_what_the_sdk_cannot_pass_on_is_an_error_there_and_the_connection_lives(
    talker: Wire, literal: str
) -> None:
    """The fast path passes it on as the server said it."""
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # of this client, which is no stricter than others
    try:
        fast, sdk = await answers(talker, told(talker, f'{{"content":[],"structuredContent":{{"n":{literal}}}}}'))
        assert structured(fast[1]) == {"n": json.loads(literal)}
    finally:
        sys.set_int_max_str_digits(digits)
    error = structured(sdk[1])["error"]
    assert (error["code"], error["delivery"]) == ("upstream_failed", "unknown")
    assert "cannot be passed on" in error["message"]
    await talker.assert_well()

"""The calls of one client that the fast path answers."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from smart_mcp_proxy.models import LOCAL
from smart_mcp_proxy.raw_result import RawResult
from smart_mcp_proxy.web.fast_path.messages import CallsInFlight, WireCall, parse_wire
from smart_mcp_proxy.web.fast_path.wire_http import TakenCall

pytestmark = pytest.mark.anyio


class Agent:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.has_begun = asyncio.Event()

    async def answer(self, *_: Any) -> RawResult:
        self.has_begun.set()
        await self.go_on.wait()
        return RawResult(b"{}")


def taken(agent: Agent) -> TakenCall:
    call = parse_wire(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"paint"}}')
    assert isinstance(call, WireCall)
    calls = CallsInFlight(cast(Any, agent), cast(Any, SimpleNamespace(call=None)))
    return TakenCall(call, LOCAL, calls, None, "handshake")


async def test_a_call_that_is_cancelled_is_answered_by_that() -> None:
    agent = Agent()
    call = taken(agent)
    task = asyncio.ensure_future(call.answer(None))
    with anyio.fail_after(20):
        await agent.has_begun.wait()
        assert call.calls.cancel("7")
        status, reply = await task
    assert status == 200
    assert b"Request cancelled" in b"".join(reply)
    assert not call.calls.cancel(7)


async def test_a_cancellation_that_comes_before_its_call_has_begun_leaves_nobody_without_an_answer() -> None:
    """A task that is ended before its first step could not say anything."""
    agent = Agent()
    agent.go_on.set()
    call = taken(agent)
    task = asyncio.ensure_future(call.answer(None))
    assert not call.calls.cancel(7)
    with anyio.fail_after(20):
        status, reply = await task
    assert (status, b"".join(reply)) == (200, b'{"jsonrpc":"2.0","id":7,"result":{}}')

"""When a server is started anew, and what is never sent twice for it.

The ids are those of the project's list of faults.
"""

import asyncio
from pathlib import Path

import anyio
import pytest
from modes import Place
from rig import VERSIONS, Answer, Rig, opened_rig

from smart_mcp_proxy.fastmcp_compat.handlers import Inbound
from smart_mcp_proxy.models import LOCAL, ServerStatus

pytestmark = [pytest.mark.anyio, pytest.mark.long]

GARBLED = 5
"""So many answers within a minute that cannot be read are the end of a session."""
BACK_S = 60.0
"""Longest wait for a server that was given up for a while."""
UNKNOWN = ("upstream_failed", "unknown")


def status(rig: Rig) -> ServerStatus:
    """Of the faulty server."""
    return next(server for server in rig.gateway.status().servers if server.name == "faulty")


async def back(rig: Rig, tool: str = "faulty:effect") -> Answer:
    """The first good answer of a tool; no call on the way there is carried out twice."""
    with anyio.fail_after(BACK_S):
        while (answer := await rig.call(nonce := rig.nonce(), tool=tool)).outcome != "ok":
            assert rig.faulty.arrivals(nonce) <= 1
            await asyncio.sleep(0.1)
    return answer


async def read(rig: Rig, nonce: str) -> tuple[str, str]:
    """Outcome and delivery of one call of a read-only tool."""
    params = {"name": "call_tool_read", "arguments": {"name": "faulty:odd", "args": {"nonce": nonce}}}
    result = await rig.gateway.agent.call_tool(Inbound(params, {}, "modern", VERSIONS["modern"], LOCAL, None))
    error = result["structuredContent"]["error"] if result.get("isError") else {"code": "ok", "delivery": ""}
    return error["code"], error["delivery"]


async def test_a_server_that_cannot_be_read_any_more_is_started_anew(tmp_path: Path) -> None:
    """F28: each such answer fails its call at once; the fifth within a minute ends the session, and says so."""
    async with opened_rig(tmp_path, Place("stdio", "modern")) as rig:
        rig.faulty.switch("call garbled")
        for _ in range(GARBLED - 1):
            answer = await rig.call(rig.nonce())
            assert (answer.outcome, answer.delivery) == UNKNOWN
        assert (status(rig).state, status(rig).restarts) == ("ready", 0)
        seen: list[str] = []
        last = asyncio.ensure_future(rig.call(rig.nonce()))
        with anyio.fail_after(10):
            while status(rig).state == "ready":
                await asyncio.sleep(0.001)
            seen.append(status(rig).error)
        assert ((await last).outcome, (await last).delivery) == UNKNOWN
        assert seen[0].startswith("Server 'faulty' sent 5 answers within 60 s that cannot be read.")
        rig.faulty.switch("")
        await back(rig)
        assert status(rig).restarts == 1
        assert len({entry["pid"] for entry in rig.faulty.wire()}) == 2
        assert await rig.neighbour(3)


async def test_answers_that_are_only_too_long_are_no_reason_to_start_anew(tmp_path: Path) -> None:
    """F28, F30: they can be read; the one who asked for less is not to pay for it."""
    async with opened_rig(tmp_path, Place("stdio", "modern")) as rig:
        rig.faulty.switch("call 32-mib")
        for _ in range(GARBLED):
            with anyio.fail_after(10):
                await rig.call(rig.nonce())
        rig.faulty.switch("")
        await back(rig)
        assert status(rig).restarts == 0


async def test_a_tool_that_ends_its_server_takes_no_other_tool_with_it(tmp_path: Path) -> None:
    """F16: five ends within a minute, each call sent once; the pauses grow, and the other tool is served after them."""
    async with opened_rig(tmp_path, Place("stdio", "modern")) as rig:
        rig.faulty.switch("call crash-on-effect")
        ends = 0
        with anyio.fail_after(BACK_S):
            while ends < GARBLED:
                answer = await rig.call(nonce := rig.nonce())
                assert answer.outcome in ("upstream_failed", "breaker_open"), answer
                assert rig.faulty.arrivals(nonce) == (answer.delivery == "unknown")
                ends += answer.delivery == "unknown"
                await asyncio.sleep(0.05)
        await back(rig, "faulty:echo")
        assert status(rig).restarts >= GARBLED
        assert await rig.neighbour(3)
        answer = await rig.call(rig.nonce())
        assert (answer.outcome, answer.delivery) == UNKNOWN, "the fault is still there"


@pytest.mark.parametrize("fault", ["call reset", "call 503", "call reset-before"])
async def test_what_may_have_arrived_is_not_sent_again_even_if_it_only_reads(tmp_path: Path, fault: str) -> None:
    """F15: once, and the caller is told that it is not known."""
    async with opened_rig(tmp_path, Place("http", "modern")) as rig:
        rig.faulty.switch("list more-read-only")
        await rig.reconnect()
        await rig.settle()
        rig.faulty.switch(fault)
        assert await read(rig, nonce := rig.nonce()) == UNKNOWN
        assert rig.faulty.arrivals(nonce) == 1


async def test_what_was_not_sent_goes_to_the_server_that_came_back(tmp_path: Path) -> None:
    """F15: the server is gone before the call: it waits for the next one's start, and is carried out there, once."""
    async with opened_rig(tmp_path, Place("stdio", "modern")) as rig:
        rig.faulty.switch("call exit-after")
        assert (await rig.call(rig.nonce())).outcome == "ok"
        with anyio.fail_after(10):
            while status(rig).state == "ready":
                await asyncio.sleep(0.01)
        rig.faulty.switch("")
        with anyio.fail_after(BACK_S):
            while (answer := await rig.call(nonce := rig.nonce())).outcome != "ok":
                assert (answer.delivery, rig.faulty.arrivals(nonce)) == ("not_sent", 0)
                await asyncio.sleep(0.05)
        assert (rig.faulty.arrivals(nonce), rig.faulty.executions(nonce)) == (1, 1)
